from pathlib import Path

import pytest

from intraskill.core.errors import UserError
from intraskill.settings.files import load_settings
from intraskill.settings.models import RunSettings

PRESETS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "run.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_settings(path)

    return load


def test_a_short_file_is_filled_up_with_defaults(load):
    settings = load("name: first\ntrain:\n  lr: 1e-4 # YAML 1.2 number\n  betas: [0.9, 0.99]\n")
    assert settings.train.lr == 1e-4
    assert settings.train.betas == (0.9, 0.99)
    assert settings.rollout == RunSettings(name="x").rollout


@pytest.mark.parametrize(
    ("written", "number"), [("010", 10), ("+7", 7), ("-08", -8), ("0x1F", 31), ("0o17", 15), ("0", 0)]
)
def test_whole_numbers_are_read_as_yaml_1_2_has_them(load, written, number):
    assert load(f"name: a\nseed: {written}\n").seed == number


@pytest.mark.parametrize("word", ["2026-01-01", "no", "on", "Yes", "off", "1_000", "12e", "0o9", "=", "y"])
def test_what_only_yaml_1_1_takes_for_something_else_stays_text(load, word):
    assert load(f"name: a\nreport:\n  project: {word}\n").report.project == word


@pytest.mark.parametrize("written", [".5", "5e-1", "+.5", "0.5E+0", "05.e-1"])
def test_decimal_numbers_are_read_as_yaml_1_2_has_them(load, written):
    assert load(f"name: a\ncurriculum: {{q: {written}}}\n").curriculum.q == 0.5


