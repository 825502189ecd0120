from mutants.shape import mutant

MUTANTS = (
    mutant(
        "aligns the mask at the start",
        "~causal_mask(q.shape[0], k.shape[0])",
        "torch.ones(q.shape[0], k.shape[0]).triu(1).bool()",
    ),
    mutant(
        "deals the KV heads out in turn",
        "k = k.repeat_interleave(heads // kv_heads, dim=1)",
        "k = k.repeat(1, heads // kv_heads, 1)",
        (
            "v = v.repeat_interleave(heads // kv_heads, dim=1)",
            "v = v.repeat(1, heads // kv_heads, 1)",
        ),
    ),
    mutant(
        "rounds the heads of a group down",
        "if heads % kv_heads:",
        "if heads < kv_heads:",
        (
            "k = k.repeat_interleave(heads // kv_heads, dim=1)",
            "k = k.repeat_interleave(-(-heads // kv_heads), dim=1)[:, :heads]",
        ),
        (
            "v = v.repeat_interleave(heads // kv_heads, dim=1)",
            "v = v.repeat_interleave(-(-heads // kv_heads), dim=1)[:, :heads]",
        ),
    ),
    mutant(
        "hides weights after the softmax",
        'stable_softmax(scores.masked_fill(hidden, float("-inf")))',
        "stable_softmax(scores).masked_fill(hidden, 0.0)",
    ),
    mutant("puts heads where tokens belong", "mixed.transpose(0, 1)", "mixed.reshape(q.shape)"),
    mutant(
        "takes the values of KV head 0 for all",
        "v.repeat_interleave(heads // kv_heads, dim=1)",
        "v[:, :1].repeat_interleave(heads, dim=1)",
    ),
)
DIFFERENT = """
import torch


def naive_attention(q, k, v, scale):
    tokens, heads, dim = q.shape
    kv_heads = k.shape[1]
    if heads % kv_heads != 0:
        raise ValueError(f"{heads} heads, {kv_heads} KV heads: not a multiple.")
    out = torch.zeros_like(q)
    for head in range(heads):
        kv_head = head * kv_heads // heads
        for t in range(tokens):
            seen = k.shape[0] - tokens + t + 1
            weights = torch.softmax(k[:seen, kv_head] @ q[t, head] * scale, dim=0)
            out[t, head] = weights @ v[:seen, kv_head]
    return out
"""
