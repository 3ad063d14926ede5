"""Whether this shop does what the published one does: conformance cases in, verdicts out.

A file of cases holds small catalogs and, for each case, an input of some kind and the right answer. A *runner* feeds
the input to our code and gives back our answer in the shape of the expected one; a comparison says whether they agree.
Runners are plain functions kept by kind, so that a package which builds on the shop can add its own
(`run_cases(..., runners=RUNNERS | MINE)`). A case of a kind without a runner has the verdict `none`, and a runner that
fails disagrees: an exception is an answer too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from shopsimulator.catalog import inspect_records
from shopsimulator.conformance_pages import COMPARISONS as PAGE_COMPARISONS
from shopsimulator.conformance_pages import RUNNERS as PAGE_RUNNERS
from shopsimulator.conformance_scores import RUNNERS as SCORE_RUNNERS
from shopsimulator.conformance_service import COMPARISONS as SERVICE_COMPARISONS
from shopsimulator.conformance_service import RUNNERS as SERVICE_RUNNERS
from shopsimulator.engine import ShopSettings, ShopWorld
from shopsimulator.errors import ShopError

SCHEMA = "upstream-conformance-cases-v1"
Input = Mapping[str, Any]
Record = dict[str, Any]


class Catalogs(Mapping[str, list[Record]]):
    """The catalogs of a file of cases as raw records by name; `world` opens one as a shop."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._records = {name: _expand(content) for name, content in raw.items()}
        self._worlds: dict[str, ShopWorld] = {}

    def __getitem__(self, name: str) -> list[Record]:
        return self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def world(self, name: str) -> ShopWorld:
        """Title terms are lexical: the cases are derived without spaCy."""
        if name not in self._worlds:
            catalog = inspect_records(self[name]).catalog
            self._worlds[name] = ShopWorld(catalog, ShopSettings(title_terms="lexical"))
        return self._worlds[name]


Runner = Callable[[Input, Catalogs], Any]
Comparison = Callable[[Any, Any], bool]
RUNNERS: dict[str, Runner] = {**PAGE_RUNNERS, **SERVICE_RUNNERS, **SCORE_RUNNERS}
COMPARISONS: dict[str, Comparison] = {**PAGE_COMPARISONS, **SERVICE_COMPARISONS}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case: `none` if nothing here answers its kind. `ours` is our answer."""

    id: str
    group: str
    verdict: Literal["agree", "disagree", "none"]
    ours: Any

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_file(
    path: str | Path,
    runners: Mapping[str, Runner] = RUNNERS,
    comparisons: Mapping[str, Comparison] = COMPARISONS,
) -> list[Verdict]:
    """Every case of a file, in its order. Raises `ShopError` if it is no file of cases."""
    try:
        content = orjson.loads(Path(path).read_bytes())
    except OSError as error:
        raise ShopError(f"{path}: cannot read the cases: {error.strerror or error}") from error
    except orjson.JSONDecodeError as error:
        raise ShopError(f"{path}: not JSON in UTF-8: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ShopError(f"{path}: not a file of cases; its `schema` must be {SCHEMA}")
    return run_cases(content["cases"], Catalogs(content["catalogs"]), runners, comparisons)


def run_cases(
    cases: list[Record],
    catalogs: Catalogs,
    runners: Mapping[str, Runner] = RUNNERS,
    comparisons: Mapping[str, Comparison] = COMPARISONS,
) -> list[Verdict]:
    return [_run(case, catalogs, runners, comparisons) for case in cases]


def _run(
    case: Record, catalogs: Catalogs, runners: Mapping[str, Runner], comparisons: Mapping[str, Comparison]
) -> Verdict:
    runner = runners.get(case["kind"])
    if runner is None:
        return Verdict(case["id"], case["group"], "none", None)
    try:
        ours = runner(case["input"], catalogs)
    except Exception as error:  # whatever a runner dies of is our answer to this case
        ours = {"error": f"{type(error).__name__}: {error}"}
    agree = comparisons.get(case["kind"], agrees)(case["expect"], ours)
    return Verdict(case["id"], case["group"], "agree" if agree else "disagree", ours)


def agrees(expected: Any, ours: Any) -> bool:
    """Whether ours says what is expected; it may say more in fields that are not asked for."""
    if isinstance(expected, dict):
        return isinstance(ours, Mapping) and all(
            key in ours and agrees(value, ours[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(ours, list | tuple) and len(ours) == len(expected) and all(map(agrees, expected, ours))
    if isinstance(expected, float) and isinstance(ours, float):
        return abs(expected - ours) <= 1e-9 * max(1.0, abs(expected))
    return bool(expected == ours) and isinstance(expected, bool) == isinstance(ours, bool)


def _expand(content: Any) -> list[Record]:
    """Records as they stand, or `count` of them made by a pattern."""
    if isinstance(content, list):
        return content
    pattern = dict(content["generate"])
    count, asin, task_id = pattern.pop("count"), pattern.pop("asin_start"), pattern.pop("task_id_start")
    title = pattern.pop("title")
    records = []
    for number in range(count):
        name = title.replace("{n}", str(number + 1))
        task = {"task_id": task_id + number, "instruction": name, "attributes": pattern["attribute"]}
        records.append({**pattern, "asin": str(asin + number), "title": name, "instructions": [task]})
    return records
