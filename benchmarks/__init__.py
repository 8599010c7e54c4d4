"""How fast, how small: one file for each question, with its baseline beside it. ``python -m
benchmarks`` runs them all.

Absolute times mean nothing on shared machines. Every figure is a ratio to the best that anyone
could write by hand for that one question (*raw*), measured in one run, interleaved, median of
several rounds, the answers compared before the clock counts.
"""
