"""What evaluating costs beyond the model and the environment, and how fast large results are read.

    python scripts/bench_evaluate.py [--episodes 1024] [--latency 0.5] [--traces 100000]

**overhead**: 64 episodes at once against a policy that answers each turn after a fixed latency, in the in-process shop.
The ideal time is what model and environment alone need: the episodes' own latencies and environment steps, scheduled
in job order onto 64 slots. `overhead` is the share of the measured time beyond that.

**summarize**: `intraskill eval summarize` on a generated evaluation of that many episodes, as a process of its own:
wall time and peak memory. The traces are real ones, repeated under new task ids.

Prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from intraskill.agent.episode import EpisodeSettings
from intraskill.core.progress import Reporter
from intraskill.core.protocol import Environment
from intraskill.core.records import EpisodeJob, Reset, Sampling, StepResult, Turn, TurnRequest
from intraskill.evaluate.folder import EvalFolder
from intraskill.evaluate.plan import make_plan
from intraskill.evaluate.settings import EvalSettings
from intraskill.families.shop.family import Shop, open_shop
from intraskill.policies.scripted import call_text, turn_of
from intraskill.rollout.jobs import PlannedEpisode, run_rolling
from intraskill.rollout.runner import EpisodeRunner
from intraskill.storage.documents import encode
from intraskill.storage.fingerprint import fingerprint
from intraskill.storage.jsonl import JsonlLog

CONCURRENCY = 64


class SlowPolicy:
    """Answers after `latency_s`; `busy_s` is the computing it did itself, by session."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.seconds: dict[str, float] = {}

    async def generate(self, request: TurnRequest) -> Turn:
        started = time.perf_counter()
        text = self._reply(str(request.messages[1]["content"]), str(request.messages[-1]["content"]))
        turn = turn_of(text, {"prompt_tokens": 900, "completion_tokens": 120})
        spent = time.perf_counter() - started + self.latency_s
        self.seconds[request.session] = self.seconds.get(request.session, 0.0) + spent
        await asyncio.sleep(self.latency_s)
        return turn

    def _reply(self, user: str, page: str) -> str:
        if page.endswith("search"):
            return call_text("search", query=user.splitlines()[0])
        options = [line.split(": ")[1] for line in page.splitlines() if ": " in line]
        for line in options:
            if "*" not in line:
                return call_text("click", value=re.findall(r"[a-z]+", line)[0])
        return call_text("click", value="buy" if options else "1")

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        raise NotImplementedError

    def open_session(self, session: str) -> None:
        pass

    def close_session(self, session: str) -> None:
        pass

    def identity(self) -> dict[str, Any]:
        return {"model": "slow"}


class TimedShop:
    """An environment that adds up the time it takes."""

    def __init__(self, env: Environment, spent: list[float]) -> None:
        self._env = env
        self._spent = spent

    async def reset(self, task_id: str) -> Reset:
        return await self._timed(self._env.reset(task_id))

    async def step(self, action: str) -> StepResult:
        return await self._timed(self._env.step(action))

    async def terminate(self, reason: str) -> StepResult:
        return await self._timed(self._env.terminate(reason))

    async def close(self) -> None:
        await self._timed(self._env.close())

    def identity(self) -> dict[str, Any]:
        return self._env.identity()

    async def _timed(self, call: Any) -> Any:
        started = time.perf_counter()
        result = await call
        self._spent.append(time.perf_counter() - started)
        return result


class Timed(Shop):
    """The same shop, whose environments add up what they take."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.settings, shop.source)
        self.spent: list[float] = []

    def new_environment(self, job: EpisodeJob | None = None) -> TimedShop:
        return TimedShop(super().new_environment(job), self.spent)


def bench_overhead(folder: Path, settings: EvalSettings, shop: Shop, latency_s: float) -> dict[str, Any]:
    """Run the plan with everything on, traces included, and compare with the ideal schedule."""
    plan = make_plan(settings, shop)
    policy, timed = SlowPolicy(latency_s), Timed(shop)
    runner = EpisodeRunner(timed, policy, timed.prompt("compact"), EpisodeSettings(10, Sampling(), "static"))
    log = JsonlLog(folder / "overhead.jsonl")
    plans = [PlannedEpisode(job) for job in plan.jobs]
    started, cpu = time.perf_counter(), time.process_time()
    with Reporter(quiet=True).bar("overhead", len(plans)) as bar:
        asyncio.run(run_rolling(runner, plans, log, runner.protocol(), CONCURRENCY, bar))
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    environment = sum(timed.spent)
    ideal = ideal_seconds(list(policy.seconds.values()), environment, CONCURRENCY)
    return {
        "episodes": len(plans),
        "concurrency": CONCURRENCY,
        "latency_s": latency_s,
        "wall_s": wall,
        "ideal_s": ideal,
        "overhead": wall / ideal - 1,
        "environment_s": environment,
        "cpu_s": cpu,
    }


def ideal_seconds(episodes: Sequence[float], environment: float, slots: int) -> float:
    """Makespan of the episodes in order on `slots`, each with its share of the environment's (serial) time."""
    share = environment / len(episodes)
    free = [0.0] * slots
    for seconds in episodes:
        heapq.heapreplace(free, free[0] + seconds + share)
    return max(free)


def bench_summarize(folder: Path, settings: EvalSettings, shop: Shop, count: int) -> dict[str, Any]:
    """Summarize `count` generated episodes in a process of its own."""
    rows = JsonlLog(folder / "overhead.jsonl").read()
    plan = make_plan(settings, shop)
    jobs = tuple(EpisodeJob(str(index), 0, index, "val") for index in range(count))
    semantic = {**plan.semantic, "jobs": {"sha256": fingerprint([job.task_id for job in jobs])}}
    evaluation = EvalFolder(folder / "large")
    evaluation.claim(replace(plan, jobs=jobs, semantic=semantic), final_test=False)
    with evaluation.traces.path.open("wb") as file:
        for job in jobs:
            row = rows[job.seed % len(rows)]
            file.write(encode({**row, "job": job.record(), "episode_id": job.episode_id}) + b"\n")
    size = evaluation.traces.path.stat().st_size
    command = [sys.executable, "-m", "intraskill", "eval", "summarize", str(evaluation.path)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started
    assert json.loads(done.stdout)["coverage"]["completed"] == count
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {"episodes": count, "file_gib": size / 2**30, "seconds": seconds}
    return figures | {"cpu_s": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}


def report(benchmark: str, figures: dict[str, Any]) -> None:
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps({"benchmark": benchmark, **rounded}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds the model takes for one turn")
    parser.add_argument("--traces", type=int, default=100_000, help="episodes to summarize; about 12 KiB each on disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = EvalSettings.model_validate(
            {
                "name": "bench",
                "environment": {"world": {"generate": "small"}},
                "policy": {"base_url": "http://127.0.0.1/v1"},
                "repeats": max(1, options.episodes // 40),
            }
        )
        shop = open_shop(settings.environment, folder / ".worlds")
        report("overhead", bench_overhead(folder, settings, shop, options.latency))
        report("summarize", bench_summarize(folder, settings, shop, options.traces))


if __name__ == "__main__":
    main()
