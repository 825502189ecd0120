"""Lesson 01: attention, written out."""

from __future__ import annotations

from minicache.lab.course.shape import Lesson

LESSON = Lesson(
    number=1,
    stem="01_naive_attention",
    title="Naive attention",
    minutes=60,
    tracks=("scheduling", "kernels"),
    exercises=(),
)
