"""Who may import whom: one graph without a cycle, the layers of pyproject.toml, and what really gets loaded.

The graph is read from the source, imports inside functions and for type checkers included, and also what the registry
of task families names in texts: a cycle through a lazy import is a cycle.
"""

import ast
import graphlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
    "intraskill.storage.documents",
    "intraskill.storage.jsonl",
    "intraskill.storage.lock",
    "intraskill.settings.models",
    "intraskill.skills.bank",
    "intraskill.skills.curriculum",
    "intraskill.stats.ols",
    "intraskill.stats.paired",
    "intraskill.stats.decision_record",
    "intraskill.gate.estimators",
    "intraskill.gate.selection",
    "intraskill.objectives.advantages",
    "shopsimulator",
    "shopsimulator.engine",
]

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "intraskill").rglob("*.py"))
}
OWN_SEAM = ("base", "registry", "analysis")  # of `families`; everything else there is one family


def imports(path: Path) -> Iterator[str]:
    """The modules of this project that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by a relative name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else str(node.module) for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"intraskill[.\w]*:\w+", str(node.value)):
            yield str(node.value).partition(":")[0]


GRAPH = {name: {found for found in imports(path) if found in MODULES} - {name} for name, path in MODULES.items()}


def package(module: str) -> str:
    """The part of the project that a module belongs to, as the layers name them."""
    parts = module.split(".")
    if parts[1:2] == ["families"] and parts[2:] and parts[2] not in OWN_SEAM:
        return "intraskill.families.shop"  # or any other family
    return ".".join(parts[: 3 if parts[1:2] in (["backends"], ["families"]) else 2])


def layers() -> list[str]:
    """The layers of the import-linter contract from the bottom up."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"([^"]+)"', text.split("layers = [")[1].split("]")[0])[::-1]


def rank() -> dict[str, int]:
    return {name.strip(): place for place, layer in enumerate(layers()) for name in layer.split("|")}


def test_no_module_imports_itself_by_a_detour() -> None:
    try:
        tuple(graphlib.TopologicalSorter(GRAPH).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_every_package_has_its_layer() -> None:
    bare = {"intraskill", "intraskill.__main__", "intraskill.backends", "intraskill.families"}
    assert {package(module) for module in MODULES} - bare == rank().keys()


def test_imports_point_down_the_layers() -> None:
    places = rank()
    upwards = [
        f"{module} -> {found}"
        for module, others in GRAPH.items()
        for found in others
        if package(module) != package(found)
        and places.get(package(found), -1) >= places.get(package(module), len(places))
    ]
    assert upwards == []


def test_a_cycle_through_a_function_or_a_text_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text('def f():\n    from intraskill.core import seeds\n    return "intraskill.cli:main"\n')
    assert list(imports(file)) == ["intraskill.core.seeds", "intraskill.cli"]


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


SHOP_WORDS = {"search", "click", "persona", "purchase", "asin"}
SHOP_WORDS |= {f"{word}s" for word in SHOP_WORDS}


def words_of(line: str) -> set[str]:
    """The words of a line, those inside of snake_case and CamelCase names included."""
    runs = re.findall(r"[A-Za-z]+", line)
    return {part.lower() for run in runs for part in (run, *re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", run))}


def files_outside_the_shop() -> list[Path]:
    package = ROOT / "intraskill"
    places = [path for kind in ("py", "html", "css", "jinja") for path in package.rglob(f"*.{kind}")]
    private = (package / "families" / "shop", package / "assets")
    return sorted(path for path in places if not any(path.is_relative_to(folder) for folder in private))


def test_outside_its_family_nothing_speaks_of_the_shop() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {', '.join(sorted(words_of(line) & SHOP_WORDS))}"
        for path in files_outside_the_shop()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if words_of(line) & SHOP_WORDS
    ]
    assert found == []


def test_outside_its_family_nothing_imports_the_shop() -> None:
    imported = re.compile(r"^\s*(?:from|import)\s+(?:shopsimulator|intraskill\.families\.shop)\b", re.MULTILINE)
    assert [path for path in files_outside_the_shop() if imported.findall(path.read_text(encoding="utf-8"))] == []


def test_a_word_of_the_shop_is_noticed_in_names_and_sentences() -> None:
    for line in ("user_persona = 1", "class PurchaseTask:", "# it clicks", "the ASINs", "re.search(x)"):
        assert words_of(line) & SHOP_WORDS, line
    for line in ("research", "clickable = 1", "torch.searchsorted"):
        assert not words_of(line) & SHOP_WORDS, line
