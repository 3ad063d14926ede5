"""A gate that ended incomplete, completed later at the checkpoint it stands for."""

from __future__ import annotations

from intraskill.core.errors import UserError
from intraskill.gate.result import GateResult
from intraskill.rollout.jobs import completed_outcomes
from intraskill.skills.bank import Bank, read_bank
from intraskill.storage.documents import read_json
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.run_documents import GateShape
from intraskill.training.driver import RoundDriver
from intraskill.training.round import evaluate_bank, gate_bank
from intraskill.training.run import Run


async def complete_gate(driver: RoundDriver, index: int) -> GateResult:
    """Run what an incomplete gate lacks, at the checkpoint it stands for; episodes it holds are not run again.

    If no step was taken since, the next round starts from what it selects, and the bank it selects is evaluated anew;
    else it only completes the record. After a kill, calling it again does what is left.
    Raises `UserError` when there is nothing to complete or the weights are others.
    """
    run, folder = driver.run, driver.run.folder.gate_dir(index)
    path = folder / "contributions.json"
    record = read_json(path, None, GateShape)
    latest = index + 1 == driver.round_index and driver.state.step == run.closing_step(index)
    if record.get("complete", True) and (not latest or _taken_up(run, index, driver.finished)):
        raise UserError(f"{path}: this gate is complete; nothing is left to run")
    if record.get("checkpoint_id") != driver.checkpoint:
        raise UserError(f"{path} stands for {record.get('checkpoint_id')}, the policy is {driver.checkpoint}")
    bank = run.bank if index < 0 else read_bank(run.folder.round_dir(index) / "skill_bank.json")
    result = await gate_bank(run, driver.checkpoint, index, bank)
    if latest and result.complete:
        if not driver.finished:
            driver.set_up_round(index + 1, result.bank)
        if _outdated(run, index, result.bank):
            (folder / "equipped.jsonl").unlink()
        await evaluate_bank(run, driver.checkpoint, index, result.bank)
    return result


def lacking_here(driver: RoundDriver) -> int | None:
    """The round that ended where the run stands now, if its gate is incomplete."""
    index = driver.round_index - 1
    path = driver.run.folder.gate_dir(index) / "contributions.json"
    if index < 0 or driver.state.step != driver.run.closing_step(index) or not path.exists():
        return None
    return None if read_json(path, None, GateShape).get("complete", True) else index


def _taken_up(run: Run, index: int, finished: bool) -> bool:
    """Whether the next round and the evaluation of the whole bank rest on what this gate selected."""
    folder, after = run.folder.gate_dir(index), run.folder.round_dir(index + 1) / "skill_bank.json"
    selected = read_bank(folder / "selected_skill_bank.json")
    if not finished and read_bank(after) != selected:
        return False
    scored = len(completed_outcomes(JsonlLog(folder / "equipped.jsonl")))
    whole = scored == run.settings.gate.tasks or not run.settings.evaluation.equipped
    return whole and not _outdated(run, index, selected)


def _outdated(run: Run, index: int, bank: Bank) -> bool:
    """Whether the round's evaluation of the whole bank showed other chunks than these."""
    shown = [(chunk.skill_id, chunk.visible()) for chunk in bank.chunks]
    rows = JsonlLog(run.folder.gate_dir(index) / "equipped.jsonl").read()
    return any([(skill["skill_id"], skill["content"]) for skill in row["selected_skills"]] != shown for row in rows)
