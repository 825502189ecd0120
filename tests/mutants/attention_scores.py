from mutants.shape import mutant

MUTANTS = (
    mutant("forgets the scale", "queries @ keys * scale", "queries @ keys"),
    mutant(
        "scales by 1/√D whatever the scale is",
        "queries @ keys * scale",
        "queries @ keys / q.shape[-1] ** 0.5",
    ),
    mutant(
        "lets every head look at the keys of head 0",
        "k.permute(1, 2, 0)",
        "k[:, :1].permute(1, 2, 0)",
    ),
    mutant(
        "computes in float32 always", "queries @ keys * scale", "(queries @ keys * scale).float()"
    ),
    mutant(
        "scales the queries in place",
        "queries = q.transpose(0, 1)",
        "queries = q.mul_(scale).transpose(0, 1)",
        ("queries @ keys * scale", "queries @ keys"),
    ),
)
DIFFERENT = """
import torch


def attention_scores(q, k, scale):
    scores = torch.empty(q.shape[1], q.shape[0], k.shape[0], dtype=q.dtype)
    for head in range(q.shape[1]):
        for t in range(q.shape[0]):
            for s in range(k.shape[0]):
                scores[head, t, s] = scale * (q[t, head] * k[s, head]).sum()
    return scores
"""
