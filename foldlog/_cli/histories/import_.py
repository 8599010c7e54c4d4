"""``foldlog import``: add histories of other agents."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

from foldlog._cli import terminal
from foldlog._cli.hints import command, store_name
from foldlog._cli.options import DEFAULT_DB, AsJson, Db
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_or_create
from foldlog._documents import ImportDocument, ImportedDocument
from foldlog._formats.files.found import files_below, state_of
from foldlog._formats.reading_ahead import read_ahead
from foldlog._formats.registry import formats
from foldlog._importing import import_source
from foldlog._reports.ahead import made_ahead
from foldlog._reports.overview import changes_of_documents, copies_before
from foldlog._reports.sums import KeptSums
from foldlog._seen_files import Imported, SeenFiles
from foldlog._words.gist import count
from foldlog.eventstore import (
    ConversationErased,
    CorruptEvent,
    Event,
    EventStoreError,
    HistoryDiverged,
    InvalidEvent,
    Store,
    VersionConflict,
)
from foldlog.formats import FORMATS, NotAHistory, Source, Sources, UnknownFormat, open_sources
from foldlog.projections import Views

_FINDINGS_SHOWN = 20
_FORKED = (
    "{} and its conversation went different ways: that stays as it is, and the file is in its fork {.conversation!r}"
)
_LEFT_OUT = "of no known format"
_NOT_OPENED = "with names that no history has in a folder (import one by its name)"
_LEFT_OUT_NAMED = 5
_TELL_EVERY = 200
_LOOK_EVERY_S = 1.0
"""How often ``--watch`` looks at the files: at some thousands it takes ten milliseconds. Systems can tell of changes,
but not of those on disks of other machines or in a container, where many agents work.
"""


def run(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH", show_default=False, help="Files, or folders with any number of histories; - is stdin."
        ),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            show_default=False,
            autocompletion=lambda: _with_places(),
            help="Where the program of this format keeps its histories, for example claude-code.",
        ),
    ] = None,
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
    check: Annotated[bool, typer.Option("--check", help="Read unchanged files too, and compare them.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Import what grows and what is new, until Ctrl-C.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 if a record cannot be read.")] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Import histories from files and folders. Importing the same source again adds only new events.

    A record that cannot be read is named, and all others are imported. A history without a name gets its file's
    (kite), with the folder's if you import that or the name is common (FOLDER/chat1). Unchanged files
    are skipped, unless they had findings.

    Example: foldlog import --from claude-code
    """
    paths = [*(paths or ()), *(place for name in agents or () for place in _places(name))]
    if not paths:
        raise Refused(f"name a PATH, or --from with one of {', '.join(_with_places())}")
    if watch and (as_json or Path("-") in paths):
        raise Refused("--watch follows files until Ctrl-C; leave out --json and -")
    if conversation is not None and prefix:
        raise Refused("--conversation is the whole name; leave out --prefix")
    with TemporaryDirectory(prefix="foldlog-stdin-") as folder, open_or_create(db) as store:

        def named(message: object) -> str:
            return str(message).replace(f"{folder}/", "")

        store.register(Views(store))  # Views are folded while their events are written
        given = _with_stdin(paths, Path(folder))
        options = _Options(format, prefix, conversation, check, strict, as_json, watch)
        try:
            before = _when_there(given, format) if watch else {}
        except KeyboardInterrupt:  # which is how it ends
            return
        imported, elsewhere, sources = _import_all(store, given, options, named)
        _warn(elsewhere, len(elsewhere), "these paths")
        for what, paths in (_LEFT_OUT, sources.left_out), (_NOT_OPENED, sources.not_opened):
            if paths:
                first = ", ".join(named(path) for path in paths[:_LEFT_OUT_NAMED])
                rest = ", …" if len(paths) > _LEFT_OUT_NAMED else ""
                terminal.note(f"left out {count(len(paths), 'file')} {what}: {first}{rest}")
        left_out = bool(sources.left_out) + bool(sources.not_opened)
        _sum_up(db, store, imported, elsewhere, left_out, options)
        told = {*elsewhere, *(finding for one in imported for finding in one.findings)}
        with suppress(KeyboardInterrupt) if watch else nullcontext():  # which is how it ends
            while watch:
                before = _changed(given, before)
                more, elsewhere_too, _ = _import_all(store, given, options, named, told)
                _warn(new := [each for each in elsewhere_too if each not in told], len(new), "these paths")
                told.update(elsewhere_too, *(one.findings for one in more))


