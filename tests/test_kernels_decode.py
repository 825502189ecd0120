import random

import pytest
import torch
from kernel_lane import DEVICE, DTYPES, MARKS, ON_GPU, assert_close, make_batch, only_gpu, poisoned

from minicache.kernels import cutting
from minicache.kernels.flash_decode import (
    FlashDecode,
    decode_launch,
    decode_work,
    flash_decode,
    plan,
)
from minicache.kernels.hardware import H200, gpu_of
from minicache.kernels.reference import paged_attention_reference
from minicache.protocols import AttentionBatch

pytestmark = MARKS


def run(batch, **options):
    cut = {k: options[k] for k in ("split_size", "num_splits", "window") if k in options}
    work = decode_work(batch.q, batch.k_pages, batch.table, batch.lengths, **cut)
    return flash_decode(
        batch.q, batch.k_pages, batch.v_pages, batch.table, batch.lengths, work=work,
        workspace=poisoned(work, batch), **options,
    )  # fmt: skip


def truth(batch, **options):
    return paged_attention_reference(
        batch.q, batch.k_pages, batch.v_pages, batch.table, batch.host_starts, batch.host_lengths,
        **options,
    )  # fmt: skip


# (query heads, KV heads), head_dim, page size
SHAPES = [
    ((8, 2), 128, 16),
    ((9, 3), 64, 16),
    ((14, 2), 64, 8),
    ((48, 2), 128, 32),
    ((71, 1), 64, 1),
    ((5, 1), 96, 2),
    ((4, 4), 80, 16),
    ((7, 1), 112, 64),
    ((4, 2), 256, 256),
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
    batch = make_batch([1, 131, 0, 193], heads=heads, dim=dim, page=page, dtype=dtype)
    assert_close(run(batch), truth(batch), dtype)


@pytest.mark.parametrize("page", [1, 2, 16, 128])
@pytest.mark.parametrize("splits", [1, 2, 5, 64])
def test_lengths_about_page_and_tile_edges(page, splits):
    lengths = sorted({1, page - 1, page, page + 1, 63, 64, 65, 2 * page + 1, 193})
    batch = make_batch(lengths, heads=(2, 1), page=page)
    assert_close(run(batch, num_splits=splits), truth(batch), torch.float32)


def test_more_splits_than_keys_equal_one_split():
    batch = make_batch([1])
    one, eight = run(batch, num_splits=1), run(batch, num_splits=8)
    assert torch.equal(one.output, eight.output) and torch.equal(one.lse, eight.lse)


def test_lse_is_the_natural_logarithm_also_after_merging():
    batch = make_batch([512], gain=6.0)  # maxima of the pieces differ widely
    for splits in (1, 2, 8):
        torch.testing.assert_close(
            run(batch, num_splits=splits).lse, truth(batch).lse, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("length", [19, 20, 21, 200])
@pytest.mark.parametrize("splits", [1, 3])
def test_window_keeps_its_oldest_key(length, splits):
    batch = make_batch([length, 5])
    got = run(batch, window=20, num_splits=splits)
    assert_close(got, truth(batch, window=20), torch.float32)


def test_window_does_not_read_what_lies_before_it():
    batch = make_batch([160], page=16)
    for column in range(8):  # positions below 128; the window of 20 begins at 140
        batch.k_pages[batch.table[0, column].item()] = float("nan")
        batch.v_pages[batch.table[0, column].item()] = float("nan")
    assert run(batch, window=20).output.isfinite().all()


@pytest.mark.parametrize("gain", [1.0, 1e5])
def test_soft_cap_saturates(gain):
    batch = make_batch([70, 129], gain=gain)
    got = run(batch, soft_cap=30.0, num_splits=2)
    assert_close(got, truth(batch, soft_cap=30.0), torch.float32)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_scores_far_from_zero(sign):
    batch = make_batch([130])
    batch.k_pages[..., 0] += sign * 1e5
    batch.q[..., 0] = 8.0  # scores near ±1e5
    got = run(batch, num_splits=2)
    assert got.output.isfinite().all()
    assert (got.lse * sign > 5e4).all()


def test_fixed_piece_size_gives_the_same_bits_alone_and_in_a_batch():
    rng = random.Random(1)
    lengths = [300, *(rng.randint(1, 9000 if ON_GPU else 150) for _ in range(15))]
    batch = make_batch(lengths, heads=(4, 1), dtype=torch.float16)
    together = run(batch, split_size=64)
    alone = flash_decode(
        batch.q[:1], batch.k_pages, batch.v_pages, batch.table[:1], batch.lengths[:1], split_size=64
    )
    assert torch.equal(together.output[0], alone.output[0])
    assert torch.equal(together.lse[0], alone.lse[0])
    assert_close(together, truth(batch), torch.float16)


@pytest.mark.parametrize("seed", range(12))
def test_the_device_cuts_as_the_plan_says(seed):
    rng = random.Random(seed)
    heads = rng.choice([(32, 8), (9, 3), (71, 1), (8, 8), (64, 8)])
    lengths = [
        rng.choice([0, 1, 64, 65, rng.randint(2, 20_000)]) for _ in range(rng.randint(1, 40))
    ]
    options = rng.choice([{}, {}, {"split_size": 256}, {"num_splits": 7}, {"window": 1000}])
    q = torch.zeros((len(lengths), heads[0], 64), dtype=torch.float16, device=DEVICE)
    pages = torch.zeros((1, heads[1], 16, 64), dtype=torch.float16, device=DEVICE)
    table = torch.zeros(
        (len(lengths), -(-max(*lengths, 1) // 16)), dtype=torch.int32, device=DEVICE
    )
    on_device = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    work = decode_work(q, pages, table, on_device, gpu=gpu_of(DEVICE), **options)
    expected = plan(gpu_of(DEVICE), lengths, *heads, 64, **options)
    units = cutting.units_of(
        range(len(lengths) + 1),
        lengths,
        heads[0] // heads[1],
        work.shape.block_m,
        options.get("window", 0),
    )
    found = work.items[: int(work.num_items)].tolist()
    numbers = [i.unit for i in expected.items]
    firsts = [numbers.index(unit) for unit in range(len(units))]
    assert found == [
        [*units[i.unit][:3], i.start, i.stop, units[i.unit].shift, i.pieces, i.unit]
        for i in expected.items
    ]
    assert work.first_item.tolist() == [*firsts, len(found)]


def test_a_step_is_cut_once_and_shared_by_its_layers(monkeypatch):
    import minicache.kernels.flash_decode as module

    cuts = []
    monkeypatch.setattr(
        module, "decode_work", lambda *a, **k: cuts.append(1) or decode_work(*a, **k)
    )
    batch = make_batch([40, 70])
    layers = [(batch.k_pages, batch.v_pages), (batch.k_pages.clone(), batch.v_pages.clone())]
    attention = FlashDecode()
    step = AttentionBatch(batch.starts, batch.lengths, batch.table, 1, 70)
    scale = 64**-0.5
    for _ in range(2):
        outputs = [attention(batch.q, k, v, step, scale) for k, v in layers]
        batch.lengths -= 1  # the same buffers, another step
    assert len(cuts) == 2
    batch.lengths += 1
    batch.host_lengths = [39, 69]
    error = (outputs[1].double() - truth(batch).output).abs().max()
    assert error < 1e-5


def test_refusals_name_value_limit_and_way_out():
    batch = make_batch([20], heads=(10, 4))
    with pytest.raises(ValueError, match="10 query heads on 4 KV heads"):
        run(batch)
    batch = make_batch([20])
    with pytest.raises(ValueError, match="head_dim 32 .* 64"):
        run_with_q(batch, batch.q[..., :32])
    with pytest.raises(ValueError, match="same one of"):
        run_with_q(batch, batch.q.double())
    step = AttentionBatch(batch.starts, batch.lengths, batch.table, 1, 40, (0, 1), (40,))
    with pytest.raises(ValueError, match="40 tokens, but a row of the page table holds 2 pages"):
        FlashDecode()(batch.q, batch.k_pages, batch.v_pages, step, 1.0)
    wide = make_batch([20], dim=512)
    with pytest.raises(ValueError, match="head_dim is 512"):
        run_with_q(wide, wide.q)


def run_with_q(batch, q):
    return flash_decode(q, batch.k_pages, batch.v_pages, batch.table, batch.lengths)


def test_other_strides_of_the_cache():
    batch = make_batch([70, 33])
    flipped = [
        p.transpose(1, 2).contiguous().transpose(1, 2) for p in (batch.k_pages, batch.v_pages)
    ]
    assert not flipped[0].is_contiguous()
    got = flash_decode(batch.q, *flipped, batch.table, batch.lengths)
    assert_close(got, truth(batch), torch.float32)


@only_gpu
def test_under_a_graph_lengths_may_change():
    batch = make_batch([900, 3, 64], heads=(32, 8), dim=128, dtype=torch.bfloat16)
    attention = FlashDecode()
    step = AttentionBatch(batch.starts, batch.lengths, batch.table, 1, 900)

    def layer():
        return attention(batch.q, batch.k_pages, batch.v_pages, step, 128**-0.5)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = layer()
    for lengths in ([900, 3, 64], [17, 1, 0], [899, 2, 63]):
        batch.lengths.copy_(torch.tensor(lengths))
        batch.host_lengths = lengths
        output.fill_(float("nan"))
        graph.replay()
        expected = truth(batch).output
        assert ((output.double() - expected).norm() / expected.norm()) < 6e-3


@only_gpu
def test_offsets_beyond_two_to_the_31():
    pages = 2**31 // (8 * 16 * 128) + 64
    k_pages = torch.full((pages, 8, 16, 128), float("nan"), dtype=torch.bfloat16, device=DEVICE)
    v_pages = torch.full_like(k_pages, float("nan"))
    table = torch.arange(pages - 40, pages, dtype=torch.int32, device=DEVICE).view(1, 40)
    k_pages[-40:].normal_()
    v_pages[-40:].normal_()
    lengths = torch.tensor([640], dtype=torch.int32, device=DEVICE)
    q = torch.randn((1, 32, 128), dtype=torch.bfloat16, device=DEVICE)
    got = flash_decode(q, k_pages, v_pages, table, lengths)
    expected = paged_attention_reference(q, k_pages, v_pages, table, [0, 1], [640])
    assert_close(got, expected, torch.bfloat16)


@only_gpu
def test_the_instrumented_build_stamps_every_program():
    batch = make_batch([4000], heads=(32, 8), dim=128, dtype=torch.bfloat16)
    work = decode_work(batch.q, batch.k_pages, batch.table, batch.lengths)
    stamps = torch.full((work.slots * 8, 3), -1, dtype=torch.int64, device=DEVICE)
    got = flash_decode(
        batch.q, batch.k_pages, batch.v_pages, batch.table, batch.lengths, work=work, stamps=stamps
    )
    assert_close(got, truth(batch), torch.bfloat16)
    sms = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    assert ((stamps[..., 0] >= 0) & (stamps[..., 0] < sms)).all()
    assert (stamps[..., 2] >= stamps[..., 1]).all() and (stamps[..., 1] > 0).all()


def test_rule_looks_at_kv_heads_not_query_heads():
    few = decode_launch(H200, 1, 8, 1, 128, 2)[1]
    many = decode_launch(H200, 1, 64, 8, 128, 2)[1]
    assert few.wave == pytest.approx(8 * many.wave, rel=0.02)
