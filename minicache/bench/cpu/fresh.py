"""What only a fresh process can tell: seconds until the model is ready, and the peak of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

MB = 1_000_000


class Fresh(NamedTuple):
    """One process that loads a model, reads a prompt of 2,048 tokens and answers it."""

    ready_seconds: float
    """From after `import torch` to a model that takes requests, tokenizer included."""
    peak_bytes: int
    """The most memory the process ever had resident, Python, torch and mapped files included."""
    weight_bytes: int
    pool_bytes: int

    @property
    def overhead_bytes(self) -> int:
        """What the peak holds besides weights and page pool."""
        return self.peak_bytes - self.weight_bytes - self.pool_bytes


_PROGRAM = """
import json, sys, time
import torch
from minicache.bench.cpu.fresh import peak_bytes
begin = time.perf_counter()
from minicache import LLM, SamplingParams
from minicache.bench.cpu.workload import one_prompt
from minicache.kv_cache import kv_cache_bytes
folder, dtype = sys.argv[1:]
llm = LLM(folder, device="cpu", dtype=dtype, num_pages=136, max_num_batched_tokens=2048)
ready = time.perf_counter() - begin
params = SamplingParams(max_tokens=32, ignore_eos=True)
llm.generate(one_prompt(2048, llm.config.vocab_size), params)
precision = getattr(torch, dtype)
print(json.dumps([
    ready,
    peak_bytes(),
    llm.config.num_parameters * precision.itemsize,
    kv_cache_bytes(llm.config, 136, 16, precision),
]))
"""


def peak_bytes() -> int:
    """The most memory that this process ever had resident.

    Linux's `ru_maxrss` survives exec, and so counts what the parent had; VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def measure_fresh(folder: Path, dtype: str) -> Fresh:
    """Run it once. Raises `RuntimeError` with the process's last words when it fails."""
    command = [sys.executable, "-c", _PROGRAM, str(folder), dtype]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"The fresh process failed: {done.stderr.strip()[-500:]}")
    return Fresh(*json.loads(done.stdout.splitlines()[-1]))
