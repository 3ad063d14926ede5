import contextlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from intraskill.core.errors import IntraSkillError, StateCorrupted, UserError
from intraskill.core.progress import Reporter
from intraskill.evaluate.folder import EvalFolder
from intraskill.evaluate.run import run_evaluation
from intraskill.evaluate.summarize import write_summary
from intraskill.rollout.jobs import Tally
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.lock import lock_holder

TINY = Path(__file__).resolve().parents[2] / "intraskill" / "assets" / "tiny" / "config.json"


class Killed(BaseException):
    """Stands for a kill: nothing on the way up may catch it."""


def without_time(summary: dict) -> dict:
    return {key: value for key, value in summary.items() if key not in ("time", "name", "fingerprint")}


def test_a_run_leaves_manifest_traces_and_summary(evaluate, read_traces):
    path, summary = evaluate()
    manifest, traces = json.loads((path / "manifest.json").read_text()), read_traces(path)
    assert (manifest["condition"], manifest["final_test"], len(manifest["jobs"])) == ("skill-free", False, 40)
    assert sorted((t["job"]["task_id"], t["job"]["sample_id"], t["job"]["seed"]) for t in traces) == [
        tuple(job) for job in manifest["jobs"]
    ]
    assert all(trace["provenance"]["fingerprint"] == manifest["fingerprint"] for trace in traces)
    assert json.loads((path / "summary.json").read_text()) == summary
    assert summary["coverage"]["coverage"] == 1.0
    assert lock_holder(path) is None


def test_an_equipped_run_shows_the_bank_and_says_so(evaluate, care_bank, read_traces):
    path, summary = evaluate(skills={"path": str(care_bank)})
    assert summary["condition"] == "equipped"
    assert all([s["skill_id"] for s in trace["selected_skills"]] == ["care"] for trace in read_traces(path))


@pytest.mark.parametrize("endpoint", [True, False])
def test_concurrency_leaves_no_mark(evaluate, name, endpoint):
    """Rolling (endpoint) and in waves (embedded): the same summary one by one and 64 at once."""
    policy = {"policy": {"base_url": "http://127.0.0.1:9/v1"}} if endpoint else {"policy": {"model": MODEL}}
    summaries = [evaluate(concurrency=c, name=f"{name}-{c}", repeats=2, **policy)[1] for c in (1, 64)]
    assert without_time(summaries[0]) == without_time(summaries[1])
    assert summaries[0]["fingerprint"] == summaries[1]["fingerprint"]


MODEL = "intraskill-test-model"


@pytest.fixture(autouse=True)
def _some_model(tmp_path, monkeypatch):
    """A model directory that is hashed but never loaded, for runs in waves with a policy of the test's own."""
    (tmp_path / MODEL).mkdir()
    (tmp_path / MODEL / "config.json").write_text("{}")
    (tmp_path / MODEL / "model.safetensors").write_bytes(b"")  # never loaded: the policy is a stand-in
    monkeypatch.chdir(tmp_path)


def test_no_more_than_the_allowed_number_runs_at_once(evaluate, shopper):
    policy = shopper()
    evaluate(policy, concurrency=6)
    assert policy.most_running == 6
    assert policy.running == 0


