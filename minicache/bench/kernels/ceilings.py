# pyright: basic, reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportOptionalOperand=false, reportReturnType=false
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""What the device can do at best: its read-only rate, its copy rate, its matrix rate."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from minicache.bench.kernels.timing import race


class Ceilings(NamedTuple):
    """Measured in the same run as what is compared with them."""

    read: float
    """Bytes a second of a kernel that only reads."""
    copy: float
    """Bytes a second, read plus written, of a device copy."""
    matmul: float
    """FLOP/s of an 8192-cubed bf16 product."""


@triton.jit
def read_kernel(x, out, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Read `STEPS * BLOCK` numbers a program and keep nothing but their largest."""
    base = tl.program_id(0).to(tl.int64) * BLOCK * STEPS
    best = tl.full([BLOCK], -2147483648, tl.int32)
    for step in tl.range(STEPS, num_stages=4):
        best = tl.maximum(best, tl.load(x + base + step * BLOCK + tl.arange(0, BLOCK)))
    tl.store(out + tl.program_id(0), tl.max(best, axis=0))


def measure_ceilings(memory: Tensor) -> Ceilings:
    """`memory`: a large tensor, of which the first GiB is read, twice 512 MiB in turn."""
    flat = memory.flatten().view(torch.int32)
    half = 2**27  # numbers in 512 MiB
    parts = [flat[:half], flat[half : 2 * half]]
    size = half * 4
    shapes = [(2048, 8), (4096, 8), (2048, 32), (8192, 16), (4096, 64)]
    readers = {f"{b}x{s}": [_reader(part, b, s) for part in parts] for b, s in shapes}
    target = torch.empty_like(parts[0])
    # A kernel that copies: the driver's own copy in a graph is slower.
    copies = [lambda part=part: torch.add(part, 1, out=target) for part in parts]
    timings = race({**readers, "copy": copies}, rounds=3)
    best = min(timings[name].median for name in readers)
    a = torch.randn((8192, 8192), dtype=torch.bfloat16, device=memory.device)
    product = race({"matmul": [lambda: a @ a]}, rounds=2)["matmul"]
    return Ceilings(
        size / best * 1e6,
        2 * size / timings["copy"].median * 1e6,
        2 * 8192**3 / product.median * 1e6,
    )


def _reader(part: Tensor, block: int, steps: int):
    programs = part.numel() // (block * steps)
    out = torch.empty(programs, dtype=torch.int32, device=part.device)
    return lambda: read_kernel[(programs,)](part, out, block, steps, num_warps=8)
