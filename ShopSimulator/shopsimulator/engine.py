"""The shopping engine: one immutable world, many cheap sessions.

A `ShopWorld` is a catalog, its search index and the settings that decide what an episode means; it is shared. A
`ShopSession` plays one episode at a time: `reset`, then `step` until `done`. It counts the actions itself, by the limit
of the episode's interaction mode: the step that uses the last one up without a purchase is also the zero-reward
terminal `action_limit`. An invalid action is answered (the page stays, the step counts); only a step after the end is
an error.

Payloads have the shape of the HTTP protocol (`service.py`), which adds a lease and nothing else. The goal of a task is
read in two places, both at the very end: to score a purchase, and to fill `goal`. Before that it is told only to a
client that asks `reset` for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from shopsimulator import (
    ACTION_PROTOCOL,
    BUDGET_VERSION,
    ENVIRONMENT_VERSION,
    FILTER_VERSION,
    OBSERVATION_VERSION,
    PRICE_VERSION,
    PRIMARY_REWARD,
    REWARD_VERSION,
    SEARCH_VERSION,
    TOOL_VERSION,
)
from shopsimulator.actions import extract_action
from shopsimulator.budget import BudgetVersion, task_budget
from shopsimulator.catalog import Catalog
from shopsimulator.errors import EpisodeOver, ShopError, UnknownTask
from shopsimulator.observation import feedback_record, observe
from shopsimulator.outcomes import goal_record, private_record, purchase_record
from shopsimulator.pages import Item, Page, Rules, Summary, advance, make_item, make_summary, selected_price
from shopsimulator.products import Product, PurchaseTask
from shopsimulator.rendering import Texts
from shopsimulator.reward import score_purchase, unpurchased_detail
from shopsimulator.search import SearchIndex
from shopsimulator.title_terms import TitleTerms, default_title_terms
from shopsimulator.wording import Rendering, words

ENDINGS = ("action_limit", "generation_length")
_KEPT_PRODUCTS = 65_536
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class ShopSettings:
    """What an episode looks like; all of it but the place of the index file is part of the environment's identity."""

    page_size: int = 20
    max_hits: int = 150
    rendering: Rendering = "full"
    max_steps: int = 30  # of a single-turn episode
    max_steps_multi_turn: int = 40
    show_attributes: bool = False  # the attributes page, reached from a product
    title_terms: TitleTerms | None = None  # None: by the model if it is installed
    budget_version: BudgetVersion = "instruction-budget-v1"
    index_path: Path | None = None  # None: the search index is built in memory

    @property
    def limits(self) -> dict[str, int]:
        """Actions of an episode by interaction mode."""
        return {"single_turn": self.max_steps, "multi_turn": self.max_steps_multi_turn}


