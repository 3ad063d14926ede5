"""What a run folder's files must hold, as far as whoever reads them back relies on it (`schema.py`)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0)]
Probability = Annotated[float, Meta(ge=0, le=1)]


class EnvironmentShape(Struct):
    family: str = ""


class PolicyShape(Struct):
    model: str = ""


class SettingsShape(Struct):
    rounds: Count = 0
    steps_per_round: Count = 0
    environment: EnvironmentShape = field(default_factory=EnvironmentShape)
    policy: PolicyShape = field(default_factory=PolicyShape)


class RunShape(Struct):
    """`run.json`, as far as a report shows it."""

    name: str = ""
    settings: SettingsShape = field(default_factory=SettingsShape)
    versions: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""


class StateShape(Struct):
    """`state.json`, as far as a report shows it."""

    step: Count = 0
    rounds_closed: Count = 0
    finished: bool = False


class MetricsRow(Struct):
    """One row of `metrics.jsonl`: what it is about, and numbers."""

    others: ClassVar[Any] = float | None

    kind: str
    round: int
    step: Count
    condition: str = ""


class StepRow(Struct):
    """One row of a round's logs: the training step it belongs to."""

    step: int


class LedgerShape(Struct):
    """One row of `ledger.jsonl`."""

    round: int
    candidate_id: str
    operation: str
    family: str
    text_key: str
    result: str
    cards: list[str]


class EffectShape(Struct):
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


class GateShape(Struct):
    """`contributions.json`."""

    round: int
    step: Count
    observations: Count
    contributions: list[EffectShape]
    estimator: str = ""
    complete: bool = True
    checkpoint_id: str = ""


class EffectEvidenceShape(Struct):
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


class BeliefShape(Struct):
    skill_id: str
    mean: float
    variance: float


class EvidenceShape(Struct):
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


class InclusionShape(Struct):
    skill_id: str
    contribution: float
    inclusion_probability: Probability


class CurriculumShape(Struct):
    """`curriculum.json`."""

    q: Probability
    contribution_scale: float
    chunks: list[InclusionShape]
    curriculum_id: str = ""
    bank_sha256: str | None = None
