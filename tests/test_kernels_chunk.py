import random

import pytest
import torch
from kernel_lane import DEVICE, DTYPES, MARKS, ON_GPU, assert_close, make_batch, only_gpu, poisoned

from minicache.kernels.chunk_prefill import ChunkPrefill, chunk_prefill, chunk_work, plan
from minicache.kernels.flash_decode import flash_decode
from minicache.kernels.hardware import gpu_of
from minicache.kernels.merged_prefill import MergedPrefill, merged_chunk
from minicache.kernels.reference import paged_attention_reference
from minicache.protocols import AttentionBatch

pytestmark = MARKS


def run(batch, **options):
    cut = {k: options[k] for k in ("split_size", "window") if k in options}
    most = max(batch.counts)
    work = chunk_work(batch.q, batch.k_pages, batch.table, batch.starts, batch.lengths, most, **cut)
    return chunk_prefill(
        batch.q, batch.k_pages, batch.v_pages, batch.table, batch.starts, batch.lengths, most,
        work=work, workspace=poisoned(work, batch), **options,
    )  # fmt: skip


def truth(batch, **options):
    return paged_attention_reference(
        batch.q, batch.k_pages, batch.v_pages, batch.table, batch.host_starts, batch.host_lengths,
        **options,
    )  # fmt: skip


SHAPES = [
    ((8, 2), 128, 16),
    ((9, 3), 64, 16),
    ((14, 2), 64, 1),
    ((5, 1), 80, 8),
    ((4, 2), 256, 32),
]
# The interpreter runs every shape in one type and the real model's in all; a GPU all in all.
GRID = [
    (heads, dim, page, dtype)
    for heads, dim, page in SHAPES
    for dtype in DTYPES
    if ON_GPU or dtype == torch.float32 or heads == (9, 3)
]


@pytest.mark.parametrize("heads, dim, page, dtype", GRID, ids=str)
def test_equals_the_reference(heads, dim, page, dtype):
    batch = make_batch(
        [70, 5, 33, 150], [33, 5, 1, 17], heads=heads, dim=dim, page=page, dtype=dtype
    )
    assert_close(run(batch), truth(batch), dtype)


@only_gpu
def test_many_rows_take_the_other_program_shape():
    batch = make_batch([3000, 90], [1500, 7], heads=(32, 8), dim=128, dtype=torch.bfloat16)
    assert_close(run(batch), truth(batch), torch.bfloat16)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 130])
def test_chunks_about_tile_edges(count):
    batch = make_batch([count, count + 100], [count, count], heads=(2, 1))
    assert_close(run(batch), truth(batch), torch.float32)


@pytest.mark.parametrize(
    "options", [{"window": 20}, {"soft_cap": 5.0}, {"window": 7, "soft_cap": 9.0}]
)
def test_window_and_cap(options):
    batch = make_batch([200, 19, 21, 90], [40, 19, 3, 1])
    assert_close(run(batch, **options), truth(batch, **options), torch.float32)


def test_pieces_that_some_rows_do_not_see():
    batch = make_batch(
        [200], [200], heads=(2, 1)
    )  # early rows see nothing of late pieces: lse -inf there
    assert_close(run(batch, split_size=64), truth(batch), torch.float32)


def test_a_sequence_without_rows_is_passed_over():
    batch = make_batch([50, 40, 9], [3, 0, 9])
    assert_close(run(batch), truth(batch), torch.float32)


