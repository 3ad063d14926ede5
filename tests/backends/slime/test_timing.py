"""Seconds by phase add up, however episodes overlap and however often a job is started again."""

import asyncio
import time

import pytest

from intraskill.backends.slime.timing import BusyClock, TimingLog, overhead


async def test_overlapping_episodes_count_once():
    clock = BusyClock()

    async def episode(seconds):
        with clock.running():
            await asyncio.sleep(seconds)

    started = time.monotonic()
    await asyncio.gather(*(episode(0.05) for _ in range(5)))
    elapsed = time.monotonic() - started
    assert 0.05 <= clock.seconds <= elapsed + 0.001
    await asyncio.sleep(0.05)
    assert clock.seconds <= elapsed + 0.001, "it stands still while nothing runs"


def test_the_time_between_two_calls_belongs_to_the_step_before(tmp_path):
    log, clock = TimingLog(tmp_path), BusyClock()
    with log.plugin(1, clock):
        time.sleep(0.02)
    with log.part(1, "train"):
        time.sleep(0.03)
    with log.plugin(2, clock):
        pass
    found = log.rounds(1)
    assert found[0]["outside"] >= found[0]["train"] >= 0.03
    assert found[0]["plugin"] >= 0.02
    assert "outside" not in found[1]


def test_overhead_is_what_is_neither_episodes_nor_training():
    phases = {"episodes": 50.0, "plugin": 1.0, "outside": 12.0, "train": 9.0, "save": 1.0, "weights": 0.5}
    assert overhead(phases) == {"plugin": 1.0, "save": 1.0, "weights": 0.5, "slime": 1.5}
    assert sum(overhead({"episodes": 3.0}).values()) == 0.0


def test_what_is_done_again_is_not_counted_twice(tmp_path):
    log = TimingLog(tmp_path)
    for step in (1, 2, 3):
        log._write(step, "plugin", 1.0)
    log.rewind(2)
    assert TimingLog(tmp_path).rounds(2) == {0: {"plugin": 2.0}}


def test_a_job_writes_down_where_its_time_went(kit):
    job = kit.job()
    job.evaluate(0)
    for step in range(2):
        job.generate(step)
        job.save(step)
    job.evaluate(1)
    found = job.timing.rounds(2)
    assert set(found) == {-1, 0}
    assert found[0]["episodes"] == pytest.approx(job.clock.seconds - found[-1]["episodes"], abs=0.01)
    assert found[0]["plugin"] > 0
    job = kit.job()
    job.load(0)
    assert "outside" in job.timing.rounds(2)[0]
    assert job.timing.rounds(2)[0]["episodes"] < found[0]["episodes"]
