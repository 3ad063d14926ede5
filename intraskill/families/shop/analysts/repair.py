"""Trying a repair: replay up to a decision, change it, go on mechanically, and buy.

`Workbench` works on one case. `attempt` plays the trace up to a step in a fresh session, executes the changed actions
and lets `_finish` do what then is mechanical for somebody who knows the goal: open a result that fits, choose the
options that fit, buy. What comes back is what the shop really paid. The action budget is the episode's own, its
protocol errors counted, so a repair that comes too late fails as it would have for the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shopsimulator.actions import BUY, NEXT, option_action
from shopsimulator.products import Product

from intraskill.core.protocol import Environment
from intraskill.core.records import Reset, StepResult
from intraskill.families.analysis import Case, replay
from intraskill.families.shop.analysts.needs import can_succeed, fitting_selection
from intraskill.families.shop.analysts.world import AnalystWorld


@dataclass(frozen=True, slots=True)
class Repair:
    """A purchase that succeeded: the decision that was changed, the actions instead, and what was paid for."""

    decision: int
    actions: tuple[str, ...]
    opened: Product
    selected: dict[str, str]
    purchase: dict[str, Any]
    reward_detail: dict[str, Any]


class Workbench:
    """Everything about one case that trying repairs needs."""

    def __init__(self, world: AnalystWorld, case: Case) -> None:
        self.world, self.case = world, case
        self.task = world.task(case.task_id)
        self.score = partial(world.shop.score, self.task)
        self.states = case.states()
        self.attempts = 0
        self._fits: dict[str, bool] = {}

    def fits(self, asin: str) -> bool:
        """Whether buying this product can succeed; found out once, as a product may have thousands of selections."""
        if asin not in self._fits:
            self._fits[asin] = can_succeed(self.score, self.world.catalog.products[asin])
        return self._fits[asin]

    async def attempt(self, decision: int, first: Sequence[str], pages: int = 0) -> Repair | None:
        """Play `first` instead of step `decision`, go on mechanically, and buy; None when that did not succeed.

        `pages`: how many further result pages may be turned to find something that fits.
        """
        self.attempts += 1
        env = self.world.new_environment()
        try:
            hand = _Hand(env, self.world.max_steps - decision)
            hand.page = await replay(env, self.case, decision)
            for action in first:
                await hand.play(action)
            return await self._finish(hand, decision, pages)
        finally:
            await env.close()

    async def _finish(self, hand: _Hand, decision: int, pages: int) -> Repair | None:
        for _ in range(pages + 1):
            if hand.state["page_type"] != "search_results":
                break
            asin = next((row["asin"].lower() for row in hand.state["products"] if self.fits(row["asin"])), None)
            if asin is None and NEXT not in hand.state["actions"]:
                return None
            await hand.play(f"click[{asin or NEXT}]")
        if hand.state["page_type"] != "product_detail":
            return None
        product = self.world.catalog.products[hand.state["product"]["asin"]]
        wanted = fitting_selection(self.score, product, hand.state["selected_options"])
        if wanted is None:
            return None
        for axis, value in wanted.items():
            if hand.state["selected_options"].get(axis) != value:
                await hand.play(f"click[{option_action(axis, value)}]")
        await hand.play(f"click[{BUY}]")
        end = hand.page
        if not isinstance(end, StepResult) or not end.success:
            return None
        return Repair(decision, tuple(hand.played), product, wanted, end.extra["purchase"], dict(end.detail))


class _Hand:
    """Plays actions until the budget is used up or the episode is over."""

    def __init__(self, env: Environment, budget: int) -> None:
        self._env = env
        self._budget = budget
        self.page: Reset | StepResult | None = None
        self.played: list[str] = []

    @property
    def state(self) -> dict[str, Any]:
        assert self.page is not None
        return self.page.state

    async def play(self, action: str) -> None:
        over = isinstance(self.page, StepResult) and self.page.done
        if over or len(self.played) >= self._budget:
            return
        self.page = await self._env.step(action)
        self.played.append(action)
