"""Runners of the cases about actions, pages, observations, endings and identity; see `conformance.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from shopsimulator.actions import NotAnAction, extract_action, option_action, parse_action
from shopsimulator.engine import ShopSettings, versions
from shopsimulator.errors import ObservationError
from shopsimulator.pages import selection_state
from shopsimulator.rendering import render

if TYPE_CHECKING:
    from shopsimulator.conformance import Catalogs

Input = Mapping[str, Any]
_FEEDBACK = ("valid", "reason", "message")


def _play(case: Input, catalogs: Catalogs) -> list[dict[str, Any]]:
    """The payloads of an episode, that of the reset first; it stops at the end."""
    session = catalogs.world(case["catalog"]).new_session()
    payloads = [session.reset(case["task_id"])]
    for action in case["actions"]:
        if payloads[-1].get("done"):
            break
        payloads.append(session.step(action))
    return payloads


def _extract_action(case: Input, catalogs: Catalogs) -> Any:
    return {"action": extract_action(case["response"])}


def _parse_action(case: Input, catalogs: Catalogs) -> Any:
    try:
        action = parse_action(case["action"])
    except NotAnAction as problem:
        return {"error": problem.reason}
    return {"name": action.verb, "argument": action.argument}


def _episode(case: Input, catalogs: Catalogs) -> Any:
    payloads = _play(case, catalogs)
    steps = payloads[1:]
    return {
        "feedback": [{key: step["action_feedback"][key] for key in _FEEDBACK} for step in steps],
        "page_type": [step["observation_state"]["page_type"] for step in steps],
        "state": payloads[-1]["observation_state"],
    }


def _observe(case: Input, catalogs: Catalogs) -> Any:
    last = _play(case, catalogs)[-1]
    return {"state": last["observation_state"], "observation": last["observation"]}


def _observe_agrees(expected: Any, ours: Any) -> bool:
    """A state has the fields expected and no other."""
    return bool(ours.get("state") == expected["state"]) and expected.get("observation", ours.get("observation")) == (
        ours.get("observation")
    )


def _render_refused(case: Input, catalogs: Catalogs) -> Any:
    try:
        return {"observation": render(case["state"])}
    except ObservationError:
        return {"error": "StructuredObservationError"}


def _selection_state(case: Input, catalogs: Catalogs) -> Any:
    return selection_state(case["options"], case["selected"])


def _format_option(case: Input, catalogs: Catalogs) -> Any:
    return {"action": option_action(case["axis"], case["value"])}


def _episode_limit(case: Input, catalogs: Catalogs) -> Any:
    payloads = _play(case, catalogs)
    last = payloads[-1]
    return {
        "done_at": len(payloads) - 1 if last.get("done") else None,
        "termination_reason": last.get("termination_reason"),
        "reward": last.get("reward"),
        "page_type": last["observation_state"]["page_type"],
        "last_reason": last["observation_state"].get("last_action", {}).get("reason"),
    }


def _terminal_payload(case: Input, catalogs: Catalogs) -> Any:
    last = _play(case, catalogs)[-1]
    return {f"{field}_keys": list(last[field]) for field in ("goal", "purchase", "reward_detail")}


def _limits(case: Input, catalogs: Catalogs) -> Any:
    return ShopSettings().limits


def _reset(case: Input, catalogs: Catalogs) -> Any:
    body = dict(case["body"])
    session = catalogs.world(case["catalog"]).new_session()
    arguments = {key: value for key, value in body.items() if key not in ("action", "idx")}
    return session.reset(body["idx"], **arguments)


def _versions(case: Input, catalogs: Catalogs) -> Any:
    return versions()


RUNNERS: dict[str, Callable[[Input, Catalogs], Any]] = {
    "extract_action": _extract_action,
    "parse_action": _parse_action,
    "episode": _episode,
    "observe": _observe,
    "render_refused": _render_refused,
    "selection_state": _selection_state,
    "format_option": _format_option,
    "episode_limit": _episode_limit,
    "terminal_payload": _terminal_payload,
    "limits": _limits,
    "reset": _reset,
    "versions": _versions,
}
COMPARISONS = {"observe": _observe_agrees}
