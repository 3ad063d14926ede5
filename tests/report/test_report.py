"""The report shows what is there, at any moment of a run, and nothing that isn't."""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from intraskill.core.errors import StateCorrupted, UserError
from intraskill.report.html import write_report
from intraskill.report.labels import decision
from intraskill.report.plots import GATES_SHOWN, clean, trailing_mean
from intraskill.report.rounds import summarize_rounds
from intraskill.report.run_data import read_gate, read_run
from intraskill.storage.documents import read_json, write_json_atomic
from intraskill.storage.jsonl import JsonlLog

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Balance(HTMLParser):
    """Collects text, tags and attributes, and fails on tags that don't match."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style",):
            self.text += data


def parse(page: Path) -> Balance:
    parser = Balance()
    parser.feed(page.read_text("utf-8"))
    assert parser.open == []
    return parser


def test_a_finished_run_shows_its_numbers_pictures_and_gates(make_run: Callable) -> None:
    builder = make_run().run(4)
    page = write_report(builder.path)
    assert page == builder.path / "report" / "index.html"
    text = " ".join(parse(page).text.split())
    for expected in (
        "finished",
        "70.0 %",
        "+40.0",
        "dropped",
        "hurry",
        "Gate on the initial bank",
        "Gate after round 3",
    ):
        assert expected in text
    for name in ("validation", "training", "chunks", "bank"):
        ElementTree.parse(page.with_name(f"{name}.svg"))
        with Image.open(page.with_name(f"{name}.png")) as image:
            assert image.width > 1000
            assert len(image.convert("L").getcolors()) > 20


def test_dropped_are_the_chunks_that_left_the_bank(make_run: Callable) -> None:
    """Neither the old text of a chunk that was rewritten nor a candidate that was turned down."""
    builder = make_run().run(1)
    folder = builder.path / "rounds/round-000/gate"
    document = json.loads((folder / "contributions.json").read_text())
    before = read_gate(folder).dropped
    rewritten, gone, *_ = (row for row in document["contributions"] if row["status"] == "selected")
    rewritten["status"], gone["status"] = "rewrite_loser", "retired"
    candidate = {"kind": "candidate", "coefficient": 0.2}
    document["contributions"] += [
        {**rewritten, **candidate, "intervention_id": "online-1", "operation": "REWRITE", "status": "selected"},
        {**rewritten, **candidate, "intervention_id": "online-2", "operation": "REWRITE", "status": "rewrite_loser"},
        {**gone, **candidate, "intervention_id": "online-3", "logical_chunk_id": "online-3", "status": "non_positive"},
    ]
    (folder / "contributions.json").write_text(json.dumps(document))
    bank = json.loads((folder / "selected_skill_bank.json").read_text())
    bank["chunks"] = [chunk for chunk in bank["chunks"] if chunk["skill_id"] != gone["intervention_id"]]
    (folder / "selected_skill_bank.json").write_text(json.dumps(bank))
    assert set(read_gate(folder).dropped) == {*before, gone["intervention_id"]}


def test_a_rewrite_stands_below_its_chunk_and_says_when_it_came(make_run: Callable) -> None:
    builder = make_run().run(1)
    path = builder.path / "rounds/round-000/gate/contributions.json"
    document = read_json(path)
    old = document["contributions"][0]
    new = {"kind": "candidate", "operation": "REWRITE", "intervention_id": "online-1", "status": "rewrite_loser"}
    document["contributions"].append({**old, **new})
    write_json_atomic(path, document)
    page = write_report(builder.path)
    assert "turned down" in page.read_text()
    drawn = re.findall(r">([^<>]+)</text>", page.with_name("chunks.svg").read_text())
    below = drawn[drawn.index("(new text, round 0)") - 2 :]
    assert below[:3] == [old["title"], old["title"], "(new text, round 0)"]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"kind": "current", "status": "selected"}, "kept"),
        ({"kind": "current", "status": "retired"}, "left"),
        ({"kind": "current", "status": "rewrite_loser"}, "replaced"),
        ({"kind": "current", "status": "budget_excluded"}, "no room"),
        ({"kind": "candidate", "operation": "ADD", "status": "selected"}, "added"),
        ({"kind": "candidate", "operation": "REWRITE", "status": "selected"}, "rewritten"),
        ({"kind": "candidate", "operation": "REWRITE", "status": "rewrite_loser"}, "turned down"),
        ({"kind": "candidate", "operation": "ADD", "status": "non_positive"}, "turned down"),
    ],
)
def test_decisions_are_told_in_the_words_of_the_history(row: dict, word: str) -> None:
    assert decision(row) == word


def test_coefficients_stand_beside_both_standard_errors(make_run: Callable) -> None:
    builder = make_run().run(1)
    page = write_report(builder.path).read_text()
    for row in read_json(builder.path / "gate_a" / "contributions.json")["contributions"]:
        assert f"{row['coefficient']:+.3f}" in page
    assert "0.035" in page
    assert "0.036" in page


def test_the_page_loads_nothing_from_anywhere(make_run: Callable) -> None:
    page = write_report(make_run().run(2).path)
    parser = parse(page)
    assert not parser.tags & {"script", "link", "iframe", "object", "img"}
    for name, value in parser.attributes:
        if name in ("src", "href", "xlink:href", "action"):
            assert value is not None
            assert value.startswith("#")
    assert not re.search(r"url\((?!#)|@import", page.read_text())


def test_every_colour_of_a_picture_follows_the_page(make_run: Callable) -> None:
    text = write_report(make_run().run(2).path).read_text()
    assert "var(--equipped)" in text
    assert "prefers-color-scheme: dark" in text
    drawn = text[text.index("<figure>") : text.rindex("</figure>")]
    assert not re.search(r"(fill|stroke): ?#", drawn)


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$\\frac{", "{{ 7*7 }}"]
)
def test_hostile_text_stays_text(make_run: Callable, text: str) -> None:
    builder = make_run().run(2)
    for path in builder.path.rglob("*.json"):
        if path.name in ("skill_bank.json", "selected_skill_bank.json", "contributions.json"):
            document = read_json(path)
            for chunk in document.get("chunks", []) + document.get("contributions", []):
                chunk["title"] = chunk["applies_when"] = text
                chunk["procedure"] = [text]
            write_json_atomic(path, document)
    run = read_json(builder.path / "run.json")
    run["name"] = run["settings"]["policy"]["model"] = text
    write_json_atomic(builder.path / "run.json", run)
    page = write_report(builder.path)
    parser = parse(page)
    assert not parser.tags & {"script", "img"}
    assert text in parser.text


def test_control_characters_and_other_scripts_do_not_break_the_pictures(make_run: Callable) -> None:
    builder = make_run().run(1)
    path = builder.path / "gate_a" / "contributions.json"
    document = read_json(path)
    document["contributions"][0]["title"] = "用常用品牌\x00搜索\u2028\x1b[31m 🛒"
    write_json_atomic(path, document)
    page = write_report(builder.path)
    ElementTree.parse(page.with_name("chunks.svg"))
    parse(page)


def test_an_empty_run_has_a_page_that_says_so(make_run: Callable) -> None:
    builder = make_run()
    builder.start()
    page = write_report(builder.path)
    assert "Nothing has been measured yet" in " ".join(parse(page).text.split())
    assert [path.name for path in page.parent.iterdir()] == ["index.html"]


@pytest.mark.parametrize("stop", range(6))
def test_a_run_in_progress_has_a_page_at_every_point(make_run: Callable, stop: int) -> None:
    builder = make_run()
    builder.start()
    actions = [
        lambda: builder.evaluations(-1, 0),
        lambda: builder.gate(-1, 0),
        lambda: builder.open_round(0),
        lambda: builder.step(0, 1),
        lambda: builder.metrics.path.open("ab").write(b'{"kind":"step","st'),
    ]
    for action in actions[:stop]:
        action()
    text = parse(write_report(builder.path)).text
    assert "in progress" in text
    assert ("Nothing has been measured yet" in text) == (stop == 0)


def test_a_gate_that_could_not_be_completed_is_explained(make_run: Callable) -> None:
    builder = make_run().run(1)
    path = builder.path / "rounds" / "round-000" / "gate" / "contributions.json"
    document = read_json(path)
    document["complete"] = False
    for row in document["contributions"]:
        for key in ("coefficient", "standard_error", "standard_error_hc3", "rank", "status"):
            row.pop(key)
    write_json_atomic(path, document)
    text = " ".join(parse(write_report(builder.path)).text.split())
    assert "nothing was estimated and the bank stayed as it was" in text


def test_undetermined_standard_errors_are_dashes(make_run: Callable) -> None:
    builder = make_run().run(1)
    path = builder.path / "gate_a" / "contributions.json"
    document = read_json(path)
    for row in document["contributions"]:
        row["standard_error"] = row["standard_error_hc3"] = None
    write_json_atomic(path, document)
    parse(write_report(builder.path))


def test_an_empty_bank_at_the_end_is_drawn(make_run: Callable) -> None:
    builder = make_run().run(1)
    builder.active = []
    builder.open_round(1)
    parse(write_report(builder.path))


def test_many_gates_show_the_first_and_the_latest(make_run: Callable) -> None:
    page = write_report(make_run("long", rounds=9).run(9).path)
    svg = page.with_name("chunks.svg").read_text()
    shown = re.findall(r">(start|round \d)<", svg)
    assert shown == ["start", *(f"round {index}" for index in range(10 - GATES_SHOWN, 9))]


def test_headline_effects_are_paired_by_task(make_run: Callable) -> None:
    builder = make_run().run(1)
    for folder, name, won in (
        ("gate_a", "bare", 1),
        ("rounds/round-000/gate", "bare", 3),
        ("rounds/round-000/gate", "equipped", 4),
    ):
        rows = [
            {
                "job": {"task_id": task, "sample_id": 0, "seed": 1, "split": "val"},
                "status": "completed",
                "final": {"reward": 1.0, "success": task % 4 < won, "reward_detail": {}},
                "steps": [],
                "provenance": {},
            }
            for task in range(40)
        ]
        JsonlLog(builder.path / folder / f"{name}.jsonl").append_many(rows)
    text = parse(write_report(builder.path)).text
    margin = 100 * 1.959964 * (0.25 / 39) ** 0.5
    assert f"[{50 - margin:+.1f}, {50 + margin:+.1f}]" in text
    margin = 100 * 1.959964 * (0.1875 / 39) ** 0.5
    assert f"[{25 - margin:+.1f}, {25 + margin:+.1f}]" in text


def test_drawing_twice_gives_the_same_pictures(make_run: Callable) -> None:
    builder = make_run().run(2)
    before = {path: path.read_bytes() for path in write_report(builder.path).parent.glob("*.svg")}
    write_report(builder.path)
    assert before == {path: path.read_bytes() for path in before}


def test_other_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run directory"):
        write_report(tmp_path / "absent")
    with pytest.raises(UserError, match=r"no run\.json"):
        write_report(tmp_path)


def test_a_newer_run_and_a_corrupt_log_are_refused(make_run: Callable) -> None:
    builder = make_run().run(1)
    lines = builder.metrics.path.read_bytes().splitlines()
    builder.metrics.path.write_bytes(b"\n".join([lines[0], b"{broken", lines[1]]) + b"\n")
    with pytest.raises(StateCorrupted, match=r"metrics\.jsonl:2"):
        read_run(builder.path)
    write_json_atomic(builder.path / "run.json", {"schema": "intraskill-run-v2"})
    with pytest.raises(UserError, match="intraskill-run-v2 is newer"):
        read_run(builder.path)


def test_labels_are_one_printable_line() -> None:
    assert clean("a\n\tb\x00c") == "a b c"
    assert clean("x" * 100) == "x" * 43 + "…"


def test_the_trailing_mean_uses_what_there_is() -> None:
    assert trailing_mean([1.0, 3.0, 5.0], width=2) == [1.0, 2.0, 4.0]
    assert trailing_mean([]) == []


def test_the_page_carries_the_settings_it_was_made_with(make_run: Callable) -> None:
    builder = make_run().run(1)
    text = parse(write_report(builder.path)).text
    settings = json.loads(text[text.index("Settings{") + len("Settings") :].split("Written")[0].strip())
    assert settings == read_json(builder.path / "run.json")["settings"]


def test_a_gate_completed_later_replaces_what_the_incomplete_one_said(make_run: Callable) -> None:
    builder = make_run().run(4)
    builder.completed(1, 10, 0.125)
    data = read_run(builder.path)
    rows = {summary.round: summary for summary in summarize_rounds(data)}
    assert (rows[1].skill_free, rows[1].equipped, rows[1].masked) == (0.125, 0.125, 0.125)
    assert rows[2].skill_free != 0.125
    for condition in ("skill_free", "masked", "equipped"):
        steps = [step for step, _ in data.series(condition, "success_rate")]
        assert steps == [0, 5, 10, 15, 20]
        assert dict(data.series(condition, "success_rate"))[10] == 0.125
    assert "12.5" in parse(write_report(builder.path)).text
