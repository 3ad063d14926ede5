"""What a user may set about the guessing dialogue."""

from typing import ClassVar, Literal

from pydantic import Field

from intraskill.families.base import FamilySettings


class GuessSettings(FamilySettings):
    metric_prefix: ClassVar[str] = "rollout/guess/"
    reward_parts: ClassVar[tuple[str, ...]] = ("speed",)

    family: Literal["guess"] = "guess"
    largest: int = Field(64, ge=8, le=1000, description="the largest number; every number is one task")
