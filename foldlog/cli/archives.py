"""Archives at the command line, for ``export --all`` and ``import``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from eventstore import Store
from eventstore.maintenance.copy import Copied
from foldlog.archives import LeftOut, NotAnArchive, Problem, is_archive, read_archive, write_archive
from foldlog.cli import terminal
from foldlog.cli.borders import tell_of_forks
from foldlog.cli.outcome import DONE, FINDINGS, Refused
from foldlog.cli.stores import listed, open_existing
from foldlog.words.gist import events_and_tombstones


def write(db: str, path: Path, conversations: Sequence[str] | None, *, as_json: bool) -> int:
    """Write conversations, or all of them, to an archive."""
    with open_existing(db) as store, terminal.progress() as bars:
        names = list(conversations or ()) or [row.id for row in listed(store)]
        if str(path) in names:
            raise Refused(f"{path} is a conversation, and --all is followed by the archive's file: --all FILE {path}")
        bar = bars.add_task(f"archiving to {path.name}", unit="conversations", total=len(names))
        written = write_archive(store, path, bars.track(dict.fromkeys(names), task_id=bar))
        bars.stop()
        tell_of_forks(store, names if conversations else None)
    if as_json:
        terminal.emit(
            {
                "archive": str(path),
                "bytes": path.stat().st_size,
                "conversations": written.conversations,
                "events": written.events,
                "tombstones": written.tombstones,
                "findings": [problem._asdict() for problem in written.problems],
            }
        )
    else:
        amounts = events_and_tombstones(written.events, written.conversations, written.tombstones)
        terminal.console().print(f"{amounts} in {terminal.printable(str(path))}.")
    for name, problem in written.problems:
        terminal.warn(f"conversation {name!r} is left out: {problem}")
    return FINDINGS if written.problems else DONE


def parted(
    paths: Sequence[Path], conversation: str | None, prefix: str, *, strict: bool
) -> tuple[list[Path], list[Path]]:
    """Return the archives and the other paths. Refuse an option that archives do not have."""
    archives = [path for path in paths if path.is_file() and is_archive(path)]
    given = {"--conversation": conversation is not None, "--prefix": bool(prefix), "--strict": strict}
    refused = [option for option, is_given in given.items() if is_given]
    if archives and refused:
        raise Refused(
            f"{archives[0]} is an archive: each of its histories comes under its own id, whole or not at all; "
            f"leave out {refused[0]}"
        )
    return archives, [path for path in paths if path not in archives]


def read(store: Store, path: Path, *, tombstones: bool) -> Iterator[Copied | Problem | LeftOut | str]:
    """Yield the outcome of each conversation of an archive; at the end the problem, if the archive is damaged."""
    try:
        yield from read_archive(store, path, tombstones=tombstones)
    except NotAnArchive as error:
        yield str(error)
