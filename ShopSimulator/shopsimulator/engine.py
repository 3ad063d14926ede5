"""The shopping engine: one immutable world, many cheap sessions.

A `ShopWorld` is a catalog, its search index and the settings that decide what an episode means; it is shared. A
`ShopSession` plays one episode at a time: `reset`, then `step` until `done`. The session counts the action budget
itself: the step that uses it up without a purchase returns the zero-reward terminal `action_limit`. An invalid
action is answered (the page stays, the step counts); only a step after the end is an error.

The goal of a task is read in two places, both at the very end: to score a purchase and to fill `goal` of the
terminal payload, for audits of local traces. Nothing before the end carries any of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shopsimulator import ACTION_PROTOCOL, ENVIRONMENT_VERSION, OBSERVATION_VERSION, SEARCH_VERSION
from shopsimulator.budget import task_budget
from shopsimulator.catalog import Catalog, Product, PurchaseTask
from shopsimulator.errors import EpisodeOver, ShopError, UnknownTask
from shopsimulator.observation import feedback_message, observe, render
from shopsimulator.pages import Page, Rules, advance, parse_action
from shopsimulator.pricing import price_range, variant_price
from shopsimulator.reward import score_purchase
from shopsimulator.search import SearchIndex
from shopsimulator.wording import Rendering, words

ENDINGS = ("action_limit", "generation_length")


@dataclass(frozen=True, slots=True)
class ShopSettings:
    """What an episode looks like; all of it is part of the environment's identity."""

    page_size: int = 20
    max_hits: int = 150
    rendering: Rendering = "full"
    max_steps: int = 30


class ShopWorld:
    """Catalog, search index and settings; nothing a session does changes what another one sees."""

    def __init__(self, catalog: Catalog, settings: ShopSettings | None = None) -> None:
        self.catalog = catalog
        self.settings = settings or ShopSettings()
        self._index = SearchIndex(catalog)
        self._price_ranges: dict[str, tuple[float | None, float | None]] = {}  # by asin, filled as products are shown
        self.rules = Rules(
            products=catalog.products,
            search=self._search,
            price_range=self._price_range,
            page_size=self.settings.page_size,
            rendering=self.settings.rendering,
            words=words(catalog.language, self.settings.rendering),
        )

    def new_session(self) -> ShopSession:
        return ShopSession(self)

    def identity(self) -> dict[str, Any]:
        """Versions and settings that decide what an episode means."""
        return {
            "environment": ENVIRONMENT_VERSION,
            "observation": OBSERVATION_VERSION,
            "action_protocol": ACTION_PROTOCOL,
            "search": SEARCH_VERSION,
            "catalog_sha256": self.catalog.sha256,
            "language": self.catalog.language,
            "page_size": self.settings.page_size,
            "max_hits": self.settings.max_hits,
            "rendering": self.settings.rendering,
            "max_steps": self.settings.max_steps,
        }

    def task(self, task_id: int) -> PurchaseTask:
        try:
            return self.catalog.tasks[task_id]
        except KeyError:
            raise UnknownTask(
                f"task {task_id} is not in this catalog ({len(self.catalog.tasks)} tasks); take an id of its splits"
            ) from None

    def _search(self, query: str) -> tuple[str, ...]:
        return self._index.asins(query, self.settings.max_hits)

    def _price_range(self, product: Product) -> tuple[float | None, float | None]:
        known = self._price_ranges.get(product.asin)
        if known is None:
            known = self._price_ranges[product.asin] = price_range(product) or (None, None)
        return known


