"""Import paths, once or again and again, and say what was imported."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from foldlog._archive.importing import Failed, Import, Imported
from foldlog._archive.projecting import make_events
from foldlog._archive.reading import state_of
from foldlog._cli import terminal
from foldlog._cli.hints import store_name
from foldlog._cli.outcome import Refused
from foldlog._documents import ImportDocument, ImportedDocument
from foldlog._formats.files.found_sources import files_below
from foldlog._words.gist import count
from foldlog.eventstore import Store
from foldlog.formats import UnknownFormat

_FINDINGS_SHOWN = 20
_LEFT_OUT = "of no known format"
_NOT_OPENED = "with names that no history has in a folder (import one by its name)"
_LEFT_OUT_NAMED = 5
_LOOK_EVERY_S = 1.0
"""How often ``--watch`` looks at the files: at some thousands it takes ten milliseconds. Systems
can tell of changes, but not of those on disks of other machines or in a container, where many
agents work.
"""


class ImportOptions(NamedTuple):
    """What the options of a command line say about an import."""

    format: str
    prefix: str
    conversation: str | None
    check: bool
    again: bool
    use: bool
    strict: bool
    as_json: bool
    redact_secrets: bool


class Importing:
    """The import of some paths into a store, once or again and again, with what is told of it."""

    def __init__(
        self, store: Store, paths: Sequence[Path], options: ImportOptions, stdin: str
    ) -> None:
        self._store = store
        self._paths = paths
        self._options = options
        self._stdin = stdin
        self._imported: list[ImportedDocument] = []
        self._told = set[str]()
        is_secret = None
        if options.redact_secrets:
            from foldlog._secrets import secret_finder

            is_secret = secret_finder()
        try:
            self._import = Import(
                store,
                paths,
                options.format,
                prefix=options.prefix,
                conversation=options.conversation,
                read_all=options.check,
                again=options.again,
                is_secret=is_secret,
            )
        except UnknownFormat as error:
            raise Refused(str(error)) from error

    def run(self, *, again: bool = False) -> None:
        """Import all sources, and tell of each; ``again`` only of what is new."""
        self._imported = []
        with terminal.working("importing", "sources") as update:
            for one in self._import:
                document = self._document(one)
                self._imported.append(document)
                if self._options.use and not document.refused:
                    make_events(self._store, document.conversation)
                self._tell(document, again=again)
                update(advance=1)
        findings = self._import.findings
        if self._imported or len(findings) > 1:  # else it is why nothing was imported
            self._warn([self._named(each) for each in findings], "these paths")

    def sum_up(self, db: str) -> None:
        """Tell what was imported in all. Raises ``Refused`` if there was nothing."""
        left_out = ((_LEFT_OUT, self._import.left_out), (_NOT_OPENED, self._import.not_opened))
        for what, paths in left_out:
            if paths:
                named = map(self._named, paths)
                rest = ", …" if len(paths) > _LEFT_OUT_NAMED else ""
                first = ", ".join(islice(named, _LEFT_OUT_NAMED))
                terminal.note(f"left out {count(len(paths), 'file')} {what}: {first}{rest}")
        remarks = dict.fromkeys(one.note for one in self._imported if one.note and one.added)
        for note in remarks:
            terminal.note(note)
        if not self._imported:
            raise Refused(self._named(self._import.nothing()))
        elsewhere = [self._named(each) for each in self._import.findings]
        if self._options.as_json:
            document = ImportDocument(
                db=db, imported=tuple(self._imported), findings=tuple(elsewhere)
            )
            return terminal.emit(document)
        notes = len(remarks) + sum(bool(paths) for _, paths in left_out)
        findings = sum(one.findings_count for one in self._imported) + len(elsewhere)
        numbers = ((findings, "finding"), (notes, "note"))
        told = " and ".join(count(number, what) for number, what in numbers if number)
        added = [one for one in self._imported if one.added] or [
            one for one in self._imported if not one.refused
        ]
        there = count(len({one.conversation for one in added}), "conversation")
        records = count(sum(one.added for one in added), "record")
        end = f"; {told}, named above." if told else "."
        terminal.say(f"{records} of {there} added to {store_name(db)}{end}", wraps=True)

    def states(self) -> dict[str, bytes]:
        """Return what differs when a file at these paths, or below them, was changed, removed or
        added.
        """
        return {
            file: state
            for path in self._paths
            for file in files_below(path)
            if (state := state_of(Path(file)))
        }

    def wait(self, before: dict[str, bytes]) -> dict[str, bytes]:
        """Wait until files are not as they were before. Return how they are then."""
        while (now := self.states()) == before:
            time.sleep(_LOOK_EVERY_S)
        return now

    def _document(self, one: Imported | Failed) -> ImportedDocument:
        if isinstance(one, Failed):
            return ImportedDocument(
                path=self._named(one.path),
                conversation=one.conversation,
                format=one.format,
                added=one.added,
                records=0,
                forked_at=None,
                older=False,
                waits=False,
                refused=True,
                findings=(self._named(f"{one.path}: {_problem(one.error)}"),),
                findings_count=1,
                note="",
            )
        return ImportedDocument(
            path=self._named(one.path),
            conversation=one.conversation,
            format=one.format,
            added=one.added,
            records=one.records,
            forked_at=one.forked_at,
            older=one.is_older,
            waits=one.waits,
            refused=False,
            findings=tuple(map(self._named, one.findings)),
            findings_count=one.findings_count,
            note=one.note,
        )

    def _tell(self, one: ImportedDocument, *, again: bool) -> None:
        if one.refused or self._options.strict:
            tell = terminal.warn
        else:
            tell = terminal.note
        self._warn(one.findings, one.path, one.findings_count, tell)
        if self._options.as_json or (again and not one.added):
            return
        if one.refused:
            there = f"{count(one.added, 'record')} so far: import it again to go on there"
            what = there if one.added else "not imported"
            style = "red"
        elif one.forked_at is not None:
            what = f"{count(one.added, 'record')}, a fork at record {one.forked_at:,}"
            style = "green"
        elif one.added == 0:
            older = " (older than what was imported)" if one.older else ""
            what = f"nothing new{older}, {count(one.records, 'record')} as before"
            style = "dim"
        elif one.added < one.records:
            what = f"{count(one.added, 'new record')}, {one.records:,} in all"
            style = "green"
        else:
            what = count(one.records, "record")
            style = "green"
        if one.waits:
            what += "; its last line is not whole yet, and the next import takes it"
        lines = terminal.PrintedLines()
        lines.write(
            (terminal.typed_id(one.conversation), "bold"), (f" ({one.format}): ", ""), (what, style)
        )

    def _warn(
        self,
        findings: Sequence[str],
        where: str,
        number: int | None = None,
        tell: Callable[[str], object] = terminal.warn,
    ) -> None:
        """Tell findings that were not told before."""
        new = [each for each in findings if each not in self._told]
        self._told.update(new)
        for finding in new[:_FINDINGS_SHOWN]:
            tell(finding)
        more = max(len(new), (number or 0) if new else 0) - _FINDINGS_SHOWN
        if more > 0:
            tell(f"{more:,} more in {where}; --json has them")

    def _named(self, message: object) -> str:
        return str(message).replace(self._stdin, "")


def _problem(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return f"cannot be read: {strerror}" if strerror else str(error)
