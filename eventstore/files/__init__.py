"""Reads and writes files.

compressed.py      reads a file that is compressed with zstd
open_files.py      reads a file that may be open in this process
targets.py         checks that a file may be written under a name
whole_file.py      writes a file as a whole or not at all
written_files.py   files that may still hold an erased text
"""
