"""Measure the speed and size of foldlog. ``python -m benchmarks`` measures all questions that have
targets. The other programs of this folder say at their beginning how to run them.

Absolute times mean nothing on shared machines. The figure of a question is a ratio to its baseline:
to *raw*, the best program that anyone could write by hand for this one question, or where a row says
so, to other work of foldlog. The two sides take turns in one run. If they do the same work, their
answers are compared before the clock starts. A figure is the median of several rounds.
"""
