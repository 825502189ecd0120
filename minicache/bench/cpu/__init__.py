"""The engine against Hugging Face transformers on this CPU: the same weights, dtype and process.

    minicache bench cpu --json cpu.json

Absolute times depend on the machine and on what else it does; the ratios are taken from runs that
alternate. The floor is bytes over bandwidth or operations over rate, both measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from minicache.models.find import find

DTYPES = ("bfloat16", "float32")


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print a table; the exit code is 1 when a bar is missed."""
    options = _parse(words)
    folder = find(options.model)
    from minicache.bench.cpu.measure import Row, contest_rows, fresh_rows, invariant_rows
    from minicache.bench.cpu.report import as_json, tables

    rows: list[Row] = []
    with Console(stderr=True).status("Measuring; the machine should have nothing else to do."):
        for dtype in options.dtype:
            rows += fresh_rows(folder, dtype, min(options.repeats, 3))
            rows += contest_rows(folder, dtype, options.repeats)
            rows += invariant_rows(folder, dtype, options.repeats)
    Console().print(*tables(rows, folder.name))
    if options.json is not None:
        asked = sys.argv[1:] if words is None else words
        command = shlex.join(["minicache", "bench", "cpu", *asked])
        document = as_json(rows, folder.name, command)
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return 0 if all(row.good for row in rows) else 1


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="minicache bench cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="smollm2-135m", help="a known name or a folder")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--repeats", type=int, default=5, help="of each measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    return parser.parse_args(words)
