"""The grid of shapes that every decode kernel is timed on, and the caches they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PAGE = 16
DIM = 128
KV_HEADS = 8
L2_BYTES = 60 * 2**20


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of decodes: bf16, head_dim 128, 8 KV heads, pages of 16 tokens."""

    name: str
    lengths: tuple[int, ...]
    heads: int = 32

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values of one layer: each is read once."""
        return sum(self.lengths) * 2 * KV_HEADS * DIM * 2

    @property
    def equal(self) -> bool:
        """Whether all sequences have the same length."""
        return len(set(self.lengths)) == 1


CASES = (
    Case("1x4k", (4096,)),
    Case("1x32k", (32768,)),
    Case("1x128k", (131072,)),
    Case("4x32k", (32768,) * 4),
    Case("16x8k", (8192,) * 16),
    Case("64x2k", (2048,) * 64),
    Case("64x8k", (8192,) * 64),
    Case("mixed 512..64k", tuple(512 << i for i in range(8))),
    Case("1x128k, 64 q", (131072,), 64),
)


@dataclass(frozen=True, slots=True)
class Sets:
    """A case with several sets of keys and values, so that a rotation over them finds a cold L2."""

    case: Case
    q: Tensor
    """(B, H, D)"""
    k_pages: Tensor
    v_pages: Tensor
    tables: tuple[Tensor, ...]
    """One page table (B, C) a set: pages in random order."""
    lengths: Tensor


class Cache:
    """One large random cache that every case takes its sets from."""

    def __init__(self, tokens: int, device: torch.device, seed: int = 0) -> None:
        """`tokens` of 8 KV heads of 128 in bf16: 4 KB each, keys and values."""
        self._generator = torch.Generator(device).manual_seed(seed)
        shape = (tokens // PAGE, KV_HEADS, PAGE, DIM)
        self.k_pages = self.random(shape)
        self.v_pages = self.random(shape)

    def random(self, shape: Sequence[int]) -> Tensor:
        """Normal numbers in bf16, on the cache's device."""
        return torch.randn(
            tuple(shape), dtype=torch.bfloat16, device=self._generator.device,
            generator=self._generator,
        )  # fmt: skip

    def sets(self, case: Case) -> Sets:
        """Page tables for as many sets as fill the L2 several times over.

        A set is what one layer would hold: pages side by side, in random order within the set.
        """
        device = self.k_pages.device
        columns = max(-(-n // PAGE) for n in case.lengths)
        pages = sum(-(-n // PAGE) for n in case.lengths)
        count = min(self.k_pages.shape[0] // pages, max(2, -(-5 * L2_BYTES // case.kv_bytes)))
        tables: list[Tensor] = []
        for number in range(count):
            order = torch.randperm(pages, device=device, generator=self._generator) + number * pages
            table = torch.zeros((len(case.lengths), columns), dtype=torch.int32, device=device)
            taken = 0
            for row, length in enumerate(case.lengths):
                need = -(-length // PAGE)
                table[row, :need] = order[taken : taken + need].int()
                taken += need
            tables.append(table)
        lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)
        q = self.random((len(case.lengths), case.heads, DIM))
        return Sets(case, q, self.k_pages, self.v_pages, tuple(tables), lengths)

    def contiguous(self, sets: Sets) -> list[list[tuple[Tensor, Tensor]]]:
        """Per set, contiguous keys and values `(B', K, S, D)`: one pair for equal lengths, else
        one a sequence. They are views of the same memory.
        """
        case = sets.case
        groups = (
            [(len(case.lengths), case.lengths[0])] if case.equal else [(1, n) for n in case.lengths]
        )
        flat_k, flat_v = self.k_pages.flatten(), self.v_pages.flatten()
        found: list[list[tuple[Tensor, Tensor]]] = []
        at = 0
        for _ in sets.tables:
            pairs: list[tuple[Tensor, Tensor]] = []
            for batch, length in groups:
                shape = (batch, KV_HEADS, length, DIM)
                size = batch * KV_HEADS * length * DIM
                pairs.append(
                    (flat_k[at : at + size].view(shape), flat_v[at : at + size].view(shape))
                )
                at += size
            found.append(pairs)
        return found
