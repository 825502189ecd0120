"""Wrong implementations of the kind that people really write, and honestly different right ones.

A module an exercise, with its name. `MUTANTS` change the lesson's solution in at most three lines;
`DIFFERENT` is a whole right cell in another manner. tests/test_lab_mutants.py proves that the
checks reject the former and accept the latter, and prints which case kills which mutant.
"""
