"""Measure skill evolution in a world whose bank lacks one skill.

    python scripts/bench_evolution.py growth --seeds 0 1 2     # rules against none, paired over validation tasks
    python scripts/bench_evolution.py proposals runs/RUN       # verified purchases, leaks, over a finished run
    python scripts/bench_evolution.py throughput runs/RUN      # cards a minute, and what a training step loses

`growth` trains configs/missing_skill.yaml twice for every seed, with the analyst and with none (runs that are finished
are not run again), and compares their last equipped validation runs task by task. `proposals` searches every text that
a policy can see for every asin, title and task id of the catalog. `throughput` analyses a run's failed retries again by
themselves, and tells what the analysis took of the run's steps; with `--against RUN` (the same run without analyst) it
also compares the steps of round 0, which are the same work in both. Prints one JSON value.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from intraskill.evolution.proposer import failed_retries, open_analyst
from intraskill.families.analysis import Case
from intraskill.families.shop.family import open_shop
from intraskill.rollout.jobs import outcome
from intraskill.settings.stored import open_settings
from intraskill.skills.bank import Chunk, read_bank
from intraskill.stats.paired_record import paired_record, unit_bounds
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_folder import RunFolder

CONFIG = "configs/missing_skill.yaml"
MISSING = "colour"


def growth(seeds: Sequence[int], config: str, runs: Path) -> dict[str, Any]:
    """Both arms for every seed; the missing skill's way through the gates, and paired differences."""
    per_seed, pooled = [], ([], [])  # type: tuple[list[dict[str, Any]], tuple[list[float], list[float]]]
    for seed in seeds:
        arms = {kind: _train(config, runs, kind, seed) for kind in ("none", "rules")}
        last = max(int(path.parent.parent.name[-3:]) for path in arms["rules"].glob("rounds/*/gate/equipped.jsonl"))
        bare, grown = (_equipped(arms[kind], last) for kind in ("none", "rules"))
        tasks = sorted(bare.keys() & grown.keys())
        first, second = [bare[task] for task in tasks], [grown[task] for task in tasks]
        pooled[0].extend(first)
        pooled[1].extend(second)
        per_seed.append({"seed": seed, "admitted": _admitted(arms["rules"]), "final": _paired(first, second)})
    differences = [entry["final"]["mean_difference"] for entry in per_seed]
    return {
        "seeds": per_seed,
        "pooled": _paired(*pooled),
        "mean_over_seeds": statistics.mean(differences),
        "seed_standard_error": statistics.stdev(differences) / math.sqrt(len(differences)) if differences[1:] else None,
        "admitted_within_two_rounds": sum(
            any(item["round"] <= 1 and item["result"] == "selected" for item in entry["admitted"]) for entry in per_seed
        ),
    }


def proposals(run: Path) -> dict[str, Any]:
    """Share of proposals with a proved purchase, and hits of the catalog's private words in anything deployable."""
    settings = open_settings(run)
    catalog = open_shop(settings.environment.offline(), run.parent / ".worlds").catalog
    cards = [row for path in sorted(run.glob("rounds/*/analysis/cards.jsonl")) for row in JsonlLog(path).read()]
    proposed = [card for card in cards if card["outcome"] != "NO_PROPOSAL"]
    proved = sum(card["privileged_audit"]["verified"] for card in proposed)
    texts = [text.lower() for text in _visible_texts(run)]
    numbers = {number for text in texts for number in re.findall(r"\d+", text)}
    hits = {
        "asin": [p.asin for p in catalog.products.values() if any(p.asin.lower() in text for text in texts)],
        "title": [p.title for p in catalog.products.values() if any(p.title.lower() in text for text in texts)],
        "task_id": [task for task in catalog.tasks if str(task) in numbers],
    }
    return {
        "cards": len(cards),
        "proposals": len(proposed),
        "proved_share": proved / len(proposed) if proposed else None,
        "texts_searched": len(texts),
        "products": len(catalog.products),
        "hits": {name: found[:5] for name, found in hits.items()},
        "hit_count": sum(map(len, hits.values())),
    }


