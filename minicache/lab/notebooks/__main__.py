"""The command line of the notebook builder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nbclient.exceptions import CellExecutionError

from minicache.lab.notebooks.files import build, pairs, problems
from minicache.lab.notebooks.source import SourceError


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m minicache.lab.notebooks")
    parser.add_argument("command", choices=["build", "check"])
    parser.add_argument("--execute", choices=["changed", "always", "never"], default="changed")
    parser.add_argument("--only", default="", metavar="NN", help="only the lesson of this number")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the folder of solutions/")
    options = parser.parse_args(arguments)
    try:
        return _check(options.root) if options.command == "check" else _build(options)
    except (SourceError, CellExecutionError) as error:
        print(error, file=sys.stderr)
        return 1


def _build(options: argparse.Namespace) -> int:
    chosen = [pair for pair in pairs(options.root) if pair.source.stem.startswith(options.only)]
    if not chosen:
        print(f"No lesson {options.only!r} in {options.root / 'solutions'}.", file=sys.stderr)
        return 1
    for pair in chosen:
        for line in build(pair, options.execute) or [f"{pair.source.stem}: up to date"]:
            print(line, flush=True)
    return 0


def _check(root: Path) -> int:
    found = problems(root)
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print("Run `make notebooks` and commit what it writes.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
