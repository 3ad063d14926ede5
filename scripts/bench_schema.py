#!/usr/bin/env python
"""What a tool schema that follows the page costs: dynamic against static on the same recorded episodes.

A scripted shopper plays 16 groups of 4 siblings. It sees the pages themselves, so its actions are the same under
either schema, and only the prompts differ: a dynamic schema stands before the conversation and changes with every
page, so each turn becomes a training segment of its own and nothing before it can come from a cache.

The hit rate is that of a cache which forgets nothing, computed from shared prefixes (a group's episodes take turns).
With --url the same prompts are sent to a SGLang server, one turn of all episodes after the other, and its own count
is taken; behind a router with several engines, --routing compares what the requests of a group may share: one
routing key per group, one per episode, or none. The server samples one token a request, so a reply's tokens
are prefilled there with the next prompt and count as not cached.

    python scripts/bench_schema.py
    python scripts/bench_schema.py --schema static --routing group --routing episode --routing none --url http://HOST:PORT

Prints one JSON line a variant.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx

from intraskill.agent.episode import EpisodeSettings, run_episode
from intraskill.agent.segments import segments
from intraskill.assets import bank_path, model_directory
from intraskill.core.records import Episode, EpisodeJob, Message, Sampling
from intraskill.core.seeds import stable_seed
from intraskill.families.shop.family import Shop, open_shop
from intraskill.families.shop.settings import ShopSettings, WorldSettings
from intraskill.families.shop.tools import ToolSchema
from intraskill.policies.chat import ChatTemplate, load_tokenizer
from intraskill.policies.scripted import ScriptedPolicy, call_text
from intraskill.policies.sglang import SGLangEngine, SGLangServer
from intraskill.skills.bank import Chunk, read_bank

GROUPS, SIBLINGS = 16, 4
TOOLS_FIRST = """{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}"""


def load_chat(model: str) -> ChatTemplate:
    """The model's template; one that leaves the tools out, being made for fixed ones, gets them written in front."""
    tokenizer = load_tokenizer(model_directory(model))
    chat = ChatTemplate(tokenizer)
    if not chat.shows_tools:
        tokenizer.chat_template = TOOLS_FIRST + tokenizer.chat_template
        chat = ChatTemplate(tokenizer)
    return chat


class Shopper:
    """Searches with words of the task, looks at a few products, chooses options, buys."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._looks = self._draw.randrange(1, 4)

    def __call__(self, state: dict[str, Any], messages: Sequence[Message]) -> str:
        actions = list(state["actions"])
        if state["page"] == "search" or not actions:
            words = re.findall(r"[a-z]{4,}", next(str(m["content"]) for m in messages if m["role"] == "user"))
            return call_text("search", query=" ".join(self._draw.sample(words, 2)))
        if state["page"] == "product" and self._looks > 0:
            self._looks -= 1
            back = [action for action in actions if "back" in action or "search" in action]
            return call_text("click", value=self._draw.choice(back or actions))
        buy = [action for action in actions if "buy" in action]
        return call_text("click", value=buy[0] if buy else self._draw.choice(actions))


async def play(
    chat: ChatTemplate, shop: Shop, schema: ToolSchema, prompt: str, chunks: Sequence[Chunk], steps: int
) -> list[Episode]:
    """All episodes, a group's siblings one after the other."""
    settings = EpisodeSettings(steps, Sampling(), schema)
    episodes = []
    for group, task in enumerate(shop.splits().train[:GROUPS]):
        for sibling in range(SIBLINGS):
            job = EpisodeJob(task, sibling, stable_seed("bench", task, sibling), "train")
            policy = ScriptedPolicy(Shopper(job.seed), chat)
            env = policy.watch(shop.new_environment(job))
            told = shop.prompt(prompt)
            episodes.append(await run_episode(job, shop, env, policy, told, chunks, settings, f"group-{group}"))
    return episodes