def throughput(run: Path, limit: int, against: Path | None) -> dict[str, Any]:
    """Cards a minute on a quiet machine; and what the analysis took of the run's training time."""
    import asyncio

    settings, folder = open_settings(run), RunFolder(run)
    shop = open_shop(settings.environment.offline(), run.parent / ".worlds")
    analyst = open_analyst(settings, shop.evolution())
    cases = []
    for path in sorted(run.glob("rounds/*/retries.jsonl")):
        bank = read_bank(path.parent / "skill_bank.json")
        cases += [
            Case(row, bank, "bench", row["step"], row["group_index"]) for row in failed_retries(JsonlLog(path).read())
        ]
    cases = cases[:limit]
    started = time.monotonic()
    for case in cases:
        asyncio.run(analyst.analyse(case))
    seconds = time.monotonic() - started
    analysis = [row["timing/analysis_s"] for row in folder.metrics.read() if row["kind"] == "analysis"]
    steps = _step_seconds(run)
    slower = None
    if against is not None:
        slower = statistics.mean(_step_seconds(run, 0)[1:]) / statistics.mean(_step_seconds(against, 0)[1:]) - 1
    return {
        "cards": len(cases),
        "cards_per_minute": 60 * len(cases) / seconds if cases else None,
        "round_0_steps_slower_by": slower,
        "step_seconds_mean": statistics.mean(steps),
        "analysis_seconds_total": sum(analysis),
        "analysis_share_of_step_time": sum(analysis) / sum(steps),
    }


def _step_seconds(run: Path, index: int | None = None) -> list[float]:
    """Rollout and training seconds of each step, of one round or of all."""
    rows = [row for row in RunFolder(run).metrics.read() if row["kind"] == "step" and index in (None, row["round"])]
    return [row["timing/rollout_s"] + row["timing/train_s"] for row in rows]


def _train(config: str, runs: Path, kind: str, seed: int) -> Path:
    """Train one arm, or find it finished."""
    text = Path(config).read_text(encoding="utf-8")
    name = f"evolution-{kind}"
    arm = runs / f"{name}.yaml"
    arm.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"(?m)^name: .*$", f"name: {name}", re.sub(r"(?m)^  kind: (rules|none).*$", f"  kind: {kind}", text))
    arm.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "intraskill", "train", str(arm), "--runs-dir", str(runs), "--seed", str(seed)]
    subprocess.run([*command, "--quiet"], check=True)
    return runs / f"{name}-seed{seed}"


def _equipped(run: Path, index: int) -> dict[int, float]:
    rows = JsonlLog(RunFolder(run).gate_dir(index) / "equipped.jsonl").read()
    return {done.task_id: float(done.success) for done in map(outcome, rows) if done.completed}


def _admitted(run: Path) -> list[dict[str, Any]]:
    """What became of every candidate for the missing skill."""
    keys = ("round", "operation", "result", "effect", "standard_error", "rank", "applies_when")
    rows = [row for row in RunFolder(run).ledger.read() if row["mechanism"] == MISSING]
    return [{key: row[key] for key in keys} for row in rows if row["candidate_id"].startswith("online-")]


def _paired(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    return paired_record(first, second, bounds=unit_bounds(first, second))


def _visible_texts(run: Path) -> Iterator[str]:
    """Every text of every candidate and bank of the run that a policy can see."""
    for path in sorted(run.glob("rounds/*/analysis/candidates.json")):
        for item in read_json(path)["candidates"]:
            chunk = item["chunk"]
            yield from _texts(Chunk(**{**chunk, "procedure": tuple(chunk["procedure"])}))
    for path in sorted([*run.rglob("*skill_bank.json")]):
        for chunk in read_bank(path).chunks:
            yield from _texts(chunk)


def _texts(chunk: Chunk) -> tuple[str, ...]:
    return chunk.title, chunk.applies_when, *chunk.procedure, chunk.verify, chunk.avoid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    grow = commands.add_parser("growth")
    grow.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    grow.add_argument("--config", default=CONFIG)
    grow.add_argument("--runs", type=Path, default=Path("runs"))
    for name in ("proposals", "throughput"):
        commands.add_parser(name).add_argument("run", type=Path)
    commands.choices["throughput"].add_argument("--limit", type=int, default=200)
    commands.choices["throughput"].add_argument("--against", type=Path, default=None)
    given = parser.parse_args()
    if given.command == "growth":
        result = growth(given.seeds, given.config, given.runs)
    elif given.command == "proposals":
        result = proposals(given.run)
    else:
        result = throughput(given.run, given.limit, given.against)
    print(json.dumps(result, ensure_ascii=False, indent=2))


if __name__ == "__main__":
    main()
