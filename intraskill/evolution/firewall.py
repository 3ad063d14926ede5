"""What may not pass from the evidence into a skill: a pure check with reasons.

A chunk is read by the policy on every task, also on those that judge it. So its text must not carry anything of the
task it was learned from, nor anything an agent cannot see. What that is the task family says (`Facts`). `check` looks
for, in every field:

- `long_identifier`, `task_id`, and the family's identifiers under their own reason: names of things, tasks and records;
- the family's passages, under their own reasons: texts of its world, also misspelt or in part. A passage that reads
  like an instruction is still a passage: this is what keeps it out of the bank;
- `gold_fact`, `instance_number`: names and numbers of the episode's own goal;
- `unobservable`: conditions on the goal, the reward or other things no agent sees; and the family's own patterns;
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

from intraskill.core.words import contains, has_cjk, plain, squeezed
from intraskill.evolution.cards import Lesson
from intraskill.families.analysis import LONG_NAME, Abstraction, Card, Facts, OwnFacts, PrivilegedAudit

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_THOUSANDS = re.compile(r"(?<=\d)[,'](?=\d{3}(?!\d))")
_WORD = re.compile(r"[^\W_]+(?:[-_][^\W_]+)*")
_UNOBSERVABLE = re.compile(
    r"\bgold(?:en)?\s+(?:answer|target)|\b(?:the|a)\s+gold\b|\bhidden\s+(?:goal|requirement|instruction)|"
    r"\banswer\s+key\b|\bground[ -]truth\b|\brewards?\b|\bscor(?:e[ds]?|ers?|ing)\b|\b(?:grader|oracle|verifier)\b|"
    r"\btask[ _-]?ids?\b|\b(?:validation|evaluation|test)[ _-]+(?:set|split|tasks?)\b|"
    r"标准答案|正确答案|真实需求|隐藏|奖励|得分|评分|满分|测试集|验证集",
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
_PATTERNS = (("unobservable", _UNOBSERVABLE), ("injection", _INJECTION))
_HIDDEN = ("Cc", "Cf", "Co", "Cs", "Mn", "Me", "Zl", "Zp")
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols that show nothing
_SCRIPTS = ("LATIN", "CJK", "IDEOGRAPHIC")
_LONG_DIGITS = 5
_LONG_MIXED = 8
_LONG_CHINESE_NAME = 3  # characters from which a Chinese name counts inside a longer word


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found: why it may not pass, in which field, and what it was (privileged as well)."""

    reason: str
    field: str
    excerpt: str


def release(card: Card, facts: Facts) -> tuple[Lesson | None, tuple[Hit, ...]]:
    """The card's lesson, or the hits that keep it in. A card without a proposal or a verified repair has neither."""
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
    own = facts.own(audit) if audit is not None else OwnFacts()
    hits: list[Hit] = []
    for name, text in abstraction.texts().items():
        for reason, excerpt in _findings(text, facts, own):
            hit = Hit(reason, name, excerpt)
            if hit not in hits:
                hits.append(hit)
    if not hits:
        whole = squeezed(plain(" ".join(abstraction.texts().values())))
        hits = [Hit(reason, "together", excerpt) for reason, excerpt in _spelt_out(whole, facts, own)]
    return tuple(hits)


def _findings(text: str, facts: Facts, own: OwnFacts) -> Iterator[tuple[str, str]]:
    composed = unicodedata.normalize("NFC", text)
    if hidden := [c for c in composed if unicodedata.category(c) in _HIDDEN or c in _BLANKS]:
        yield "hidden_characters", ascii("".join(hidden))
    shown = _THOUSANDS.sub("", plain("".join(" " if c in hidden else c for c in composed)))
    if foreign := [c for c in shown if c.isalpha() and not unicodedata.name(c, "").startswith(_SCRIPTS)]:
        yield "foreign_letters", "".join(foreign)
    yield from _identifiers(shown, facts)
    for reason, pattern in (*_PATTERNS, *facts.patterns):
        if match := next(pattern.finditer(shown), None):
            yield reason, match.group(0)
    yield from facts.passages.find(shown)
    yield from _own_facts(shown, own)


def _identifiers(text: str, facts: Facts) -> Iterator[tuple[str, str]]:
    for word in _WORD.findall(text):
        joined = re.sub(r"[-_]", "", word)
        reason = next((kind for kind, names in facts.names.items() if word in names or joined in names), None)
        if reason is not None:
            yield reason, word
        elif len(re.sub(r"\D", "", joined)) >= _LONG_DIGITS or (len(joined) >= _LONG_MIXED and _is_mixed(joined)):
            yield "long_identifier", word
    for number in _NUMBER.findall(text):
        if "." not in number and str(int(number)) in facts.task_ids:
            yield "task_id", number


def _spelt_out(whole: str, facts: Facts, own: OwnFacts) -> Iterator[tuple[str, str]]:
    """Names that stand in the text without its spaces and punctuation."""
    if found := next(((reason, name) for reason, name in facts.long_names if name in whole), None):
        yield found
    if passage := facts.passages.spelt_out(whole):
        yield passage
    for name in own.names:
        word = squeezed(name)
        if len(word) >= (_LONG_CHINESE_NAME if has_cjk(word) else LONG_NAME) and word in whole:
            yield "gold_fact", name


def _own_facts(text: str, own: OwnFacts) -> Iterator[tuple[str, str]]:
    for name in own.names:
        if contains(text, name):
            yield "gold_fact", name
    for number in _NUMBER.findall(text):
        if float(number) in own.numbers:
            yield "instance_number", number


def _is_mixed(word: str) -> bool:
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word)
