"""Search the files of a store for texts that should be gone."""

import subprocess


def bytes_left(folder, texts):
    """Return where the files of a folder have one of these texts. Another program reads the files:
    if this process closed a file that SQLite has open, SQLite would lose its locks.
    """
    places = []
    for file in sorted(folder.iterdir()):
        content = subprocess.run(["cat", str(file)], capture_output=True, check=True).stdout
        places += [
            f"{file.name} at {content.index(text.encode()):,}: {text}"
            for text in texts
            if text.encode() in content
        ]
    return places
