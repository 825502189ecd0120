"""How a check works: the cell becomes a file, a fresh process tests it, a table tells the result.

cell.py     the whole cell in which the function was defined, as a file that stands on its own
sandbox.py  runs the judge in a fresh process with limits on time and memory
judge.py    in that process: import the file, run the cases, write down a result each
compare.py  expected against got: type, shape, dtype, then values
describe.py values as short text
outcome.py  what came of a check: plain data
report.py   the outcome as a table, in HTML and as text
"""
