"""One run of the kernel benchmark, case after case, in one process."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import torch

from minicache.bench.kernels import plots, report
from minicache.bench.kernels.cases import CASES, Cache
from minicache.bench.kernels.ceilings import measure_ceilings
from minicache.bench.kernels.chunks import CHUNKS, ChunkRow, bench_chunk
from minicache.bench.kernels.decodes import DecodeRow, bench_case
from minicache.bench.kernels.peers import PEERS

CACHE_TOKENS = 3 * 64 * 8192
"""Three sets of the largest case."""


def run(*, decode: bool, chunk: bool, flex: bool, rounds: int, out: Path | None) -> None:
    """Measure, print, and write to `out` if given."""
    cache = Cache(CACHE_TOKENS, torch.device("cuda"))
    ceilings = measure_ceilings(cache.k_pages)
    about = report.environment("minicache bench kernels " + shlex.join(sys.argv[3:]))
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(
        f"read-only {ceilings.read / 1e9:.0f} GB/s, copy {ceilings.copy / 1e9:.0f} GB/s, "
        f"matmul {ceilings.matmul / 1e12:.0f} TFLOP/s"
    )
    names = [name for name in PEERS if flex or not name.startswith("Flex")]
    decodes: list[DecodeRow] = []
    chunks: list[ChunkRow] = []
    if decode:
        decodes = [bench_case(cache, case, names, rounds=rounds) for case in CASES]
        print(report.text(report.decode_table(decodes, ceilings)))
        for row in decodes:
            for name, failure in row.failures.items():
                print(f"{row.case.name}: {name} did not run: {failure}")
    if chunk:
        chunks = [bench_chunk(cache, tokens, context) for tokens, context in CHUNKS]
        print(report.text(report.chunk_table(chunks)))
    if out:
        report.write(out, decodes, chunks, ceilings, about)
        plots.save(out / "kernels.json", out / "kernels.svg")