class PrefixCache:
    """A cache that forgets nothing, as a tree of token ids."""

    def __init__(self) -> None:
        self._root: dict[int, Any] = {}

    def add(self, ids: Iterable[int]) -> int:
        """Put a sequence in; returns how many of its first tokens were there already."""
        node, known, same = self._root, 0, True
        for token in ids:
            same = same and token in node
            known += same
            node = node.setdefault(token, {})
        return known


def computed_hits(episodes: Sequence[Episode]) -> int:
    """Cached prompt tokens when the episodes of all groups take turns."""
    cache, hits = PrefixCache(), 0
    for turn in range(max(len(episode.steps) for episode in episodes)):
        for episode in episodes:
            if turn < len(episode.steps):
                asked = episode.steps[turn].turn
                hits += cache.add(asked.prompt_ids)
                cache.add(asked.prompt_ids + asked.token_ids)
    return hits


async def measured_hits(episodes: Sequence[Episode], url: str, routing: str) -> tuple[int, int]:
    """(cached, all) prompt tokens as the server counts them."""
    engine = SGLangEngine(SGLangServer(url, "bench", 1 << 20, routing=routing))  # type: ignore[arg-type]
    async with httpx.AsyncClient(trust_env=False) as client:
        for worker in await engine.workers():
            (await client.post(f"{worker}/flush_cache")).raise_for_status()
    for turn in range(max(len(episode.steps) for episode in episodes)):
        asked = [
            engine.generate(
                episode.steps[turn].turn.prompt_ids,
                sampling=Sampling(max_tokens=1),
                seed=0,
                session=str(position),
                group=f"{routing}-{position // SIBLINGS}",
            )
            for position, episode in enumerate(episodes)
            if turn < len(episode.steps)
        ]
        await asyncio.gather(*asked)
    await engine.close()
    return engine.cached_tokens, engine.prompt_tokens


def describe(episodes: Sequence[Episode], schema: str) -> dict[str, Any]:
    pieces = [piece for number, episode in enumerate(episodes) for piece in segments(episode, number // SIBLINGS)]
    turns = [step.turn for episode in episodes for step in episode.steps]
    return {
        "schema": schema,
        "episodes": len(episodes),
        "turns": len(turns),
        "segments_per_episode": round(len(pieces) / len(episodes), 3),
        "sampled_tokens": sum(sum(piece.loss_mask) for piece in pieces),
        "trained_tokens": sum(len(piece.token_ids) for piece in pieces),
        "prompt_tokens": sum(len(turn.prompt_ids) for turn in turns),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin:tiny", help="whose tokenizer and chat template")
    parser.add_argument("--pages", choices=["full", "compact"], default="full", help="prompt and pages")
    parser.add_argument("--schema", action="append", choices=["static", "dynamic"], help="default: both")
    parser.add_argument("--url", help="a SGLang server, or a router before several")
    parser.add_argument("--routing", action="append", choices=["group", "episode", "none"], help="with --url")
    parser.add_argument("--max-steps", type=int, default=15)
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    chat, chunks = load_chat(options.model), read_bank(bank_path("builtin:s0")).chunks
    with tempfile.TemporaryDirectory() as folder:
        world = ShopSettings(world=WorldSettings(generate="small"), rendering=options.pages)
        world = world.model_copy(update={"max_steps": options.max_steps, "page_size": 20})
        shop = open_shop(world, Path(folder))
        for schema in options.schema or ["static", "dynamic"]:
            episodes = asyncio.run(play(chat, shop, schema, options.pages, chunks, options.max_steps))
            told = describe(episodes, schema)
            if options.url is None:
                rate = computed_hits(episodes) / told["prompt_tokens"]
                print(json.dumps({**told, "prefix_cache_hit_rate": round(rate, 4), "hit_rate_from": "computed"}))
                continue
            for routing in options.routing or ["group"]:
                cached, asked = asyncio.run(measured_hits(episodes, options.url, routing))
                measured = {"routing": routing, "prefix_cache_hit_rate": round(cached / asked, 4)}
                print(json.dumps({**told, **measured, "hit_rate_from": "sglang"}), flush=True)


if __name__ == "__main__":
    main()
