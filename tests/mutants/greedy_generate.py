from mutants.shape import mutant

MUTANTS = (
    mutant(
        "asks about the last token only",
        "logits_of(tokens).argmax()",
        "logits_of(tokens[-1:]).argmax()",
    ),
    mutant(
        "loses the stop token",
        "return tokens[len(prompt) :]",
        "return [token for token in tokens[len(prompt) :] if token != stop_token]",
    ),
    mutant(
        "stops for a stop token in the prompt",
        "if tokens[-1] == stop_token:",
        "if stop_token in tokens:",
    ),
    mutant("never stops", "if tokens[-1] == stop_token:", "if len(tokens) == stop_token:"),
    mutant(
        "asks once more at the end",
        "return tokens[len(prompt) :]",
        "logits_of(tokens)\n    return tokens[len(prompt) :]",
    ),
)
DIFFERENT = """
def greedy_generate(logits_of, prompt, max_tokens, stop_token=None):
    new = []
    while True:
        best = logits_of([*prompt, *new]).topk(1).indices.item()
        new.append(best)
        if best == stop_token or len(new) >= max_tokens:
            return new
"""
