"""The paths of an import: the folders of programs, and stdin."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from foldlog._app.cli.exit_status import Refused
from foldlog.formats.files.found_sources import files_below
from foldlog.formats.registry import formats


def formats_with_places() -> list[str]:
    """Return the formats whose programs store histories in known places."""
    return sorted(name for name, format in formats().items() if format.kept_in)


def places_of(name: str) -> list[Path]:
    """Return the folders and files in which the program of this format stores histories. Raises
    ``Refused`` if the places are unknown, or if none of them has a history.
    """
    if name not in formats() or not formats()[name].kept_in:
        format_names = ", ".join(formats_with_places())
        raise Refused(
            f"foldlog does not know where {name!r} stores its histories; name a PATH, or one of "
            f"{format_names}"
        )
    expanded = {
        place: os.path.expanduser(os.path.expandvars(place)) for place in formats()[name].kept_in
    }
    paths = {place: Path(path) for place, path in expanded.items() if "$" not in path}
    there = {place: path for place, path in paths.items() if next(files_below(path), None)}
    if not there:
        raise Refused(
            f"no histories of {name} were found at {', '.join(map(str, paths.values()))}; name "
            f"their PATH, and use --format {name} in place of --from"
        )
    # A path from an environment variable replaces the paths below ``~``.
    chosen = [path for place, path in there.items() if place.startswith("$")]
    return chosen or [*there.values()]


def with_stdin(paths: list[Path], folder: Path) -> list[Path]:
    """Replace ``-`` in ``paths`` with a temporary copy of stdin, because an import reads a history
    more than once.
    """
    if Path("-") not in paths:
        return paths
    if sys.stdin.isatty():
        raise Refused(
            "- reads a history from stdin, but stdin is a terminal; pipe a history into it: ssh "
            "host cat x.jsonl | foldlog import -"
        )
    with (folder / "stdin").open("xb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return [folder / "stdin" if path == Path("-") else path for path in dict.fromkeys(paths)]
