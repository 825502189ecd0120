from mutants.shape import mutant

MUTANTS = (
    mutant("aligns the mask at the start", "past = num_keys - num_queries", "past = 0"),
    mutant("sees one token of the future", "key_positions <=", "key_positions <= 1 +"),
    mutant(
        "hides nothing",
        "key_positions <= query_positions[:, None]",
        "key_positions <= num_keys + query_positions[:, None]",
    ),
    mutant("counts the past twice", "past + torch.arange", "past + past + torch.arange"),
    mutant(
        "thinks that something was always there before",
        "past = num_keys - num_queries",
        "past = max(1, num_keys - num_queries)",
    ),
    mutant(
        "thinks that at most one token was there before",
        "past = num_keys - num_queries",
        "past = min(1, num_keys - num_queries)",
    ),
)
DIFFERENT = """
import torch


def causal_mask(num_queries, num_keys):
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return ones.tril(diagonal=num_keys - num_queries)
"""
