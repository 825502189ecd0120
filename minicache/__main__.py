"""`python -m minicache` is the command `minicache`."""

from __future__ import annotations

from minicache.cli import main

if __name__ == "__main__":
    main()
