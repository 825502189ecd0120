"""Where keys and values are kept: first in one run per sequence, then in pages shared by all."""

from __future__ import annotations

import torch
from torch import Tensor

from minicache.model_config import ModelConfig


class KVCache:
    """Keys and values of one layer of one sequence, contiguous, with room for `capacity` tokens."""

    def __init__(
        self,
        capacity: int,
        kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        shape = (capacity, kv_heads, head_dim)
        self._keys = torch.zeros(shape, dtype=dtype, device=device)
        self._values = torch.zeros(shape, dtype=dtype, device=device)
        self.length = 0

    @property
    def keys(self) -> Tensor:
        """The stored keys, `(length, K, D)`, a view."""
        return self._keys[: self.length]

    @property
    def values(self) -> Tensor:
        """The stored values, `(length, K, D)`, a view."""
        return self._values[: self.length]

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Store `keys, values: (T, K, D)` behind what is there. Raises `ValueError` when full."""
        end = self.length + keys.shape[0]
        if end > self._keys.shape[0]:
            raise ValueError(
                f"{keys.shape[0]} tokens behind {self.length} do not fit a cache of "
                f"{self._keys.shape[0]}; make it larger or drop the oldest."
            )
        self._keys[self.length : end] = keys
        self._values[self.length : end] = values
        self.length = end


class PagedKVCache:
    """Keys and values of all layers in pages of N tokens, `(P, K, N, D)` each.

    One page of one kv head is one contiguous run, which is what a kernel reads. Which page belongs
    to whom is not known here: tokens are addressed as (page, offset).
    """

    def __init__(
        self,
        config: ModelConfig,
        num_pages: int,
        page_size: int = 16,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        """Takes `kv_cache_bytes(config, num_pages, page_size, dtype)` bytes; on a CPU the system
        hands them out as pages are first written.
        """
        self.num_pages = num_pages
        self.page_size = page_size
        shape = (num_pages, config.num_kv_heads, page_size, config.head_dim)
        self.k_pages = [_pages(shape, dtype, device) for _ in range(config.num_layers)]
        self.v_pages = [_pages(shape, dtype, device) for _ in range(config.num_layers)]

    def write(
        self, layer: int, keys: Tensor, values: Tensor, pages: Tensor, offsets: Tensor
    ) -> None:
        """Store `keys, values: (T, K, D)` of a layer at its slots: `pages, offsets: (T,)` int64."""
        self.k_pages[layer][pages, :, offsets] = keys
        self.v_pages[layer][pages, :, offsets] = values


def kv_cache_bytes(config: ModelConfig, num_pages: int, page_size: int, dtype: torch.dtype) -> int:
    """Bytes of a `PagedKVCache`: pages · page size · (2 · layers · kv heads · head_dim · bytes)."""
    return num_pages * page_size * config.kv_bytes_per_token(dtype.itemsize)


def pages_for_memory(
    config: ModelConfig, num_bytes: int, page_size: int, dtype: torch.dtype
) -> int:
    """How many pages fit into `num_bytes`. Raises `ValueError` when not even one does."""
    one = kv_cache_bytes(config, 1, page_size, dtype)
    if num_bytes < one:
        raise ValueError(
            f"The KV memory of {num_bytes} bytes does not hold one page of {page_size} tokens, "
            f"which takes {one} bytes; give it more, or use smaller pages."
        )
    return num_bytes // one


def _pages(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device) -> Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)
