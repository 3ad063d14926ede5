"""What a user may set about the guessing dialogue."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from intraskill.families.base import FamilySettings


class GuessSettings(FamilySettings):
    """A number from 1 to `largest` is to be guessed within `max_steps` turns; each number is a task."""

    metric_prefix: ClassVar[str] = "rollout/guess/"

    family: Literal["guess"] = "guess"
    largest: int = Field(64, ge=8, le=1000, description="the largest number; each number is one task")
