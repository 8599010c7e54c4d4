"""Search the files of a store for texts that should be gone."""

import subprocess

__all__ = ["bytes_left"]


def bytes_left(folder, marks):
    """Where files hold one of these texts. They are read by another program: if this process closed
    a file that it has open through SQLite too, SQLite would lose its locks.
    """
    places = []
    for file in sorted(folder.iterdir()):
        content = subprocess.run(["cat", str(file)], capture_output=True, check=True).stdout
        places += [
            f"{file.name} at {content.index(m.encode()):,}: {m}"
            for m in marks
            if m.encode() in content
        ]
    return places
