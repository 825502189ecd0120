"""Timings of a GPU, recorded for people who have none."""
