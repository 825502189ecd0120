"""Where kernel tests run: compiled on a GPU, or in Triton's interpreter on a CPU.

The interpreter must be chosen before Triton is imported, so on a CPU these files run in a session
of their own with TRITON_INTERPRET=1; `test_kernels_session.py` starts it. On a GPU: `pytest -m
gpu`.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

import pytest
import torch

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip(
        "runs in a session of its own, see test_kernels_session.py", allow_module_level=True
    )
pytest.importorskip("triton")

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
MARKS = [pytest.mark.gpu] if ON_GPU else []
only_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
# The interpreter's dot is wrong in bfloat16, so the CPU lane leaves it out.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}


@dataclass
class Batch:
    q: torch.Tensor
    k_pages: torch.Tensor
    v_pages: torch.Tensor
    table: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    counts: list[int]
    host_lengths: list[int]

    @property
    def host_starts(self) -> list[int]:
        return [0, *itertools.accumulate(self.counts)]


def make_batch(
    lengths,
    counts=None,
    heads=(4, 2),
    dim=64,
    page=16,
    dtype=torch.float32,
    seed=0,
    gain=1.0,
):
    """Random tokens on shuffled pages; everything else in the cache is NaN, as is the unused
    table.
    """
    g = torch.Generator().manual_seed(seed)
    counts = counts or [1] * len(lengths)
    columns = max(1, max(-(-n // page) for n in lengths))
    pages = sum(-(-n // page) for n in lengths) + 3
    shape = (pages, heads[1], page, dim)
    k_pages, v_pages = torch.full(shape, float("nan")), torch.full(shape, float("nan"))
    order = torch.randperm(pages, generator=g).tolist()
    # A slice of a wider table, so that its rows are not contiguous; unused entries point nowhere.
    table = torch.full((len(lengths), columns + 3), 2**30, dtype=torch.int32)[:, :columns]
    for b, length in enumerate(lengths):
        for column in range(-(-length // page)):
            number = order.pop()
            table[b, column] = number
            here = min(page, length - column * page)
            k_pages[number, :, :here] = torch.randn((heads[1], here, dim), generator=g)
            v_pages[number, :, :here] = torch.randn((heads[1], here, dim), generator=g)
    q = torch.randn((sum(counts), heads[0], dim), generator=g) * gain
    starts = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)
    wide = torch.full((len(lengths), columns + 3), 2**30, dtype=torch.int32, device=DEVICE)
    wide[:, :columns] = table.to(DEVICE)
    return Batch(
        q.to(DEVICE, dtype), k_pages.to(DEVICE, dtype), v_pages.to(DEVICE, dtype),
        wide[:, :columns], starts.to(DEVICE),
        torch.tensor(lengths, dtype=torch.int32, device=DEVICE), list(counts), list(lengths),
    )  # fmt: skip


def poisoned(work, batch):
    from minicache.kernels.launch import empty_workspace

    heads, dim = batch.k_pages.shape[1], batch.q.shape[-1]
    return tuple(t.fill_(float("nan")) for t in empty_workspace(work, heads, dim, DEVICE))


def assert_close(result, truth, dtype):
    """Relative error of the output, absolute error of the lse, and -inf in the same places."""
    error = (result.output.double() - truth.output).norm() / truth.output.norm().clamp_min(1e-30)
    assert error.item() <= TOLERANCE[dtype], f"relative error {error.item():.2e}"
    assert torch.equal(result.lse == -torch.inf, truth.lse == -torch.inf)
    seen = truth.lse != -torch.inf
    close = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(result.lse[seen], truth.lse[seen], rtol=1e-4, atol=close)
    assert torch.equal(result.output[~seen], torch.zeros_like(result.output[~seen]))
