"""``foldlog import``: add histories of other agents."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer
from rich.progress import Progress, TaskID
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.hints import store_name
from foldlog._cli.options import DEFAULT_DB, AsJson, Db
from foldlog._cli.outcome import DONE, Refused
from foldlog._cli.stores import open_or_create
from foldlog._importing import Imported, import_source
from foldlog._words.gist import count
from foldlog.eventstore import (
    ConversationErased,
    Event,
    EventStoreError,
    HistoryDiverged,
    InvalidEvent,
    Store,
    VersionConflict,
)
from foldlog.formats import FORMATS, ImportFinding, NotAHistory, Source, Sources, UnknownFormat, open_sources
from foldlog.projections import Views

_STDIN, _FOLDER = "stdin", "foldlog-stdin-"
_COPY = re.compile(rf"\S*/{_FOLDER}\w+/{_STDIN}\b")
"""The path of a copy of stdin in a message."""
_FINDINGS_SHOWN = 20
_TELL_EVERY = 200


class ImportedHistory(NamedTuple):
    """The outcome of one history. ``version`` is the conversation's version afterwards; 0 if the conversation does not
    exist or the history was ``refused`` as a whole.
    """

    path: str
    conversation: str
    format: str
    added: int
    version: int
    refused: bool
    findings: tuple[str, ...]
    findings_count: int
    note: str = ""


def run(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH", show_default=False, help="Files, or folders with any number of histories; - is stdin."
        ),
    ],
    format: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", autocompletion=lambda: ["auto", *FORMATS], help="The format of the files."
        ),
    ] = "auto",
    conversation: Annotated[
        str | None,
        typer.Option(
            "--conversation",
            metavar="ID",
            show_default="the source's own",
            help="The id of the conversation, for a single history.",
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option("--prefix", metavar="TEXT", show_default=False, help="A text before the id of each conversation."),
    ] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Import nothing if a record cannot be read.")] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Import histories from files and folders. Importing the same source again adds only new events.

    Example: foldlog import ~/.claude/projects
    """
    with _stdin_as_file(paths) as named:
        return _import(named, format, conversation, prefix, db, strict=strict, as_json=as_json)


