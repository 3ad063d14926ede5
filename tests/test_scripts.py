"""The two set-up scripts, with the environment's programs replaced by ones that write down how they were called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ["launch/quickstart.sh", "scripts/test.sh", "scripts/environment.sh", ".ci/run"]

# `python -m pip install` and `python -m pytest` are written down; everything else goes to the real interpreter.
PYTHON_STUB = """#!/bin/sh
case "$1 $2 $3" in
  "-m pip install") echo "pip $*" >>"$CALLS"; printf '%b' "$PIP_SAYS"; exit "${PIP_EXIT:-0}" ;;
  "-m pytest "*) echo "pytest $*" >>"$CALLS"; echo "3 passed in 0.01s"; exit "${PYTEST_EXIT:-0}" ;;
esac
exec {real} "$@"
"""
PROGRAM_STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
[ "$(basename "$0")" != "${{FAILING:-}}" ]
"""


class Checkout:
    """A copy of the scripts in a folder with a space in its name, with a stubbed `.venv`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls_file = path.parent / "calls"
        for name in SCRIPTS:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, path / name)
        (path / "setup.py").write_text("# version 1\n")
        binaries = path / ".venv" / "bin"
        binaries.mkdir(parents=True)
        self._program(binaries / "python", PYTHON_STUB.replace("{real}", sys.executable))
        for name in ("intraskill", "ruff", "mypy", "lint-imports"):
            self._program(binaries / name, PROGRAM_STUB.replace("{{", "{").replace("}}", "}"))

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def run(self, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHON", "CALLS")}
        environment |= {"CALLS": str(self.calls_file), **variables}
        command = [str(self.path / script), *arguments]
        return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse_and_are_executable(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)
    assert name.endswith("environment.sh") or os.access(ROOT / name, os.X_OK)


def test_quickstart_installs_trains_and_says_where_the_curves_are(checkout: Checkout) -> None:
    done = checkout.run("launch/quickstart.sh")
    assert done.returncode == 0, done.stderr
    assert [call.split()[0] for call in checkout.calls] == ["pip", "intraskill"]
    assert checkout.calls[0].endswith("--editable .[local]")
    assert checkout.calls[1] == "intraskill train configs/quick.yaml"
    assert done.stdout == f"The curves: {checkout.path}/runs/quick/report/index.html\n"


def test_an_installation_says_what_it_downloads_as_it_goes(checkout: Checkout) -> None:
    said = (
        "Collecting torch==2.13.*\\n  Downloading torch-2.13.0.whl.metadata (30 kB)\\n"
        "  Downloading torch-2.13.0.whl (187.3 MB)\\nInstalling collected packages: torch, numpy\\n"
    )
    done = checkout.run("launch/quickstart.sh", PIP_SAYS=said)
    assert done.stderr.splitlines()[1:3] == [
        "  Downloading torch-2.13.0.whl (187.3 MB)",
        "Installing collected packages",
    ]


def test_a_second_start_installs_nothing(checkout: Checkout) -> None:
    checkout.run("launch/quickstart.sh")
    again = checkout.run("launch/quickstart.sh", "--seed", "1")
    assert [call.split()[0] for call in checkout.calls] == ["pip", "intraskill", "intraskill"]
    assert checkout.calls[-1] == "intraskill train configs/quick.yaml --seed 1"
    assert again.stdout == ""


def test_a_changed_setup_refreshes_the_environment(checkout: Checkout) -> None:
    checkout.run("launch/quickstart.sh")
    (checkout.path / "setup.py").write_text("# version 2\n")
    checkout.run("launch/quickstart.sh")
    assert [call.split()[0] for call in checkout.calls] == ["pip", "intraskill", "pip", "intraskill"]


def test_a_failed_installation_stops_and_is_tried_again(checkout: Checkout) -> None:
    failed = checkout.run("launch/quickstart.sh", PIP_EXIT="1")
    assert failed.returncode == 2
    assert failed.stderr.splitlines()[-1].startswith("error: the installation failed")
    checkout.run("launch/quickstart.sh")
    assert [call.split()[0] for call in checkout.calls] == ["pip", "pip", "intraskill"]


def test_a_failed_training_is_not_reported_as_a_result(checkout: Checkout) -> None:
    failed = checkout.run("launch/quickstart.sh", FAILING="intraskill")
    assert failed.returncode == 1
    assert failed.stdout == ""


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/nowhere/python3", "no such program"),
        ("/bin/true", "not a working Python"),
        ("/bin/false", "not a working Python"),
    ],
)
def test_an_unusable_python_is_one_clear_line(checkout: Checkout, python: str, words: str) -> None:
    shutil.rmtree(checkout.path / ".venv")
    done = checkout.run("launch/quickstart.sh", PYTHON=python)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_without_any_recent_python_the_remedy_is_named(checkout: Checkout, tmp_path: Path) -> None:
    shutil.rmtree(checkout.path / ".venv")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "env"):
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "python3").symlink_to("/bin/false")
    done = checkout.run("launch/quickstart.sh", PATH=str(programs))
    assert done.returncode == 2
    assert done.stderr.startswith("error: no Python 3.10 or newer found")
    assert done.stderr.count("\n") == 1


def test_a_real_environment_is_made_and_a_broken_one_is_replaced(checkout: Checkout) -> None:
    (checkout.path / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    done = checkout.run("launch/quickstart.sh", PYTHON=sys.executable, PIP_NO_INDEX="1")
    assert done.returncode == 2
    assert "making .venv with Python" in done.stderr
    assert "error: the installation failed" in done.stderr
    inside = checkout.path / ".venv" / "bin" / "python"
    code = "import sys; print(sys.prefix)"
    prefix = subprocess.run([str(inside), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(prefix) == checkout.path / ".venv"
    assert not list((checkout.path / ".venv").glob("installed-*"))


def test_the_checks_run_in_order_and_pytest_speaks_last(checkout: Checkout) -> None:
    done = checkout.run("scripts/test.sh", "tests/report", "-x")
    assert done.returncode == 0, done.stderr
    assert [call.split()[0] for call in checkout.calls] == ["pip", "ruff", "ruff", "mypy", "lint-imports", "pytest"]
    assert checkout.calls[0].endswith("--editable .[dev]")
    assert checkout.calls[-1] == "pytest -m pytest -m not slow and not slime tests/report -x"
    assert done.stdout.splitlines()[-1] == "3 passed in 0.01s"


def test_slow_tests_are_asked_for(checkout: Checkout) -> None:
    checkout.run("scripts/test.sh", "--slow")
    assert checkout.calls[-1] == "pytest -m pytest -m not slime"


@pytest.mark.parametrize("failing", ["ruff", "mypy", "lint-imports"])
def test_a_failed_check_fails_the_script_after_all_tests_ran(checkout: Checkout, failing: str) -> None:
    done = checkout.run("scripts/test.sh", FAILING=failing)
    assert done.returncode == 1
    assert f"FAILED  {failing}" in done.stderr
    assert checkout.calls[-1].startswith("pytest")


def test_failed_tests_fail_the_script(checkout: Checkout) -> None:
    assert checkout.run("scripts/test.sh", PYTEST_EXIT="1").returncode == 1


def test_ci_runs_the_test_script_and_nothing_else(checkout: Checkout) -> None:
    assert checkout.run(".ci/run").returncode == 0
    assert checkout.calls[-1] == "pytest -m pytest -m not slow and not slime"
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("exec ./scripts/test.sh")
