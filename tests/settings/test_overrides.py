"""`key.path=value` on the command line: applied before anything is checked, and checked like the file."""

import pytest

from intraskill.core.errors import UserError
from intraskill.settings.files import load_settings


@pytest.fixture
def load(tmp_path):
    def load(*overrides, text="name: a\ntrain:\n  lr: 1.0e-3\n"):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return load_settings(path, overrides)

    return load


def test_values_are_written_as_in_the_file(load):
    settings = load("train.lr=1e-4", "train.betas=[0.8, 0.9]", "gate.tasks=40", "evaluation.greedy=false", "seed=010")
    assert settings.train.lr == 1e-4
    assert settings.train.betas == (0.8, 0.9)
    assert settings.gate.tasks == 40
    assert settings.evaluation.greedy is False
    assert settings.seed == 10


def test_a_section_can_be_given_as_a_whole_and_the_last_word_wins(load):
    settings = load("rollout={group_size: 4}", "rollout.group_size=6", "train.lr=2.0", "train.lr=3.0")
    assert settings.rollout.group_size == 6
    assert settings.train.lr == 3.0


def test_texts_may_hold_colons_and_equal_signs(load):
    assert load("bank=builtin:s0", "report.project=a=b").report.project == "a=b"


def test_null_is_a_value(load):
    text = "name: a\nanalyst: {url: 'http://127.0.0.1:1/v1'}\n"
    assert load("analyst.url=null", text=text).analyst.url is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lrr=1", "train.lrr=1: unknown key; did you mean 'lr'?"),
        ("trian.lr=1", "trian.lr=1: key trian: unknown key; did you mean 'train'?"),
        ("lr=1", "lr=1: unknown key; did you mean 'train.lr'?"),
        ("train={lrr: 1}", "train={lrr: 1}: key train.lrr: unknown key; did you mean 'lr'?"),
        ("gate.tasks=2", "gate.tasks=2: 2 does not fit; it should be greater than or equal to 8"),
        ("gate.tasks=many", 'gate.tasks=many: "many" does not fit; write a whole number'),
        ("train.lr=.nan", "train.lr=.nan: nan is not a finite number"),
        ("train.lr.x=1", "train.lr.x=1: train.lr is no section in the settings file"),
        ("rollout.kept_groups=15", "rollout.kept_groups=15: rollout.kept_groups (15) is not a multiple"),
        ("bank=", "bank=: nothing is not a text; give one"),
        ("bank=true", 'bank=true: true is not a text; put it in quotes: "true"'),
        ("gate.tasks", "gate.tasks: not an override; write KEY=VALUE"),
        ("gate..tasks=4", "gate..tasks=4: not an override"),
        ("=4", "=4: not an override"),
        ("bank=!ENV BANK", "bank=!ENV BANK: the tag !ENV is not supported"),
        ("train.betas=[1", "train.betas=[1: not valid YAML"),
        ("train={lr: 1, lr: 2}", "train={lr: 1, lr: 2}: key lr: already given"),
    ],
)
def test_a_mistake_names_the_override_and_the_remedy(load, override, message):
    with pytest.raises(UserError) as caught:
        load(override)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_override_can_mend_the_file(load):
    assert load("train.lr=1.0", text="name: a\ntrain: {lr: fast}\n").train.lr == 1.0


def test_the_command_line_is_told_before_the_file(load):
    with pytest.raises(UserError, match=r"^gate.tasks=2: .* \(1 more below\)$"):
        load("gate.tasks=2", text="name: a\nrounds: 0\n")
