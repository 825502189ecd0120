"""Choices that `LLM` makes while it puts an engine together, checked before memory is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import TypeVar

import torch

from minicache.arguments import check_whole
from minicache.hardware import describe
from minicache.kv_cache import pages_for_memory
from minicache.model_config import ModelConfig

CPU_KV_MEMORY = 1 << 30
"""Bytes of keys and values on a CPU when nobody says otherwise; less where less can be used."""

PartT = TypeVar("PartT")


def by_name(what: str, choice: str | PartT, known: Mapping[str, Callable[[], PartT]]) -> PartT:
    """The part itself, or a new one of that name. Raises `ValueError` for an unknown name."""
    if not isinstance(choice, str):
        return choice
    if choice not in known:
        raise ValueError(f"{what} is {choice!r}, but it must be one of {', '.join(known)}.")
    return known[choice]()


def context_length(max_model_len: int | None, config: ModelConfig) -> int:
    """Tokens a sequence may have. Raises `ValueError` beyond what the model was made for."""
    limit = config.max_position_embeddings
    if max_model_len is not None and max_model_len > limit:
        raise ValueError(
            f"max_model_len is {max_model_len}, but {config.name} was made for {limit} positions; "
            f"ask for at most {limit}."
        )
    return limit if max_model_len is None else max_model_len


def affordable_pages(
    config: ModelConfig, kv_memory: int | None, page_size: int, dtype: torch.dtype
) -> int:
    """How many pages the given, or the usual, memory holds. Raises `ValueError` in a sentence."""
    check_whole("page_size", page_size)
    if page_size < 1:
        raise ValueError(f"page_size is {page_size}, but a page holds at least 1 token.")
    memory = CPU_KV_MEMORY if kv_memory is None else kv_memory
    return pages_for_memory(config, memory, page_size, dtype)


def source_line(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> str:
    """What pictures of this engine's trace say about where their numbers come from."""
    precision = str(dtype).removeprefix("torch.")
    return f"measured here: {describe(device)}\n{config.name}, {precision}, {date.today()}"
