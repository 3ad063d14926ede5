"""The shop as an `Environment`: in process, or behind the HTTP service.

`open_world` turns settings into a `ShopSource`: the catalog, its splits, the environment's identity, and a factory of
environments. Both kinds of environment speak the same engine's payloads, so an episode means the same in either; a
service that serves another catalog or other settings than the run's is refused at once. Tasks are numbers to the shop
and strings to everybody else.

Errors are sorted here, at the boundary: what the caller got wrong (unknown task, step after the end) is a
`UserError`; a service that is gone, fails, or has given our slot away is `EnvironmentUnavailable`, a technical failure
that says nothing about the policy.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from shopsimulator.catalog import Catalog, read_catalog
from shopsimulator.client import ServiceUnavailable, ShopClient, read_health
from shopsimulator.engine import ShopSettings as Rules
from shopsimulator.engine import ShopWorld
from shopsimulator.errors import ShopError, StaleLease
from shopsimulator.generate import GENERATOR_VERSION, generate_world
from shopsimulator.split_files import read_splits

from intraskill.core.errors import EnvironmentUnavailable, UserError
from intraskill.core.protocol import Environment
from intraskill.core.records import Reset, StepResult
from intraskill.families.base import TaskSplits
from intraskill.families.shop.settings import ShopSettings, WorldSettings

_RESET_FIELDS = frozenset(("task_instruction", "observation", "observation_state"))
_RESULT_FIELDS = frozenset(
    (
        "observation",
        "observation_state",
        "done",
        "reward",
        "reward_detail",
        "action_feedback",
        "termination_reason",
        "goal",
    )
)
_PRIVATE = frozenset(("env_idx", "lease_id", "private_task_instruction", "goal_options", "reason_key"))
_LOST_RESETS = 20  # half a minute: a service that restarts is worth waiting for before an episode is given up


class InProcessShop:
    """One episode's environment in a world of this process."""

    def __init__(self, world: ShopWorld) -> None:
        self._world = world
        self._session = world.new_session()

    async def reset(self, task_id: str) -> Reset:
        with _shop_errors():
            return _reset(task_id, self._session.reset(task_number(task_id), if_persona=True))

    async def step(self, action: str) -> StepResult:
        with _shop_errors():
            return _result(self._session.step(_writable(action)))

    async def terminate(self, reason: str) -> StepResult:
        with _shop_errors():
            return _result(self._session.terminate(reason))

    async def close(self) -> None:
        self._session = self._world.new_session()

    def identity(self) -> dict[str, Any]:
        return self._world.identity()


class HttpShop:
    """One episode's environment in the service of `client`; holds a leased slot from `reset` to `close`."""

    def __init__(self, client: ShopClient, identity: dict[str, Any]) -> None:
        self._client = client
        self._identity = identity
        self._lease: tuple[int, str] | None = None

    async def reset(self, task_id: str) -> Reset:
        await self.close()
        with _shop_errors():
            payload = await self._client.reset(task_number(task_id), if_persona=True)
            self._lease = (payload["env_idx"], payload["lease_id"])
            return _reset(task_id, payload)

    async def step(self, action: str) -> StepResult:
        with _shop_errors():
            return _result(await self._client.interact(*self._held(), _writable(action)))

    async def terminate(self, reason: str) -> StepResult:
        with _shop_errors():
            return _result(await self._client.terminate(*self._held(), reason))

    async def close(self) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            return
        with suppress(ServiceUnavailable, StaleLease):  # whatever is left of the lease expires by itself
            await self._client.release(*lease)

    def identity(self) -> dict[str, Any]:
        return self._identity

    def _held(self) -> tuple[int, str]:
        if self._lease is None:
            raise ShopError("no episode has been started in this environment; reset it with a task id first")
        return self._lease


class ShopSource:
    """A world ready to act in: its splits, what it is (`identity`), and fresh environments of it."""

    def __init__(self, world: ShopWorld, splits: TaskSplits, new_environment: Callable[[], Environment]) -> None:
        self.world = world
        self.new_environment = new_environment
        self._splits = splits

    @property
    def catalog(self) -> Catalog:
        return self.world.catalog

    def identity(self) -> dict[str, Any]:
        return self.world.identity()

    def splits(self) -> TaskSplits:
        return self._splits


