"""Settings of the whole process that make small tensor work on CPUs faster; call once, before torch computes.

* Training makes and frees large temporaries all the time. The C library gives blocks of that size back to the system at
  once, and each new one costs page faults again. Told to keep them, it reuses what it has (glibc's mallopt(3)).
* An idle OpenMP thread spins by default, which is a loss as soon as another process wants the core. `PASSIVE` lets
  it sleep. The variable is read when the OpenMP runtime loads, hence before torch is imported.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEEP_BYTES = 1 << 30
_PAD_BYTES = 64 << 20


def prepare_process() -> None:
    """Keep freed memory, let idle threads sleep. Does nothing where the C library has no mallopt."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_TOP_PAD, _PAD_BYTES)
