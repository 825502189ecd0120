"""Decode attention over the grid of cases: microseconds and errors, ours beside the peers'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from minicache.bench.kernels.cases import Cache, Case, Sets
from minicache.bench.kernels.peers import PEERS
from minicache.bench.kernels.timing import Call, Timing, race
from minicache.kernels.flash_decode import decode_work, flash_decode
from minicache.kernels.launch import empty_workspace
from minicache.kernels.reference import AttentionResult, paged_attention_reference

PAGED = ("minicache", "FlashInfer", "FlashAttention-3")
"""Peers by these names read the same pages; the others read other, contiguous keys."""


class DecodeRow(NamedTuple):
    """One case's measurements."""

    case: Case
    timings: dict[str, Timing]
    errors: dict[str, float]
    """Relative error against float64, of the kernels that read the pages."""
    failures: dict[str, str]
    """Peers that were found but would not run."""


def bench_case(cache: Cache, case: Case, names: Sequence[str], *, rounds: int = 5) -> DecodeRow:
    """Check, then time, all peers among `names` that are installed."""
    sets = cache.sets(case)
    truth = paged_attention_reference(
        sets.q,
        sets.k_pages,
        sets.v_pages,
        sets.tables[0],
        range(len(case.lengths) + 1),
        case.lengths,
    )
    calls: dict[str, list[Call]] = {}
    errors: dict[str, float] = {"minicache, NaN around": poisoned_error(sets, truth)}
    failures: dict[str, str] = {}
    for name in names:
        try:
            found = PEERS[name](sets, cache)
            output = found[0]()
        except ImportError:
            continue
        except RuntimeError as error:
            failures[name] = str(error).splitlines()[0]
            continue
        calls[name] = found
        if name.startswith(PAGED) and isinstance(output, Tensor):
            errors[name] = relative_error(output, truth.output)
    return DecodeRow(case, race(calls, rounds=rounds), errors, failures)


def relative_error(output: Tensor, truth: Tensor) -> float:
    """Euclidean norm of the difference over that of the truth."""
    return float((output.reshape(truth.shape).double() - truth).norm() / truth.norm())


def poisoned_error(sets: Sets, truth: AttentionResult) -> float:
    """Ours again, on a cache of NaN but for the valid tokens, with a workspace of NaN."""
    used = sets.tables[0].flatten().long()
    k_pages, v_pages = (torch.full_like(p, torch.nan) for p in (sets.k_pages, sets.v_pages))
    k_pages[used], v_pages[used] = sets.k_pages[used], sets.v_pages[used]
    for row, length in enumerate(sets.case.lengths):
        if length % sets.k_pages.shape[2]:
            page = int(sets.tables[0][row, length // sets.k_pages.shape[2]])
            k_pages[page, :, length % sets.k_pages.shape[2] :] = torch.nan
            v_pages[page, :, length % sets.k_pages.shape[2] :] = torch.nan
    work = decode_work(sets.q, k_pages, sets.tables[0], sets.lengths)
    room = empty_workspace(work, k_pages.shape[1], sets.q.shape[-1], sets.q.device)
    for part in room:
        part.fill_(torch.nan)
    got = flash_decode(
        sets.q, k_pages, v_pages, sets.tables[0], sets.lengths, work=work, workspace=room
    )
    return relative_error(got.output, truth.output)