class ShopSession:
    """One episode at a time in a shared world. Not safe for two callers at once; a lease guards it in the service."""

    def __init__(self, world: ShopWorld) -> None:
        self._world = world
        self._task: PurchaseTask | None = None
        self._page = Page()
        self._step = 0
        self._over = False

    def reset(self, task_id: int, include_persona: bool = True) -> dict[str, Any]:
        """Start a task; an episode under way is dropped. The payload holds public information only.

        With its persona a task shows the simple instruction, whose gaps the persona fills; without, the full one.
        """
        task = self._world.task(task_id)
        self._task, self._page, self._step, self._over = task, Page(), 0, False
        personal = include_persona and task.persona is not None
        return {
            "task_id": task_id,
            "task_instruction": (task.instruction_simple or task.instruction) if personal else task.instruction,
            "user_persona": task.persona if personal else None,
            "task_mode": "single_turn_persona" if personal else "single_turn",
            **self._observed(None),
        }

    def step(self, action: str) -> dict[str, Any]:
        """Execute one action. Raises `EpisodeOver` after the end."""
        task = self._running()
        before = self._page
        self._page, code = advance(before, action, self._world.rules)
        self._step += 1
        feedback = self._feedback(action, code)
        last = {"action": action, "valid": feedback["valid"], "code": code}
        if self._page.kind == "done":
            return self._purchase(task, feedback, last)
        if self._step >= self._world.settings.max_steps:
            return self._end(task, "action_limit", feedback, last)
        return self._payload(feedback, last)

    def terminate(self, reason: str) -> dict[str, Any]:
        """End the episode with the zero-reward terminal `action_limit` or `generation_length`."""
        task = self._running()
        if reason not in ENDINGS:
            raise ShopError(f"termination reason {reason!r} is unknown; use one of {', '.join(ENDINGS)}")
        return self._end(task, reason, {"valid": True, "code": "ok", "message": ""}, None)

    def _running(self) -> PurchaseTask:
        if self._task is None:
            raise EpisodeOver("no episode has been started in this session; reset it with a task id first")
        if self._over:
            raise EpisodeOver(f"the episode of task {self._task.task_id} is over; reset to start another one")
        return self._task

    def _feedback(self, action: str, code: str) -> dict[str, Any]:
        if code == "ok":
            return {"valid": True, "code": code, "message": ""}
        parsed = parse_action(action)
        value = parsed[1] if parsed else ""
        message = feedback_message(code, value, self._page.missing_axes, self._world.catalog.language)
        return {"valid": False, "code": code, "message": message}

    def _purchase(self, task: PurchaseTask, feedback: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
        product, selected = self._page.product, dict(self._page.selected)
        assert product is not None
        detail = score_purchase(self._world.catalog.products[task.asin], task, product, selected)
        purchase = {
            "asin": product.asin,
            "title": product.title,
            "options": selected,
            "price": variant_price(product, selected),
        }
        return self._terminal(task, "purchase", feedback, last, reward_detail=detail, purchase=purchase)

    def _end(
        self, task: PurchaseTask, reason: str, feedback: dict[str, Any], last: dict[str, Any] | None
    ) -> dict[str, Any]:
        self._page = Page("done")
        nothing = {"reward": 0.0, "r_strict": 0.0, "r_loose": 0.0, "r_success": 0}
        return self._terminal(task, reason, feedback, last, reward_detail=nothing, purchase=None)

    def _terminal(
        self,
        task: PurchaseTask,
        reason: str,
        feedback: dict[str, Any],
        last: dict[str, Any] | None,
        **outcome: Any,
    ) -> dict[str, Any]:
        self._over = True
        return {
            **self._payload(feedback, last),
            "done": True,
            "over": True,
            "reward": outcome["reward_detail"]["reward"],
            **outcome,
            "termination_reason": reason,
            "goal": {
                "asin": task.asin,
                "attributes": list(task.attributes),
                "options": list(task.instruction_options),
                "price_upper": task_budget(task),
            },
        }

    def _payload(self, feedback: dict[str, Any], last: dict[str, Any] | None) -> dict[str, Any]:
        assert self._task is not None
        return {
            "task_id": self._task.task_id,
            **self._observed(last),
            "done": False,
            "over": False,
            "reward": 0.0,
            "reward_detail": {},
            "purchase": None,
            "termination_reason": None,
            "action_feedback": feedback,
        }

    def _observed(self, last: dict[str, Any] | None) -> dict[str, Any]:
        world = self._world
        state = observe(self._page, world.rules, world.catalog.language, self._step, last)
        return {"observation": render(state, world.settings.rendering), "observation_state": state}
