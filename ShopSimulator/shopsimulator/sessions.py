"""Leased sessions: who may act in which slot, and for how long.

The service holds a fixed number of slots, one shopping session each. `acquire` waits, first come first served, for
a free slot and grants a **lease** on it: a secret that every later call must show. A lease ends when it is
released (a finished episode keeps its slot until then), when somebody releases everything, or when it has been idle for
longer than its time-to-live. From then on it is stale and refused for ever, so a client that comes back late can never
act in somebody else's episode, and a client that crashed cannot keep a slot.

Expiry needs no background task: it is checked whenever somebody asks, and a waiting client wakes up for the next one.
Everything here runs on one event loop.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from shopsimulator.engine import ShopSession
from shopsimulator.errors import ShopError, StaleLease


@dataclass(slots=True)
class Lease:
    """The right to act in slot `slot`. `used_at` is the pool clock's time of the last call."""

    slot: int
    lease_id: str
    session: ShopSession
    used_at: float


class SessionPool:
    """`slots` sessions behind leases that expire after `ttl_s` seconds without a call."""

    def __init__(
        self,
        new_session: Callable[[int], ShopSession],
        slots: int,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if slots < 1:
            raise ShopError(f"slots is {slots}; the service needs at least 1")
        if ttl_s <= 0:
            raise ShopError(f"the lease time-to-live is {ttl_s} s; give a number above 0")
        self.slots = slots
        self.ttl_s = ttl_s
        self._new_session = new_session
        self._clock = clock
        self._free: deque[int] = deque(range(slots))
        self._leases: dict[int, Lease] = {}
        self._waiters: deque[asyncio.Future[int]] = deque()

    @property
    def free_slots(self) -> int:
        return len(self.list_free())

    def list_free(self) -> list[int]:
        self.reclaim()
        return sorted(self._free)

    async def acquire(self) -> Lease:
        """A lease on a fresh session; waits for a slot. Safe to cancel: no slot is lost and no place kept."""
        lease = self.acquire_free()
        if lease is not None:
            return lease
        place: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.append(place)
        try:
            while not place.done():
                await asyncio.wait([place], timeout=self._seconds_to_expiry())
                self.reclaim()
        except asyncio.CancelledError:
            if place.done():
                self._hand_over(place.result())
            else:
                self._waiters.remove(place)
            raise
        return self._grant(place.result())

    def acquire_free(self) -> Lease | None:
        """A lease on a fresh session if a slot is free now."""
        self.reclaim()
        return self._grant(self._free.popleft()) if self._free else None

    def session(self, slot: int, lease_id: str) -> ShopSession:
        """The leased session; counts as use. Raises `StaleLease`."""
        lease = self._held(slot, lease_id)
        lease.used_at = self._clock()
        return lease.session

    def release(self, slot: int, lease_id: str) -> None:
        """Give the slot back. Raises `StaleLease`, also the second time."""
        self._held(slot, lease_id)
        self._revoke(slot)

    def release_all(self) -> int:
        """End every lease; returns how many there were."""
        held = list(self._leases)
        for slot in held:
            self._revoke(slot)
        return len(held)

    def reclaim(self) -> int:
        """End the leases that idled past their time-to-live; returns how many."""
        deadline = self._clock() - self.ttl_s
        expired = [slot for slot, lease in self._leases.items() if lease.used_at < deadline]
        for slot in expired:
            self._revoke(slot)
        return len(expired)

    def _held(self, slot: int, lease_id: str) -> Lease:
        self.reclaim()
        lease = self._leases.get(slot)
        if lease is None or not secrets.compare_digest(lease.lease_id.encode(), lease_id.encode()):
            raise StaleLease(
                f"this lease on slot {slot} is not valid (any more): it was released, or idle for more than "
                f"{self.ttl_s:g} s; reset to get a new one"
            )
        return lease

    def _grant(self, slot: int) -> Lease:
        lease = Lease(slot, secrets.token_hex(16), self._new_session(slot), self._clock())
        self._leases[slot] = lease
        return lease

    def _revoke(self, slot: int) -> None:
        del self._leases[slot]
        self._hand_over(slot)

    def _hand_over(self, slot: int) -> None:
        """To the client that has waited longest, else to the free slots."""
        if self._waiters:
            self._waiters.popleft().set_result(slot)
        else:
            self._free.append(slot)

    def _seconds_to_expiry(self) -> float:
        """Until the next lease could expire; never quite 0, so that a waiter cannot spin."""
        if not self._leases:
            return self.ttl_s
        oldest = min(lease.used_at for lease in self._leases.values())
        return max(0.01, oldest + self.ttl_s - self._clock())
