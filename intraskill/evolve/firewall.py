"""What may not pass from the evidence into a skill: a pure check with reasons.

A chunk is read by the policy on every task, also on those that judge it. So its text must not carry anything of the
task it was learned from, nor anything a shopper cannot see. `check` looks for, in every field:

- `asin`, `long_identifier`, `task_id`: names of products, tasks and records;
- `title`, `title_fragment`: product titles, also misspelt ones, or four words in a row of a longer title. A title that
  reads like an instruction is still a title: this is what keeps it out of the bank;
- `gold_fact`: attributes and options of the episode's own goal; `instance_price`, `price`: its prices, or any price;
- `unobservable`: conditions on the goal, the reward or other things no shopper sees;
- `injection`, `hidden_characters`: mark-up, links, instructions to the reader, characters that do not show;
- `foreign_split`: evidence of a task outside the training split.

A hit turns the proposal into no proposal; the card on disk keeps the hit. The check errs on the strict side: a lost
proposal costs little, a leak spoils every later score.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shopsimulator.catalog import Catalog
from shopsimulator.text import contains, fold

from intraskill.evolve.cards import Abstraction, Card, Lesson, PrivilegedAudit
from intraskill.evolve.titles import TitleIndex

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[^\W_]+(?:[-_][^\W_]+)*")
_PRICE = re.compile(r"[$€£¥￥]\s*\d|\d+(?:\.\d+)?\s*(?:yuan|usd|eur|dollars?|euros?|rmb|cents?|元|块)", re.IGNORECASE)
_UNOBSERVABLE = re.compile(
    r"\bgold(?:en)?\s+(?:product|item|option|attribute|answer|target)|\b(?:the|a)\s+gold\b|"
    r"\b(?:goal|target)\s+(?:product|item|asin|option|attribute)|"
    r"\bhidden\s+(?:goal|product|option|attribute|requirement|instruction)|\banswer\s+key\b|\bground[ -]truth\b|"
    r"\brewards?\b|\br_(?:success|strict|loose|type|att|option|price)\b|\bscor(?:e|er|ing)\b|\basins?\b|"
    r"\btask[ _-]?ids?\b|\b(?:validation|test)\s+(?:set|split|tasks?)\b|"
    r"目标商品|标准答案|正确答案|隐藏|奖励|得分|测试集|验证集",
    re.IGNORECASE,
)
_INJECTION = re.compile(
    r"</?[a-z_|!][^>]*>|<\||https?://|www\.|```|\btool_call\b|\bsystem\s+(?:prompt|message)\b|\byou\s+are\s+now\b|"
    r"\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:instruction|rule|previous|above|all|prompt|everything)|"
    r"(?:忽略|无视|忘记).{0,12}(?:指令|规则|以上|之前|提示)|系统提示",
    re.IGNORECASE,
)
_LONG_DIGITS = 5
_LONG_MIXED = 8


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found: why it may not pass, in which field, and what it was (privileged as well)."""

    reason: str
    field: str
    excerpt: str


@dataclass(frozen=True)
class Facts:
    """What the whole catalog must keep to itself. `train_ids` are the only tasks evidence may come from."""

    asins: frozenset[str]
    task_ids: frozenset[int]
    titles: TitleIndex
    train_ids: frozenset[int]


def catalog_facts(catalog: Catalog, train_ids: Sequence[int]) -> Facts:
    """The facts of a catalog; made once a run."""
    return Facts(
        asins=frozenset(asin.lower() for asin in catalog.products) | {item.asin.lower() for item in catalog.excluded},
        task_ids=frozenset(catalog.tasks),
        titles=TitleIndex(product.title for product in catalog.products.values()),
        train_ids=frozenset(train_ids),
    )


def release(card: Card, facts: Facts) -> tuple[Lesson | None, tuple[Hit, ...]]:
    """The card's lesson, or the hits that keep it in. A card without a proposal or a verified purchase has neither."""
    abstraction, outcome = card.deployable_abstraction, card.outcome
    if outcome == "NO_PROPOSAL" or abstraction is None or not card.verified:
        return None, ()
    hits = list(check(abstraction, facts, card.privileged_audit))
    if card.privileged_audit.task_id not in facts.train_ids or card.privileged_audit.split != "train":
        hits.append(Hit("foreign_split", "task", str(card.privileged_audit.task_id)))
    if hits:
        return None, tuple(hits)
    if outcome == "PROPOSE_ADD":
        return Lesson(card.card_id, card.channel, "ADD", None, abstraction), ()
    return Lesson(card.card_id, card.channel, "REWRITE", card.target, abstraction), ()


def held_back(card: Card, hits: Sequence[Hit]) -> Card:
    """The card as a NO_PROPOSAL that tells what was found; the refused text goes to the privileged notes."""
    reasons = sorted({hit.reason for hit in hits})
    found = "; ".join(f"{hit.reason} in {hit.field}: {hit.excerpt}" for hit in hits)
    audit = card.privileged_audit
    notes = " | ".join(part for part in (audit.notes, f"firewall: {found}") if part)
    return replace(
        card,
        outcome="NO_PROPOSAL",
        reason=f"firewall: {', '.join(reasons)}",
        privileged_audit=replace(audit, notes=notes),
        deployable_abstraction=None,
    )


def check(abstraction: Abstraction, facts: Facts, audit: PrivilegedAudit | None = None) -> tuple[Hit, ...]:
    """Everything in the abstraction that may not pass; with `audit`, also the facts of its own task."""
    hits: list[Hit] = []
    for name, text in abstraction.texts().items():
        for reason, excerpt in _findings(text, facts, audit):
            hit = Hit(reason, name, excerpt)
            if hit not in hits:
                hits.append(hit)
    return tuple(hits)


def _findings(text: str, facts: Facts, audit: PrivilegedAudit | None) -> Iterator[tuple[str, str]]:
    if hidden := [character for character in text if unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")]:
        yield "hidden_characters", ascii("".join(hidden))
    shown = fold("".join(" " if character in hidden else character for character in text))
    yield from _identifiers(shown, facts)
    for reason, pattern in (("unobservable", _UNOBSERVABLE), ("injection", _INJECTION), ("price", _PRICE)):
        if match := pattern.search(shown):
            yield reason, match.group(0)
    yield from facts.titles.find(shown)
    if audit is not None:
        yield from _instance_facts(shown, audit)


def _identifiers(text: str, facts: Facts) -> Iterator[tuple[str, str]]:
    for word in _WORD.findall(text):
        joined = re.sub(r"[-_]", "", word)
        if word in facts.asins or joined in facts.asins:
            yield "asin", word
        elif len(re.sub(r"\D", "", joined)) >= _LONG_DIGITS or (len(joined) >= _LONG_MIXED and _is_mixed(joined)):
            yield "long_identifier", word
    for number in _NUMBER.findall(text):
        if "." not in number and int(number) in facts.task_ids:
            yield "task_id", number


def _is_mixed(word: str) -> bool:
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def _instance_facts(text: str, audit: PrivilegedAudit) -> Iterator[tuple[str, str]]:
    purchase = audit.purchase or {}
    names = [*audit.goal.get("attributes", ()), *audit.goal.get("options", ())]
    for name in dict.fromkeys(fold(str(name)) for name in names):
        if name and contains(text, name):
            yield "gold_fact", name
    prices = {_number(value) for value in (audit.goal.get("price_upper"), purchase.get("price"))} - {None}
    for number in _NUMBER.findall(text):
        if float(number) in prices:
            yield "instance_price", number


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
