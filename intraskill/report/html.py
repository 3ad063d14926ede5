"""One self-contained HTML page about a run: no script, no link to anything outside, readable in light and dark.

`write_report` may be called at any time; it shows what is there. Everything that comes from files is escaped by the
template engine; the only trusted markup are the pictures, whose text matplotlib has escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from intraskill.families.registry import kind_of
from intraskill.report.effects import Z95, Effect, gap, rise
from intraskill.report.labels import decision
from intraskill.report.plots import Picture, clean, draw_pictures, inline_svg
from intraskill.report.rounds import RoundSummary, summarize_rounds
from intraskill.report.run_data import GateFile, RunData, read_run
from intraskill.report.tables import percent, points
from intraskill.storage.documents import write_bytes_atomic


def write_report(run_dir: Path | str) -> Path:
    """Write `report/index.html` and the pictures beside it; returns the page. Raises `UserError`."""
    data = read_run(run_dir)
    directory = data.path / "report"
    pictures = draw_pictures(data)
    for name, picture in pictures.items():
        write_bytes_atomic(directory / f"{name}.svg", picture.svg)
        write_bytes_atomic(directory / f"{name}.png", picture.png)
    page = directory / "index.html"
    write_bytes_atomic(page, render_page(data, pictures).encode("utf-8", "replace"))
    return page


def render_page(data: RunData, pictures: Mapping[str, Picture]) -> str:
    """The page as text, with the pictures inside."""
    environment = Environment(
        loader=PackageLoader("intraskill.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"percent": percent, "points": points, "label": clean, "signed": _signed}
    summaries = summarize_rounds(data)
    return environment.get_template("report.html").render(
        run=data,
        state="finished" if data.finished else "in progress",
        facts=_facts(data),
        cards=_cards(data, summaries),
        rounds=summaries,
        pictures={name: Markup(inline_svg(picture.svg, name)) for name, picture in pictures.items()},
        gates=[_gate(gate) for gate in reversed(data.gates)],
        bank=data.banks[-1].chunks if data.banks else (),
        settings=json.dumps(data.settings, indent=2, ensure_ascii=False),
        titles=data.titles(),
        written=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _facts(data: RunData) -> list[tuple[str, str]]:
    """What the run is, as name and value."""
    settings = data.settings
    policy, environment = settings.get("policy", {}), settings.get("environment", {})
    return [
        ("model", str(policy.get("model", "?"))),
        ("world", kind_of(settings).describe(environment)),
        ("progress", f"step {data.step} of {data.total_steps}"),
        ("seed", str(settings.get("seed", "?"))),
        ("fingerprint", data.fingerprint[:12]),
        ("intraskill", str(data.versions.get("intraskill", "?"))),
    ]


def _cards(data: RunData, summaries: list[RoundSummary]) -> list[dict[str, str]]:
    """The headline numbers: what was absorbed, what the bank still adds, what is left in it."""
    measured = [summary for summary in summaries if summary.skill_free is not None]
    if not measured:
        return []
    first, last = measured[0], measured[-1]
    cards = [_card("without any skill", f"{percent(last.skill_free)} %", f"validation success at step {last.step}")]
    if last is not first and first.skill_free is not None and last.skill_free is not None:
        plain = points(last.skill_free - first.skill_free)
        note = f"points since step {first.step}, where it was {percent(first.skill_free)} %"
        cards.append(_card("absorbed by training", plain, _interval(rise(data)) + note))
    if last.equipped is not None:
        note = f"points with the full bank ({percent(last.equipped)} %)"
        cards.append(_card("still in the prompt", points(last.gap), _interval(gap(data)) + note))
    if last.kept is not None:
        sizes = f"{len(first.kept)} after the first gate" if first.kept is not None and last is not first else "chunks"
        cards.append(_card("bank", str(len(last.kept)), sizes))
    return cards


def _card(name: str, value: str, note: str) -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def _interval(effect: Effect | None) -> str:
    return f"[{points(effect.low)}, {points(effect.high)}] " if effect else ""


def _gate(gate: GateFile) -> dict[str, Any]:
    """One gate for the template; effects in descending order."""
    rows = sorted(gate.measured, key=lambda row: -float(row["coefficient"]))
    return {
        "name": "Gate on the initial bank" if gate.round < 0 else f"Gate after round {gate.round}",
        "gate": gate,
        "rows": [_effect_row(dict(row)) for row in rows],
    }


def _effect_row(row: dict[str, Any]) -> dict[str, Any]:
    beta, error = float(row["coefficient"]), row.get("standard_error")
    row = {"title": row["intervention_id"], "standard_error": None, "standard_error_hc3": None, **row}
    row["low"], row["high"] = (beta - Z95 * error, beta + Z95 * error) if error is not None else (None, None)
    row["t"] = beta / error if error else None
    row["kept"] = row.get("status", "selected") == "selected"
    row["decision"] = decision(row)
    return row


def _signed(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:+.{digits}f}"
