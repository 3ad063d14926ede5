"""Every command in the documentation works, and every file it names is there.

Shell blocks are marked: ```bash run is executed line by line in an empty folder, ```bash check is long or open-ended,
so its programs, subcommands, options and files are checked (the long ones run in `test_journey.py`). Python blocks are
executed after the shell blocks of their page.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\S*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OURS = ("intraskill", "shopsimulator")
BIN = Path(sys.executable).parent


def blocks(page: Path, language: str, mark: str = "") -> list[str]:
    return [text for lang, info, text in BLOCK.findall(page.read_text()) if lang == language and info == mark]


def commands(mark: str) -> list[str]:
    lines = [line for page in PAGES for text in blocks(page, "bash", mark) for line in text.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def inline_commands() -> list[str]:
    """`intraskill ...` written inside a sentence."""
    spans = [span for page in PAGES for span in re.findall(r"`([^`\n]+)`", BLOCK.sub("", page.read_text()))]
    return [span for span in spans if span.split()[0] in OURS and " " in span]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_shell_block_says_how_it_is_tested(page: Path) -> None:
    for language, mark, _text in BLOCK.findall(page.read_text()):
        assert language in ("bash", "python", "mermaid", "json", "yaml")
        assert language != "bash" or mark in ("run", "check")


@pytest.mark.parametrize("command", [*commands("check"), *inline_commands()])
def test_programs_options_and_files_exist(command: str) -> None:
    words = shlex.split(command)
    program = words[0]
    if program.startswith("./"):
        assert os.access(ROOT / program, os.X_OK)
    elif program in OURS:
        check_cli(words)
    else:
        assert shutil.which(program)
    for word in words[1:]:
        if word.startswith(("configs/", "scripts/")):
            assert (ROOT / word).exists()


def check_cli(words: list[str]) -> None:
    subcommand = [word for word in words[1:3] if re.fullmatch(r"[a-z][a-z-]*", word)]
    while subcommand:
        shown = subprocess.run(
            [str(BIN / words[0]), *subcommand, "--help"], capture_output=True, text=True, check=False
        )
        if shown.returncode == 0:
            break
        subcommand.pop()
    assert subcommand, f"{words[0]} has no command {words[1]}"
    for option in [word for word in words if word.startswith("--")]:
        assert option in shown.stdout, f"{' '.join(words[:2])} has no {option}"


RUNNABLE = [page for page in PAGES if blocks(page, "bash", "run") or blocks(page, "python")]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_runnable_blocks_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    for text in blocks(page, "bash", "run"):
        done = subprocess.run(
            ["bash", "-euc", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    for text in blocks(page, "python"):
        subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_named_files_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert not target.startswith("http")
        assert (page.parent / target).exists()
    for name in re.findall(r"`((?:intraskill|configs|scripts|launch|docs)/[\w./]+)`", text):
        assert (ROOT / name).exists()


def test_settings_named_in_the_readme_exist() -> None:
    from intraskill.settings.models import RunSettings

    named = re.findall(
        r"`((?:policy|environment|report|gate|train|rollout)\.[a-z_.]+)", (ROOT / "README.md").read_text()
    )
    assert len(named) > 5
    for key in named:
        value: object = RunSettings(name="x")
        for part in key.strip(".").split("."):
            assert hasattr(value, part), key
            value = getattr(value, part)
