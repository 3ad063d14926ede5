"""From many lessons to few candidates.

Lessons of the same mechanism and operation (for a rewrite: of the same chunk) form a **cluster**; clusters whose words
are mostly the same are joined, since a language model names one mechanism in several ways. A cluster with enough cards
becomes one candidate. Its text is a wording of the mechanism that has not been tried, or, for mechanisms nobody has
words for, the lesson that has most in common with the others.

What a candidate must not be: a text that stands in the bank or among the candidates already, one that a gate turned
down before, a rewrite of a chunk that is not active, or text that the firewall refuses. What is dropped is listed with
the reason. The order (most cards first, additions before rewrites) decides who is cut at the limit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from intraskill.core.records import Style
from intraskill.core.words import words
from intraskill.evolution.cards import Lesson, Operation, chunk_key, parse_abstraction, text_key
from intraskill.evolution.firewall import check
from intraskill.evolution.ledger import rejected_texts
from intraskill.families.analysis import Abstraction, Facts, Mechanisms
from intraskill.gate.interventions import Candidate
from intraskill.skills.bank import Bank, Chunk, chunk_record

_SAME_WORDS = 0.5  # Jaccard similarity from which two clusters are one
_FILLER = frozenset(words("a an and at be by for from if in into is it of on or that the to"))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Lessons that say the same, by card id."""

    operation: Operation
    target: str | None
    mechanism: str
    lessons: tuple[Lesson, ...]

    @property
    def cards(self) -> tuple[str, ...]:
        return tuple(sorted(lesson.card_id for lesson in self.lessons))


@dataclass(frozen=True, slots=True)
class Dropped:
    """A cluster that became no candidate, and why."""

    reason: str
    operation: Operation
    target: str | None
    mechanism: str
    cards: tuple[str, ...]
    abstraction: Abstraction


@dataclass(frozen=True, slots=True)
class Compiled:
    """The candidates in the order of the pool, and what was left out."""

    candidates: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...]


@dataclass(frozen=True)
class Limits:
    """`count` candidates at most, each with `min_cards` cards or more, worded in `style`."""

    count: int
    min_cards: int
    style: Style


def compile_candidates(
    lessons: Iterable[Lesson],
    bank: Bank,
    ledger: Iterable[Mapping[str, Any]],
    facts: Facts,
    mechanisms: Mechanisms,
    limits: Limits,
    proposals: Sequence[tuple[Cluster, Abstraction | None]] | None = None,
) -> Compiled:
    """Candidates of the lessons; pure.

    `mechanisms` are those the family has words for; `proposals` replaces the built-in choice of clusters, and of texts
    if given.
    """
    rejected = rejected_texts(ledger)
    pairs: Sequence[tuple[Cluster, Abstraction | None]]
    pairs = proposals if proposals is not None else [(cluster, None) for cluster in clusters(lessons, mechanisms)]
    candidates: list[Candidate] = []
    dropped: list[Dropped] = []
    for cluster, text in pairs:
        texts = (text,) if text is not None else tuple(_texts(cluster, mechanisms, limits.style))
        chosen, reason = _choose(cluster, texts, bank, candidates, rejected, facts, mechanisms, limits)
        if reason is None and len(candidates) >= limits.count:
            reason = "over_limit"
        if reason is None:
            candidates.append(_candidate(cluster, chosen, bank.ids))
        else:
            dropped.append(_dropped(reason, cluster, chosen))
    return Compiled(tuple(candidates), tuple(dropped))


def clusters(lessons: Iterable[Lesson], mechanisms: Mechanisms) -> list[Cluster]:
    """Lessons grouped by what they say, in the order of `aligned`."""
    grouped: dict[tuple[str, str, str], list[Lesson]] = {}
    for lesson in sorted(lessons, key=lambda item: item.card_id):
        key = (lesson.operation, lesson.target or "", _slug(lesson.abstraction.mechanism))
        grouped.setdefault(key, []).append(lesson)
    found = [
        Cluster(group[0].operation, group[0].target, name, tuple(group)) for (_, _, name), group in grouped.items()
    ]
    return aligned(found, mechanisms)


def aligned(found: Iterable[Cluster], mechanisms: Mechanisms) -> list[Cluster]:
    """Clusters that say the same joined into one, largest first, additions before rewrites of the same size."""
    joined: list[Cluster] = []
    known = mechanisms.names()
    for cluster in sorted(found, key=_by_size):
        twin = next((i for i, other in enumerate(joined) if _same(cluster, other, known)), None)
        if twin is None:
            joined.append(cluster)
        else:
            joined[twin] = replace(joined[twin], lessons=(*joined[twin].lessons, *cluster.lessons))
    return sorted(joined, key=_by_size)


def candidate_record(candidate: Candidate) -> dict[str, Any]:
    """A candidate as JSON."""
    return {
        "operation": candidate.operation,
        "target": candidate.target,
        "chunk": chunk_record(candidate.chunk),
    }


def parse_candidate(record: Mapping[str, Any]) -> Candidate:
    chunk = Chunk(**{**record["chunk"], "procedure": tuple(record["chunk"]["procedure"])})
    return Candidate(chunk, record["operation"], record["target"])


