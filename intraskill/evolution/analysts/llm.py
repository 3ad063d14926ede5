"""The analyst that asks a language model, over any OpenAI-compatible endpoint.

The model gets the failed attempt and tools: it can act in fresh sessions of the same task, look at what is private,
and must at last submit a diagnosis. A trial that ends returns its reward, and a new one is opened. In the last turn
only the submission is offered. A proposal counts only if one of the model's own trials succeeded; what it claims does
not. What it is told, and what it can do beside submitting, is the task family's (`Briefing`).

Endpoint failures are raised (`PolicyUnavailable`, `UserError`) and become a card without a proposal where the analyst
is called; a model that keeps replying nonsense ends in such a card right here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from intraskill.core.protocol import Environment, Policy
from intraskill.core.records import StepResult, Tool, ToolCall
from intraskill.evolution.analysts.dialogue import Dialogue, Garbled, OutOfTurns, text_argument
from intraskill.families.analysis import (
    Abstraction,
    Briefing,
    Card,
    Case,
    Outcome,
    PrivilegedAudit,
    bare_audit,
    no_proposal,
)
from intraskill.families.base import function_tool
from intraskill.policies.openai import OpenAIPolicy

OUTCOMES = ("PROPOSE_ADD", "PROPOSE_REWRITE", "NO_PROPOSAL")
MAX_STEPS, MAX_CHARACTERS = 6, 300  # of a procedure; of one text
SUBMIT = "submit_diagnosis"
LAST_TURN = f"This is your last turn: call {SUBMIT} now."
_TEXT = {"type": "string"}


class LlmAnalyst:
    """One conversation a case, of at most `max_turns` replies."""

    name = "llm"

    def __init__(self, briefing: Briefing, policy: Policy, max_turns: int = 20) -> None:
        self.briefing, self.policy, self._max_turns = briefing, policy, max_turns

    async def analyse(self, case: Case) -> Card:
        if case.channel == "failure":
            return await _Analysis(self.briefing, self.policy, case, self._max_turns).run()
        return no_proposal(case, self.name, "successes_are_for_the_rules")

    async def close(self) -> None:
        if isinstance(self.policy, OpenAIPolicy):
            await self.policy.close()


class _Analysis:
    """The growing state of one case."""

    def __init__(self, briefing: Briefing, policy: Policy, case: Case, max_turns: int) -> None:
        self._briefing, self._case = briefing, case
        self._submit = submission(briefing.verify)
        self._dialogue = Dialogue(policy, case.card_id("llm"), briefing.system, briefing.account(case), max_turns)
        self._trial: list[str] = []
        self._proof: tuple[tuple[str, ...], StepResult] | None = None

    async def run(self) -> Card:
        env = self._briefing.new_environment(self._case)
        try:
            await env.reset(self._case.task_id)
            return await self._converse(env)
        except (Garbled, OutOfTurns) as error:
            kind = "garbled_replies" if isinstance(error, Garbled) else "no_submission"
            return no_proposal(self._case, "llm", f"{kind}: {error}", self._audit({}))
        finally:
            await env.close()

    async def _converse(self, env: Environment) -> Card:
        while True:
            last = self._dialogue.last_turn
            if last:
                self._dialogue.remark(LAST_TURN)
            call = await self._dialogue.call((self._submit,) if last else (*self._briefing.tools, self._submit))
            if call.name != SUBMIT:
                await self._act(env, call)
                continue
            try:
                return self._card(call.arguments)
            except ValueError as error:
                self._dialogue.reject(str(error))

    async def _act(self, env: Environment, call: ToolCall) -> None:
        if (shown := self._briefing.inspect(self._case, call)) is not None:
            self._dialogue.answer(shown)
            return
        try:
            action = self._briefing.action(self._case, call)
        except ValueError as error:
            self._dialogue.reject(str(error))
            return
        result = await env.step(action)
        self._trial.append(action)
        if not result.done:
            self._dialogue.answer(result.observation)
            return
        if result.success and self._proof is None:
            self._proof = (tuple(self._trial), result)
        self._trial = []
        page = (await env.reset(self._case.task_id)).observation
        ended = {"ended_by": result.termination, **result.extra, "reward_detail": result.detail}
        self._dialogue.answer(f"{json.dumps(ended, ensure_ascii=False)}\nA fresh trial is open:\n{page}")

    def _card(self, arguments: Mapping[str, Any]) -> Card:
        """The submission as a card. Raises `ValueError` with what the model has to mend."""
        outcome = arguments["outcome"]
        if outcome not in OUTCOMES:
            raise ValueError(f"outcome is {outcome!r}; it must be one of {', '.join(OUTCOMES)}")
        text_argument(arguments["diagnosis"], "diagnosis")
        audit = self._audit(arguments)
        if outcome == "NO_PROPOSAL":
            return no_proposal(self._case, "llm", "analyst_declined", audit)
        if self._proof is None:
            if self._dialogue.last_turn:
                return no_proposal(self._case, "llm", "no_verified_repair", audit)
            raise ValueError(self._briefing.unproven)
        target = self._target(outcome, arguments.get("target"))
        return replace(
            no_proposal(self._case, "llm", "", audit),
            outcome=cast(Outcome, outcome),
            target=target,
            deployable_abstraction=abstraction(arguments),
        )

    def _target(self, outcome: str, target: Any) -> str | None:
        if outcome == "PROPOSE_ADD":
            return None
        if target not in self._case.bank.ids:
            raise ValueError(f"target is {target!r}; a rewrite names one of {', '.join(self._case.bank.ids) or 'none'}")
        return str(target)

    def _audit(self, arguments: Mapping[str, Any]) -> PrivilegedAudit:
        audit = replace(bare_audit(self._case), notes=str(arguments.get("diagnosis", "")))
        step = arguments.get("decision_step")
        if isinstance(step, (int, str)) and str(step).isdigit() and int(step) < len(self._case.actions):
            audit = replace(audit, decision_step=int(step), original_action=self._case.actions[int(step)])
        if self._proof is not None:
            actions, result = self._proof
            ending, detail = dict(result.extra), dict(result.detail)
            audit = replace(audit, repair=actions, ending=ending, reward_detail=detail, verified=True)
        return audit


def submission(verify: str) -> Tool:
    """The tool that ends an analysis; `verify` says when an agent can still check a repair."""
    return function_tool(
        SUBMIT,
        "Submit the result and end the analysis.",
        ["outcome", "diagnosis"],
        outcome={"type": "string", "enum": list(OUTCOMES)},
        diagnosis={"type": "string", "description": "Private: what went wrong, with all particulars."},
        decision_step={"type": "integer", "description": "Private: the step that made success impossible."},
        target={"type": "string", "description": "REWRITE: the id of the shown skill."},
        mechanism={"type": "string", "description": "A short snake_case name of the general mechanism."},
        title={"type": "string", "description": "A few words."},
        applies_when={"type": "string", "description": "The observable condition."},
        procedure={"type": "array", "items": _TEXT, "description": "One to six short steps."},
        verify={"type": "string", "description": verify},
        avoid={"type": "string", "description": "The tempting mistake."},
    )


def abstraction(arguments: Mapping[str, Any]) -> Abstraction:
    """The deployable part of a submission. Raises `ValueError` with what is wrong."""
    texts = {
        name: text_argument(arguments.get(name), name, required=name in ("mechanism", "title", "applies_when"))
        for name in ("mechanism", "title", "applies_when", "verify", "avoid")
    }
    procedure = _procedure(arguments.get("procedure"))
    for name, text in (*texts.items(), *((f"procedure[{i}]", step) for i, step in enumerate(procedure))):
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"{name} has {len(text)} characters; use at most {MAX_CHARACTERS}")
    return Abstraction(procedure=procedure, **texts)


def _procedure(value: Any) -> tuple[str, ...]:
    """Steps given as a list, or (by models that write plain text) as a JSON list or one step a line."""
    if isinstance(value, str):
        value = _decoded(value)
    if not isinstance(value, Sequence) or not value:
        raise ValueError("procedure must be a list of one to six short steps")
    steps = tuple(text_argument(step, f"procedure[{i}]") for i, step in enumerate(value))
    if len(steps) > MAX_STEPS:
        raise ValueError(f"procedure has {len(steps)} steps; use at most {MAX_STEPS}")
    return steps


def _decoded(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, list) else [line for line in text.splitlines() if line.strip()]
