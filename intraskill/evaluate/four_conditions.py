"""The headline experiment: the model before and after, each with and without its skills.

    base-free     the model training started from, no skill
    base-s0       the same with S0, the bank training started with
    final-free    the last gated checkpoint, no skill
    final-st      the same with S_T, the bank its gate left

What moved into the weights is final-free minus base-free; what must still stand in the prompt is the
**internalization gap**, final-st minus final-free.
"""

from __future__ import annotations

from pathlib import Path

from intraskill.core.errors import UserError
from intraskill.evaluate.experiment import Arm, Contrast, Experiment
from intraskill.settings.stored import open_settings
from intraskill.skills.bank import read_bank
from intraskill.storage.run_folder import RunFolder

CONTRASTS = (
    Contrast("internalization", "base-free", "final-free", "what training put into the weights"),
    Contrast("internalization_gap", "final-free", "final-st", "what must still stand in the prompt"),
    Contrast("initial_skills", "base-free", "base-s0", "what the initial bank adds to the untrained model"),
    Contrast("total", "base-free", "final-st", "training and skills together"),
    Contrast("pair_change", "base-s0", "final-st", "the two pairs; model and skills both changed: descriptive only"),
)


def four_conditions(run: Path) -> Experiment:
    """The experiment over the run's closed rounds. Raises `UserError` while no round is closed."""
    settings, folder = open_settings(run), RunFolder(run)
    closed = folder.read_state().rounds_closed
    if not closed:
        raise UserError(f"{run}: no round is closed yet, so there is no gated checkpoint; train on first")
    step = closed * settings.steps_per_round
    final = str(folder.checkpoint_dir(step).absolute())
    base_id, final_id = (f"{settings.name}/step-{number:04d}" for number in (0, step))
    s0 = read_bank(folder.round_dir(0) / "skill_bank.json")
    st = read_bank(folder.gate_dir(closed - 1) / "selected_skill_bank.json")
    arms = (
        Arm("base-free", settings.policy.model, base_id, None),
        Arm("base-s0", settings.policy.model, base_id, s0),
        Arm("final-free", final, final_id, None),
        Arm("final-st", final, final_id, st),
    )
    facts = {"rounds_closed": closed, "step": step, "selection_split": "val"}
    return Experiment("four-conditions", run, settings, arms, CONTRASTS, facts).without_empty_banks()
