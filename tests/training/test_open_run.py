"""What cannot be run is refused before anything is loaded or rolled out."""

from dataclasses import replace

import pytest

from intraskill.core.errors import UserError
from intraskill.training.open_run import check_run


def with_gate(settings, **changes):
    return settings.model_copy(update={"gate": settings.gate.model_copy(update=changes)})


def test_more_gate_tasks_than_validation_tasks_are_refused(settings, world, bank):
    with pytest.raises(UserError, match="validation split has 40 tasks"):
        check_run(with_gate(settings, tasks=41), world, bank)


def test_a_gate_that_could_never_be_fitted_is_refused(settings, world, bank):
    few = with_gate(settings, tasks=14)
    with pytest.raises(UserError, match=r"gate.tasks is 14, too few to tell 8 chunks and 6 candidates apart"):
        check_run(few, world, bank)
    check_run(few.model_copy(update={"analyst": few.analyst.model_copy(update={"kind": "none"})}), world, bank)


def test_a_draft_is_refused(settings, world, bank):
    with pytest.raises(UserError, match="draft that no gate has measured"):
        check_run(settings, world, replace(bank, draft_only=True))
