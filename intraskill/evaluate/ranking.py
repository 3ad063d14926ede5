"""Does a gate's order of the chunks mean anything? Equip the top K, the bottom K and K random ones, and see.

K, the coefficients and the random seeds are fixed before anything runs. The chunks are those that the gate itself
showed, read back from its traces, at the very checkpoint that it measured; of a chunk and its rewrites, which must not
meet in one prompt, the better one stands for all. Ranking is by the signed coefficient, not by its size.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.evaluate.experiment import Arm, Contrast, Experiment
from intraskill.evaluate.policies import embedded_weights
from intraskill.gate.result import CONTRIBUTIONS_SCHEMA
from intraskill.settings.stored import open_settings
from intraskill.skills.bank import Bank, Chunk
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_documents import GateShape
from intraskill.storage.run_folder import RunFolder


def ranking(run: Path, gate: int, k: int | None, random_seeds: Sequence[int]) -> Experiment:
    """The experiment on gate `gate` (-1: Gate A). Raises `UserError` for a gate that ranks too few chunks."""
    settings, folder = open_settings(run), RunFolder(run)
    path = folder.gate_dir(gate) / "contributions.json"
    if not path.exists():
        raise UserError(f"{run}: gate {gate} has not been run (no {path.name}); choose another with --gate")
    record = read_json(path, CONTRIBUTIONS_SCHEMA, GateShape)
    ranked = rank(record, str(path))
    k = len(ranked) // 2 if k is None else k
    if not 1 <= k <= len(ranked) // 2:
        raise UserError(f"--k {k}: gate {gate} ranks {len(ranked)} chunks; choose 1 to {len(ranked) // 2}")
    chunks = shown_chunks(JsonlLog(folder.gate_dir(gate) / "masked.jsonl"), ranked)
    prompt_order = [row["intervention_id"] for row in record["contributions"]]
    step = record["step"]
    model = settings.policy.model if step == 0 else str(folder.checkpoint_dir(step).absolute())
    subsets = {f"top-{k}": ranked[:k], f"bottom-{k}": ranked[-k:]}
    subsets |= {f"random-{k}-seed-{seed}": random_subset(ranked, k, seed) for seed in random_seeds}
    arms = [Arm("free", model, record["checkpoint_id"], None)]
    for name, ids in subsets.items():
        bank = Bank(tuple(chunks[skill_id] for skill_id in prompt_order if skill_id in ids), notes=f"{name} of {path}")
        arms.append(Arm(name, model, record["checkpoint_id"], bank))
    facts = {"gate": gate, "step": step, "k": k, "ranked": ranked, "subsets": subsets, "selection_split": "val"}
    return Experiment("ranking", run, settings, tuple(arms), _contrasts(list(subsets)), facts)


def rank(record: Mapping[str, Any], where: str) -> list[str]:
    """Intervention ids by coefficient, largest first, one a family; ties keep the gate's order."""
    if not record.get("complete", True) or any(row.get("coefficient") is None for row in record["contributions"]):
        raise UserError(f"{where}: this gate is not complete, so its coefficients rank nothing; choose another gate")
    best: dict[str, Mapping[str, Any]] = {}
    for row in record["contributions"]:
        standing = best.get(row["logical_chunk_id"])
        if standing is None or row["coefficient"] > standing["coefficient"]:
            best[row["logical_chunk_id"]] = row
    rows = sorted(best.values(), key=lambda row: -row["coefficient"])
    return [row["intervention_id"] for row in rows]


def random_subset(ids: Sequence[str], k: int, seed: int) -> list[str]:
    """K of the ids, a pure function of (their set, k, seed)."""
    return random.Random(f"intraskill-ranking:{seed}").sample(sorted(ids), k)


def shown_chunks(masked: JsonlLog, ids: Sequence[str]) -> dict[str, Chunk]:
    """The chunks as a gate's masked run showed them, by id."""
    found: dict[str, Chunk] = {}
    for trace in masked.rows():
        try:
            for skill in trace["selected_skills"]:
                if skill["skill_id"] in ids and skill["skill_id"] not in found:
                    content = {**skill["content"], "procedure": tuple(skill["content"]["procedure"])}
                    found[skill["skill_id"]] = Chunk(**content, version=skill["version"])
        except (KeyError, TypeError) as error:
            raise StateCorrupted(f"{masked.path}: a record is no episode trace ({error}); restore the file") from error
        if len(found) == len(ids):
            return found
    missing = ", ".join(sorted(set(ids) - found.keys()))
    raise UserError(f"{masked.path}: {missing} never stood in a prompt there; rank another gate")


def _contrasts(arms: Sequence[str]) -> tuple[Contrast, ...]:
    top, bottom, *randoms = arms
    contrasts = [Contrast(f"{top} vs {bottom}", bottom, top, "does the order mean anything?")]
    contrasts += [Contrast(f"{top} vs {one}", one, top, "is the top better than chance?") for one in randoms]
    contrasts += [Contrast(f"{one} vs {bottom}", bottom, one, "is the bottom worse than chance?") for one in randoms]
    contrasts += [Contrast(f"{one} vs free", "free", one, "what these chunks add together") for one in arms]
    return tuple(contrasts)


def check_weights(experiment: Experiment) -> None:
    """Refuse embedded weights that are not those the gate measured. Raises `UserError`."""
    arm = experiment.arms[0]
    found = embedded_weights(arm.model)
    if not arm.checkpoint_id.endswith(found):
        raise UserError(
            f"{arm.model} holds the weights {found}, but the gate measured {arm.checkpoint_id}; restore that checkpoint"
        )
