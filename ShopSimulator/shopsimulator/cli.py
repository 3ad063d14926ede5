"""The `shopsimulator` command. What a program would read goes to standard output as JSON.

Exit code 2 means: the input is at fault, and one line on standard error says where.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import orjson
import typer

from shopsimulator.budget import BudgetVersion
from shopsimulator.errors import ShopError
from shopsimulator.title_terms import TitleTerms

main = typer.Typer(
    name="shopsimulator",
    help="Single-turn personalised shopping as a text environment.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
CatalogFile = Annotated[Path, typer.Option("--catalog", help="Catalog file, .json or .json.gz.")]
IndexFile = Annotated[Path | None, typer.Option("--index", help="Search index file; built if there is none.")]
Budgets = Annotated[BudgetVersion, typer.Option("--budget", help="How ceilings are read from words.")]
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


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r}: give three numbers, such as 160,40,40 (train, val, test)")
    return tuple(map(int, parts))


@_command
def generate(
    out: Annotated[Path, typer.Option(help="Directory for catalog.json.gz and splits.json.")],
    size: Annotated[Literal["small", "full"], typer.Option(help="full: the published split sizes.")] = "full",
    seed: Annotated[int, typer.Option(callback=check_seed, help="The same seed gives the same files.")] = 0,
    language: Annotated[Literal["en", "zh"], typer.Option(help="Language of products and tasks.")] = "en",
    products: Annotated[int | None, typer.Option(max=5_000_000, help="More products than the size has.")] = None,
) -> None:
    """Write a generated catalog and its splits; print what they hold."""
    from shopsimulator.generate import generate_world

    _print(generate_world(out, size, seed, language, products))


@_command
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Catalog file, .json or .json.gz.")],
    budget: Budgets = "instruction-budget-v1",
) -> None:
    """Read a catalog and report counts, exclusions, hash and everything odd; exit code 2 if nothing can be used."""
    from shopsimulator.catalog import inspect_catalog
    from shopsimulator.validation import report

    inspection = inspect_catalog(file)
    usable = bool(inspection.catalog.products)
    _print({"valid": usable, "file": str(file), **report(inspection, budget)})
    if not usable:
        raise typer.Exit(2)


@_command
def split(
    catalog: CatalogFile,
    out: Annotated[Path, typer.Option(help="Manifest to write.")],
    sizes: Annotated[str, typer.Option(help="Tasks of train,val,test.")] = "3726,400,400",
    seed: Annotated[int, typer.Option(callback=check_seed, help="20260829 made the published splits.")] = 20260829,
    tasks: Annotated[
        Literal["persona", "standard", "all"] | None,
        typer.Option(help="Which tasks; by default those with a persona, or all where none has one."),
    ] = None,
    max_group: Annotated[int, typer.Option(min=1, help="Larger groups of linked tasks go to training.")] = 20,
) -> None:
    """Split a catalog's tasks so that no product, instruction, persona or user is shared; print counts."""
    from shopsimulator.catalog import read_catalog
    from shopsimulator.split_files import is_published, split_manifest, write_splits
    from shopsimulator.splits import make_splits

    content = read_catalog(catalog)
    made = make_splits(content, _sizes(sizes), seed, kind=tasks, max_group=max_group)
    write_splits(out, made, content, seed, max_group=max_group)
    manifest = split_manifest(made, content, seed, max_group)
    for entry in manifest["splits"].values():
        del entry["task_ids"]
    _print({"file": str(out), "published": is_published(made), **manifest})


@_command
def index(
    catalog: CatalogFile,
    out: Annotated[Path, typer.Option(help="Index file to write; replaces what is there.")],
) -> None:
    """Build the search index of a catalog as a file, so that a large shop opens at once; print its manifest."""
    from shopsimulator.catalog import read_catalog
    from shopsimulator.index_file import build_index

    _print({"file": str(out), **build_index(read_catalog(catalog), out)})


@_command
def serve(
    catalog: CatalogFile,
    host: Annotated[str, typer.Option(help="Address to bind; loopback unless you mean it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, envvar="SHOPSIM_PORT", help="0 takes any free port.")] = 5700,
    slots: Annotated[
        int, typer.Option(min=1, max=1_000_000, envvar="SHOPSIM_ENV_SLOTS", help="Sessions open at once; others wait.")
    ] = 64,
    lease_ttl_s: Annotated[
        float,
        typer.Option(min=0.1, max=31_536_000, help="Seconds after which an idle lease is reclaimed; a year at most."),
    ] = 1800,
    page_size: Annotated[int, typer.Option(min=1, max=1_000, help="Results a page.")] = 20,
    max_hits: Annotated[int, typer.Option(min=1, max=100_000, help="Results of a search at most.")] = 150,
    rendering: Annotated[Literal["full", "compact"], typer.Option(help="How pages read.")] = "full",
    max_steps: Annotated[int, typer.Option(min=1, max=1_000_000, help="Steps of a single-turn episode.")] = 30,
    budget: Budgets = "instruction-budget-v1",
    title_terms: Annotated[
        TitleTerms | None, typer.Option(help="How titles are compared; by default the model if installed.")
    ] = None,
    index: IndexFile = None,
) -> None:
    """Serve the shop over HTTP until interrupted."""
    from shopsimulator.engine import ShopSettings, ShopWorld
    from shopsimulator.index_file import open_catalog
    from shopsimulator.service import run_service

    settings = ShopSettings(
        page_size=page_size,
        max_hits=max_hits,
        rendering=rendering,
        max_steps=max_steps,
        title_terms=title_terms,
        budget_version=budget,
        index_path=index,
    )
    world = ShopWorld(open_catalog(catalog, index), settings)

    def announce(url: str) -> None:
        typer.echo(orjson.dumps({"url": url, "slots": slots, "tasks": len(world.catalog.tasks)}).decode())

    run_service(world, host=host, port=port, slots=slots, lease_ttl_s=lease_ttl_s, announce=announce)


@_command
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Free text.")],
    catalog: CatalogFile,
    top: Annotated[int, typer.Option(min=1, max=1_000_000, help="Results at most.")] = 10,
    index: IndexFile = None,
) -> None:
    """Search a catalog; print ranked asins with scores."""
    from shopsimulator.index_file import open_catalog
    from shopsimulator.search import SearchIndex

    content = open_catalog(catalog, index)
    hits = SearchIndex(content, index).search(query, top)
    _print(
        [
            {"rank": rank, "asin": hit.asin, "score": hit.score, "title": content.products[hit.asin].title}
            for rank, hit in enumerate(hits, 1)
        ]
    )


@_command
def budget(text: Annotated[str, typer.Argument(metavar="TEXT", help="Instruction, Chinese or English.")]) -> None:
    """Read the price ceiling out of a text, by the frozen rules and by ours."""
    from shopsimulator.budget import instruction_budget
    from shopsimulator.budget_v2 import parse_budget

    frozen = instruction_budget(text, "instruction-budget-v1")
    _print({"instruction-budget-v1": {"price_upper": frozen}, "instruction-budget-v2": asdict(parse_budget(text))})


if __name__ == "__main__":
    main()
