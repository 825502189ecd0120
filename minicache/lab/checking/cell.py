"""The whole cell in which a function was defined, as a file that stands on its own.

The *whole* cell: helpers and imports come along. What only tries things out (prints, loops, plots,
magics, checks) becomes comments, line for line, so that a line number means the same in both.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from typing import Any

KEPT = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.Try,
)  # fmt: skip


class CellNotFound(LookupError):
    """The source of a function cannot be found. The message says what to do."""


def cell_source(function: Any) -> str:
    """The source of the cell (or file) that defined `function`, as a file of its own.

    IPython keeps each cell's source under the file name in the function's code, so this is the cell
    that made *this* function, however often it ran or was edited since. Raises `CellNotFound`.
    """
    name: str = function.__name__
    source = "".join(linecache.getlines(_code_of(function).co_filename))
    if not source:
        raise CellNotFound(f"The cell that defines {name} is gone: run it again, then check.")
    return standalone(source, name)


def _code_of(function: Any) -> Any:
    """The code object of a function, or of the first method that a class defines itself."""
    function = inspect.unwrap(function)
    if inspect.isclass(function):
        own = [m for m in vars(function).values() if inspect.isfunction(m)]
        function = next((m for m in own if m.__qualname__.startswith(function.__qualname__)), None)
    if not hasattr(function, "__code__"):
        raise CellNotFound("Only a function, or a class with methods, can be checked.")
    return function.__code__


def standalone(source: str, name: str) -> str:
    """`source` with every statement that defines nothing turned into comments.

    Raises `CellNotFound` where no statement at the top level defines `name`.
    """
    lines = source.splitlines()
    tree = ast.parse(source)
    for statement in tree.body:
        if not (_defines(statement) or _is_docstring(statement, tree)):
            for number in range(statement.lineno - 1, statement.end_lineno or statement.lineno):
                lines[number] = f"# left out: {lines[number]}"
    if name not in {getattr(statement, "name", None) for statement in tree.body}:
        raise CellNotFound(f"Define {name} at the left edge of its cell, with def or class.")
    return "\n".join(lines).rstrip() + "\n"


def _defines(statement: ast.stmt) -> bool:
    """Whether a file of definitions needs this statement. `f = lab.check(f)` is not one."""
    return isinstance(statement, KEPT) and not _calls_check(statement)


def _calls_check(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) in ("check", "lab.check")


def _is_docstring(statement: ast.stmt, tree: ast.Module) -> bool:
    return statement is tree.body[0] and ast.get_docstring(tree) is not None


def blank_line(source: str, name: str) -> str | None:
    """The first line of `name` that still is a blank (`raise NotImplementedError`), else None."""
    for statement in ast.parse(source).body:
        if getattr(statement, "name", None) == name:
            for node in ast.walk(statement):
                if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
                    return source.splitlines()[node.lineno - 1].strip()
    return None
