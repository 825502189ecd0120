"""What a person reads when something went wrong: one sentence, never a traceback."""

from __future__ import annotations

from minicache.request import RequestRefused

_WAY_OUT = "Run 'minicache --debug' with the same command to see where."


def sentence(error: BaseException) -> str:
    """One line for a person. Mistakes in what was asked speak for themselves."""
    said = getattr(error, "format_message", None)
    if callable(said):  # A usage error of the command-line library.
        return _one_line(str(said()))
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename is not None else ""
        return _one_line(f"{named}{error.strerror}.")
    if isinstance(error, (ValueError, OSError, RequestRefused)) and str(error):
        return _one_line(str(error))
    return _one_line(f"Unexpected {type(error).__name__}: {error} {_WAY_OUT}")


def exit_code(error: BaseException) -> int:
    """2 for a command line that was not understood, else 1."""
    code = getattr(error, "exit_code", 1)
    return code if isinstance(code, int) else 1


def _one_line(text: str) -> str:
    return " ".join(text.split())
