"""What does not fit is one line with file, key and remedy."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.storage.jsonl import JsonlLog
from intraskill.storage.schema import check_shape, parse, unknown_keys


class Part(msgspec.Struct):
    name: str
    size: Annotated[int, msgspec.Meta(ge=0)] = 0
    weight: float | None = None


class Whole(msgspec.Struct):
    others: ClassVar[Any] = float | None

    parts: list[Part]
    kind: str = ""


@dataclass(frozen=True)
class Plain:
    steps: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "the content: expected an object, got a list"),
        ({}, "parts is missing"),
        ({"parts": 1}, "parts: expected a list, got a whole number"),
        ({"parts": [{"name": "a"}, {}]}, r"parts\[1\]\.name is missing"),
        ({"parts": [{"name": None}]}, r"parts\[0\]\.name: expected a text, got null"),
        ({"parts": [{"name": "a", "size": "4"}]}, r"parts\[0\]\.size: expected a whole number, got a text"),
        ({"parts": [{"name": "a", "size": True}]}, r"parts\[0\]\.size: expected a whole number, got true or false"),
        ({"parts": [{"name": "a", "size": -1}]}, r"parts\[0\]\.size: expected a whole number >= 0"),
        ({"parts": [{"name": "a", "weight": "x"}]}, r"parts\[0\]\.weight: expected a number or null, got a text"),
        ({"parts": [], "more": "x"}, "more: expected a number or null, got a text"),
    ],
)
def test_the_first_key_that_does_not_fit_is_named(document, problem):
    with pytest.raises(StateCorrupted, match=rf"^run\.json: {problem}; restore the file$"):
        check_shape("run.json", document, Whole)


def test_what_no_reader_relies_on_may_be_new():
    check_shape("run.json", {"parts": [{"name": "a", "colour": "red"}], "more": 1, "other": None}, Whole)


def test_plain_dataclasses_are_checked_and_made():
    assert parse(Plain, {"steps": ["a"], "later": 1}, "x") == Plain(("a",))
    assert unknown_keys({"steps": [], "later": 1}, Plain) == ["later"]
    with pytest.raises(UserError, match=r"^bank: steps\[0\]: expected a text, got null; mend it$"):
        parse(Plain, {"steps": [None]}, "bank", remedy="mend it", error=UserError)


def test_typed_records_name_the_line_that_does_not_fit(tmp_path):
    log = JsonlLog(tmp_path / "log.jsonl")
    log.append_many([{"name": "a", "later": 1}, {"name": "b", "size": 2}])
    assert list(log.read_as(Part)) == [Part("a"), Part("b", 2)]
    log.append({"name": 3})
    with pytest.raises(StateCorrupted, match=r"log\.jsonl:3: name: expected a text, got a whole number; restore"):
        list(log.read_as(Part))


def test_typed_reading_skips_a_torn_last_line_and_refuses_any_other(tmp_path):
    log = JsonlLog(tmp_path / "log.jsonl")
    log.path.write_bytes(b'{"name":"a"}\n{"name":')
    assert list(log.read_as(Part)) == [Part("a")]
    log.path.write_bytes(b'{"name":\n{"name":"b"}\n')
    with pytest.raises(StateCorrupted, match=r"log\.jsonl:1: not a JSON record"):
        list(log.read_as(Part))