def dropped_record(item: Dropped) -> dict[str, Any]:
    return asdict(item)


def parse_dropped(record: Mapping[str, Any]) -> Dropped:
    return Dropped(
        **{**record, "cards": tuple(record["cards"]), "abstraction": parse_abstraction(record["abstraction"])}
    )


def _choose(
    cluster: Cluster,
    texts: Sequence[Abstraction],
    bank: Bank,
    candidates: Sequence[Candidate],
    rejected: frozenset[tuple[str, str]],
    facts: Facts,
    mechanisms: Mechanisms,
    limits: Limits,
) -> tuple[Abstraction, str | None]:
    """The first text that may become a candidate, or the first text and the last reason why none may.

    The firewall comes first: what it refuses must not stand in the records of what was dropped, either.
    """
    released = [text for text in texts if not check(text, facts)]
    if not released:
        return texts[0], "firewall"
    texts = released
    if len(cluster.lessons) < limits.min_cards:
        return texts[0], "too_few_cards"
    if cluster.operation == "REWRITE" and cluster.target not in bank.ids:
        return texts[0], "target_not_active"
    if cluster.operation == "ADD" and cluster.mechanism in {mechanisms.of(chunk) for chunk in bank.chunks}:
        return texts[0], "covered_by_bank"
    present = {chunk_key(chunk) for chunk in bank.chunks}
    proposed = {chunk_key(candidate.chunk) for candidate in candidates}
    reason: str | None = "no_text"
    for text in texts:
        key = text_key(text.applies_when, text.procedure)
        if key in present:
            reason = "duplicate_of_bank"
        elif key in proposed:
            reason = "duplicate_of_candidate"
        elif (cluster.target or "", key) in rejected:
            reason = "rejected_before"
        else:
            return text, None
    return texts[0], reason


def _dropped(reason: str, cluster: Cluster, text: Abstraction) -> Dropped:
    """The record of a cluster left out; what the firewall refused is not repeated in it."""
    if reason == "firewall":
        text = Abstraction("refused", "refused by the firewall", "", ())
    mechanism = text.mechanism if reason == "firewall" else cluster.mechanism
    return Dropped(reason, cluster.operation, cluster.target, mechanism, cluster.cards, text)


def _texts(cluster: Cluster, mechanisms: Mechanisms, style: Style) -> Iterator[Abstraction]:
    """Texts to try in turn: known wordings of the mechanism, else the lessons themselves, most typical first."""
    own = sorted(cluster.lessons, key=lambda lesson: (-_typicality(lesson, cluster.lessons), lesson.card_id))
    title = own[0].abstraction.title
    known = mechanisms.wordings(cluster.mechanism, title, style)
    if not known or any(lesson.abstraction.title != title for lesson in own):
        yield from dict.fromkeys(lesson.abstraction for lesson in own)
        return
    for applies_when, procedure in known:
        yield replace(own[0].abstraction, applies_when=applies_when, procedure=procedure)


def _typicality(lesson: Lesson, others: Sequence[Lesson]) -> float:
    said = _words(lesson.abstraction)
    return sum(_similarity(said, _words(other.abstraction)) for other in others)


def _same(one: Cluster, other: Cluster, known: Collection[str]) -> bool:
    if (one.operation, one.target) != (other.operation, other.target):
        return False
    if one.mechanism in known and other.mechanism in known:
        return one.mechanism == other.mechanism
    return _similarity(_words(one.lessons[0].abstraction), _words(other.lessons[0].abstraction)) >= _SAME_WORDS


def _words(text: Abstraction) -> frozenset[str]:
    said = " ".join((text.title, text.applies_when, *text.procedure)).lower()
    return frozenset(words(said)) - _FILLER


def _similarity(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))


def _slug(name: str) -> str:
    return "_".join(re.findall(r"[^\W_]+", name.lower())) or "unnamed"


def _by_size(cluster: Cluster) -> tuple[int, bool, str, str]:
    return (-len(cluster.lessons), cluster.operation == "REWRITE", cluster.mechanism, cluster.target or "")


def _candidate(cluster: Cluster, text: Abstraction, taken: Sequence[str]) -> Candidate:
    """A candidate under a name made of what it says, and of none of the names that the bank has `taken`.

    A chunk keeps its name when it is rewritten, so the name of an older text may come back with the text itself.
    """
    said = "\x1f".join((cluster.operation, cluster.target or "", text.applies_when, *text.procedure))
    while (name := f"online-{hashlib.sha256(said.encode()).hexdigest()[:16]}") in taken:
        said += "\x1fonce more"
    chunk = Chunk(
        skill_id=name,
        title=text.title,
        applies_when=text.applies_when,
        procedure=text.procedure,
        verify=text.verify,
        avoid=text.avoid,
        metadata={
            "mechanism": cluster.mechanism,
            "operation": cluster.operation,
            "cards": list(cluster.cards),
            "channels": sorted({lesson.channel for lesson in cluster.lessons}),
        },
    )
    return Candidate(chunk, cluster.operation, cluster.target)