@pytest.mark.parametrize("endpoint", [True, False])
def test_killed_at_any_moment_and_resumed_every_episode_is_there_once(
    evaluate, make_settings, runs_dir, shopper, read_traces, endpoint
):
    policy = {} if endpoint else {"policy": {"model": MODEL}}
    whole, summary = evaluate(name=f"whole-{endpoint}", **policy)
    settings = make_settings(**policy)
    turns = sum(len(trace["steps"]) for trace in read_traces(whole))
    draw = random.Random(0)
    for _ in range(6):
        left = draw.randrange(1, turns // 3)

        def kill(session, attempt):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return False

        with contextlib.suppress(Killed):
            run_evaluation(settings, runs_dir / settings.name, Reporter(True), policy=shopper(kill))
    path, resumed = evaluate(**policy)
    assert without_time(resumed) == without_time(summary)
    assert len(read_traces(path)) == 40
    first, second = (json.loads((one / "manifest.json").read_text())["jobs"] for one in (whole, path))
    assert first == second


def test_the_bar_shows_the_live_mean_and_the_failures():
    tally = Tally()
    for completed, reward, success in ((True, 1.0, True), (True, 0.5, False), (False, 0.0, False)):
        tally.count(completed, reward, success)
    assert tally.note() == "reward 0.750  success 0.500  failed attempts 1"


def test_a_finished_run_asks_nothing_again(evaluate, shopper):
    evaluate()
    policy = shopper(lambda session, attempt: True)
    evaluate(policy)
    assert not policy.attempts


def test_resuming_runs_what_is_missing_and_nothing_else(evaluate, shopper, read_traces):
    path, _ = evaluate()
    lines = (path / "traces.jsonl").read_text().splitlines(keepends=True)
    (path / "traces.jsonl").write_text("".join(lines[:30]) + lines[30][:50])
    policy = shopper()
    evaluate(policy)
    assert len(policy.attempts) == 10
    assert len({trace["episode_id"] for trace in read_traces(path)}) == 40


@pytest.mark.parametrize("endpoint", [True, False])
def test_a_failed_episode_is_tried_once_more_and_counted(evaluate, shopper, read_traces, endpoint):
    policy = {} if endpoint else {"policy": {"model": MODEL}}
    victim = []

    def first_attempt(session, attempt):
        victim[:] = victim or [session]
        return session == victim[0] and attempt == 1

    path, summary = evaluate(shopper(first_attempt), **policy)
    coverage = summary["coverage"]
    assert (coverage["completed"], coverage["failed_attempts"], coverage["completed_after_retry"]) == (40, 1, 1)
    assert coverage["failures"] == {"policy: PolicyUnavailable": 1}
    assert len(read_traces(path)) == 41


def test_episodes_that_stay_failed_are_named_and_tried_by_the_next_start(evaluate, shopper, runs_dir, name):
    with pytest.raises(IntraSkillError, match=r"3 of 40 episodes could not be scored \(last failure: told to fail\)"):
        evaluate(shopper(lambda session, attempt: hash_of(session) in FAILING))
    summary = json.loads((runs_dir / name / "summary.json").read_text())
    coverage = summary["coverage"]
    assert (coverage["completed"], coverage["failed"], coverage["missing"]) == (37, 3, 0)
    assert summary["outcomes"]["reward"]["tasks"] == 37
    policy = shopper()
    _, summary = evaluate(policy)
    assert len(policy.attempts) == 3
    assert (summary["coverage"]["coverage"], summary["coverage"]["failed_attempts"]) == (1.0, 6)


FAILING: set[int] = set()


def hash_of(session: str) -> int:
    task = int(session.split("task-")[1].split("__")[0])
    if len(FAILING) < 3:
        FAILING.add(task)
    return task


def test_other_settings_are_refused_with_what_changed(evaluate):
    path, _ = evaluate()
    before = (path / "traces.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"jobs\.seed: 0 -> 1"):
        evaluate(seed=1)
    with pytest.raises(UserError, match=r"sampling\.temperature: 1\.0 -> 0\.5"):
        evaluate(policy={"base_url": "http://h/v1", "model": "shopper", "sampling": {"temperature": 0.5}})
    with pytest.raises(UserError, match=r"skills: null -> "):
        evaluate(skills={"path": "builtin:s0"})
    assert (path / "traces.jsonl").read_bytes() == before


def test_a_second_completed_record_is_an_error(evaluate):
    path, _ = evaluate()
    log = JsonlLog(path / "traces.jsonl")
    log.append(log.read()[3])
    with pytest.raises(StateCorrupted, match="is completed twice"):
        write_summary(EvalFolder(path))
    with pytest.raises(StateCorrupted, match="is completed twice"):
        evaluate()


def test_a_trace_of_another_job_list_is_an_error(evaluate):
    path, _ = evaluate(sample_size=20)
    log = JsonlLog(path / "traces.jsonl")
    row = log.read()[0]
    row["job"]["seed"] += 1
    log.keep_where(lambda r: r["episode_id"] != row["episode_id"])
    log.append(row)
    with pytest.raises(StateCorrupted, match="not in the manifest's job list"):
        write_summary(EvalFolder(path))


def test_an_edited_manifest_is_noticed(evaluate):
    path, _ = evaluate(sample_size=8)
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"max_steps": 10', '"max_steps": 20'))
    with pytest.raises(UserError, match="was edited"):
        write_summary(EvalFolder(path))


def test_the_test_split_is_recorded_as_final(evaluate, runs_dir, name):
    with pytest.raises(UserError, match="--final-test"):
        evaluate(split="test")
    assert not (runs_dir / name / "manifest.json").exists()
    path, summary = evaluate(split="test", final_test=True)
    assert summary["final_test"] is json.loads((path / "manifest.json").read_text())["final_test"] is True


def test_a_training_runs_folder_is_not_taken_over(evaluate, runs_dir, name):
    (runs_dir / name).mkdir()
    (runs_dir / name / "run.json").write_text("{}")
    with pytest.raises(UserError, match="folder of a training run"):
        evaluate()


def test_a_bug_in_one_episode_stops_the_run_and_frees_the_rest(evaluate, shopper):
    def bug(session, attempt):
        if len(policy.attempts) > 5:
            raise ZeroDivisionError
        return False

    policy = shopper(bug)
    with pytest.raises(ZeroDivisionError):
        evaluate(policy)
    assert policy.running == 0


ENDPOINT = """
name: {name}
split: val
repeats: 10
concurrency: 16
environment: {{world: {{generate: small}}}}
policy: {{base_url: "{url}", model: shopper}}
"""
EMBEDDED = """
name: {name}
split: val
concurrency: 50
environment: {{world: {{generate: full}}}}
policy: {{model: "builtin:tiny"}}
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("text", [ENDPOINT, EMBEDDED], ids=["endpoint", "embedded"])
def test_a_killed_process_resumes_to_400_unique_episodes(model_server, tmp_path, runs_dir, name, text):
    """The real command, 400 episodes, SIGKILL at random moments."""
    if text is EMBEDDED and not TINY.exists():
        pytest.skip("the warm-up checkpoint is not there")
    config = tmp_path / "eval.yaml"
    config.write_text(text.format(name=name, url=model_server.url))
    command = [sys.executable, "-m", "intraskill", "eval", "run", str(config), "--runs-dir", str(runs_dir), "--quiet"]
    draw, traces = random.Random(1), runs_dir / name / "traces.jsonl"
    for fraction in (0.1, 0.5):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        while process.poll() is None and lines_in(traces) < 400 * fraction:
            time.sleep(0.02)
        time.sleep(draw.random())
        process.kill()
        process.communicate()
    assert 0 < lines_in(traces) < 400
    manifest = (runs_dir / name / "manifest.json").read_bytes()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ids = [json.loads(line)["episode_id"] for line in traces.read_text().splitlines()]
    assert len(ids) == len(set(ids)) == json.loads(done.stdout)["coverage"]["completed"] == 400
    assert (runs_dir / name / "manifest.json").read_bytes() == manifest


def lines_in(path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
