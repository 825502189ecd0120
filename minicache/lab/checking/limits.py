"""Limits on the judge's process, so that a slip cannot take the learner's machine down."""

from __future__ import annotations

import sys

GIB = 1024**3
MEMORY_LIMIT = 2 * GIB
"""What a check may use beyond what Python and torch take themselves."""
FILE_LIMIT = 64 * 1024**2
"""The largest file it may write: an endless `print` stops here."""


def limit_memory(limit: int) -> None:
    """Let this process take at most `limit` bytes more than it has now.

    Works on Linux, where the kernel counts private memory as it is asked for. Elsewhere only the
    time limit protects: asking for the same limit there fails, or is not kept.
    """
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/status", encoding="ascii") as status:
        data = next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + limit, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, resource.RLIM_INFINITY))


def is_out_of_memory(error: BaseException) -> bool:
    """Python raises MemoryError; torch's allocator raises a RuntimeError that says so."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
