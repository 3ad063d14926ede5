"""A made-up run directory with every file a report reads, finished or stopped anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intraskill.settings.models import RunSettings
from intraskill.storage.documents import write_json_atomic
from intraskill.storage.fingerprint import fingerprint
from intraskill.storage.jsonl import JsonlLog

CHUNKS = {
    "brand-first": ("Put the usual brand into the query", 0.21),
    "recent-material": ("Search with the material looked at last", 0.17),
    "colour-click": ("Choose the colour the persona prefers", 0.12),
    "budget-size": ("Pick a size within the budget", 0.09),
    "be-polite": ("Thank the shop", 0.004),
    "hurry": ("Take the first result and buy at once", -0.11),
}
STEPS_PER_ROUND = 5


def bank(names: list[str]) -> dict[str, Any]:
    chunks = [
        {"skill_id": name, "version": 1, "title": CHUNKS[name][0], "applies_when": "always", "procedure": ["do it"]}
        for name in names
    ]
    return {"schema": "intraskill-bank-v1", "chunks": chunks}


class RunBuilder:
    """Writes a run directory piece by piece, as the round driver would."""

    def __init__(self, path: Path, rounds: int, seed: int = 0) -> None:
        self.path = path
        self.metrics = JsonlLog(path / "metrics.jsonl")
        self.active = list(CHUNKS)
        self.rounds = rounds
        self.random = np.random.default_rng(seed)

    def start(self) -> None:
        settings = RunSettings(name=self.path.name, rounds=self.rounds, steps_per_round=STEPS_PER_ROUND)
        document = {"schema": "intraskill-run-v1", "name": self.path.name, "settings": settings.model_dump(mode="json")}
        document |= {"fingerprint": fingerprint(settings.semantic()), "versions": {"intraskill": "0.1.0"}}
        write_json_atomic(self.path / "run.json", document)
        self.state(0, 0)

    def state(self, step: int, round_index: int, finished: bool = False) -> None:
        document = {"schema": "intraskill-state-v1", "phase": "train", "step": step, "rounds_closed": round_index}
        write_json_atomic(self.path / "state.json", document | {"finished": finished})

    def step(self, round_index: int, step: int) -> None:
        level = min(0.9, 0.3 + 0.02 * step + float(self.random.normal(0, 0.03)))
        row = {"kind": "step", "step": step, "round": round_index, "timing/step_s": 2.5}
        row |= {"rollout/shopsim/reward_mean": level + 0.03, "rollout/shopsim/success_rate": level}
        row |= {"rollout/shopsim/all_wrong_group_rate": 0.2, "rollout/shopsim/trajectory_count": 256}
        updates = [
            {
                "kind": "update",
                "round": round_index,
                "step": step,
                "train/step": 2 * step - 1 + half,
                "train/loss": 0.1 / step,
            }
            | {"train/entropy": 0.4, "train/grad_norm": 0.9, "train/log_prob_difference": 1e-5}
            for half in (0, 1)
        ]
        self.metrics.append_many([row, *updates])
        self.state(step, round_index)

    def evaluations(self, round_index: int, step: int) -> None:
        level = min(0.9, 0.3 + 0.02 * step)
        for condition, gain in (("skill_free", 0.0), ("skill_free_greedy", 0.04), ("equipped", 0.4 / (1 + step / 6))):
            row = {"kind": "evaluation", "round": round_index, "step": step, "condition": condition, "n": 400}
            row |= {"reward_mean": level + gain + 0.02, "success_rate": level + gain, "success_se": 0.024}
            self.metrics.append(row | {"reward_se": 0.023})

    def completed(self, round_index: int, step: int, success: float) -> None:
        """What `gate complete` adds: the gate's row and its evaluations once more."""
        row = {"kind": "gate", "round": round_index, "step": step, "gate/complete": 1}
        row |= {"gate/bare/success_rate": success, "gate/masked/success_rate": success}
        self.metrics.append(row)
        for condition in ("skill_free", "equipped"):
            row = {"kind": "evaluation", "round": round_index, "step": step, "condition": condition, "n": 400}
            self.metrics.append(row | {"reward_mean": success, "success_rate": success, "success_se": 0.02})

    def gate(self, round_index: int, step: int) -> None:
        shrink = 1 / (1 + step / 8)
        rows = []
        for order, name in enumerate(self.active):
            beta = CHUNKS[name][1] * shrink + float(self.random.normal(0, 0.01))
            row = {"intervention_id": name, "kind": "current", "logical_chunk_id": name, "operation": "KEEP"}
            row |= {"order": order, "coefficient": beta, "standard_error": 0.035, "standard_error_hc3": 0.036}
            row |= {"rank": order + 1, "status": "selected" if beta > 0 else "non_positive", "title": CHUNKS[name][0]}
            rows.append(row)
        selected = [row["intervention_id"] for row in rows if row["status"] == "selected"]
        bare, masked = min(0.9, 0.3 + 0.02 * step), min(0.92, 0.42 + 0.018 * step)
        directory = self.path / ("gate_a" if round_index < 0 else f"rounds/round-{round_index:03d}/gate")
        document = {"schema": "intraskill-contributions-v1", "round": round_index, "step": step, "observations": 400}
        document |= {"estimator": "paired_delta", "contributions": rows, "selected_intervention_ids": selected}
        document |= {"checkpoint_id": f"step-{step:04d}", "replacement_winners": {}, "bare_mean": bare}
        write_json_atomic(
            directory / "contributions.json", document | {"masked_mean": masked, "delta_mean": masked - bare}
        )
        write_json_atomic(directory / "selected_skill_bank.json", bank(selected))
        row = {"kind": "gate", "round": round_index, "step": step, "gate/complete": 1}
        row |= {"gate/bare/reward_mean": bare + 0.02, "gate/bare/success_rate": bare}
        row |= {"gate/masked/reward_mean": masked + 0.02, "gate/masked/success_rate": masked}
        row |= {"gate/reward/delta_mean": masked - bare, "gate/intervention_count": len(rows)}
        self.metrics.append(row | {"gate/selected_chunk_count": len(selected)})
        self.active = selected

    def open_round(self, round_index: int) -> None:
        directory = self.path / "rounds" / f"round-{round_index:03d}"
        write_json_atomic(directory / "skill_bank.json", bank(self.active))
        chunks = [{"skill_id": name, "contribution": 0.1, "inclusion_probability": 0.5} for name in self.active]
        write_json_atomic(directory / "curriculum.json", {"q": 0.2, "chunks": chunks, "contribution_scale": 0.2})

    def run(self, rounds: int) -> "RunBuilder":
        """Start, and go through `rounds` whole rounds."""
        self.start()
        self.evaluations(-1, 0)
        self.gate(-1, 0)
        for round_index in range(rounds):
            self.open_round(round_index)
            for step in range(round_index * STEPS_PER_ROUND + 1, (round_index + 1) * STEPS_PER_ROUND + 1):
                self.step(round_index, step)
            self.evaluations(round_index, step)
            self.gate(round_index, step)
        self.state(rounds * STEPS_PER_ROUND, rounds, finished=rounds == self.rounds)
        return self


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunBuilder]:
    """make_run(name, rounds) -> a RunBuilder for a run of that many rounds under the test's directory."""

    def build(name: str = "demo", rounds: int = 4) -> RunBuilder:
        return RunBuilder(tmp_path / "runs" / name, rounds)

    return build
