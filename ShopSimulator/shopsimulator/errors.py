"""What can go wrong in the shop, as a closed vocabulary.

Every error here is the caller's to mend and says so in one line: what, where, how. An invalid *action* is not
among them: the episode goes on and the page answers with a reason code instead.
"""

from __future__ import annotations


class ShopError(Exception):
    """Something the caller can mend: a bad file, a bad setting, a bad request."""


class UnknownTask(ShopError):
    """No task with this id is in the catalog (or its product was excluded)."""


class StaleLease(ShopError):
    """The lease was released, reclaimed after its time-to-live, or never existed."""


class EpisodeOver(ShopError):
    """The episode has ended; only a reset starts another."""


class ObservationError(ShopError):
    """A state that must not be shown: of another version, of no known page, or holding an answer."""
