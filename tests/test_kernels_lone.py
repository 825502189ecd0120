"""Small kernels and helpers that stand alone."""

import pytest
import torch
from kernel_lane import DEVICE, MARKS, make_batch

from minicache.kernels.gather import gather_kv
from minicache.kernels.merged_prefill import merge_two, sub_batch
from minicache.kernels.reference import attend, gather
from minicache.protocols import AttentionBatch

pytestmark = MARKS


@pytest.mark.parametrize(
    "length, page, dim", [(1, 1, 64), (63, 16, 80), (64, 16, 64), (65, 8, 128)]
)
def test_gather_copies_pages_in_order(length, page, dim):
    batch = make_batch([length], dim=dim, page=page)
    keys, values = gather_kv(batch.k_pages, batch.v_pages, batch.table[0], length)
    assert torch.equal(keys, gather(batch.k_pages, batch.table[0], length))
    assert torch.equal(values, gather(batch.v_pages, batch.table[0], length))


def test_merging_two_halves_gives_the_whole():
    q, keys, values = (torch.randn((n, 3, 16)).double() for n in (1, 40, 40))
    keys, values = keys.transpose(0, 1), values.transpose(0, 1)
    whole, whole_lse = attend(q, keys, values, 0.25)
    halves = [attend(q, keys[:, s], values[:, s], 0.25) for s in (slice(0, 13), slice(13, 40))]
    merged, lse = merge_two(*halves[0], *halves[1])
    torch.testing.assert_close(merged, whole, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(lse, whole_lse)


def test_merging_two_empty_parts_is_zero():
    nothing, never = torch.zeros((2, 4)), torch.full((2,), -torch.inf)
    merged, lse = merge_two(nothing, never, nothing, never)
    assert torch.equal(merged, nothing) and torch.equal(lse, never)


def test_merging_with_an_empty_part_changes_nothing():
    value, lse = torch.randn((2, 4)), torch.randn(2)
    merged, got = merge_two(value, lse, torch.zeros((2, 4)), torch.full((2,), -torch.inf))
    assert torch.equal(merged, value) and torch.equal(got, lse)


def test_part_of_a_batch_counts_its_rows_from_zero():
    starts, lengths = (0, 3, 4, 9), (10, 20, 30)
    batch = AttentionBatch(
        torch.tensor(starts, device=DEVICE), torch.tensor(lengths, device=DEVICE),
        torch.arange(12, device=DEVICE).view(3, 4), 5, 30, starts, lengths,
    )  # fmt: skip
    part = sub_batch(batch, 1, 3)
    assert part.query_starts.tolist() == [0, 1, 6] and part.host_query_starts == (0, 1, 6)
    assert part.lengths.tolist() == [20, 30] and part.max_query == 5 and part.max_length == 30
    assert part.page_table.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
