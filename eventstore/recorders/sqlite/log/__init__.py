"""The write-ahead log of a SQLite file.

space         room in it, made ahead of the commits that fill it
checkpoints   writing it back into the file, beside the commits
"""
