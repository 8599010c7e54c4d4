"""Measure the speed and size of foldlog. Each file measures one question, and contains the
question's baseline. ``python -m benchmarks`` runs them all.

Absolute times mean nothing on shared machines. Every figure is a ratio to *raw*, the best program
that anyone could write by hand for this one question. foldlog and raw take turns in one run, and
their answers are compared before the clock starts. A figure is the median of several rounds.
"""
