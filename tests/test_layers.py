"""Who may import whom: the import-linter contracts, and what really gets loaded."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "wandb", "slime", "httpx", "matplotlib")

# Pure modules: no torch, no network, no W&B, not even indirectly.
PURE = [
    "intraskill",
    "intraskill.core.records",
    "intraskill.core.protocol",
    "intraskill.core.errors",
    "intraskill.storage.store",
    "intraskill.settings.models",
    "intraskill.skills.bank",
    "intraskill.skills.curriculum",
    "intraskill.stats.ols",
    "intraskill.stats.paired",
    "intraskill.gate.estimators",
    "intraskill.gate.selection",
    "intraskill.objectives.advantages",
    "shopsimulator",
    "shopsimulator.engine",
]


def loaded_after(statement: str) -> set[str]:
    """The heavy packages that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.split())


def test_import_contracts_hold() -> None:
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    if program is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_load_nothing_heavy(module: str) -> None:
    assert loaded_after(f"import {module}") == set()


def test_the_small_commands_start_without_torch_and_wandb() -> None:
    assert not loaded_after("import intraskill.cli") & {"torch", "transformers", "wandb", "matplotlib"}


def test_the_report_needs_neither_torch_nor_wandb() -> None:
    assert not loaded_after("import intraskill.report.html, intraskill.report.status") & {
        "torch",
        "transformers",
        "wandb",
    }


def test_a_module_that_loads_torch_is_noticed() -> None:
    pytest.importorskip("torch")
    assert "torch" in loaded_after("import intraskill.backends.embedded.trainer")
