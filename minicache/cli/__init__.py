"""The command `minicache`. A command imports what it needs when it runs: help is quick."""

from __future__ import annotations

from minicache.cli.app import main

__all__ = ["main"]
