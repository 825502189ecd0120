from mutants.shape import mutant

MUTANTS = (
    mutant("subtracts nothing", "(scores - largest).exp()", "scores.exp()"),
    mutant(
        "subtracts the largest score of all rows",
        "scores.amax(dim=-1, keepdim=True)",
        "scores.amax()",
    ),
    mutant(
        "loses a dimension, and subtracts from columns",
        "scores.amax(dim=-1, keepdim=True)",
        "scores.amax(dim=-1)",
    ),
    mutant("divides by the sum of all rows", "weights.sum(dim=-1, keepdim=True)", "weights.sum()"),
    mutant(
        "takes -10,000 for minus infinity",
        "largest = scores.amax",
        "scores = scores.clamp(min=-10_000)\n    largest = scores.amax",
    ),
)
DIFFERENT = """
import torch


def stable_softmax(scores):
    out = torch.empty_like(scores)
    for row, result in zip(scores.reshape(-1, scores.shape[-1]), out.view(-1, scores.shape[-1])):
        powers = 2 ** ((row - max(row.tolist())) / 0.6931471805599453)
        result.copy_(powers / sum(powers.tolist()))
    return out
"""
