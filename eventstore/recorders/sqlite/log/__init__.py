"""The write-ahead log of a SQLite file.

frames        its frames: which of them SQLite reads, and which it would delete
space         room in it, made ahead of the commits that fill it
checkpoints   writing it back into the file, beside the commits
"""