def test_a_decode_is_a_chunk_of_one():
    batch = make_batch([70, 1, 300], heads=(9, 3))
    decode = flash_decode(batch.q, batch.k_pages, batch.v_pages, batch.table, batch.lengths)
    chunk = run(batch)
    torch.testing.assert_close(decode.output, chunk.output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(decode.lse, chunk.lse, rtol=1e-5, atol=1e-5)


def test_chunking_does_not_change_the_answer():
    whole = make_batch([130], [130], heads=(2, 1), seed=5)
    expected = run(whole)
    for first in (1, 50):
        part = chunk_prefill(
            whole.q[:first], whole.k_pages, whole.v_pages, whole.table,
            torch.tensor([0, first], dtype=torch.int32, device=DEVICE),
            torch.tensor([first], dtype=torch.int32, device=DEVICE), first,
        )  # fmt: skip
        torch.testing.assert_close(part.output, expected.output[:first], rtol=1e-5, atol=1e-5)


def test_fixed_piece_size_gives_the_same_bits_alone_and_in_a_batch():
    batch = make_batch([200, 40, 122], [9, 9, 9], heads=(2, 1), dtype=torch.float16)
    together = run(batch, split_size=64)
    alone = chunk_prefill(
        batch.q[:9], batch.k_pages, batch.v_pages, batch.table[:1], batch.starts[:2],
        batch.lengths[:1], 9, split_size=64,
    )  # fmt: skip
    assert torch.equal(together.output[:9], alone.output)


@pytest.mark.parametrize("seed", range(8))
def test_the_device_cuts_as_the_plan_says(seed):
    rng = random.Random(seed)
    heads = rng.choice([(32, 8), (9, 3), (7, 1)])
    counts = [rng.choice([0, 1, 5, rng.randint(1, 700)]) for _ in range(rng.randint(1, 9))] + [3]
    lengths = [n + rng.choice([0, 1, rng.randint(0, 9000)]) for n in counts]
    options = rng.choice([{}, {}, {"split_size": 256}, {"window": 300}])
    starts = [sum(counts[:i]) for i in range(len(counts) + 1)]
    q = torch.zeros((starts[-1], heads[0], 64), dtype=torch.float16, device=DEVICE)
    pages = torch.zeros((1, heads[1], 16, 64), dtype=torch.float16, device=DEVICE)
    table = torch.zeros((len(counts), -(-max(lengths) // 16)), dtype=torch.int32, device=DEVICE)
    work = chunk_work(
        q, pages, table, torch.tensor(starts, dtype=torch.int32, device=DEVICE),
        torch.tensor(lengths, dtype=torch.int32, device=DEVICE), max(counts), **options,
    )  # fmt: skip
    expected = plan(gpu_of(DEVICE), starts, lengths, *heads, 64, **options)
    units = expected.units
    assert work.items[: int(work.num_items)].tolist() == [
        [*units[i.unit][:3], i.start, i.stop, units[i.unit].shift, i.pieces, i.unit]
        for i in expected.items
    ]
    assert len(expected.items) <= work.capacity and work.slots <= work.capacity


def as_step(batch):
    return AttentionBatch(
        batch.starts, batch.lengths, batch.table, max(batch.counts), max(batch.host_lengths),
        tuple(batch.host_starts), tuple(batch.host_lengths),
    )  # fmt: skip


@pytest.mark.parametrize("make", [ChunkPrefill, MergedPrefill])
def test_as_a_part_of_the_engine(make):
    dtype = DTYPES[-1]
    batch = make_batch([70, 5, 33, 90], [33, 5, 1, 9], heads=(4, 2), dim=64, dtype=dtype)
    got = make()(batch.q, batch.k_pages, batch.v_pages, as_step(batch), 0.125)
    expected = truth(batch).output
    assert ((got.double() - expected).norm() / expected.norm()) < 6e-3


@only_gpu
@pytest.mark.parametrize("past", [0, 1, 1000])
def test_past_and_present_merged(past):
    batch = make_batch([past + 256], [256], heads=(32, 8), dim=128, dtype=torch.bfloat16)
    got = merged_chunk(batch.q, batch.k_pages, batch.v_pages, batch.table[0], past + 256, 128**-0.5)
    assert_close(got, truth(batch), torch.bfloat16)


@only_gpu
def test_the_merged_route_is_taken_for_long_chunks_only(monkeypatch):
    import minicache.kernels.merged_prefill as module

    taken = []
    monkeypatch.setattr(
        module, "merged_chunk", lambda q, *a: taken.append(q.shape[0]) or merged_chunk(q, *a)
    )
    batch = make_batch([70, 900, 33, 999], [33, 600, 1, 512], heads=(4, 2), dtype=torch.float16)
    MergedPrefill()(batch.q, batch.k_pages, batch.v_pages, as_step(batch), 0.125)
    assert taken == [600, 512]
