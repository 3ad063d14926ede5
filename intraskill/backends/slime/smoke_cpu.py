"""A CPU as one of slime's accelerators, for the smoke run.

slime picks the best accelerator it knows when it needs one. Where there is none it finds this one, if it was registered
in that process: `register` is run in the job and, as Ray's set-up hook, in every worker.
"""

from __future__ import annotations

from typing import Any

import torch
from slime.utils.accelerator import register_accelerator
from slime.utils.accelerator.base import Accelerator


class CpuAccelerator(Accelerator):
    """No accelerator at all, as slime's interface for one."""

    name = device_type = "cpu"
    communication_backend_name = "gloo"

    def is_available(self) -> bool:
        return True

    def device(self, index: Any = None) -> torch.device:
        return torch.device("cpu")

    def device_name(self, index: Any = None) -> str:
        return "cpu"

    def set_device(self, index: Any) -> None:
        pass

    def current_device(self) -> int | str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def synchronize(self, device: Any = None) -> None:
        pass

    def current_stream(self, device: Any = None) -> Any:
        return None

    def empty_cache(self) -> None:
        pass

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return 0, 0

    def memory_allocated(self, device: Any = None) -> int:
        return 0

    def memory_reserved(self, device: Any = None) -> int:
        return 0


def register() -> None:
    """Make the CPU known to slime in this process."""
    register_accelerator("cpu", CpuAccelerator, lambda: True, communication_backends=("gloo",))