@contextmanager
def _stdin_as_file(paths: list[Path]) -> Iterator[list[Path]]:
    """Yield the paths, with a private copy of stdin in the place of ``-``: a history is read more than once."""
    if Path("-") not in paths:
        yield paths
        return
    if sys.stdin.isatty():
        raise Refused(
            "- is stdin, which is a terminal here; pipe a history into it: ssh host cat x.jsonl | foldlog import -"
        )
    with TemporaryDirectory(prefix=_FOLDER) as folder:
        copy = Path(folder) / _STDIN
        with copy.open("xb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield [copy if path == Path("-") else path for path in dict.fromkeys(paths)]
        except Refused as error:
            raise Refused(_named(str(error))) from error


def _named(message: str) -> str:
    """Return a message about the copy of stdin as one about stdin."""
    return _COPY.sub("stdin", message)


def _import(
    paths: list[Path],
    format: str,
    conversation: str | None,
    prefix: str,
    db: str,
    *,
    strict: bool,
    as_json: bool,
) -> int:
    sources = _sources(paths, format, prefix)
    if conversation is not None and prefix:
        raise Refused("--conversation is the whole name; leave out --prefix")
    if conversation is not None and len(list(islice(sources, 2))) > 1:
        raise Refused("--conversation names one history, and there are several; import them one at a time")
    if strict:
        _refuse_findings(sources)
    imported: list[ImportedHistory] = []
    elsewhere: list[str] = []
    with open_or_create(db) as store:
        try:
            for outcome in _everything(store, sources, conversation, quiet=as_json):
                match outcome:
                    case ImportedHistory():
                        imported.append(outcome)
                    case problem:
                        elsewhere.append(problem)
        except EventStoreError as error:  # of the store, not of one history
            if not any(one.added for one in imported):
                raise
            elsewhere.append(_broken_off(imported, error))
    _warn(elsewhere, len(elsewhere), "these paths")
    for note in dict.fromkeys(one.note for one in imported if one.note and one.added):
        terminal.note(note)
    if not any(one.version for one in imported) and not any(one.refused for one in imported):
        raise Refused("none of these histories has an event that can be read; nothing was imported")
    if as_json:
        terminal.emit({"db": db, "imported": [one._asdict() for one in imported], "findings": elsewhere})
    else:
        _sum_up(db, imported, len(elsewhere))
    return DONE


def _sources(paths: list[Path], format: str, prefix: str) -> Sources:
    """Return the histories under the paths. Refuse, before anything is imported, a path without a history."""
    try:
        return open_sources(paths, format, prefix=prefix)
    except (NotAHistory, UnknownFormat) as error:
        raise Refused(str(error)) from error


def _everything(
    store: Store,
    sources: Sources,
    conversation: str | None,
    *,
    quiet: bool,
) -> Iterator[ImportedHistory | str]:
    """Yield the outcome of each history; a text is a problem of no single history."""
    size_bytes = sources.size_bytes() if sys.stderr.isatty() else None
    yield from import_sources(store, sources, conversation, quiet=quiet, size_bytes=size_bytes)
    yield from (_named(str(finding)) for finding in sources.findings)


def _broken_off(imported: Sequence[ImportedHistory], error: EventStoreError) -> str:
    """Return the message for a store that failed after some histories were imported."""
    there = [one.version for one in imported if one.version]
    words = f"{count(sum(there), 'event')} of {count(len(there), 'conversation')}"
    return f"{error}; the import ended after {words}, which stay; run it again to continue"


def _refuse_findings(sources: Sources) -> None:
    found: list[ImportFinding] = []
    for source in sources:
        for _ in source.events():
            pass
        found.extend(source.findings)
    found.extend(sources.findings)
    if found:
        raise Refused(f"{found[0]} (the first of {len(found):,}; without --strict the rest would be imported)")


def import_sources(
    store: Store,
    sources: Iterable[Source],
    conversation: str | None = None,
    *,
    quiet: bool,
    size_bytes: int | None = None,
) -> Iterator[ImportedHistory]:
    """Import each source. Yield its outcome, and print a line about it unless ``quiet``. ``size_bytes`` is the
    approximate size of all sources, for the progress bar.
    """
    store.register(Views(store))  # Views are folded while their events are written
    with terminal.progress() as progress:
        task = progress.add_task("importing", total=None if size_bytes is None else size_bytes / 1e6, unit="MB")
        for source in sources:
            name = source.name if conversation is None else conversation
            progress.update(task, description=terminal.printable(name, one_line=True)[:40])
            imported = _import_source(store, source, conversation, progress, task)
            progress.update(task, advance=source.size_bytes / 1e6, unit="MB")
            _warn(imported.findings, imported.findings_count, str(source.path))
            if not quiet:
                _tell(imported)
            yield imported


def _import_source(
    store: Store, source: Source, conversation: str | None, progress: Progress, task: TaskID
) -> ImportedHistory:
    imported, refused = Imported(source.name if conversation is None else conversation, 0, 0), []
    try:
        imported = import_source(store, source, conversation, lambda events: _counted(events, progress, task))
    except HistoryDiverged as error:
        hint = "" if "--prefix" in str(error) else ", with --conversation or --prefix"
        refused.append(f"{source.path}: {error}{hint}")
    except ConversationErased as error:
        refused.append(f"{source.path}: {error.problem}; use another id, with --conversation or --prefix")
    except (InvalidEvent, VersionConflict, OSError) as error:
        refused.append(f"{source.path}: {error}")
    findings = tuple(map(_named, (*refused, *map(str, source.findings))))
    count = source.findings_count + len(refused)
    name, added, version = imported
    return ImportedHistory(
        _named(str(source.path)), name, source.format, added, version, bool(refused), findings, count, source.note
    )


def _warn(findings: Sequence[str], count: int, where: str) -> None:
    for finding in findings[:_FINDINGS_SHOWN]:
        terminal.warn(finding)
    if count > _FINDINGS_SHOWN:
        terminal.warn(f"{count - _FINDINGS_SHOWN:,} more in {where}; --json has them")


def _counted(events: Iterator[Event], progress: Progress, task: TaskID) -> Iterator[Event]:
    for number, event in enumerate(events, 1):
        if number % _TELL_EVERY == 0:
            progress.update(task, unit=f"MB, {number:,} events of this history")
        yield event


def _tell(imported: ImportedHistory) -> None:
    name = terminal.typed_id(imported.conversation)
    if not imported.version:
        what, style = "not imported", "red"
    elif imported.added == 0:
        what, style = f"nothing new, {count(imported.version, 'event')} as before", "dim"
    elif imported.added < imported.version:
        what, style = f"{count(imported.added, 'new event')}, {imported.version:,} in all", "green"
    else:
        what, style = count(imported.version, "event"), "green"
    terminal.console().print(Text.assemble((name, "bold"), f" ({imported.format}): ", (what, style)))


def _sum_up(db: str, imported: list[ImportedHistory], elsewhere: int) -> None:
    added = sum(one.added for one in imported)
    findings = sum(one.findings_count for one in imported) + elsewhere
    where = terminal.printable(store_name(db))
    histories = sum(one.added > 0 for one in imported) or len(imported)
    words = f"{count(added, 'event')} of {count(histories, 'conversation')} added to {where}"
    terminal.console().print(f"{words}; {count(findings, 'finding')}, named above." if findings else f"{words}.")
