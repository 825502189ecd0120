"""`minicache bench`: measurements that anyone can repeat."""

from __future__ import annotations

from minicache.cli import group, passing

app = group.make("bench", "Measure, on this machine.")
passing.add(app, "cpu", "minicache.bench.cpu", "The engine against transformers on this CPU.")
passing.add(app, "scheduler", "minicache.bench.scheduler", "Microseconds of planning a step.")
passing.add(app, "kernels", "minicache.bench.kernels", "The Triton kernels on this GPU.")
