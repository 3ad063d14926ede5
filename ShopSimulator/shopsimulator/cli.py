"""The `shopsimulator` command. What a program would read goes to standard output as JSON.

Exit code 2 means: the input is at fault, and one line on standard error (or the report itself) says where.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import orjson
import typer

from shopsimulator.errors import ShopError

main = typer.Typer(
    name="shopsimulator",
    help="Single-turn personalised shopping as a text environment.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
CatalogFile = Annotated[Path, typer.Option("--catalog", help="Catalog file, .json or .json.gz.")]
Command = TypeVar("Command", bound=Callable[..., None])


def _command(function: Command) -> Command:
    """Register a command whose `ShopError` becomes one line and exit code 2."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except ShopError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from error

    main.command()(wrapped)
    return function


def _print(value: Any) -> None:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a terminal that lacks these characters gets JSON's escapes
        text = json.dumps(value, indent=2)
    typer.echo(text)


def check_seed(value: int | None) -> int | None:
    """A seed option as it came, or an error. A range in the option's type would fill its help with 19 digits."""
    if value is not None and not 0 <= value < 2**63:
        raise typer.BadParameter(f"{value}: give a whole number from 0 to 2^63 - 1")
    return value


@_command
def generate(
    out: Annotated[Path, typer.Option(help="Directory for catalog.json.gz and splits.json.")],
    size: Annotated[Literal["small", "full"], typer.Option(help="full: the published split sizes.")] = "full",
    seed: Annotated[int, typer.Option(callback=check_seed, help="The same seed gives the same files.")] = 0,
    language: Annotated[Literal["en", "zh"], typer.Option(help="Language of products and tasks.")] = "en",
) -> None:
    """Write a generated catalog and its splits; print what they hold."""
    from shopsimulator.generate import generate_world

    _print(generate_world(out, size, seed, language))


@_command
def validate(file: Annotated[Path, typer.Argument(metavar="FILE", help="Catalog file, .json or .json.gz.")]) -> None:
    """Check a catalog and report counts, exclusions, hash and errors; exit code 2 if there are errors."""
    from shopsimulator.catalog import inspect_catalog

    inspection = inspect_catalog(file)
    catalog = inspection.catalog
    _print(
        {
            "valid": not inspection.errors,
            "file": str(file),
            "sha256": catalog.sha256,
            "language": catalog.language,
            "records": inspection.records,
            "products": len(catalog.products),
            "tasks": len(catalog.tasks),
            "persona_tasks": sum(task.persona is not None for task in catalog.tasks.values()),
            "excluded_products": len(catalog.excluded),
            "excluded_tasks": inspection.excluded_tasks,
            "excluded": [{"asin": item.asin, "reason": item.reason} for item in catalog.excluded],
            "errors": list(inspection.errors),
        }
    )
    if inspection.errors:
        raise typer.Exit(2)


@_command
def serve(
    catalog: CatalogFile,
    host: Annotated[str, typer.Option(help="Address to bind; loopback unless you mean it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8000,
    slots: Annotated[int, typer.Option(min=1, max=1_000_000, help="Sessions open at once; further resets wait.")] = 64,
    lease_ttl_s: Annotated[
        float,
        typer.Option(min=0.1, max=31_536_000, help="Seconds after which an idle lease is reclaimed; a year at most."),
    ] = 600,
    page_size: Annotated[int, typer.Option(min=1, max=1_000, help="Results a page.")] = 20,
    rendering: Annotated[Literal["full", "compact"], typer.Option(help="How pages read.")] = "full",
    max_steps: Annotated[int, typer.Option(min=1, max=1_000_000, help="Steps of an episode.")] = 30,
) -> None:
    """Serve the shop over HTTP until interrupted."""
    from shopsimulator.catalog import read_catalog
    from shopsimulator.engine import ShopSettings, ShopWorld
    from shopsimulator.service import run_service

    settings = ShopSettings(page_size=page_size, rendering=rendering, max_steps=max_steps)
    world = ShopWorld(read_catalog(catalog), settings)

    def announce(url: str) -> None:
        typer.echo(orjson.dumps({"url": url, "slots": slots, "tasks": len(world.catalog.tasks)}).decode())

    run_service(world, host=host, port=port, slots=slots, lease_ttl_s=lease_ttl_s, announce=announce)


@_command
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Free text.")],
    catalog: CatalogFile,
    top: Annotated[int, typer.Option(min=1, max=1_000_000, help="Results at most.")] = 10,
) -> None:
    """Search a catalog; print ranked asins with scores."""
    from shopsimulator.catalog import read_catalog
    from shopsimulator.search import SearchIndex

    content = read_catalog(catalog)
    hits = SearchIndex(content).search(query, top)
    _print(
        [
            {"rank": rank, "asin": hit.asin, "score": hit.score, "title": content.products[hit.asin].title}
            for rank, hit in enumerate(hits, 1)
        ]
    )


@_command
def budget(text: Annotated[str, typer.Argument(metavar="TEXT", help="Instruction, Chinese or English.")]) -> None:
    """Read the price ceiling out of a text."""
    from shopsimulator.budget import parse_budget

    found = parse_budget(text)
    _print({"price_upper": found.price_upper, "kind": found.kind, "evidence": found.evidence})


if __name__ == "__main__":
    main()