class Kept(dict[str, Made]):
    """What was made once by key, up to a number; then it begins again. Quicker than an exact order of use."""

    def __init__(self, make: Callable[[str], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: str) -> Made:
        if len(self) >= _KEPT_PRODUCTS:
            self.clear()
        made = self[key] = self._make(key)
        return made


class ShopWorld:
    """Catalog, search index and settings; nothing a session does changes what another one sees."""

    def __init__(self, catalog: Catalog, settings: ShopSettings | None = None) -> None:
        self.catalog = catalog
        self.settings = settings or ShopSettings()
        self.title_terms: TitleTerms = self.settings.title_terms or default_title_terms()
        self.words = words(catalog.language)
        self.rules = Rules(
            summary=Kept(self._summary).__getitem__,
            item=Kept(self._item).__getitem__,
            search=self._search,
            page_size=self.settings.page_size,
            show_attributes=self.settings.show_attributes,
        )
        self.texts = Texts(self.settings.rendering, catalog.language)
        self._index = SearchIndex(catalog, self.settings.index_path)
        self._ceilings: dict[int, float | None] = {}

    def new_session(self, slot: int = 0) -> ShopSession:
        return ShopSession(self, slot)

    def identity(self) -> dict[str, Any]:
        """Versions and settings that decide what an episode means."""
        settings = self.settings
        return {
            **versions(),
            "budget_parser": settings.budget_version,
            "title_terms": self.title_terms,
            "catalog_sha256": self.catalog.sha256,
            "language": self.catalog.language,
            "page_size": settings.page_size,
            "max_hits": settings.max_hits,
            "rendering": settings.rendering,
            "show_attributes": settings.show_attributes,
            "max_steps": settings.max_steps,
            "max_steps_multi_turn": settings.max_steps_multi_turn,
        }

    def task(self, task_id: int) -> PurchaseTask:
        try:
            return self.catalog.tasks[task_id]
        except KeyError:
            raise UnknownTask(
                f"task {task_id} is not in this catalog ({len(self.catalog.tasks)} tasks); take an id of its splits"
            ) from None

    def step_limit(self, interaction_mode: str) -> int:
        limits = self.settings.limits
        if interaction_mode not in limits:
            raise ShopError(f"interaction_mode {interaction_mode!r} is unknown; use one of {', '.join(limits)}")
        return limits[interaction_mode]

    def price_upper(self, task: PurchaseTask) -> float | None:
        """The ceiling of a task under the budget rule of these settings; read once."""
        if task.task_id not in self._ceilings:
            self._ceilings[task.task_id] = task_budget(task, self.settings.budget_version)
        return self._ceilings[task.task_id]

    def goal(self, task: PurchaseTask) -> dict[str, Any]:
        return goal_record(task, self.catalog.products[task.asin], self.price_upper(task))

    def score(self, task: PurchaseTask, bought: Product, selected: Mapping[str, str]) -> dict[str, Any]:
        """The reward of buying `bought` in the variant `selected` for `task`, part by part."""
        wanted = self.catalog.products[task.asin]
        return score_purchase(
            wanted, task, bought, selected, price_upper=self.price_upper(task), title_terms=self.title_terms
        )

    def _summary(self, asin: str) -> Summary:
        return make_summary(self.catalog.products[asin])

    def _item(self, asin: str) -> Item:
        return make_item(self.catalog.products[asin], self.rules.summary(asin))

    def _search(self, query: str) -> Sequence[str]:
        """Two queries are special: `<r>` shows products at random (always the same ones), `<c> name` a category."""
        words = query.split(" ")
        limit, products = self.settings.max_hits, self.catalog.products
        if words[0] == "<r>":
            asins = sorted(products)
            return tuple(random.Random(self.catalog.sha256).sample(asins, min(limit, len(asins))))
        if words[0] == "<c>" and len(words) > 1:
            return tuple(asin for asin, product in products.items() if product.category == words[1])[:limit]
        return self._index.hits(query, limit)


def versions() -> dict[str, str]:
    """The contracts this environment keeps."""
    return {
        "environment": ENVIRONMENT_VERSION,
        "observation": OBSERVATION_VERSION,
        "action_protocol": ACTION_PROTOCOL,
        "search": SEARCH_VERSION,
        "reward": REWARD_VERSION,
        "tool": TOOL_VERSION,
        "budget_parser": BUDGET_VERSION,
        "variant_price": PRICE_VERSION,
        "catalog_filter": FILTER_VERSION,
    }


class ShopSession:
    """One episode at a time in a shared world. Not safe for two callers at once; a lease guards it in the service."""

    def __init__(self, world: ShopWorld, slot: int = 0) -> None:
        self._world = world
        self._slot = slot
        self._task: PurchaseTask | None = None
        self._page = Page()
        self._last_action: dict[str, Any] | None = None
        self._steps_left = 0
        self._name = ""
        self._over = False

    def reset(
        self,
        task_id: int,
        if_persona: bool = False,
        include_private_goal: bool = False,
        interaction_mode: str = "single_turn",
    ) -> dict[str, Any]:
        """Start a task; an episode under way is dropped. The payload is public, but for the private goal if asked for.

        With `if_persona` a task that has a persona shows the simple instruction, whose gaps the persona fills.
        """
        task, limit = self._world.task(task_id), self._world.step_limit(interaction_mode)
        self._task, self._page, self._last_action, self._over = task, Page(), None, False
        self._steps_left = limit
        self._name = f"slot-{self._slot}-{task_id}"
        state, observation = self._observed()
        payload = {
            "task_instruction": task.instruction_simple if if_persona and task.persona else task.instruction,
            "observation": observation,
            "message": f"Task {task_id} started",
            "env_idx": self._slot,
            "idx": task_id,
            "task_mode": "persona" if if_persona else "standard",
            "interaction_mode": interaction_mode,
            "environment_version": ENVIRONMENT_VERSION,
            "observation_state": state,
            "user_persona": dict(task.persona or {}),
        }
        if include_private_goal:
            payload |= private_record(task)
        return payload

    def step(self, action: str) -> dict[str, Any]:
        """Execute one action. Raises `EpisodeOver` after the end."""
        task, world, before = self._running(), self._world, self._page
        self._page, feedback = advance(before, action, world.rules)
        self._last_action = record = feedback_record(action, feedback, world.words)
        self._steps_left -= 1
        if self._page.type == "terminal":
            payload = self._payload(task, "purchase", self._purchase(task, before))
        elif self._steps_left <= 0:
            payload = self._payload(task, "action_limit", None)
        else:
            payload = self._payload(task, None, None)
        payload["message"] = "Continue interaction" if record["valid"] else "Invalid action"
        payload["action_feedback"] = dict(record)
        return payload

    def interact(self, response: str) -> dict[str, Any]:
        """Execute the action in a client's answer, which may be the action alone or hold one line `Action: ...`."""
        return self.step(extract_action(response))

    def terminate(self, reason: str = "action_limit") -> dict[str, Any]:
        """End the episode with the zero-reward terminal `action_limit` or `generation_length`; the page stays."""
        task = self._running()
        if reason not in ENDINGS:
            raise ShopError(f"termination reason {reason!r} is unknown; use one of {', '.join(ENDINGS)}")
        payload = self._payload(task, reason, None)
        payload["message"] = f"Episode terminated: {reason}"
        return payload

    def _running(self) -> PurchaseTask:
        if self._task is None:
            raise EpisodeOver("no episode has been started in this session; reset it with a task id first")
        if self._over:
            raise EpisodeOver(f"the episode of task {self._task.task_id} is over; reset to start another one")
        return self._task

    def _purchase(self, task: PurchaseTask, page: Page) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reward detail and purchase record of buying what `page` shows."""
        item, selected = page.item, page.selected
        assert item is not None
        detail = self._world.score(task, item.product, selected)
        return detail, purchase_record(item.product, selected, selected_price(item, selected))

    def _payload(
        self, task: PurchaseTask, ending: str | None, bought: tuple[dict[str, Any], dict[str, Any]] | None
    ) -> dict[str, Any]:
        """What a step and a termination have in common; `ending` is None while the episode goes on."""
        state, observation = self._observed()
        detail: dict[str, Any] = {}
        purchase: dict[str, Any] = {}
        if bought:
            detail, purchase = bought
        elif ending:
            detail = unpurchased_detail(ending)
        payload = {
            "done": ending is not None,
            "over": ending is not None,
            "reward": detail.get(PRIMARY_REWARD, 0.0),
            "observation": observation,
            "env_idx": self._slot,
            "idx": self._name,
            "reward_detail": detail,
            "purchase": purchase,
            "goal": self._world.goal(task) if ending else {},
            "observation_state": state,
        }
        if ending:
            self._over = True
            payload["termination_reason"] = ending
        return payload

    def _observed(self) -> tuple[dict[str, Any], str]:
        world = self._world
        state = observe(self._page, world.rules, self._last_action)
        return state, world.texts.page(state)
