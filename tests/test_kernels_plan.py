"""The launch plans as pure functions: no Triton, no GPU."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicache.kernels.cutting import ceil_div
from minicache.kernels.decode_plan import plan
from minicache.kernels.hardware import H200

lengths = st.lists(st.integers(0, 200_000), min_size=1, max_size=80)
shapes = st.sampled_from([(32, 8), (9, 3), (14, 2), (71, 1), (64, 8), (4, 4)])


@settings(derandomize=True, deadline=None)
@given(
    lengths,
    shapes,
    st.sampled_from([{}, {"split_size": 2048}, {"num_splits": 5}, {"window": 4096}]),
)
def test_every_key_is_read_once(lengths, heads, options):
    made = plan(H200, lengths, *heads, 128, **options)
    units = len(made.pieces)
    row_tiles = units // len(lengths)
    window = options.get("window", 10**9)
    for unit in range(units):
        items = [item for item in made.items if item.unit == unit]
        length = lengths[unit // row_tiles]
        assert items[0].start == max(length - window, 0) and items[-1].stop == length
        assert all(a.stop == b.start for a, b in zip(items, items[1:], strict=False))
        assert {item.pieces for item in items} == {len(items)} == {made.pieces[unit]}
        assert all(item.stop > item.start for item in items) or length == 0


@settings(derandomize=True, deadline=None)
@given(lengths, shapes)
def test_items_fit_the_grid_that_was_sized_without_lengths(lengths, heads):
    made = plan(H200, lengths, *heads, 128)
    same = plan(H200, [1] * len(lengths), *heads, 128)
    assert (made.rule, made.shape) == (same.rule, same.shape)
    assert len(made.items) <= max(made.rule.grid, len(made.pieces))


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 200_000), lengths)
def test_fixed_size_cuts_a_sequence_alike_in_any_batch(length, others):
    alone = plan(H200, [length], 32, 8, 128, split_size=2048)
    among = plan(H200, [length, *others], 32, 8, 128, split_size=2048)
    assert alone.items == among.items[: len(alone.items)]
    assert alone.shape == among.shape


@pytest.mark.parametrize(
    "lengths, pieces",
    [
        ([4096], [64]),
        ([32768], [64]),
        ([131072], [64]),
        ([32768] * 4, [16] * 4),
        ([8192] * 16, [4] * 16),
        ([2048] * 64, [1] * 64),
        ([8192] * 64, [1] * 64),
        ([512 << i for i in range(8)], [1, 1, 1, 2, 4, 8, 16, 32]),
    ],
    ids=str,
)
def test_choices_on_an_h200(lengths, pieces):
    assert list(plan(H200, lengths, 32, 8, 128).pieces) == pieces


def test_one_long_sequence_among_short_ones_is_cut_far():
    made = plan(H200, [131072] + [1024] * 63, 32, 8, 128)
    assert made.pieces[0] > 40


def test_splits_do_not_change_the_bytes_read_but_add_partials():
    one, many = (plan(H200, [32768], 32, 8, 128, num_splits=n) for n in (1, 64))
    assert one.kv_bytes == many.kv_bytes == 2 * 32768 * 8 * 128 * 2
    assert one.partial_bytes == 0 < many.partial_bytes
    assert one.programs == 8 and many.programs == 512


def test_fewer_kv_heads_are_cut_further():
    few, many = plan(H200, [32768], 8, 1, 128), plan(H200, [32768], 64, 8, 128)
    assert few.pieces[0] > 7 * many.pieces[0]
    assert ceil_div(few.programs, H200.sms) == ceil_div(many.programs, H200.sms)


def test_plans_need_neither_torch_nor_triton():
    code = (
        "import sys, minicache.kernels.decode_plan as _; m = sys.modules; "
        "print('torch' in m, 'triton' in m)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
