"""The shop as a task family: buying the product that one particular person wants.

The policy reads pages and answers with one tool call a turn; what it earns is decided when it buys. Its parts live in
the modules beside this one: `environment` acts, `tools` reads the replies, `prompts` says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shopsimulator.catalog import Catalog
from shopsimulator.engine import ShopWorld

from intraskill.core.protocol import Environment
from intraskill.core.records import PROMPT_FILES, EpisodeJob, Style, Tool, ToolSchema, Turn
from intraskill.families.analysis import Facts
from intraskill.families.base import Decoded, Prompt, TaskFamily, TaskSplits
from intraskill.families.shop.analysts.briefing import ShopBriefing
from intraskill.families.shop.analysts.rules import RulesAnalyst
from intraskill.families.shop.analysts.world import AnalystWorld
from intraskill.families.shop.environment import InProcessShop, ShopSource, open_world
from intraskill.families.shop.facts import shop_facts
from intraskill.families.shop.mechanisms import ShopMechanisms
from intraskill.families.shop.prompt_file import FilePrompt
from intraskill.families.shop.prompts import prompt_template
from intraskill.families.shop.settings import ShopSettings
from intraskill.families.shop.tools import build_tools, decode


class Shop(TaskFamily):
    """The task family. The shop draws nothing at random, so an environment does not depend on its job."""

    settings: ShopSettings

    def __init__(self, settings: ShopSettings, source: ShopSource) -> None:
        self.settings = settings
        self.source = source

    @property
    def world(self) -> ShopWorld:
        return self.source.world

    @property
    def catalog(self) -> Catalog:
        return self.source.catalog

    def identity(self) -> dict[str, Any]:
        return self.source.identity()

    def splits(self) -> TaskSplits:
        return self.source.splits()

    def new_environment(self, job: EpisodeJob | None = None) -> Environment:
        return self.source.new_environment()

    def prompt(self, name: str) -> Prompt:
        return FilePrompt(Path(name)) if name.endswith(PROMPT_FILES) else prompt_template(name)

    def tools(self, state: Mapping[str, Any], schema: ToolSchema) -> tuple[Tool, ...]:
        return build_tools(state, schema)

    def decode(self, turn: Turn, state: Mapping[str, Any], tools: Sequence[Tool]) -> Decoded:
        return decode(turn, tools)

    def evolution(self) -> ShopEvolution:
        return ShopEvolution(AnalystWorld(self.world, lambda: InProcessShop(self.world)), self.splits())

    def serve(self, *, host: str, port: int, sessions: int, announce: Callable[[str], None]) -> None:
        from shopsimulator.service import run_service

        run_service(self.source.world, host=host, port=port, slots=sessions, announce=announce)


class ShopEvolution:
    """An `Evolution`: analysts act in a world of their own, in process, and take no slot of a service."""

    mechanisms = ShopMechanisms()

    def __init__(self, world: AnalystWorld, splits: TaskSplits) -> None:
        self._world, self._splits = world, splits

    def facts(self) -> Facts:
        return shop_facts(self._world.catalog, self._splits)

    def rules(self, style: Style) -> RulesAnalyst:
        return RulesAnalyst(self._world, style)

    def briefing(self) -> ShopBriefing:
        return ShopBriefing(self._world)


def open_shop(settings: ShopSettings, cache_dir: Path) -> Shop:
    """The shop of `settings`, its world generated into `cache_dir` if need be."""
    return Shop(settings, open_world(settings, cache_dir))
