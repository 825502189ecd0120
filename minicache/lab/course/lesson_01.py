"""Lesson 01: attention, written out."""

from __future__ import annotations

from minicache.lab.course.shape import Exercise, Lesson

ATTENTION = "minicache.attention.naive"
PIECES = "minicache.lab.reference"

EXERCISES = (
    Exercise(
        name="attention_scores",
        title="How well each key fits each query",
        minutes=5,
        difficulty=1,
        reference=f"{PIECES}.attention_scores:attention_scores",
        unlocks="Your library can now say how well every key fits every query.",
        hints=(
            "A matrix product does it: move the heads to the front with `transpose(0, 1)`, then "
            "(H, T, D) @ (H, D, S).",
            "`q.transpose(0, 1) @ k.permute(1, 2, 0)` is (H, T, S). What is left is the scale.",
        ),
    ),
    Exercise(
        name="causal_mask",
        title="Who may look at whom",
        minutes=7,
        difficulty=2,
        reference=f"{ATTENTION}:causal_mask",
        unlocks="Your library can now hide the future, for whole prompts and for parts of one.",
        hints=(
            "Give every query its position in the whole sequence. The last of T queries stands at "
            "position S - 1; where does the first stand?",
            "Query t stands at S - T + t. Compare a column of query positions with a row of key "
            "positions: `keys <= queries` broadcasts to (T, S).",
        ),
    ),
    Exercise(
        name="stable_softmax",
        title="Scores become weights, and nothing overflows",
        minutes=8,
        difficulty=2,
        reference=f"{ATTENTION}:stable_softmax",
        unlocks="Your library can now turn scores of any size into weights that sum to 1.",
        hints=(
            "softmax(x) = softmax(x - c) for any c. Which c makes the largest exponent exp(0) = 1?",
            "Subtract `scores.amax(dim=-1, keepdim=True)`, row by row, before `exp`.",
        ),
    ),
    Exercise(
        name="naive_attention",
        title="Attention, with grouped heads",
        minutes=13,
        difficulty=3,
        reference=f"{ATTENTION}:naive_attention",
        unlocks="Your library can now attend: whole prompts, parts of one, shared KV heads.",
        hints=(
            "Give every query head its own copy of its KV head first: then all that is left are "
            "the three functions you have.",
            "`k.repeat_interleave(H // K, dim=1)` puts KV head 0 under query heads 0, 1, 2; plain "
            "`repeat` would deal them out in turn. Then: scores, hide, softmax, weights @ values.",
            "weights is (H, T, S) and v.transpose(0, 1) is (H, S, D): their product is (H, T, D), "
            "so `transpose(0, 1)` comes last.",
        ),
    ),
    Exercise(
        name="greedy_generate",
        title="From logits to text",
        minutes=7,
        difficulty=2,
        reference=f"{PIECES}.greedy_generate:greedy_generate",
        unlocks="Your library can now write text, as slowly as can be.",
        hints=(
            "Keep one list of all tokens. In each turn: ask the model about the whole list, and "
            "append the index of the largest logit.",
            "Test the stop token right after you append it, so that it is returned too.",
        ),
    ),
    Exercise(
        name="attention_cost",
        title="Count the work",
        minutes=8,
        difficulty=3,
        reference=f"{PIECES}.attention_cost:attention_cost",
        unlocks="Your library can now predict a curve before it is measured.",
        hints=(
            "One (query, key) pair of one head costs 2·D for the score and 2·D for adding the "
            "weighted value. How many pairs are there, if hidden ones are computed as well?",
            "flops = 4·H·T·S·D. Numbers that cross memory: q and out are T·H·D each, k and v are "
            "S·K·D each, and the H·T·S matrix crosses four times.",
        ),
    ),
)

LESSON = Lesson(
    number=1,
    stem="01_naive_attention",
    title="Naive attention",
    minutes=60,
    tracks=("scheduling", "kernels"),
    exercises=EXERCISES,
)