def test_paths_name_a_place_wherever_the_run_is_continued(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load("name: a\nbank: b.json\npolicy: {model: ../models/m}\n")
    assert settings.bank == str(tmp_path / "b.json")
    assert settings.policy.model == str(tmp_path.parent / "models" / "m")
    assert load("name: a\nbank: builtin:s0\n").bank == "builtin:s0"
    world = load(
        "name: a\nenvironment:\n  world: {generate: null, catalog: a/b.json.gz, splits: a/s.json}\n"
    ).environment
    assert world.world.catalog == tmp_path / "a/b.json.gz"


@pytest.mark.parametrize("preset", ["quick.yaml", "laptop.yaml"])
def test_the_presets_run_all_four_rounds(preset):
    settings = load_settings(PRESETS / preset)
    assert settings.rounds == 4
    assert settings.name == preset.removesuffix(".yaml")


def test_the_laptop_preset_has_the_published_shape():
    settings = load_settings(PRESETS / "laptop.yaml")
    rollout, curriculum = settings.rollout, settings.curriculum
    assert (rollout.generated_groups, rollout.kept_groups, rollout.group_size) == (32, 16, 8)
    assert (settings.steps_per_round, settings.gate.tasks, settings.train.updates_per_step) == (20, 400, 2)
    assert (curriculum.q, curriculum.rho_min, curriculum.rho_max, settings.gate.budget) == (0.2, 0.2, 0.9, 10)
    assert settings.gate.estimator == "paired_delta"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: a\ntrain:\n  lrate: 1\n", 3, "key train.lrate: unknown key; did you mean 'lr'?"),
        ("name: a\nkept_groups: 8\n", 2, "key kept_groups: unknown key; did you mean 'rollout.kept_groups'?"),
        ("name: a\nx: 1\n", 2, "key x: unknown key; remove it, or use one of name, seed,"),
        ("name: a\nenvironment: {world: {generte: small}}\n", 2, "key environment.world.generte: unknown key; did you"),
        ("rounds: 4\n", 1, "key name: missing; add it"),
        ("name: 7\n", 1, 'key name: 7 is not a text; put it in quotes: "7"'),
        ("name: a/b\n", 1, 'key name: "a/b" does not fit; use letters'),
        ('name: a\nrounds: "4"\n', 2, 'key rounds: "4" does not fit; write a whole number, without quotes'),
        ("name: a\nrounds: yes\n", 2, 'key rounds: "yes" does not fit; write a whole number, without quotes'),
        ("name: a\nrounds: 1.5\n", 2, "key rounds: 1.5 does not fit; write a whole number, without quotes"),
        ("name: a\nrounds: 0\n", 2, "key rounds: 0 does not fit; it should be greater than or equal to 1"),
        ("name: a\ntrain:\n  lr: fast\n", 3, 'key train.lr: "fast" does not fit; write a number, without quotes'),
        ("name: a\ntrain:\n  lr: .nan\n", 3, "key train.lr: nan is not a finite number"),
        ("name: a\ntrain:\n  betas: 0.9\n", 3, "key train.betas: 0.9 does not fit; write a list: [a, b]"),
        ("name: a\ntrain:\n  betas:\n  - 0.9\n  - x\n", 5, 'key train.betas.1: "x" does not fit; write a number'),
        ("name: a\ntrain:\n", 2, "key train: holds nothing where a section is expected; indent its keys"),
        ("name: a\ntrain: 3\n", 2, "key train: holds 3 where a section is expected"),
        ("name: a\ntrain:\n  objective: grp\n", 3, "key train.objective: \"grp\" is not one of them; write 'grpo' or"),
        ("name: a\nevaluation:\n  greedy: 1\n", 3, "key evaluation.greedy: 1 does not fit; write true or false"),
        (
            "name: a\nreport:\n  wandb: off\n",
            3,
            "key report.wandb: \"off\" is not one of them; write 'offline', 'online'",
        ),
        (
            "name: a\ngate:\n\n  tasks: 2\nrounds: 0\n",
            4,
            "key gate.tasks: 2 does not fit; it should be greater than or",
        ),
        ("name: a\nname: b\n", 2, "key name: already given in line 1; keep one"),
        ("name: a\ntrain:\n  lr: 1.0\n  lr: 2.0\n", 4, "key train.lr: already given in line 3; keep one"),
        ("name: a\n1: b\n", 2, "a key must be a plain word, not '1'"),
        ("? [a]\n: b\n", 1, "a key must be a plain word, not a list or a section; rename it"),
        ("name: a\nseed: 99999999999999999999\n", 2, "key seed: the whole number is beyond 64 bits"),
        ('name: a\nbank: "\\ud800"\n', 2, "key bank: the text holds half of a character"),
        ("name: &n a\nbank: *n\n", 2, "aliases are not supported"),
        ("- name\n", 1, "settings are `key: value` lines"),
        ("# nothing\n", 1, "the file is empty; it needs at least `name: my-run`"),
        ("name: a\ntrain:\n\tlr: 1\n", 3, "not valid YAML"),
        ("name: a\ntrain: {lr: 1\n", 3, "not valid YAML"),
        ("name: a\n---\nname: b\n", 2, "not valid YAML"),
        ("name: a\nrounds: 1_000\n", 2, 'key rounds: "1_000" does not fit; write a whole number'),
        ("name: a\nseed: 1:30\n", 2, 'key seed: "1:30" does not fit; write a whole number'),
        ("name: a\ntrain:\n  lr: .inf\n", 3, "key train.lr: inf is not a finite number"),
        ("name: a\ntrain:\n  lr: 1e999\n", 3, "key train.lr: inf is not a finite number"),
        (f"name: a\nseed: {'9' * 5000}\n", 2, "key seed: the whole number is beyond 64 bits"),
        ("name: a\nevaluation:\n  greedy: no\n", 3, 'key evaluation.greedy: "no" does not fit; write true or false'),
        ("name: a\nbank: !ENV BANK\n", 2, "the tag !ENV is not supported; write the value out"),
        ("name: a\nbank: !!python/name:os.system x\n", 2, "the tag !!python/name:os.system is not supported"),
        ('name: a\nseed: !!int "3"\n', 2, "the tag !!int is not supported"),
        ("!x\nname: a\n", 1, "the tag !x is not supported"),
        ("name: a\n<<: {seed: 1}\n", 2, "key <<: unknown key"),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_remedy(load, tmp_path, text, line, message):
    with pytest.raises(UserError) as caught:
        load(text)
    assert str(caught.value).startswith(f"{tmp_path / 'run.yaml'}:{line}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "rollout:\n  generated_groups: 8\n  kept_groups: 16\n",
            4,
            "key rollout.kept_groups: kept_groups (16) is larger",
        ),
        ("rollout:\n  generated_groups: 8\n", 3, "key rollout.generated_groups: kept_groups (16) is larger"),
        ("rollout:\n  kept_groups: 15\n", 3, "key rollout.kept_groups: rollout.kept_groups (15) is not a multiple"),
        ("curriculum: {rho_min: 0.9, rho_max: 0.1}\n", 2, "key curriculum.rho_min: rho_min (0.9) is above rho_max"),
        ("policy:\n  sampling:\n    temperature: 0\n", 4, "key policy.sampling.temperature: training needs"),
        ("policy:\n  sampling:\n    top_p: 0.9\n", 3, "key policy.sampling: training needs top_p 1.0"),
        ("environment:\n  world:\n    catalog: c.json\n", 4, "key environment.world.catalog: catalog is given without"),
        ("environment:\n  world:\n    generate: null\n", 4, "key environment.world.generate: generate is null and"),
    ],
)
def test_an_impossible_combination_is_placed_at_a_key_it_is_about(load, tmp_path, text, line, message):
    with pytest.raises(UserError) as caught:
        load("name: a\n" + text)
    assert str(caught.value).startswith(f"{tmp_path / 'run.yaml'}:{line}: {message}")


def test_the_first_of_several_mistakes_is_told_with_their_number(load):
    with pytest.raises(UserError, match=r":2: key rounds: .* \(2 more below\)$"):
        load("name: a\nrounds: 0\nseed: x\nbnk: y\n")


def test_unreadable_files_are_the_users_to_mend(load, tmp_path):
    with pytest.raises(UserError, match=r"none.yaml: no such file"):
        load_settings(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        load_settings(tmp_path)
    with pytest.raises(UserError, match="not UTF-8"):
        load(b"name: \xff\n")
    with pytest.raises(UserError, match="not valid YAML"):
        load("name: a\x00b\n")


@pytest.mark.parametrize(
    "text",
    [
        "analyst:\n  api_key_env: sk-hidden\n",
        "analyst:\n  url: http://user:hidden@127.0.0.1:8000/v1\n",
        "analyst:\n  url: http://127.0.0.1:8000/v1?key=hidden\n",
        "environment:\n  url: http://user:hidden@127.0.0.1:8000\n",
    ],
)
def test_settings_never_hold_a_key_and_the_refusal_does_not_repeat_it(load, text):
    with pytest.raises(UserError, match=r"would be stored|name of an environment variable") as caught:
        load("name: a\n" + text)
    assert "hidden" not in str(caught.value)


def test_a_deeply_nested_file_is_refused(load):
    with pytest.raises(UserError, match="nested too deeply"):
        load("name: " + "[" * 5000 + "]" * 5000 + "\n")