def open_world(settings: ShopSettings, cache_dir: Path) -> ShopSource:
    """The world of `settings`, generated into `cache_dir` if need be. Raises `UserError`, `EnvironmentUnavailable`."""
    with _shop_errors():
        catalog_file, splits_file = world_files(settings.world, cache_dir)
        catalog = read_catalog(catalog_file)
        numbers = read_splits(splits_file, catalog)
        splits = TaskSplits(*(tuple(map(str, ids)) for ids in (numbers.train, numbers.val, numbers.test)))
        world = ShopWorld(
            catalog,
            Rules(page_size=settings.page_size, rendering=settings.rendering, max_steps=settings.max_steps),
        )
        if settings.url is None:
            return ShopSource(world, splits, lambda: InProcessShop(world))
        url, identity = settings.url, world.identity()
        _check_service(url, read_health(url, settings.timeout_s).get("identity", {}), identity)
        client = ShopClient(url, timeout_s=settings.timeout_s, lost_requests=_LOST_RESETS)
        return ShopSource(world, splits, lambda: HttpShop(client, identity))


def world_files(world: WorldSettings, cache_dir: Path) -> tuple[Path, Path]:
    """Catalog and split manifest, generated first if the settings ask for a generated world."""
    if world.catalog is not None and world.splits is not None:
        return world.catalog, world.splits
    assert world.generate is not None  # the settings see to it
    folder = cache_dir / f"shop-{world.generate}-{world.seed}-{world.language}-v{GENERATOR_VERSION}"
    if not folder.is_dir():
        _generate(folder, world.generate, world.seed, world.language)
    return folder / "catalog.json.gz", folder / "splits.json"


def _generate(folder: Path, size: Literal["small", "full"], seed: int, language: Literal["en", "zh"]) -> None:
    """Make the world beside its place and move it there: it is complete or absent, also with two runs at once."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"{folder.parent}: cannot cache the generated world: {error.strerror}") from error
    try:
        generate_world(scratch, size, seed, language)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise somebody else was first, with the very same world
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_service(url: str, served: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A service must mean by an episode what the settings mean."""
    for key, value in wanted.items():
        if served.get(key) != value:
            raise UserError(
                f"environment.url: the service at {url} has {key} {served.get(key)!r}, the settings say {value!r}; "
                "start it with the same catalog and options"
            )


def task_number(task_id: str) -> int:
    """The shop's own number of a task. Raises `UserError` for an id that is none."""
    if not (task_id.isascii() and task_id.isdigit()):
        raise UserError(f"unknown task {task_id!r}: the shop's tasks are numbers")
    return int(task_id)


def _reset(task_id: str, payload: Mapping[str, Any]) -> Reset:
    """The shop's answer to a reset."""
    return Reset(
        task_id=task_id,
        instruction=payload["task_instruction"],
        observation=payload["observation"],
        state=payload["observation_state"],
        extra=_others(payload, _RESET_FIELDS),
    )


def _result(payload: Mapping[str, Any]) -> StepResult:
    """The shop's answer to an action or a termination."""
    detail = payload["reward_detail"]
    return StepResult(
        observation=payload["observation"],
        state=payload["observation_state"],
        done=payload["done"],
        reward=payload["reward"],
        detail=detail,
        feedback=payload.get("action_feedback", {}),
        success=detail.get("r_success") == 1,
        termination=payload.get("termination_reason"),
        extra=_others(payload, _RESULT_FIELDS),
        goal=payload["goal"] or None,
    )


def _others(payload: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What else a payload says in public; which slot played the episode is nobody's business."""
    return {key: value for key, value in payload.items() if key not in known and key not in _PRIVATE}


@contextmanager
def _shop_errors() -> Iterator[None]:
    """Translate the shop's errors into the trainer's vocabulary."""
    try:
        yield
    except (StaleLease, ServiceUnavailable) as error:
        raise EnvironmentUnavailable(str(error)) from error
    except ShopError as error:
        raise UserError(str(error)) from error


def _writable(action: str) -> str:
    """`action` with `?` for lone surrogates, which a model can write in JSON and no file or request can carry."""
    return action.encode("utf-8", "replace").decode("utf-8")