def _sum_up(
    db: str, store: Store, imported: Sequence[ImportedDocument], elsewhere: Sequence[str], notes: int, options: _Options
) -> None:
    remarks = dict.fromkeys(one.note for one in imported if one.note and one.added)
    for note in remarks:
        terminal.note(note)
    if not any(one.version for one in imported) and not any(one.refused for one in imported):
        raise Refused("none of these histories has an event that can be read; nothing was imported")
    if options.as_json:
        terminal.emit(ImportDocument(db=db, imported=tuple(imported), findings=tuple(elsewhere)))
        return
    noted = sum(one.findings_count for one in imported if options.takes(one))
    findings = sum(one.findings_count for one in imported) - noted + len(elsewhere)
    notes += len(remarks) + noted
    told = " and ".join(count(number, what) for number, what in ((findings, "finding"), (notes, "note")) if number)
    there = {one.conversation for one in imported if one.added} or {one.conversation for one in imported if one.version}
    events = f"{count(sum(one.added for one in imported), 'event')} of {count(len(there), 'conversation')}"
    copied = sum(_copies(store, one) for one in imported if one.added and formats()[one.format].says_again)
    copies = f", {copied:,} of them copies that no figure counts" if copied else ""
    end = f"; {told}, named above." if told else "."
    terminal.say(f"{events} added to {store_name(db)}{copies}{end}", wraps=True)


def _copies(store: Store, one: ImportedDocument) -> int:
    start = one.version - one.added
    structural = store.query(one.conversation, lambda reading: [*reading.structural_events(start, one.version)])
    return sum(map(copies_before, structural))


class _Options(NamedTuple):
    format: str
    prefix: str
    conversation: str | None
    check: bool
    strict: bool
    as_json: bool
    watch: bool

    def takes(self, one: ImportedDocument) -> bool:
        """Return whether a history was imported, and what could not be read of it is a note."""
        return bool(one.version) and not one.refused and not self.strict


def _import_all(
    store: Store, paths: Sequence[Path], options: _Options, named: Callable[[object], str], told: set[str] | None = None
) -> tuple[list[ImportedDocument], list[str], Sources]:
    """Import all histories of these paths. Return the outcome of each, the problems that belong to none, and where they
    came from. With ``told``, the findings that were told before, tell only what is new.
    """
    format, prefix, conversation, check, _, as_json, _ = options
    imported: list[ImportedDocument] = []
    failed: list[str] = []
    unread = 0
    with terminal.working("importing", "MB") as update:
        seen = SeenFiles(store, format, prefix, conversation, below=paths, read_all=check)
        lists = KeptSums(store, read=False)
        try:
            sources = open_sources(paths, format, prefix=prefix, look=seen.look)
        except (NotAHistory, UnknownFormat) as error:
            raise Refused(named(error)) from error
        if conversation is not None and len(list(islice(sources, 2))) > 1:
            raise Refused("--conversation names one history, and there are several; import them one at a time")
        update(total=sources.size_bytes() / 1e6 if sys.stderr.isatty() else None)
        try:
            for source in read_ahead(sources, made_ahead):
                one = _imported(store, source, conversation, named, seen, update)
                if told is None or not told.issuperset(one.findings):
                    tell = terminal.note if options.takes(one) else terminal.warn
                    _warn(one.findings, one.findings_count, one.path, tell)
                if not as_json and (one.added or told is None):
                    _tell(store, one)
                imported.append(one)
                passed, unread = seen.unread_bytes - unread, seen.unread_bytes
                several = count(len(imported) + len(seen.unchanged), "history", "histories")
                update(advance=passed / 1e6, unit=f"MB, {several}")
                if one.added:
                    lists.count(one.conversation, source.ahead if one.added == one.version else None)
            seen.close_file()
            lists.make_of_all()
        except EventStoreError as error:  # of the store, not of one history
            if not any(one.added for one in imported):
                raise
            failed.append(f"{error}; {_stays(imported)}; run it again to continue")
        finally:
            seen.flush()
            lists.flush()
    as_before: dict[str, Any] = {"older": False, "refused": False, "findings": (), "findings_count": 0, "note": ""}
    unchanged = [ImportedDocument.of(one, path=named(one.path), **as_before) for one in seen.unchanged.values()]
    if not as_json and told is None:
        _tell(store, *unchanged)
    imported = sorted([*unchanged, *imported], key=lambda one: seen.place(Path(one.path)))
    return imported, [*map(named, sources.findings), *failed], sources


# -- where programs keep their histories, and how they change ----------------------------------------------------------


def _with_places() -> list[str]:
    return sorted(name for name, format in formats().items() if format.kept_in)


def _places(name: str) -> list[Path]:
    """Return the folders and files in which the program of a format keeps its histories on this machine."""
    if name not in formats() or not formats()[name].kept_in:
        raise Refused(
            f"where {name!r} keeps its histories is not known; name a PATH, or one of {', '.join(_with_places())}"
        )
    expanded = {place: os.path.expanduser(os.path.expandvars(place)) for place in formats()[name].kept_in}
    known = {place: Path(path) for place, path in expanded.items() if "$" not in path}
    there = {place: path for place, path in known.items() if _states([path])}
    if not there:
        raise Refused(
            f"there are no histories of {name} at {', '.join(map(str, known.values()))}; name the PATH where they are, "
            f"with --format {name} in place of --from"
        )
    chosen = [path for place, path in there.items() if place.startswith("$")]  # in the place of those below ~
    return chosen or [*there.values()]


