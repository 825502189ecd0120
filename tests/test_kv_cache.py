"""The contiguous cache, the paged one, and their bytes."""

from __future__ import annotations

import pytest
import torch
from model_driver import tiny_config

from minicache.kv_cache import KVCache, PagedKVCache, kv_cache_bytes, pages_for_memory
from minicache.model_config import CONFIGS


def test_what_is_appended_is_read_back():
    cache = KVCache(capacity=7, kv_heads=2, head_dim=4)
    keys, values = torch.randn(7, 2, 4), torch.randn(7, 2, 4)
    assert cache.keys.shape == (0, 2, 4)
    for start, stop in ((0, 3), (3, 3), (3, 4), (4, 7)):
        cache.append(keys[start:stop], values[start:stop])
        assert cache.length == stop
        assert torch.equal(cache.keys, keys[:stop]) and torch.equal(cache.values, values[:stop])


def test_a_full_cache_says_so_and_keeps_what_it_has():
    cache = KVCache(capacity=4, kv_heads=1, head_dim=2, dtype=torch.bfloat16)
    cache.append(torch.ones(3, 1, 2), torch.ones(3, 1, 2))
    with pytest.raises(ValueError, match="2 tokens behind 3 do not fit a cache of 4"):
        cache.append(torch.zeros(2, 1, 2), torch.zeros(2, 1, 2))
    assert cache.length == 3 and cache.keys.dtype is torch.bfloat16
    assert torch.equal(cache.keys, torch.ones(3, 1, 2, dtype=torch.bfloat16))


@pytest.mark.parametrize("page_size", [1, 5, 16])
def test_slots_are_page_and_offset(page_size):
    config = tiny_config()
    cache = PagedKVCache(config, num_pages=9, page_size=page_size)
    keys, values = torch.randn(11, 2, 16), torch.randn(11, 2, 16)
    order = torch.randperm(9 * page_size)[: min(11, 9 * page_size)]
    keys, values = keys[: len(order)], values[: len(order)]
    cache.write(1, keys, values, order // page_size, order % page_size)
    for t, slot in enumerate(order.tolist()):
        assert torch.equal(cache.k_pages[1][slot // page_size, :, slot % page_size], keys[t])
        assert torch.equal(cache.v_pages[1][slot // page_size, :, slot % page_size], values[t])
    assert not cache.k_pages[0].any() and not cache.v_pages[0].any()
    assert int((cache.k_pages[1] != 0).sum()) == keys.numel()


def test_bytes_are_what_the_tensors_take():
    config = tiny_config()
    for dtype in (torch.float32, torch.bfloat16):
        cache = PagedKVCache(config, 7, 5, dtype=dtype)
        taken = sum(pages.nbytes for pages in (*cache.k_pages, *cache.v_pages))
        assert kv_cache_bytes(config, 7, 5, dtype) == taken


def test_bytes_of_a_known_model():
    # Llama 3.1 8B: 2 · 32 layers · 8 heads · 128 · 2 bytes = 128 KiB a token.
    config = CONFIGS["llama-3.1-8b"]
    assert kv_cache_bytes(config, 8192, 16, torch.bfloat16) == 16 * 2**30


def test_memory_buys_whole_pages():
    config = tiny_config()
    one = kv_cache_bytes(config, 1, 16, torch.float32)
    assert pages_for_memory(config, 5 * one + one // 2, 16, torch.float32) == 5
    with pytest.raises(ValueError, match=f"{one - 1} bytes does not hold one page of 16"):
        pages_for_memory(config, one - 1, 16, torch.float32)
