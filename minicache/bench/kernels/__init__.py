"""`minicache bench kernels`: our attention kernels against every peer that is installed here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(words: Sequence[str] | None = None) -> None:
    """Parse `words`, measure, print the tables, and write them with `--out`."""
    options = _parser().parse_args(words)
    import torch

    if not torch.cuda.is_available():
        sys.exit(
            "This benchmark times compiled kernels and needs a CUDA device, but none is here; "
            "`minicache/recordings` holds the timings of an H200."
        )
    from minicache.bench.kernels import run

    run.run(
        decode=options.only != "chunk", chunk=options.only != "decode", flex=options.flex,
        rounds=options.rounds, out=options.out,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("minicache bench kernels", description=__doc__)
    parser.add_argument("--only", choices=("decode", "chunk"), help="measure one kind alone")
    parser.add_argument(
        "--flex", action="store_true", help="FlexAttention too; it compiles for minutes"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns each contestant gets")
    parser.add_argument("--out", type=Path, help="folder for JSON, CSV and plots")
    return parser
