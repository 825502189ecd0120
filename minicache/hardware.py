"""Where a model runs and in which precision, when the caller says `auto`; and what to call it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from minicache.linear import cpu_has_bfloat16

_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


def choose_device(device: str | torch.device) -> torch.device:
    """`auto` is the GPU where there is one. Raises `ValueError` for a device that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device is {device!r}, but it must be auto, cpu or cuda.") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device is {str(device)!r}, but torch sees no CUDA device here; use device='cpu'."
        )
    return chosen


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the processor multiplies it itself, else float32."""
    if isinstance(dtype, torch.dtype) and dtype in _DTYPES.values():
        return dtype
    if dtype == "auto":
        fast = cpu_has_bfloat16() if device.type == "cpu" else torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}, but it must be auto or one of {', '.join(_DTYPES)}.")
    return _DTYPES[dtype]


def describe(device: torch.device) -> str:
    """The device as people call it: 'NVIDIA H200' or 'Intel(R) Xeon(R) Processor, 2 cores'."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_cpu_name()}, {cores} cores"


def _cpu_name() -> str:
    """The processor's marketing name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
