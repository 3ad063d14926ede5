"""What one evaluation is: one checkpoint, one split, one skill condition, in one YAML file.

The sections `environment` and `policy` are those of a training run, so they can be copied from one; `policy` can also
name an OpenAI-compatible endpoint. Teacher sampling is the same thing with `split: train`, `sample_size` and
`repeats`. Concurrency, timeouts, thread counts and addresses do not change what an evaluation means.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from intraskill.core.settings import Settings, Url, VariableName
from intraskill.families.registry import DEFAULT, AnyFamilySettings
from intraskill.settings.models import PolicySettings

SplitName = Literal["train", "val", "test"]


class EvalPolicySettings(PolicySettings):
    """The model under evaluation: embedded, or behind an endpoint when `base_url` is given."""

    model: str = Field("builtin:tiny", description="model directory or builtin:tiny; an endpoint's name for its model")
    checkpoint_id: str | None = Field(None, description="which weights these are; never sent to an endpoint")
    base_url: Url | None = Field(None, description="an OpenAI-compatible endpoint, e.g. http://127.0.0.1:30000/v1")
    api_key_env: VariableName | None = Field(None, description="environment variable that holds the endpoint's API key")
    extra_body: dict[str, Any] = Field({}, description="further keys of every request, e.g. chat_template_kwargs")
    timeout_s: float = Field(600.0, gt=0, description="limit of one request to the endpoint")
    attempts: int = Field(6, ge=1, description="tries of one request: network errors, 429 and 5xx are tried again")

    @model_validator(mode="after")
    def _endpoint_keys(self) -> EvalPolicySettings:
        if self.base_url is None and (self.api_key_env or self.extra_body):
            key = "api_key_env" if self.api_key_env else "extra_body"
            raise ValueError(f"{key} belongs to an endpoint; add base_url, or remove {key}")
        return self


class SkillSettings(Settings):
    path: str | None = Field(None, description="skill bank (JSON file or builtin:s0) shown whole; null = skill-free")


class EvalSettings(Settings):
    """One evaluation."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="folder name under `runs/`")
    split: SplitName = Field("val", description="test also needs --final-test")
    sample_size: int | None = Field(None, ge=1, description="tasks drawn from the split; null = all of them")
    repeats: int = Field(1, ge=1, description="independent episodes of each task")
    seed: int = Field(0, description="decides the drawn tasks and every episode's seed")
    concurrency: int = Field(32, ge=1, description="episodes at a time")
    skills: SkillSettings = SkillSettings()
    environment: AnyFamilySettings = DEFAULT
    policy: EvalPolicySettings = EvalPolicySettings()
