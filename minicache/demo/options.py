"""What a demo was asked for, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minicache.policy import BATCHING

MAX_NUM_SEQS = 4
"""Three chats and a document."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the second run schedules, which model serves, and where the results go."""

    policy: str = "mixed"
    max_num_batched_tokens: int = 512
    model: str = "smollm2-135m"
    load_format: str = "auto"
    dtype: str = "auto"
    device: str = "auto"
    out: Path = Path("out")
    json: Path | None = None

    def __post_init__(self) -> None:
        """Refuse now what the second run would refuse after the first had run."""
        if self.policy not in BATCHING:
            raise ValueError(
                f"The policy is {self.policy!r}, but there are only {', '.join(BATCHING)}."
            )
        if self.max_num_batched_tokens < MAX_NUM_SEQS:
            raise ValueError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, but {MAX_NUM_SEQS} "
                f"people talk at once, a token each in a step; give at least {MAX_NUM_SEQS}."
            )

    def make_folders(self) -> None:
        """Make the folders of the results, so that a bad path fails now. Raises `OSError`."""
        self.out.mkdir(parents=True, exist_ok=True)
        if self.json is not None:
            self.json.parent.mkdir(parents=True, exist_ok=True)
