"""Lesson 00: run the finished engine, see the freeze, and learn how checks work."""

from __future__ import annotations

from minicache.lab.course.shape import Exercise, Lesson

LESSON = Lesson(
    number=0,
    stem="00_start_here",
    title="Start here",
    minutes=20,
    tracks=("scheduling", "kernels"),
    exercises=(
        Exercise(
            name="kv_bytes_per_token",
            title="How many bytes one token costs",
            minutes=4,
            difficulty=1,
            reference="minicache.model_config:ModelConfig.kv_bytes_per_token",
            unlocks="Your library can now say how much memory a conversation of any length needs.",
            hints=(
                "Every layer keeps one key and one value for each KV head, and each of these has "
                "`head_dim` numbers.",
                "Multiply five things: 2 (a key and a value), the layers, the KV heads (not the "
                "query heads), head_dim, and the bytes of one number.",
            ),
        ),
    ),
)
