"""Tables, files and pictures of the kernel benchmark."""

from __future__ import annotations

import csv
import datetime
import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from minicache.bench.kernels.ceilings import Ceilings
from minicache.bench.kernels.chunks import ChunkRow
from minicache.bench.kernels.decodes import DecodeRow
from minicache.kernels.hardware import gpu_of

Table = list[list[str]]


def environment(command: str) -> dict[str, str]:
    """Where and how something was measured: device, versions, date, command."""
    found = {"command": command, "date": datetime.date.today().isoformat()}
    found["device"] = torch.cuda.get_device_name()
    found["python"] = platform.python_version()
    for package in ("torch", "triton", "flashinfer-python", "fa3-fwd"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["cuda"] = str(torch.version.cuda)
    found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def decode_table(rows: Sequence[DecodeRow], ceilings: Ceilings) -> Table:
    """Microseconds a call; below them GB/s, % of the read-only rate and × floor of ours."""
    names = list(dict.fromkeys(name for row in rows for name in row.timings))
    if not rows:
        return []
    table = [["µs a call", *(row.case.name for row in rows)]]
    for name in names:
        table.append([name, *(_us(row, name) for row in rows)])
    ours = [(row.case.kv_bytes, row.timings["minicache"].median) for row in rows]
    bandwidth = gpu_of(torch.device("cuda")).bandwidth
    table.append(["ours: GB/s", *(f"{b / us / 1e3:.0f}" for b, us in ours)])
    table.append(
        ["ours: % of read-only", *(f"{b / us * 1e8 / ceilings.read:.1f}" for b, us in ours)]
    )
    if bandwidth:
        table.append(["ours: × floor", *(f"{us * bandwidth / b / 1e6:.2f}" for b, us in ours)])
    table.append(
        ["ours: error, NaN around", *(f"{r.errors['minicache, NaN around']:.1e}" for r in rows)]
    )
    return table


def _us(row: DecodeRow, name: str) -> str:
    return f"{row.timings[name].median:.1f}" if name in row.timings else "–"


def chunk_table(rows: Sequence[ChunkRow]) -> Table:
    """TFLOP/s of visible pairs."""
    names = list(dict.fromkeys(name for row in rows for name in row.timings))
    table = [["TFLOP/s", *(f"{row.tokens} at {row.context // 1024}k" for row in rows)]]
    for name in names:
        cells = [
            f"{row.flops / row.timings[name].median / 1e6:.0f}" if name in row.timings else "–"
            for row in rows
        ]
        table.append([name, *cells])
    return table


def text(table: Table) -> str:
    """The table in aligned columns."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return "\n".join(lines)


def write(
    folder: Path,
    decodes: Sequence[DecodeRow],
    chunks: Sequence[ChunkRow],
    ceilings: Ceilings,
    about: dict[str, str],
) -> None:
    """`kernels.json`, one CSV a table, and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    data: dict[str, Any] = {"about": about, "ceilings": ceilings._asdict()}
    data["decode"] = [
        {
            "case": row.case.name, "lengths": row.case.lengths, "heads": row.case.heads,
            "kv_bytes": row.case.kv_bytes, "errors": row.errors, "failures": row.failures,
            "us": {name: [round(x, 3) for x in timing] for name, timing in row.timings.items()},
        }
        for row in decodes
    ]  # fmt: skip
    data["chunk"] = [
        {
            "tokens": row.tokens, "context": row.context, "flops": row.flops, "errors": row.errors,
            "us": {name: [round(x, 3) for x in timing] for name, timing in row.timings.items()},
        }
        for row in chunks
    ]  # fmt: skip
    (folder / "kernels.json").write_text(json.dumps(data, indent=1))
    for name, table in (
        ("decode", decode_table(decodes, ceilings)),
        ("chunk", chunk_table(chunks)),
    ):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table)