_States = dict[str, tuple[int, ...]]


def _states(paths: Sequence[Path]) -> _States:
    """Return what differs when a file at these paths, or below them, was changed, removed or added."""
    return {file: state for path in paths for file in files_below(path) if (state := state_of(file))}


def _when_there(paths: Sequence[Path], format: str) -> _States:
    """Wait until one of these paths has a history. Return how the files were before that was seen."""
    while True:
        before = _states(paths)
        try:
            open_sources(paths, format)
        except NotAHistory as error:
            if error.path.is_dir():
                terminal.note(f"{error}; waiting for one")
                _changed(paths, before)
                continue
        return before


def _changed(paths: Sequence[Path], before: _States) -> _States:
    """Wait until files are not as they were before. Return how they are then."""
    while (now := _states(paths)) == before:
        time.sleep(_LOOK_EVERY_S)
    return now


def _with_stdin(paths: list[Path], folder: Path) -> list[Path]:
    """Return the paths, with a private copy of stdin in the place of ``-``: a history is read more than once."""
    if Path("-") not in paths:
        return paths
    if sys.stdin.isatty():
        raise Refused(
            "- is stdin, which is a terminal here; pipe a history into it: ssh host cat x.jsonl | foldlog import -"
        )
    with (folder / "stdin").open("xb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return [folder / "stdin" if path == Path("-") else path for path in dict.fromkeys(paths)]


def _imported(
    store: Store,
    source: Source,
    conversation: str | None,
    named: Callable[[object], str],
    seen: SeenFiles,
    update: Callable[..., None],
) -> ImportedDocument:
    """Import one history. A problem of this history alone is a finding."""
    name = source.name if conversation is None else conversation
    update(description=name[:40])
    imported, refused = Imported(name, 0, 0, format=source.format), []
    try:
        counted = partial(_counted, update=update)
        imported = import_source(store, source, conversation, counted, seen)
    except HistoryDiverged as error:
        hint = ""
        if str(error).endswith("another conversation"):
            hint = f"; import it under another id: '{command('import', named(source.path), '--prefix', 'again/')}'"
            redacted = store.conversation(error.conversation).redactions
            hint += f"; if it has what was redacted, erase {error.conversation!r} first" if redacted else ""
        refused.append(f"{source.path}: {error}{hint}")
    except ConversationErased as error:
        refused.append(f"{source.path}: {error.problem}; delete the file, or leave it out")
    except (InvalidEvent, CorruptEvent, VersionConflict, OSError) as error:
        refused.append(f"{source.path}: {error}")
    update(advance=source.size_bytes / 1e6)
    if imported.version or source.grown is not None:
        seen.imported(source, imported, sound=not refused)
    return ImportedDocument.of(
        imported,
        path=named(source.path),
        refused=bool(refused),
        older=imported.is_older and source.is_whole,
        findings=tuple(map(named, (*refused, *source.findings))),
        findings_count=source.findings_count + len(refused),
        note=named(_FORKED.format(source.path, imported)) if imported.is_fork else source.note,
    )


def _stays(imported: Sequence[ImportedDocument]) -> str:
    there = [one.version for one in imported if one.version]
    return f"the import ended after {count(sum(there), 'event')} of {count(len(there), 'conversation')}, which stay"


def _warn(findings: Sequence[str], count: int, where: str, tell: Callable[[str], object] = terminal.warn) -> None:
    for finding in findings[:_FINDINGS_SHOWN]:
        tell(finding)
    if count > _FINDINGS_SHOWN:
        tell(f"{count - _FINDINGS_SHOWN:,} more in {where}; --json has them")


def _counted(events: Iterator[Event], update: Callable[..., None]) -> Iterator[Event]:
    for number, event in enumerate(events, 1):
        if number % _TELL_EVERY == 0:
            update(unit=f"MB, {number:,} events of this history")
        yield event


def _tell(store: Store, *imported: ImportedDocument) -> None:
    lines = terminal.PrintedLines()
    for one in imported:
        if not one.version:
            what, style = "not imported", "red"
        elif one.added == 0:
            older = " (older than what was imported)" if one.older else ""
            what, style = f"nothing new{older}, {count(one.version, 'event')} as before", "dim"
        elif one.added < one.version:
            gone = f" in place of {one.taken_back:,} taken back" if one.taken_back else ""
            what, style = f"{count(one.added, 'new event')}{gone}, {one.version:,} in all", "green"
        else:
            what, style = count(one.version, "event"), "green"
        changes = one.added and changes_of_documents(store, one.conversation, one.version - one.added, one.version)
        what += f", with {count(changes, 'change')} of attributes or documents" if changes else ""
        lines.write((terminal.typed_id(one.conversation), "bold"), (f" ({one.format}): ", ""), (what, style))
