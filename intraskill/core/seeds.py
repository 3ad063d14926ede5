"""Seeds that mean the same on every machine: a stable hash of named parts, never Python's own `hash`."""

import hashlib


def stable_seed(*parts: str | int) -> int:
    """A 63-bit seed from the parts, the same on every machine and in every process."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
