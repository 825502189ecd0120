"""Ctrl-C as a question that is asked between two steps, so that nothing is torn in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """While it is entered, the first Ctrl-C only sets `asked`; the second interrupts at once."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> Self:
        """Take the signal over. Only a process's main thread can."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signal back to whoever had it."""
        if self._previous is not None:  # SIG_IGN, which a background job has, is no callable
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
