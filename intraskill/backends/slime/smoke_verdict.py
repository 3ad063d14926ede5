"""What came out of a smoke run, and whether it is what must come out.

A finished run has complete gates; every step was sampled with one set of weights, newer than the last step's; and
the policy without skills is no worse at the end than at the start, as far as some dozens of tasks can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from intraskill.backends.slime.arguments import SlimeRunSettings
from intraskill.backends.slime.timing import TimingLog, overhead
from intraskill.core.errors import IntraSkillError
from intraskill.families.registry import DEFAULT
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_folder import RunFolder

NOISE_SE = 3.0  # standard errors by which success may fall without meaning anything
Row = Mapping[str, Any]


class SmokeFailed(IntraSkillError):
    """A process of the smoke run ended as it should not, or the run's record is not what it must be."""


def judge(folder: RunFolder, settings: SlimeRunSettings) -> str:
    """The run in a few lines. Raises `SmokeFailed` naming everything that is wrong with it."""
    state, rows = folder.read_state(), folder.metrics.read()
    if not state.finished:
        raise SmokeFailed(f"{folder.path}: the job ended, but the run is at step {state.step}; see job.log")
    versions = weight_versions(folder, settings.rounds)
    lines = [
        *(_gate_line(row) for row in rows if row["kind"] == "gate"),
        *(_step_line(row, versions.get(row["step"], ())) for row in rows if row["kind"] == "step"),
        *_time_lines(TimingLog(folder.path).rounds(settings.steps_per_round)),
    ]
    if found := problems(rows, versions):
        raise SmokeFailed("\n".join([*lines, f"{folder.path}: {'; '.join(found)}"]))
    return "\n".join(lines)


def weight_versions(folder: RunFolder, rounds: int) -> dict[int, list[str]]:
    """Training step -> the weight versions its episodes were sampled with."""
    found: dict[int, set[str]] = {}
    for index in range(rounds):
        for group in JsonlLog(folder.round_dir(index) / "groups.jsonl").read():
            found.setdefault(group["step"], set()).update(group["weight_versions"])
    return {step: sorted(versions) for step, versions in sorted(found.items())}


def problems(rows: Sequence[Row], versions: Mapping[int, Sequence[str]]) -> list[str]:
    """What must not be in the record of a finished run."""
    gates = [row for row in rows if row["kind"] == "gate"]
    found = [f"the gate of round {row['round']} is incomplete" for row in gates if not row["gate/complete"]]
    found += [f"step {step} mixes the weights {', '.join(seen)}" for step, seen in versions.items() if len(seen) != 1]
    if len({tuple(seen) for seen in versions.values()}) < len(versions):
        found.append("two steps were sampled with the same weights")
    scores = [row for row in rows if row["kind"] == "evaluation" and row["condition"] == "skill_free"]
    before, after = scores[0], scores[-1]
    noise = NOISE_SE * (before["success_se"] ** 2 + after["success_se"] ** 2) ** 0.5
    if after["success_rate"] < before["success_rate"] - noise:
        found.append(f"skill-free success fell from {before['success_rate']:.3f} to {after['success_rate']:.3f}")
    return found


def _gate_line(row: Row) -> str:
    masked = row.get("gate/masked/reward_mean", float("nan"))
    return (
        f"gate {row['round']:>2} at step {row['step']}: skill-free success {row['gate/bare/success_rate']:.3f}, "
        f"reward {row['gate/bare/reward_mean']:.3f}, with random skills {masked:.3f}, "
        f"{row['gate/selected_chunk_count']:.0f} chunks kept, {row['timing/gate_s']:.1f} s"
    )


def _step_line(row: Row, versions: Sequence[str]) -> str:
    success = row[f"{DEFAULT.metric_prefix}success_rate"]
    return f"step {row['step']}: weights {'+'.join(versions)}, success {success:.3f}, {row['timing/rollout_s']:.1f} s"


def _time_lines(rounds: Mapping[int, Mapping[str, float]]) -> list[str]:
    lines = []
    for index, phases in sorted(rounds.items()):
        spent = overhead(phases)
        said = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.items())
        lines.append(
            f"round {index:>2}: episodes {phases.get('episodes', 0.0):.1f} s, training {phases.get('train', 0.0):.1f} "
            f"s, overhead {sum(spent.values()):.1f} s ({said})"
        )
    return lines
