"""Attention against float64, in every form: whole, in tiles, in parts, over pages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from minicache.attention import (
    InvariantAttention,
    Partial,
    PerSequence,
    TorchPagedAttention,
    empty_partial,
    fused_partial,
    merge,
    naive_attention,
    online_attention,
    online_partial,
)
from minicache.attention.gather import group_lengths, plan_group
from minicache.protocols import AttentionBatch, PagedAttention

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 1.2e-2}
PARTS: dict[str, type[TorchPagedAttention] | type[InvariantAttention]] = {
    "torch": TorchPagedAttention,
    "invariant": InvariantAttention,
}


def truth(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """Row by row, head by head, in float64: the definition, and nothing shared with the library."""
    queries, heads, head_dim = q.shape
    keys, kv_heads, _ = k.shape
    group = heads // kv_heads
    output = torch.empty(queries, heads, head_dim, dtype=torch.float64)
    for t, h in itertools.product(range(queries), range(heads)):
        seen = keys - queries + t + 1
        scores = k[:seen, h // group].double() @ q[t, h].double()
        scores = scores * (head_dim**-0.5 if scale is None else scale)
        output[t, h] = torch.softmax(scores, dim=0) @ v[:seen, h // group].double()
    return output


def error(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).abs().max() / want.abs().max())


def tensors(
    queries: int, keys: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = (queries, heads, head_dim), (keys, kv_heads, head_dim), (keys, kv_heads, head_dim)
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


# --- plain sequences ---------------------------------------------------------------------------


@pytest.mark.parametrize("attention", [naive_attention, online_attention])
@pytest.mark.parametrize(
    "heads, kv_heads, head_dim", [(9, 3, 64), (14, 2, 16), (7, 1, 80), (4, 4, 96)]
)
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 97), (5, 5), (63, 64), (17, 129)])
def test_matches_the_definition(attention, heads, kv_heads, head_dim, queries, keys):
    q, k, v = tensors(queries, keys, heads, kv_heads, head_dim, torch.float32, queries + keys)
    assert error(attention(q, k, v), truth(q, k, v)) < TOLERANCE[torch.float32]


def test_a_given_scale_is_used():
    q, k, v = tensors(3, 8, 4, 2, 16, torch.float32, 1)
    assert error(naive_attention(q, k, v, 0.7), truth(q, k, v, 0.7)) < 2e-6
    assert error(online_attention(q, k, v, 0.7), truth(q, k, v, 0.7)) < 2e-6


def test_large_scores_do_not_overflow():
    q, k, v = tensors(4, 33, 4, 2, 16, torch.float32, 2)
    for attention in (naive_attention, online_attention):
        assert error(attention(q * 1e4, k * 1e4, v), truth(q * 1e4, k * 1e4, v)) < 1e-5


def test_very_negative_scores_are_not_taken_for_masked():
    q = torch.ones(1, 1, 8)
    k = torch.full((5, 1, 8), -1e5)
    v = torch.arange(5.0).view(5, 1, 1).expand(5, 1, 8)
    for attention in (naive_attention, online_attention):
        assert torch.equal(attention(q, k, v, 1.0), torch.full((1, 1, 8), 2.0))


@pytest.mark.parametrize("tile", [1, 2, 7, 64, 1000])
def test_the_size_of_a_tile_changes_nothing(tile):
    q, k, v = tensors(19, 67, 6, 3, 24, torch.float32, tile)
    assert error(online_attention(q, k, v, tile=tile), truth(q, k, v)) < 2e-6


@pytest.mark.parametrize(
    "q, k, v, names",
    [
        ((2, 10, 8), (4, 4, 8), (4, 4, 8), "10 query heads"),
        ((5, 4, 8), (4, 4, 8), (4, 4, 8), "5 queries but 4 keys"),
        ((2, 4, 8), (4, 4, 16), (4, 4, 16), r"\(2, 4, 8\)"),
        ((2, 4, 8), (4, 4, 8), (5, 4, 8), r"\(5, 4, 8\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(q, k, v, names):
    for attention in (naive_attention, online_attention):
        with pytest.raises(ValueError, match=names):
            attention(torch.zeros(q), torch.zeros(k), torch.zeros(v))


# --- parts and their merge ---------------------------------------------------------------------


def part_of(seed: int, keys: int) -> Partial:
    q, k, v = tensors(3, max(keys, 3), 4, 2, 8, torch.float64, seed)
    return online_partial(q * 3, k[:keys], v[:keys], first=keys)


def close(a: Partial, b: Partial) -> bool:
    return torch.allclose(a.output, b.output, atol=1e-6) and torch.allclose(a.lse, b.lse, atol=1e-6)


def test_lse_is_the_natural_logarithm_of_the_summed_weights():
    q, k, v = tensors(5, 70, 4, 2, 8, torch.float32, 3)
    scores = torch.einsum("thd,shd->hts", q, k.repeat_interleave(2, dim=1)) * 8**-0.5
    want = torch.logsumexp(scores, dim=-1).T  # (T, H)
    assert torch.allclose(online_partial(q, k, v, first=70).lse, want, atol=1e-5)
    shape = (1, 4, 5, 8), (1, 4, 70, 8)
    library = fused_partial(
        q.transpose(0, 1).reshape(shape[0]),
        k.repeat_interleave(2, dim=1).transpose(0, 1).reshape(shape[1]),
        v.repeat_interleave(2, dim=1).transpose(0, 1).reshape(shape[1]),
        8**-0.5,
    )
    assert torch.allclose(library.lse[0].T, want, atol=1e-5)


@pytest.mark.parametrize("cut", [0, 1, 29, 64, 65, 70])
def test_two_parts_are_the_whole_wherever_the_keys_are_cut(cut):
    q, k, v = tensors(5, 70, 6, 2, 16, torch.float32, cut)
    first = online_partial(q, k[:cut], v[:cut], first=65)
    second = online_partial(q, k[cut:], v[cut:], first=65 - cut)
    assert error(merge(first, second).output, truth(q, k, v)) < 2e-6


def test_very_different_parts_join():
    q, k, v = tensors(1, 9, 2, 1, 8, torch.float32, 4)
    k[:4] += 30 * q[0, 0]
    parts = online_partial(q, k[:4], v[:4], first=4), online_partial(q, k[4:], v[4:], first=5)
    for joined in (merge(*parts), merge(*reversed(parts))):
        assert error(joined.output, truth(q, k, v)) < 2e-5


def test_merge_is_associative_and_commutative():
    a, b, c = part_of(1, 5), part_of(2, 64), part_of(3, 1)
    assert close(merge(merge(a, b), c), merge(a, merge(b, c)))
    assert close(merge(a, b), merge(b, a))


def test_the_empty_part_is_the_identity():
    part = part_of(1, 7)
    empty = empty_partial(part.output)
    assert close(merge(part, empty), part) and close(merge(empty, part), part)


def test_two_empty_parts_stay_empty():
    empty = empty_partial(torch.zeros(2, 3, 8))
    both = merge(empty, empty)
    assert torch.equal(both.output, torch.zeros(2, 3, 8))
    assert torch.equal(both.lse, torch.full((2, 3), -torch.inf))


def test_queries_that_see_no_key_are_empty():
    q, k, v = tensors(4, 6, 2, 1, 8, torch.float32, 5)
    part = online_partial(q, k, v, first=-2)  # rows 0 and 1 stand before the first key
    assert torch.equal(part.output[:2], torch.zeros(2, 2, 8))
    assert torch.equal(part.lse[:2], torch.full((2, 2), -torch.inf))
    assert part.lse[2:].isfinite().all()
    assert torch.equal(online_partial(q, k[:0], v[:0], first=0).lse, torch.full((4, 2), -torch.inf))


# --- pages -------------------------------------------------------------------------------------


class Ragged:
    """Sequences in shuffled pages of a cache in which everything else is NaN."""

    def __init__(
        self,
        queries: list[int],
        lengths: list[int],
        *,
        heads: int = 6,
        kv_heads: int = 2,
        head_dim: int = 16,
        page_size: int = 16,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        needed = [-(-length // page_size) for length in lengths]
        num_pages = sum(needed) + 5
        shape = (num_pages, kv_heads, page_size, head_dim)
        self.k_pages = torch.full(shape, torch.nan, dtype=dtype)
        self.v_pages = torch.full(shape, torch.nan, dtype=dtype)
        order = rng.permutation(num_pages)[::-1].copy()
        # The table is a slice of a wider one, and undefined past each length.
        table = rng.integers(0, num_pages, (len(lengths), max(needed) + 7)).astype(np.int32)
        self.sequences: list[tuple[Tensor, Tensor, Tensor]] = []
        for b, (count, length) in enumerate(zip(queries, lengths, strict=True)):
            own, order = order[: needed[b]], order[needed[b] :]
            table[b, : needed[b]] = own
            q, k, v = tensors(count, length, heads, kv_heads, head_dim, dtype, seed * 100 + b)
            for t in range(length):
                self.k_pages[own[t // page_size], :, t % page_size] = k[t]
                self.v_pages[own[t // page_size], :, t % page_size] = v[t]
            self.sequences.append((q, k, v))
        starts = np.concatenate([[0], np.cumsum(queries)]).tolist()
        self.q = torch.cat([q for q, _, _ in self.sequences])
        self.batch = AttentionBatch(
            query_starts=torch.tensor(starts, dtype=torch.int32),
            lengths=torch.tensor(lengths, dtype=torch.int32),
            page_table=torch.from_numpy(table)[:, : max(needed) + 2],
            max_query=max(queries),
            max_length=max(lengths),
            host_query_starts=tuple(starts),
            host_lengths=tuple(lengths),
        )
        self.scale = head_dim**-0.5

    def run(self, attention: PagedAttention) -> Tensor:
        return attention(self.q, self.k_pages, self.v_pages, self.batch, self.scale)

    def truth(self) -> Tensor:
        return torch.cat([truth(q, k, v) for q, k, v in self.sequences])


RAGGED = {
    "one decode": ([1], [1]),
    "decodes around a page's edge": ([1] * 5, [15, 16, 17, 1, 31]),
    "decodes in several groups": ([1, 1, 1, 1], [700, 3, 290, 30]),
    "whole prompts": ([17, 1, 16], [17, 1, 16]),
    "chunks behind a past": ([5, 16, 1, 33], [21, 16, 40, 130]),
    "decodes and chunks": ([1, 1, 7, 2], [33, 64, 7, 65]),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("queries, lengths", RAGGED.values(), ids=RAGGED)
@pytest.mark.parametrize("page_size", [16, 1, 5])
def test_pages_hold_what_a_plain_sequence_holds(part, queries, lengths, page_size):
    ragged = Ragged(queries, lengths, page_size=page_size, seed=len(lengths))
    assert error(ragged.run(part()), ragged.truth()) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize(
    "heads, kv_heads, head_dim", [(9, 3, 64), (14, 2, 64), (28, 4, 80), (71, 1, 8)]
)
def test_any_group_and_head_size(part, heads, kv_heads, head_dim):
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    ragged = Ragged([1, 1, 9], [37, 20, 50], **shape, seed=heads)
    assert error(ragged.run(part()), ragged.truth()) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_bfloat16(part):
    ragged = Ragged([1, 1, 40], [37, 200, 90], dtype=torch.bfloat16, head_dim=64)
    assert error(ragged.run(part()), ragged.truth()) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("attention", [naive_attention, online_attention])
def test_a_function_of_one_sequence_runs_on_pages(attention):
    ragged = Ragged([1, 5, 16], [37, 21, 16])
    assert error(ragged.run(PerSequence(attention)), ragged.truth()) < 2e-6


def test_the_plan_of_a_batch_is_not_used_for_the_next():
    part = TorchPagedAttention()
    for seed, lengths in enumerate(([40, 3], [3, 40], [17, 17])):
        ragged = Ragged([1, 1], lengths, seed=seed)
        assert error(ragged.run(part), ragged.truth()) < 2e-6


def test_the_first_layer_makes_the_plan_for_all(monkeypatch):
    from minicache.attention import paged

    made: list[AttentionBatch] = []
    plan_batch = paged.plan_batch
    monkeypatch.setattr(paged, "plan_batch", lambda b, s: made.append(b) or plan_batch(b, s))
    ragged, part = Ragged([1, 4], [40, 30]), TorchPagedAttention()
    assert torch.equal(ragged.run(part), ragged.run(part))
    assert made == [ragged.batch]


def test_decodes_and_chunks_of_a_step_keep_a_plan_each(monkeypatch):
    from minicache.attention import paged

    made: list[AttentionBatch] = []
    plan_batch = paged.plan_batch
    monkeypatch.setattr(paged, "plan_batch", lambda b, s: made.append(b) or plan_batch(b, s))
    decodes, chunks, part = Ragged([1, 1], [40, 30]), Ragged([4], [30]), TorchPagedAttention()
    for _ in range(3):
        decodes.run(part)
        chunks.run(part)
    assert made == [decodes.batch, chunks.batch]


def test_a_neighbour_of_nan_does_no_harm():
    ragged = Ragged([1, 1, 1], [30, 5, 20])
    want = ragged.truth()
    whose = ragged.batch.page_table[0, :2].long()
    ragged.k_pages[whose] = torch.nan
    ragged.v_pages[whose] = torch.inf
    got = ragged.run(TorchPagedAttention())
    assert not got[0].isfinite().any()
    assert error(got[1:], want[1:]) < 2e-6


def test_a_length_beyond_the_table_is_refused():
    table = torch.zeros(1, 2, dtype=torch.int32)
    with pytest.raises(ValueError, match="33 tokens needs 3 pages of 16.* 2 columns"):
        plan_group([0], [33], table, torch.Size((9, 2, 16, 8)))


def test_groups_pad_no_more_than_a_call_costs():
    lengths = [10, 900, 300, 800, 256, 1]
    groups = group_lengths(lengths, call_cost=256)
    assert sorted(itertools.chain(*groups)) == list(range(6))
    assert groups == [[1, 3], [2, 4], [0, 5]]
    for group in groups:
        assert max(lengths[i] for i in group) - min(lengths[i] for i in group) <= 256


# --- the same bits, whoever computes with it ---------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_bits_do_not_depend_on_batch_or_chunks(dtype):
    lengths = [150, 33, 64, 7]
    whole = Ragged(lengths, lengths, dtype=dtype, head_dim=64, heads=9, kv_heads=3)
    want = dict(enumerate(whole.run(InvariantAttention()).split(lengths)))
    for cuts in ([149, 0, 13, 3], [100, 32, 63, 6], [1, 5, 0, 0]):
        later = Ragged(lengths, lengths, dtype=dtype, head_dim=64, heads=9, kv_heads=3)
        queries = [length - cut for length, cut in zip(lengths, cuts, strict=True)]
        later.q = torch.cat([s[0][cut:] for s, cut in zip(later.sequences, cuts, strict=True)])
        starts = np.concatenate([[0], np.cumsum(queries)]).tolist()
        batch = AttentionBatch(
            torch.tensor(starts, dtype=torch.int32),
            later.batch.lengths,
            later.batch.page_table,
            max(queries),
            max(lengths),
            tuple(starts),
            tuple(lengths),
        )
        got = InvariantAttention()(later.q, later.k_pages, later.v_pages, batch, later.scale)
        for b, rows in enumerate(got.split(queries)):
            assert torch.equal(rows, want[b][cuts[b] :])


def test_host_values_may_be_left_out():
    ragged = Ragged([1, 6], [40, 30])
    want = ragged.truth()
    batch = ragged.batch
    ragged.batch = AttentionBatch(
        batch.query_starts, batch.lengths, batch.page_table, batch.max_query, batch.max_length
    )
    for part in (TorchPagedAttention(), InvariantAttention(), PerSequence(naive_attention)):
        assert error(ragged.run(part), want) < 2e-6
