"""What a user may set about the shop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from intraskill.core.settings import AbsolutePath, Settings, Url
from intraskill.families.base import FamilySettings


class WorldSettings(Settings):
    """Where products and tasks come from: a generated world, or a catalog file with its split manifest."""

    generate: Literal["small", "full"] | None = Field("full", description="generated world of this size")
    seed: int = Field(0, description="seed of the generated world")
    language: Literal["en", "zh"] = Field("en", description="language of the generated world")
    catalog: AbsolutePath | None = Field(
        None, description="a catalog file (.json, .json.gz) instead of a generated world"
    )
    splits: AbsolutePath | None = Field(None, description="the split manifest that goes with `catalog`")

    @model_validator(mode="after")
    def _file_with_manifest(self) -> WorldSettings:
        if (self.catalog is None) != (self.splits is None):
            given, missing = ("catalog", "splits") if self.splits is None else ("splits", "catalog")
            raise ValueError(f"{given} is given without {missing}; the two files belong together, add {missing}")
        if self.generate is None and self.catalog is None:
            raise ValueError("generate is null and there is no catalog; choose small or full, or give a catalog file")
        return self


class ShopSettings(FamilySettings):
    """The shopping environment. Page size and rendering are part of its identity."""

    metric_prefix: ClassVar[str] = "rollout/shopsim/"
    reward_parts: ClassVar[tuple[str, ...]] = ("r_strict", "r_loose", "r_type", "r_att", "r_option", "r_price")
    mean_parts: ClassVar[Mapping[str, str]] = {"strict_reward_mean": "r_strict"}

    family: Literal["shop"] = "shop"
    world: WorldSettings = WorldSettings()
    url: Url | None = Field(None, description="an HTTP environment service; omit to run it in process")
    rendering: Literal["full", "compact"] = Field("compact", description="how pages are written out")
    page_size: int = Field(4, ge=1, le=50, description="search results a page")
    timeout_s: float = Field(60.0, gt=0, description="limit of one HTTP request to the service")

    @classmethod
    def action_kind(cls, action: str) -> str:
        return action.partition("[")[0]

    def semantic(self) -> dict[str, Any]:
        files = {"catalog", "splits"}  # their contents are hashed with the tasks
        return self.model_dump(mode="json", exclude={"url": True, "timeout_s": True, "world": files})

    def offline(self) -> ShopSettings:
        return self.model_copy(update={"url": None})

    def at(self, url: str) -> ShopSettings:
        return self.model_copy(update={"url": url})

    def service_problems(self, sessions: int) -> Iterator[str]:
        if self.url is None:
            return
        from shopsimulator.client import ServiceUnavailable, read_health
        from shopsimulator.errors import ShopError

        try:
            slots = int(read_health(self.url, 10.0).get("slots", 0))
        except (ServiceUnavailable, ShopError) as error:
            yield f"environment service: {error}; start it with launch/environment.sh"
            return
        if slots < sessions:
            yield f"environment service: {self.url} has {slots} slots, not {sessions}; give it --slots {sessions}"

    @classmethod
    def describe(cls, stored: Mapping[str, Any]) -> str:
        world = stored.get("world") or {}
        return str(world.get("catalog") or f"generated, {world.get('generate')}, {world.get('language')}")
