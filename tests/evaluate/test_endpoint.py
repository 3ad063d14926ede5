"""An evaluation against an endpoint that fails in every way it can."""

import json

import pytest

from intraskill.cli import main
from intraskill.core.errors import IntraSkillError, UserError
from intraskill.core.progress import Reporter
from intraskill.evaluate.run import run_evaluation


@pytest.fixture
def run(make_settings, runs_dir, model_server, monkeypatch):
    """run(**policy) -> (folder, summary) of 8 episodes over the server."""
    monkeypatch.setattr("intraskill.policies.retry.Retry.wait", lambda self, attempt: 0.0)

    def start(attempts=4, **policy):
        policy = {"base_url": model_server.url, "model": "shopper", "attempts": attempts, "timeout_s": 2.0, **policy}
        settings = make_settings(policy=policy, sample_size=8)
        path = runs_dir / settings.name
        return path, run_evaluation(settings, path, Reporter(True))

    return start


FAULTS = {
    "429": (429, {"Retry-After": "0"}, {"error": "slow down"}),
    "500": (500, {}, {"error": "oops"}),
    "503": (503, {}, b"<html>unavailable</html>"),
    "wrapped": (200, {}, {"error": {"message": "upstream"}}),
    "no json": (200, {}, b"<html>hello</html>"),
    "dropped": "drop",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_passing_faults_leave_no_mark_on_the_results(run, model_server, fault):
    seen = set()

    def twice(body):
        """The first two times a request is seen, for a third of the requests."""
        before = len([one for one in seen if one[0] == body["seed"]])
        seen.add((body["seed"], before))
        return FAULTS[fault] if body["seed"] % 3 == 0 and before < 2 else None

    model_server.fault = twice
    _, summary = run()
    assert summary["coverage"]["completed"] == 8
    assert summary["coverage"]["failed_attempts"] == 0


def test_lasting_faults_are_failures_and_never_zero_rewards(run, model_server, runs_dir, name):
    model_server.fault = lambda body: FAULTS["500"]
    with pytest.raises(IntraSkillError, match="8 of 8 episodes could not be scored"):
        run(attempts=2)
    summary = json.loads((runs_dir / name / "summary.json").read_text())
    assert summary["outcomes"]["reward"]["mean"] is None
    assert summary["coverage"]["failures"] == {"policy: PolicyUnavailable": 16}
    model_server.fault = lambda body: None
    _, summary = run(attempts=2)
    assert (summary["coverage"]["completed"], summary["coverage"]["failed_attempts"]) == (8, 16)


def test_protocol_errors_are_not_sampled_again(run, model_server):
    """Every reply without a call is one request, one step, and the episode's own fault."""
    empty = {"choices": [{"message": {"role": "assistant", "content": "hm"}, "finish_reason": "stop"}]}
    model_server.fault = lambda body: (200, {}, empty)
    _, summary = run()
    counted = sum(body["max_tokens"] == 1 for body in model_server.bodies)  # is an empty system message left empty?
    assert (counted, model_server.requests) == (2, 2 + 8 * 10)  # every step of every episode, asked once
    assert summary["coverage"]["completed"] == 8
    assert summary["steps"]["protocol_errors"] == 80
    assert summary["outcomes"]["reward"]["mean"] == 0.0
    assert summary["terminations"]["action_limit"]["count"] == 8


def test_max_tokens_beyond_the_servers_context_stop_the_evaluation(run, model_server):
    """Every episode would end in its first turn and look like a policy that never succeeds."""
    message = "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 4096"
    model_server.fault = lambda body: (400, {}, {"error": {"message": message}}) if body["max_tokens"] > 1 else None
    with pytest.raises(UserError, match=r"smaller policy\.sampling\.max_tokens"):
        run()


def test_the_checkpoint_id_is_recorded_and_not_sent(run, model_server):
    path, summary = run(checkpoint_id="secret-name-20")
    assert summary["checkpoint_id"] == "secret-name-20"
    assert "secret-name-20" not in json.dumps(model_server.bodies)
    assert "secret-name-20" in (path / "traces.jsonl").read_text()


def test_the_key_reaches_no_file(run, model_server, monkeypatch, runs_dir, name):
    """Not even when the server echoes it in the error that ends the episode."""
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    model_server.fault = lambda body: (500, {}, b"bad key sk-very-secret")
    with pytest.raises(IntraSkillError):
        run(api_key_env="SOME_KEY", attempts=1)
    files = [file.read_bytes() for file in (runs_dir / name).rglob("*") if file.is_file()]
    assert any(b"bad key ***" in content for content in files)
    assert not any(b"sk-very-secret" in content for content in files)


def test_a_refused_key_stops_at_once_with_one_line(run, model_server):
    model_server.fault = lambda body: (401, {}, {"error": "no"})
    with pytest.raises(UserError, match="refuses access"):
        run()
    assert model_server.requests <= 8


def test_a_mistyped_model_name_does_not_take_the_evaluations_name(run, model_server):
    model_server.fault = lambda body: None if body["model"] == "right" else (404, {}, {"error": "no such model"})
    with pytest.raises(UserError, match="knows no 'rihgt'"):
        run(model="rihgt")
    assert run(model="right")[1]["coverage"]["completed"] == 8
    with pytest.raises(UserError, match="holds another evaluation"):
        run(model="rihgt")


def test_a_proxy_does_not_come_between(run, monkeypatch):
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    _, summary = run()
    assert summary["coverage"]["completed"] == 8


def test_the_command_prints_one_json_value_and_exits_1_while_incomplete(
    model_server, runs_dir, name, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("intraskill.policies.retry.Retry.wait", lambda self, attempt: 0.0)
    config = tmp_path / "eval.yaml"
    config.write_text(
        f"name: {name}\nsample_size: 4\nenvironment: {{world: {{generate: small}}}}\n"
        f"policy: {{base_url: '{model_server.url}', model: m, attempts: 1}}\n"
    )
    words = [str(config), "--runs-dir", str(runs_dir)]
    codes = []
    for fault, command in ((FAULTS["500"], "run"), (None, "run"), (None, "summarize")):
        model_server.fault = lambda body, fault=fault: fault
        with pytest.raises(SystemExit) as caught:
            main(["eval", command, *words])
        codes.append((caught.value.code, capsys.readouterr()))
    assert [code for code, _ in codes] == [1, 0, 0]
    assert codes[0][1].out == ""
    assert codes[0][1].err.splitlines()[-1].startswith("error: ")
    assert json.loads(codes[1][1].out) == json.loads(codes[2][1].out)
