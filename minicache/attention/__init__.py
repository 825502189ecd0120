"""Attention, from the formula to pages: naive, online, partial and merged, over a paged cache."""

from minicache.attention.fused import fused_partial
from minicache.attention.invariant import InvariantAttention
from minicache.attention.naive import causal_mask, naive_attention
from minicache.attention.online import online_attention, online_partial
from minicache.attention.paged import TorchPagedAttention
from minicache.attention.partial import Partial, empty_partial, merge
from minicache.attention.per_sequence import PerSequence

__all__ = [
    "InvariantAttention",
    "Partial",
    "PerSequence",
    "TorchPagedAttention",
    "causal_mask",
    "empty_partial",
    "fused_partial",
    "merge",
    "naive_attention",
    "online_attention",
    "online_partial",
]
