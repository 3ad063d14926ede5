from pathlib import Path

import pytest

from intraskill.core.errors import UserError
from intraskill.evaluate.plan import check_guards, plan_jobs, plan_record, protocol_differences
from intraskill.evaluate.run import plan_evaluation
from intraskill.evaluate.settings import EvalSettings
from intraskill.settings.files import load_settings_as
from intraskill.skills.bank import Bank, Chunk, write_bank

TASKS = tuple(map(str, range(3, 200, 3)))


def test_the_same_settings_give_the_same_jobs_always(make_settings):
    settings = make_settings(sample_size=5, repeats=2, seed=7)
    jobs = plan_jobs(TASKS, settings)
    assert jobs == plan_jobs(tuple(reversed(TASKS)), settings)
    assert [(job.task_id, job.sample_id) for job in jobs[::2]] == [(t, 0) for t in ("18", "21", "42", "69", "117")]
    assert jobs[0].seed == 8494919088993038866
    assert len({job.seed for job in jobs}) == 10


def test_a_smaller_sample_is_part_of_a_larger_one(make_settings):
    small = {job.task_id for job in plan_jobs(TASKS, make_settings(sample_size=10))}
    assert small < {job.task_id for job in plan_jobs(TASKS, make_settings(sample_size=30))}
    assert small != {job.task_id for job in plan_jobs(TASKS, make_settings(sample_size=10, seed=1))}


def test_a_task_keeps_its_seed_whatever_else_is_drawn(make_settings):
    whole = {(job.task_id, job.sample_id): job.seed for job in plan_jobs(TASKS, make_settings(repeats=3))}
    for job in plan_jobs(TASKS, make_settings(sample_size=10)):
        assert whole[job.task_id, 0] == job.seed


@pytest.fixture
def fingerprint(make_settings, runs_dir):
    return lambda **changes: plan_evaluation(make_settings(**changes), runs_dir).fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"concurrency": 3},
        {"name": "other"},
        {"policy": {"base_url": "http://127.0.0.1:1234/v1", "model": "shopper", "timeout_s": 5, "attempts": 2}},
        {"environment": {"world": {"generate": "small"}, "timeout_s": 3, "url": "http://127.0.0.1:1"}},
    ],
)
def test_what_is_not_semantic_leaves_the_fingerprint_alone(fingerprint, changes):
    assert fingerprint(**changes) == fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"split": "test"},
        {"sample_size": 39},
        {"repeats": 2},
        {"skills": {"path": "builtin:s0"}},
        {"environment": {"world": {"generate": "small"}, "max_steps": 9}},
        {"environment": {"world": {"generate": "small", "seed": 1}}},
        {"policy": {"base_url": "http://127.0.0.1:9/v1", "model": "another"}},
        {"policy": {"base_url": "http://127.0.0.1:9/v1", "model": "shopper", "checkpoint_id": "step-20"}},
        {"policy": {"base_url": "http://127.0.0.1:9/v1", "model": "shopper", "prompt": "full"}},
        {"policy": {"base_url": "http://127.0.0.1:9/v1", "model": "shopper", "tool_schema": "dynamic"}},
        {"policy": {"base_url": "http://127.0.0.1:9/v1", "model": "shopper", "sampling": {"temperature": 0.6}}},
        {"policy": {"base_url": "http://127.0.0.1:9/v1", "model": "shopper", "extra_body": {"enable_thinking": True}}},
    ],
)
def test_what_is_semantic_changes_the_fingerprint(fingerprint, changes):
    assert fingerprint(**changes) != fingerprint()


def test_a_plan_says_what_would_run_and_asks_nobody(make_settings, runs_dir):
    settings = make_settings(
        skills={"path": "builtin:s0"}, environment={"world": {"generate": "small"}, "url": "http://127.0.0.1:9"}
    )
    record = plan_record(plan_evaluation(settings, runs_dir))
    assert (record["episodes"], record["tasks"], record["condition"]) == (40, 40, "equipped")
    assert record["first_task_ids"] == sorted(record["first_task_ids"], key=int)
    assert record["skills"]["ids"][0] == "usual-brand"
    assert not (runs_dir / settings.name).exists()


