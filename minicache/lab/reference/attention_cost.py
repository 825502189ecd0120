"""What one layer of naive attention costs, counted. No torch."""

from __future__ import annotations


def attention_cost(
    num_queries: int,
    num_keys: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    bytes_per_element: int = 4,
) -> tuple[int, int]:
    """FLOPs and bytes of one layer; hidden pairs are computed like the others.

    Bytes: q, k, v read and the output written once; the (H, T, S) matrix crosses memory four times
    (scores written, read by the softmax, weights written, read for the values).
    """
    pairs = num_heads * num_queries * num_keys
    flops = 2 * pairs * head_dim + 2 * pairs * head_dim
    numbers = 2 * num_queries * num_heads * head_dim + 2 * num_keys * num_kv_heads * head_dim
    return flops, (numbers + 4 * pairs) * bytes_per_element
