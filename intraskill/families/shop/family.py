"""The shop as a task family: buying the product that one particular person wants.

The policy reads pages and answers with one tool call a turn; what it earns is decided when it buys. Its parts live in
the modules beside this one: `environment` acts, `tools` reads the replies, `prompts` says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shopsimulator.catalog import Catalog

from intraskill.core.protocol import Environment
from intraskill.core.records import EpisodeJob, Style, Tool, ToolSchema, Turn
from intraskill.families.base import Decoded, TaskSplits
from intraskill.families.shop.environment import ShopSource, open_world
from intraskill.families.shop.prompts import PromptTemplate, prompt_template
from intraskill.families.shop.settings import ShopSettings
from intraskill.families.shop.tools import build_tools, decode


class Shop:
    """A `TaskFamily`. The shop draws nothing at random, so an environment does not depend on its job."""

    def __init__(self, settings: ShopSettings, source: ShopSource) -> None:
        self.settings = settings
        self.source = source

    @property
    def catalog(self) -> Catalog:
        return self.source.catalog

    def identity(self) -> dict[str, Any]:
        return self.source.identity()

    def splits(self) -> TaskSplits:
        return self.source.splits()

    def new_environment(self, job: EpisodeJob | None = None) -> Environment:
        return self.source.new_environment()

    def prompt(self, style: Style) -> PromptTemplate:
        return prompt_template(style)

    def tools(self, state: Mapping[str, Any], schema: ToolSchema) -> tuple[Tool, ...]:
        return build_tools(state, schema)

    def decode(self, turn: Turn, state: Mapping[str, Any]) -> Decoded:
        return decode(turn, state)


def open_shop(settings: ShopSettings, cache_dir: Path) -> Shop:
    """The shop of `settings`, its world generated into `cache_dir` if need be."""
    return Shop(settings, open_world(settings, cache_dir))
