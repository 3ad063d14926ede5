"""Settings: read once at the edge, validated as a whole, passed down as plain values.

`RunSettings` is what one YAML file says. Unknown keys, wrong types and impossible combinations are refused with
one line naming file, line, key and remedy. Units stand in the names. `semantic()` is the part that decides what
a run *means*; paths, concurrency and reporting are left out of it, so they may change between a kill and a resume.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from intraskill.core.records import PROMPT_FILES, STYLES, Style, ToolSchema
from intraskill.core.settings import PathText, Settings, Url, VariableName, absolute
from intraskill.families.registry import DEFAULT, AnyFamilySettings

Beta = Annotated[float, Field(ge=0, lt=1)]


class SamplingSettings(Settings):
    temperature: float = Field(1.0, ge=0, le=5)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1)
    max_tokens: int = Field(32, ge=1, description="sampled tokens of one turn at most")


class PolicySettings(Settings):
    """The model that acts. `builtin:tiny` is the warm-up checkpoint that ships with the package."""

    model: PathText = Field("builtin:tiny", description="Hugging Face causal LM directory, or builtin:tiny")
    prompt: str = Field("compact", description="prompt template: full, compact, or a Jinja file of your own")
    tool_schema: ToolSchema = "static"
    sampling: SamplingSettings = SamplingSettings()
    sampler_dtype: Literal["float32", "bfloat16"] = "bfloat16"
    threads: int = Field(0, ge=0, description="CPU threads for torch; 0 = all cores, or OMP_NUM_THREADS")

    @field_validator("prompt")
    @classmethod
    def _style_or_file(cls, prompt: str) -> str:
        if prompt in STYLES:
            return prompt
        if not prompt.endswith(PROMPT_FILES):
            raise ValueError(f"{prompt!r} is no prompt; use {' or '.join(STYLES)}, or a file {'/'.join(PROMPT_FILES)}")
        return absolute(prompt)

    @property
    def style(self) -> Style:
        """How chunks are written for this model; a prompt of one's own gets the whole text."""
        return "compact" if self.prompt == "compact" else "full"


class RolloutSettings(Settings):
    """One step's groups: generate a wave, keep what carries a learning signal."""

    group_size: int = Field(8, ge=2)
    generated_groups: int = Field(32, ge=1, description="groups submitted in one wave")
    kept_groups: int = Field(16, ge=1, description="groups that reach the trainer")
    order: Literal["submission", "completion"] = "submission"
    technical_limit: int = Field(8, ge=1, description="unscorable groups in a row that stop the run")
    max_waves: int = Field(4, ge=1, description="waves in one step at most; then the step trains on what it kept")

    @model_validator(mode="after")
    def _enough_groups(self) -> RolloutSettings:
        if self.kept_groups > self.generated_groups:
            raise ValueError(
                f"kept_groups ({self.kept_groups}) is larger than generated_groups ({self.generated_groups}); "
                "generate at least as many groups as are kept"
            )
        return self