def test_embedded_weights_are_known_by_their_content(make_settings, runs_dir, tmp_path):
    def plan(directory):
        return plan_evaluation(make_settings(policy={"model": str(directory)}), runs_dir).fingerprint

    for directory in ("one", "two", "other"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "config.json").write_text("{}")
        (tmp_path / directory / "model.safetensors").write_bytes(b"2" if directory == "other" else b"1")
    (tmp_path / "two" / "optimizer.pt").write_bytes(b"moments")
    assert plan(tmp_path / "one") == plan(tmp_path / "two") != plan(tmp_path / "other")


def test_the_test_split_opens_on_purpose_only(make_settings, runs_dir):
    plan = plan_evaluation(make_settings(split="test"), runs_dir)
    with pytest.raises(UserError, match="--final-test"):
        check_guards(plan, False)
    check_guards(plan, True)
    with pytest.raises(UserError, match="split val"):
        check_guards(plan_evaluation(make_settings(), runs_dir), True)


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_bank_made_from_test_results_is_refused(make_settings, runs_dir, tmp_path, split):
    chunk = Chunk("a", title="A", applies_when="always", procedure=("look",))
    write_bank(tmp_path / "bank.json", Bank((chunk,), uses_test_outcomes=True))
    with pytest.raises(UserError, match="uses_test_outcomes"):
        plan_evaluation(make_settings(split=split, skills={"path": str(tmp_path / "bank.json")}), runs_dir)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sample_size": 41}, "val split has 40 tasks"),
        ({"policy": {"model": "nowhere"}}, "no config.json in nowhere"),
        ({"policy": {"base_url": "127.0.0.1:30000/v1"}}, "is no http"),
        ({"policy": {"base_url": "http://h/v1", "extra_body": {"temperature": 0}}}, "may not set temperature"),
        ({"skills": {"path": "nowhere.json"}}, "bank 'nowhere.json': no such file"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(make_settings, runs_dir, changes, says):
    with pytest.raises(UserError, match=says) as caught:
        plan_evaluation(make_settings(**changes), runs_dir)
    assert "\n" not in str(caught.value)


def test_an_empty_bank_is_not_skill_free_by_accident(make_settings, runs_dir, tmp_path):
    write_bank(tmp_path / "empty.json", Bank())
    with pytest.raises(UserError, match="path: null"):
        plan_evaluation(make_settings(skills={"path": str(tmp_path / "empty.json")}), runs_dir)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nsplt: val\n", ":2: key splt: unknown key; did you mean 'split'?"),
        ("name: a\nsplit: dev\n", ':2: key split: "dev" is not one of them'),
        ("name: a\npolicy:\n  api_key_env: KEY\n", ":3: key policy.api_key_env"),
        ("name: a\ntemperature: 0.6\n", "did you mean 'policy.sampling.temperature'?"),
    ],
)
def test_settings_files_are_checked_like_those_of_a_run(tmp_path, text, says):
    (tmp_path / "eval.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        load_settings_as(EvalSettings, tmp_path / "eval.yaml")
    assert says in str(caught.value)


CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("eval_*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_valid_and_named_after_their_files(config):
    settings = load_settings_as(EvalSettings, config)
    assert settings.name == config.stem.replace("_", "-")


def test_the_two_tiny_examples_can_be_compared(runs_dir):
    if not (CONFIGS.parent / "intraskill" / "assets" / "tiny" / "config.json").exists():
        pytest.skip("the warm-up checkpoint is not there")
    plans = [
        plan_evaluation(load_settings_as(EvalSettings, CONFIGS / f"{name}.yaml"), runs_dir)
        for name in ("eval_tiny", "eval_tiny_s0")
    ]
    assert protocol_differences(plans[0].semantic, plans[1].semantic) == []
    assert [plan.condition for plan in plans] == ["skill-free", "equipped"]
