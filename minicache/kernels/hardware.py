"""What a launch plan needs to know of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Gpu:
    """Limits of a GPU: per multiprocessor (SM) unless it says otherwise."""

    name: str
    sms: int
    registers: int = 65536
    shared_bytes: int = 233_472
    """Shared memory that the programs of one SM may hold together."""
    reserved_bytes: int = 1024
    """Shared memory that the system takes for each program."""
    threads: int = 2048
    bandwidth: float = 4.8e12
    """Bytes a second of device memory, by the data sheet."""
    dependent_launch: bool = True
    """Whether a kernel may be launched before the one in front of it ends (Hopper and later)."""


H200 = Gpu("NVIDIA H200", 132)
INTERPRETER = Gpu("Triton interpreter", 2, dependent_launch=False)
"""Small on purpose: every program of the grid is run by Python, one after the other."""


def gpu_of(device: torch.device) -> Gpu:
    """The limits of a CUDA device, or those of the interpreter's pretended one on a CPU."""
    if device.type != "cuda":
        return INTERPRETER
    import torch

    found = torch.cuda.get_device_properties(device)
    return Gpu(
        name=found.name,
        sms=found.multi_processor_count,
        registers=found.regs_per_multiprocessor,
        shared_bytes=found.shared_memory_per_multiprocessor,
        threads=found.max_threads_per_multi_processor,
        bandwidth=H200.bandwidth if "H200" in found.name else 0.0,
        dependent_launch=found.major >= 9,
    )