class TrainSettings(Settings):
    lr: float = Field(1.5e-4, gt=0)
    updates_per_step: int = Field(2, ge=1)
    warmup_updates: int = Field(0, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    clip_low: float = Field(0.2, ge=0, lt=1, description="a token's probability may fall by this share")
    clip_high: float = Field(0.28, ge=0, description="and rise by this one, before its gradient is cut")
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL penalty against the starting checkpoint; 0 = off")
    advantage: str = Field("grpo", description="advantage estimator by name")
    dtype: Literal["float32", "bfloat16"] = Field("bfloat16", description="autocast type; master weights are float32")
    keep_checkpoints: int = Field(1, ge=1, description="step checkpoints kept beside those that end a round")


class CurriculumSettings(Settings):
    q: float = Field(0.2, ge=0, le=1, description="probability that a whole group sees no skill")
    rho_min: float = Field(0.2, ge=0, le=1)
    rho_max: float = Field(0.9, ge=0, le=1)

    @model_validator(mode="after")
    def _ordered(self) -> CurriculumSettings:
        if self.rho_min > self.rho_max:
            raise ValueError(f"rho_min ({self.rho_min}) is above rho_max ({self.rho_max}); swap them")
        return self


class GateSettings(Settings):
    tasks: int = Field(400, ge=8, description="validation tasks in the bare and in the masked run")
    budget: int = Field(10, ge=1, description="active chunks at most")
    candidates: int = Field(6, ge=0, description="ADD/REWRITE candidates a round at most")
    estimator: Literal["paired_delta", "mean_delta", "adjusted"] = "paired_delta"
    first: Literal["auto", "always", "never"] = Field(
        "auto", description="gate the initial bank before step 1 (Gate A)"
    )


class AnalystSettings(Settings):
    """Who looks at the failures that even the complete bank did not rescue, and proposes chunks for the gate."""

    kind: Literal["none", "rules", "llm"] = Field("rules", description="rules needs no model; llm asks an endpoint")
    min_cards: int = Field(2, ge=1, description="failures that must agree before a candidate is made of them")
    url: Url | None = Field(None, description="llm: an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1")
    model: str | None = Field(None, description="llm: the model's name there")
    api_key_env: VariableName | None = Field(None, description="llm: environment variable that holds the API key")
    max_turns: int = Field(20, ge=2, le=20, description="llm: replies in one analysis at most")
    concurrency: int = Field(4, ge=1, description="llm: analyses at once")
    timeout_s: float = Field(120.0, gt=0, description="llm: limit of one request")

    @model_validator(mode="after")
    def _endpoint(self) -> AnalystSettings:
        if self.kind == "llm" and not (self.url and self.model):
            raise ValueError("kind is llm, but url and model are not both given; add them, or set kind to rules")
        return self


class EvaluationSettings(Settings):
    """Extra evaluations on the validation tasks at the start and at each round's end, beside the gate's bare run."""

    equipped: bool = Field(True, description="one run with the complete active bank")
    greedy: bool = Field(True, description="one skill-free run at temperature 0")


WandbMode = Literal["offline", "online", "disabled"]


class ReportSettings(Settings):
    wandb: WandbMode = Field("offline", description="the environment variable WANDB_MODE comes before it")
    project: str = "intraskill"


class RunSettings(Settings):
    """One training run: its name, its world, its policy, and the method's knobs."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="folder name under `runs/`")
    seed: int = 0
    bank: PathText = Field("builtin:s0", description="initial skill bank (JSON file), or builtin:s0")
    rounds: int = Field(4, ge=1)
    steps_per_round: int = Field(20, ge=1)
    environment: AnyFamilySettings = DEFAULT
    policy: PolicySettings = PolicySettings()
    rollout: RolloutSettings = RolloutSettings()
    train: TrainSettings = TrainSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    gate: GateSettings = GateSettings()
    analyst: AnalystSettings = AnalystSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    report: ReportSettings = ReportSettings()

    @model_validator(mode="after")
    def _exact_training(self) -> RunSettings:
        sampling = self.policy.sampling
        if sampling.top_p != 1.0 or sampling.top_k != -1:
            raise ValueError(
                "policy.sampling: training needs top_p 1.0 and top_k -1, otherwise the sampled log-probs are not the "
                "model's own; remove the two keys"
            )
        if sampling.temperature == 0:
            raise ValueError("policy.sampling.temperature: training needs a temperature above 0; try 1.0")
        if self.rollout.kept_groups % self.train.updates_per_step:
            raise ValueError(
                f"rollout.kept_groups ({self.rollout.kept_groups}) is not a multiple of train.updates_per_step "
                f"({self.train.updates_per_step}); change one of them"
            )
        return self

    def semantic(self) -> dict[str, Any]:
        """The part that decides what the run means; what paths point at is hashed by whoever opens it."""
        everything = self.model_dump(mode="json")
        for key in ("name", "bank", "report"):
            everything.pop(key)
        everything["environment"] = self.environment.semantic()
        for key in ("model", "threads"):
            everything["policy"].pop(key)
        everything["train"].pop("keep_checkpoints")
        for key in ("url", "api_key_env", "concurrency", "timeout_s"):
            everything["analyst"].pop(key)
        return everything
