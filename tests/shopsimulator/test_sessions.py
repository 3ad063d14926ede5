"""Leases: waiting, expiry, and that no slot is ever lost or shared."""

from __future__ import annotations

import asyncio

import pytest
from shopsimulator.errors import ShopError, StaleLease
from shopsimulator.sessions import SessionPool


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pool_of(slots: int, ttl_s: float = 10.0, clock: Clock | None = None) -> SessionPool:
    return SessionPool(lambda slot: object(), slots, ttl_s, clock or Clock())


async def test_a_lease_opens_its_session_and_no_other():
    pool = pool_of(2)
    one, two = await pool.acquire(), await pool.acquire()
    assert pool.session(one.slot, one.lease_id) is one.session
    assert one.session is not two.session
    with pytest.raises(StaleLease):
        pool.session(one.slot, two.lease_id)
    with pytest.raises(StaleLease):
        pool.session(99, one.lease_id)


async def test_a_released_lease_is_stale_for_ever():
    pool = pool_of(1)
    old = await pool.acquire()
    pool.release(old.slot, old.lease_id)
    with pytest.raises(StaleLease):
        pool.release(old.slot, old.lease_id)
    new = await pool.acquire()
    assert new.slot == old.slot
    with pytest.raises(StaleLease, match="reset"):
        pool.session(old.slot, old.lease_id)


async def test_waiting_clients_are_served_in_their_order():
    pool = pool_of(1)
    lease = await pool.acquire()
    served: list[int] = []

    async def client(name: int) -> None:
        mine = await pool.acquire()
        served.append(name)
        await asyncio.sleep(0)
        pool.release(mine.slot, mine.lease_id)

    clients = [asyncio.create_task(client(name)) for name in range(5)]
    await asyncio.sleep(0)
    assert served == []
    pool.release(lease.slot, lease.lease_id)
    await asyncio.gather(*clients)
    assert served == [0, 1, 2, 3, 4]
    assert pool.free_slots == 1


async def test_an_idle_lease_is_reclaimed_and_use_keeps_it():
    clock = Clock()
    pool = pool_of(2, ttl_s=10, clock=clock)
    idle, busy = await pool.acquire(), await pool.acquire()
    clock.now = 8
    pool.session(busy.slot, busy.lease_id)
    clock.now = 11
    assert pool.free_slots == 1
    with pytest.raises(StaleLease):
        pool.session(idle.slot, idle.lease_id)
    assert pool.session(busy.slot, busy.lease_id) is busy.session


async def test_a_waiting_client_gets_the_slot_of_a_crashed_one():
    pool = SessionPool(lambda slot: object(), 1, ttl_s=0.05)
    crashed = await pool.acquire()
    heir = await asyncio.wait_for(pool.acquire(), timeout=5)
    assert heir.slot == crashed.slot
    with pytest.raises(StaleLease):
        pool.session(crashed.slot, crashed.lease_id)


async def test_a_client_that_gives_up_waiting_loses_no_slot():
    pool = pool_of(1)
    lease = await pool.acquire()
    impatient = asyncio.create_task(pool.acquire())
    patient = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    pool.release(lease.slot, lease.lease_id)
    mine = await asyncio.wait_for(patient, timeout=5)
    pool.release(mine.slot, mine.lease_id)
    assert pool.free_slots == 1


async def test_a_slot_granted_at_the_moment_of_giving_up_goes_to_the_next():
    pool = pool_of(1)
    lease = await pool.acquire()
    impatient = asyncio.create_task(pool.acquire())
    patient = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    pool.release(lease.slot, lease.lease_id)  # handed to `impatient`, which has not run yet
    impatient.cancel()
    mine = await asyncio.wait_for(patient, timeout=5)
    assert pool.session(mine.slot, mine.lease_id) is mine.session
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_session_knows_its_slot_and_a_full_pool_says_so_at_once():
    pool = SessionPool(lambda slot: slot, 2, 10.0)
    leases = [pool.acquire_free(), await pool.acquire()]
    assert [lease.session for lease in leases] == [0, 1]
    assert pool.acquire_free() is None
    pool.release(0, leases[0].lease_id)
    assert pool.list_free() == [0]


async def test_release_all_ends_every_lease():
    pool = pool_of(3)
    leases = [await pool.acquire() for _ in range(2)]
    assert pool.release_all() == 2
    assert pool.free_slots == 3
    for lease in leases:
        with pytest.raises(StaleLease):
            pool.session(lease.slot, lease.lease_id)


@pytest.mark.parametrize(("slots", "ttl_s"), [(0, 10.0), (-1, 10.0), (1, 0.0), (1, -5.0)])
def test_impossible_pools_are_refused(slots, ttl_s):
    with pytest.raises(ShopError):
        pool_of(slots, ttl_s)
