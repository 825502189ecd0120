"""`minicache record kernels`: time this GPU's attention kernels and keep the timings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

RECORDINGS = Path(__file__).parent.parent / "recordings"
NAMES = ("splits", "placement", "chunks")


def main(words: Sequence[str] | None = None) -> None:
    """Record the families that `words` name (all by default); parts already there are kept."""
    parser = _parser()
    options = parser.parse_args(words)
    unknown = sorted(set(options.families) - set(NAMES))
    if unknown:
        parser.error(f"{', '.join(unknown)} is no family; choose from {', '.join(NAMES)}.")
    import torch

    if not torch.cuda.is_available():
        sys.exit(
            "Recording times compiled kernels and needs a CUDA device, but none is here; "
            f"{RECORDINGS} holds the timings of an H200."
        )
    record(options.families or NAMES, options.out or RECORDINGS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("minicache record kernels", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="family", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, help="folder for the JSON files")
    return parser


def record(families: Sequence[str], folder: Path) -> None:
    """Measure the missing parts of each family into `kernels_<family>.json`."""
    import torch
    from rich.progress import Progress

    from minicache.bench.kernels.cases import Cache
    from minicache.bench.kernels.ceilings import measure_ceilings
    from minicache.bench.kernels.report import environment
    from minicache.bench.kernels.run import CACHE_TOKENS
    from minicache.record.families import FAMILIES
    from minicache.record.store import Recording

    cache = Cache(CACHE_TOKENS, torch.device("cuda"))
    ceilings = measure_ceilings(cache.k_pages)
    with Progress() as progress:
        for name in families:
            about = environment(f"minicache record kernels {name}")
            about["method"] = (
                "CUDA graph, cold L2, contestants in turn; us: median, lower and upper quartile"
            )
            about |= {f"{key} rate": f"{value:.4g}" for key, value in ceilings._asdict().items()}
            recording = Recording.open(folder / f"kernels_{name}.json", about)
            parts = FAMILIES[name](cache)
            for part in progress.track(list(parts), description=name):
                recording.measure(part, parts[part])
