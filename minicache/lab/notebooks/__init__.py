"""One source, two notebooks.

`solutions/NN_name.py` (jupytext py:percent) is what people review. From it come
`solutions/NN_name.ipynb`, complete and executed, and `lessons/NN_name.ipynb`, with blanks and no
outputs. Apart from outputs both are the same bytes on every run: cell ids are hashes of the cells.

Three kinds of line in the source are instructions to this module:

* `### BEGIN SOLUTION hint` … `### END SOLUTION` becomes `raise NotImplementedError("hint")` in the
  lesson, at the indent of the first marker. The solution keeps what is between the markers.
* `guess=3.2` in a call of `lab.predict` becomes `guess=...` in the lesson: the learner's number.
* `# NBVAL_CHECK_OUTPUT` becomes the cell tag of the same meaning: `make test` compares the output
  of that cell with the stored one.

    python -m minicache.lab.notebooks build [--execute changed|always|never] [--only NN]
    python -m minicache.lab.notebooks check
"""

from minicache.lab.notebooks.files import Pair, build, pairs, problems
from minicache.lab.notebooks.source import Cell, SourceError, blanked, notebook, read_cells, solved

__all__ = [
    "Cell",
    "Pair",
    "SourceError",
    "blanked",
    "build",
    "notebook",
    "pairs",
    "problems",
    "read_cells",
    "solved",
]
