"""What a run folder's files must hold, for whoever reads them back.

A run may be looked at years after it ended, on another machine, after somebody opened a file in an editor. So the
parts of a file that a reader relies on are checked when it is read, and whatever does not fit is one line that names
the file, the key and the way out. What readers do not rely on may be missing or new.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]


class Shape(BaseModel):
    """Types are exact: a number in quotes is no number, and NaN is none either."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class EnvironmentShape(Shape):
    family: str = ""


class PolicyShape(Shape):
    model: str = ""


class SettingsShape(Shape):
    rounds: Count = 0
    steps_per_round: Count = 0
    environment: EnvironmentShape = EnvironmentShape()
    policy: PolicyShape = PolicyShape()


class RunShape(Shape):
    """`run.json`, as far as a report shows it."""

    name: str = ""
    settings: SettingsShape = SettingsShape()
    versions: dict[str, Any] = {}
    fingerprint: str = ""


class StateShape(Shape):
    """`state.json`, as far as a report shows it."""

    step: Count = 0
    rounds_closed: Count = 0
    finished: bool = False


class MetricsRow(Shape):
    """One row of `metrics.jsonl`: what it is about, and numbers."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]

    kind: str
    round: int
    step: Count
    condition: str = ""


class StepRow(Shape):
    """One row of a round's logs: the training step it belongs to."""

    step: int


class LedgerShape(Shape):
    """One row of `ledger.jsonl`."""

    round: int
    candidate_id: str
    operation: str
    family: str
    text_key: str
    result: str
    cards: list[str]


class EffectShape(Shape):
    """One intervention of a gate; a gate that is not complete has measured none."""

    intervention_id: str
    logical_chunk_id: str
    kind: str
    title: str = ""
    operation: str | None = None
    status: str = ""
    coefficient: float | None = None
    standard_error: float | None = None
    standard_error_hc3: float | None = None


class GateShape(Shape):
    """`contributions.json`."""

    round: int
    step: Count
    observations: Count
    estimator: str = ""
    complete: bool = True
    checkpoint_id: str = ""
    contributions: list[EffectShape]


class EffectEvidenceShape(Shape):
    """How well one intervention's effect is known. `mean` and `variance` are what is believed of it."""

    intervention_id: str
    logical_chunk_id: str
    status: str
    estimate: float
    standard_error: float
    smallest_effect: float
    mean: float
    variance: float
    helps: Probability


class BeliefShape(Shape):
    skill_id: str
    mean: float
    variance: float


class EvidenceShape(Shape):
    """`evidence.json`."""

    round: int
    step: Count
    checkpoint_id: str
    rule: str
    confidence: Probability
    expected_wrong_keeps: float
    expected_wrong_drops: float
    effects: list[EffectEvidenceShape]
    beliefs: list[BeliefShape]


class InclusionShape(Shape):
    skill_id: str
    contribution: float
    inclusion_probability: Probability


class CurriculumShape(Shape):
    """`curriculum.json`."""

    curriculum_id: str = ""
    bank_sha256: str | None = None
    q: Probability
    contribution_scale: float
    chunks: list[InclusionShape]
