"""The protocol as an OpenAPI document, and as a page for people: `GET /openapi.json`, `GET /docs`.

Both are made from the request models below, so that a field is described in one place. The models describe; the
service checks by hand, since the published protocol answers a wrong field with statuses of its own.
"""

from __future__ import annotations

import html
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field

from shopsimulator import ENVIRONMENT_VERSION

_SLOT = Field(description="The slot that reset returned.")
_LEASE = Field(description="The lease that reset returned, 32 hexadecimal digits.")


class Reset(BaseModel):
    """Take a free slot and start a task; waits while all slots are taken. Answers the task, its persona and page."""

    action: Literal["reset"]
    idx: int = Field(description="Task id.")
    if_persona: bool = Field(False, description="Show the simple instruction, to be read with the persona.")
    include_private_goal: bool = Field(False, description="Also tell the full instruction and the wanted options.")
    interaction_mode: Literal["single_turn", "multi_turn"] = Field("single_turn", description="Which limit of actions.")
    wait_s: float | None = Field(None, description="Wait no longer than this for a slot, then answer 503. Ours.")


class Interact(BaseModel):
    """Execute one action. Answers the next page, what became of the action and, at the end, the reward."""

    action: Literal["interact"]
    env_idx: int = _SLOT
    lease_id: str = _LEASE
    response: str = Field(description="`search[text]` or `click[value]`, alone or in one line `Action: ...`.")


class Terminate(BaseModel):
    """End the episode without a purchase and with zero reward; the page stays."""

    action: Literal["terminate"]
    env_idx: int = _SLOT
    lease_id: str = _LEASE
    termination_reason: Literal["action_limit", "generation_length"] = Field("action_limit", description="Why.")


class ReleaseOne(BaseModel):
    """Give the slot back. A finished episode keeps its slot until then."""

    action: Literal["release_one"]
    env_idx: int = _SLOT
    lease_id: str = _LEASE


class ReleaseAll(BaseModel):
    """End everybody's leases."""

    action: Literal["release_all"]


class Batch(BaseModel):
    """Many requests in one. Answers `answers`, a list of `{"status", "result"}` in the order of the requests. Ours."""

    action: Literal["batch"]
    requests: list[Reset | Interact | Terminate | ReleaseOne | ReleaseAll] = Field(description="Requests, no batches.")


_REQUESTS: tuple[type[BaseModel], ...] = (Reset, Interact, Terminate, ReleaseOne, ReleaseAll, Batch)
_STATUSES = {
    "200": "An answer: the object `result`. Also the error that the body is no JSON.",
    "400": "A malformed request. As with every error, `result.error` is a line of text and `result.code` a word.",
    "409": "The lease is unknown, stale or released.",
    "500": "Unknown task, mode or reason, no response, or anything after the end of the episode.",
    "503": "No slot became free within `wait_s`.",
}


@cache
def openapi_document() -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for model in _REQUESTS:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    result = {"type": "object", "properties": {"result": {"type": "object"}}, "required": ["result"]}
    body = {"oneOf": [{"$ref": f"#/components/schemas/{model.__name__}"} for model in _REQUESTS]}
    answer = {"content": {"application/json": {"schema": result}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ShopSimulator", "version": ENVIRONMENT_VERSION},
        "paths": {
            "/api/shop_agent": {
                "post": {
                    "summary": "Play an episode",
                    "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
                    "responses": {status: {"description": text, **answer} for status, text in _STATUSES.items()},
                }
            },
            "/healthz": {
                "get": {"summary": "What is served", "responses": {"200": {"description": "Versions, slots, tasks."}}}
            },
        },
        "components": {"schemas": schemas},
    }


def docs_page() -> str:
    """The document as one page without scripts, readable where nothing else can be loaded."""
    document = openapi_document()
    schemas = document["components"]["schemas"]
    sections = "".join(_section(schemas[model.__name__]) for model in _REQUESTS)
    statuses = "".join(f"<tr><td>{status}</td><td>{html.escape(text)}</td></tr>" for status, text in _STATUSES.items())
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>ShopSimulator</title>"
        "<style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
        "td{padding:.2em 1em .2em 0;vertical-align:top}code{font-size:.95em}</style>"
        f"<h1>ShopSimulator</h1><p>{html.escape(document['info']['version'])} · "
        "<a href='/openapi.json'>openapi.json</a> · <a href='/healthz'>healthz</a></p>"
        '<p>Post a JSON object to <code>/api/shop_agent</code>; every answer is <code>{"result": {…}}</code>.</p>'
        f"{sections}<h2>Statuses</h2><table>{statuses}</table></html>"
    )


def _section(schema: dict[str, Any]) -> str:
    rows = "".join(_row(name, field, name in schema["required"]) for name, field in schema["properties"].items())
    action = schema["properties"]["action"]["const"]
    return f"<h2><code>{action}</code></h2><p>{html.escape(schema['description'])}</p><table>{rows}</table>"


def _row(name: str, field: dict[str, Any], required: bool) -> str:
    if name == "action":
        return ""
    default = "required" if required else f"default {field['default']!r}"
    return f"<tr><td><code>{name}</code></td><td>{default}</td><td>{html.escape(field['description'])}</td></tr>"
