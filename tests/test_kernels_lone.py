"""Small kernels and helpers that stand alone."""

import pytest
import torch
from kernel_lane import DEVICE, MARKS, make_batch

from minicache.kernels.gather import gather_kv
from minicache.kernels.merged_prefill import sub_batch
from minicache.kernels.reference import gather
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
