"""The environment report: the machine, how kernels run on it, and whose timings are shown."""

from __future__ import annotations

import json
import platform
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import torch

from minicache import __version__
from minicache.hardware import choose_device, choose_dtype, describe
from minicache.lab import library
from minicache.lab.black_boxes import MODEL
from minicache.lab.course import LESSONS
from minicache.lab.show import MUTED, STYLE, Shown, cell, escape, table
from minicache.models import local_folder


def environment() -> Shown:
    """A table: machine, precision, kernels, timings, model, library."""
    rows = report_rows()
    width = max(len(label) for label, _ in rows)
    text = "\n".join(f"{label.ljust(width)}  {value}" for label, value in rows)
    body = [cell(escape(label), f"color: {MUTED};") + cell(escape(value)) for label, value in rows]
    return Shown(f'<div style="{STYLE}">{table(body, "Environment")}</div>', text)


def report_rows() -> list[tuple[str, str]]:
    """The report as (what, how it is here)."""
    device = choose_device("auto")
    kind = "GPU" if device.type == "cuda" else "CPU"
    precision = str(choose_dtype("auto", device)).removeprefix("torch.")
    versions = f"minicache {__version__}, Python {platform.python_version()}"
    count = sum(len(lesson.exercises) for lesson in LESSONS)
    done, name = len(library.written()), library.folder().name
    ready = local_folder(MODEL) is not None
    return [
        ("machine", f"{describe(device)} ({kind})"),
        ("software", f"{versions}, torch {torch.__version__}"),
        ("precision", f"the engine computes in {precision} here, the lessons in float32"),
        ("Triton kernels", kernel_mode(device)),
        ("timings", f"CPU figures are measured here, as you run them; {recorded()}"),
        ("model", f"{MODEL}: {'ready' if ready else f'run `minicache models pull {MODEL}`'}"),
        ("your library", f"{done} of {count} exercises, in {name}/"),
    ]


def kernel_mode(device: torch.device) -> str:
    """Whether Triton kernels are compiled, interpreted, or absent."""
    if find_spec("triton") is None:
        return "absent (Triton needs Linux): lessons 07 and 08 go on with recordings"
    if device.type == "cuda":
        return f"compiled for {describe(device)}"
    return "interpreted on the CPU: right results, no meaningful speed"


def recorded() -> str:
    """Which GPUs the recordings in this copy are from."""
    devices = sorted({name for name in map(_device_of, _recordings()) if name})
    if not devices:
        return "there are no GPU recordings in this copy"
    return f"GPU figures are recordings from {', '.join(devices)}"


def _recordings() -> list[dict[str, Any]]:
    folder = files("minicache") / "recordings"
    if not folder.is_dir():
        return []
    texts = [p.read_text("utf-8") for p in folder.iterdir() if p.name.endswith(".json")]
    return [json.loads(text) for text in texts]


def _device_of(recording: dict[str, Any]) -> str:
    device = recording.get("device", "")
    return device if isinstance(device, str) else str(device.get("name", ""))
