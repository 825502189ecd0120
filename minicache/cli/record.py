"""`minicache record`: timings of a GPU, kept for people who have none."""

from __future__ import annotations

from minicache.cli import group, passing

app = group.make("record", "Record timings of this GPU.")
passing.add(app, "kernels", "minicache.record.kernels", "The attention kernels, shape by shape.")
