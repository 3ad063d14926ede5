"""What may not pass from the evidence into a skill: a pure check with reasons.

A chunk is read by the policy on every task, also on those that judge it. So its text must not carry anything of the
task it was learned from, nor anything a shopper cannot see. `check` looks for, in every field:

- `asin`, `long_identifier`, `task_id`: names of products, tasks and records;
- `title`, `title_fragment`: product titles, also misspelt ones, or four words in a row of a longer title. A title that
  reads like an instruction is still a title: this is what keeps it out of the bank;
- `gold_fact`: attributes and options of the episode's own goal; `instance_price`, `price`: its prices, or any price;
- `unobservable`: conditions on the goal, the reward or other things no shopper sees;
- `injection`, `hidden_characters`, `foreign_letters`: mark-up, links, instructions to the reader, characters that do
  not show, letters of other scripts (a Cyrillic о hides a brand from every comparison);
- `foreign_split`: evidence of a task outside the training split.

Accents and full-width forms make no difference. All fields are also read as one word without spaces and punctuation,
so that spelling a name out, or spreading it over two fields, does not help.

A hit turns the proposal into no proposal; the card on disk keeps the hit. The check errs on the strict side: a lost
proposal costs little, a leak spoils every later score.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from shopsimulator.catalog import Catalog
from shopsimulator.text import contains, has_cjk

from intraskill.evolution.cards import Abstraction, Card, Lesson, PrivilegedAudit
from intraskill.families.shop.titles import TitleIndex, plain, squeezed

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_THOUSANDS = re.compile(r"(?<=\d)[,'](?=\d{3}(?!\d))")
_WORD = re.compile(r"[^\W_]+(?:[-_][^\W_]+)*")
_AMOUNT = (
    r"(?:\d|\b(?:ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand)\b|"
    r"[一二两三四五六七八九][十百千万零一二三四五六七八九]*[十百千万])"
)
_PRICE = re.compile(
    rf"[$€£¥]\s*\d|{_AMOUNT}[-\s]*(?:yuan|usd|eur|dollars?|euros?|pounds?|bucks|rmb|cents?|元|块)|[一二两三四五六七八九]元",
    re.IGNORECASE,
)
_UNOBSERVABLE = re.compile(
    r"\bgold(?:en)?\s+(?:product|item|option|attribute|answer|target)|\b(?:the|a)\s+gold\b|"
    r"\b(?:goal|target)\s+(?:product|item|asin|option|attribute)|"
    r"\bhidden\s+(?:goal|product|option|attribute|requirement|instruction)|\banswer\s+key\b|\bground[ -]truth\b|"
    r"\brewards?\b|\br[ _-](?:success|strict|loose|type|att|option|price)\b|\bscor(?:e[ds]?|ers?|ing)\b|\basins?\b|"
    r"\b(?:grader|oracle|verifier)\b|\btask[ _-]?ids?\b|\b(?:validation|evaluation|test)[ _-]+(?:set|split|tasks?)\b|"
    r"目标商品|目标产品|标准答案|正确答案|真实需求|隐藏|奖励|得分|评分|满分|测试集|验证集",
    re.IGNORECASE,
)
_INJECTION = re.compile(
    r"</?[a-z_|!][^>]*>|<\||&[a-z]+;|\[/?inst\]|\{\{|https?://|javascript:|www\.|\w\.(?:com|net|org|cn)\b|```|"
    r"\btool_call\b|\bsystem\s+(?:prompt|message)\b|\b(?:system|assistant)\s*:|\byou\s+are\s+now\b|\bnew\s+instructions?\b|"
    r"\b(?:ign[o0]re|disregard|forget|override|pay\s+no\s+attention\s+to|(?:do\s+not|don't)\s+(?:follow|obey))\b.{0,30}"
    r"\b(?:instruction|rule|previous|above|all|prompt|everything)|"
    r"(?:忽略|忽视|无视|忘记|不要理会|别管|不要遵守).{0,12}(?:指令|规则|以上|之前|提示)|系统提示",
    re.IGNORECASE,
)
_HIDDEN = ("Cc", "Cf", "Co", "Cs", "Mn", "Me", "Zl", "Zp")
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols that show nothing
_SCRIPTS = ("LATIN", "CJK", "IDEOGRAPHIC")
_LONG_DIGITS = 5
_LONG_MIXED = 8
_LONG_NAME, _LONG_CHINESE_NAME = 6, 3  # characters from which a name counts inside a longer word


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
    task_ids: frozenset[str]
    titles: TitleIndex
    train_ids: frozenset[str]

    @cached_property
    def long_asins(self) -> tuple[str, ...]:
        """Those that cannot stand inside a longer word by chance, squeezed."""
        return tuple(word for word in map(squeezed, self.asins) if len(word) >= _LONG_NAME)


def catalog_facts(catalog: Catalog, train_ids: Sequence[str]) -> Facts:
    """The facts of a catalog; made once a run."""
    return Facts(
        asins=frozenset(asin.lower() for asin in catalog.products) | {item.asin.lower() for item in catalog.excluded},
        task_ids=frozenset(map(str, catalog.tasks)),
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
        hits.append(Hit("foreign_split", "task", card.privileged_audit.task_id))
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
    if not hits:
        whole = squeezed(plain(" ".join(abstraction.texts().values())))
        hits = [Hit(reason, "together", excerpt) for reason, excerpt in _spelt_out(whole, facts, audit)]
    return tuple(hits)


def _findings(text: str, facts: Facts, audit: PrivilegedAudit | None) -> Iterator[tuple[str, str]]:
    composed = unicodedata.normalize("NFC", text)
    if hidden := [c for c in composed if unicodedata.category(c) in _HIDDEN or c in _BLANKS]:
        yield "hidden_characters", ascii("".join(hidden))
    shown = _THOUSANDS.sub("", plain("".join(" " if c in hidden else c for c in composed)))
    if foreign := [c for c in shown if c.isalpha() and not unicodedata.name(c, "").startswith(_SCRIPTS)]:
        yield "foreign_letters", "".join(foreign)
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
        if "." not in number and str(int(number)) in facts.task_ids:
            yield "task_id", number


def _spelt_out(whole: str, facts: Facts, audit: PrivilegedAudit | None) -> Iterator[tuple[str, str]]:
    """Names that stand in the text without its spaces and punctuation."""
    if asin := next((asin for asin in facts.long_asins if asin in whole), None):
        yield "asin", asin
    if title := facts.titles.spelt_out(whole):
        yield "title", title
    for name in _goal_names(audit) if audit else ():
        word = squeezed(name)
        if len(word) >= (_LONG_CHINESE_NAME if has_cjk(word) else _LONG_NAME) and word in whole:
            yield "gold_fact", name


def _is_mixed(word: str) -> bool:
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def _instance_facts(text: str, audit: PrivilegedAudit) -> Iterator[tuple[str, str]]:
    purchase = audit.purchase or {}
    for name in _goal_names(audit):
        if contains(text, name):
            yield "gold_fact", name
    prices = {_number(value) for value in (audit.goal.get("price_upper"), purchase.get("price"))} - {None}
    for number in _NUMBER.findall(text):
        if float(number) in prices:
            yield "instance_price", number


def _goal_names(audit: PrivilegedAudit) -> list[str]:
    """The attributes and options of the task's goal, plain."""
    names = [*audit.goal.get("attributes", ()), *audit.goal.get("options", ())]
    return [name for name in dict.fromkeys(plain(str(name)) for name in names) if name]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
