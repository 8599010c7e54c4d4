"""Import paths, once or repeatedly (``--watch``), and report what was imported."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import store_name
from foldlog._imports.importing import Failed, Import, Imported
from foldlog._imports.making_events import make_events
from foldlog._reports.answers.files import ImportDocument, ImportedDocument
from foldlog._reports.words.gist import count
from foldlog.eventstore import Store
from foldlog.formats.files.found_sources import files_below
from foldlog.formats.files.source_reading import state_of

_FINDINGS_SHOWN = 20
"""The maximum number of findings that are printed for a source."""
_LEFT_OUT = "of no known format"
_NOT_OPENED = "whose names no format gives to a history (to import such a file, pass its path)"
_LEFT_OUT_NAMED = 5
"""The maximum number of files that a note names."""
_LOOK_EVERY_S = 1.0
"""The seconds between two checks by ``--watch``. A check of some thousand files takes ten
milliseconds.

foldlog polls the files, because change notifications do not work on network disks and in
containers.
"""


class Importing:
    """The imports of one command, each reported as soon as it is made.

    ``use``     make the events of each import
    ``strict``  a record that cannot be read is a finding
    ``stdin``   the temporary folder of a history from stdin, which messages leave out
    """

    def __init__(
        self,
        store: Store,
        paths: Sequence[Path],
        imports: Import,
        *,
        use: bool,
        strict: bool,
        stdin: str,
    ) -> None:
        self._store = store
        self._paths = paths
        self._import = imports
        self._use = use
        self._strict = strict
        self._stdin = stdin
        self._imported: list[ImportedDocument] = []
        self._reported = set[str]()

    def run(self, *, again: bool = False) -> None:
        """Import all sources, report each, and print findings that were not printed before. With
        ``again``, report only sources that have new records.
        """
        self._imported = []
        with terminal.working("importing", "sources") as update:
            for outcome in self._import:
                document = self._document(outcome)
                self._imported.append(document)
                if self._use and not document.refused:
                    make_events(self._store, document.conversation)
                self._report(document, again=again)
                update(advance=1)
        findings = self._import.findings
        # If nothing was imported, a single finding says why. ``sum_up`` then raises it as an error.
        if self._imported or len(findings) > 1:
            self._warn_once([self._without_stdin(finding) for finding in findings], "these paths")

    def sum_up(self, db: str) -> None:
        """Report the sum of all imports. Raise ``Refused`` if nothing was found to import."""
        left_out = ((_LEFT_OUT, self._import.left_out), (_NOT_OPENED, self._import.not_opened))
        for what, paths in left_out:
            if paths:
                file_names = map(self._without_stdin, paths)
                ellipsis = ", …" if len(paths) > _LEFT_OUT_NAMED else ""
                first = ", ".join(islice(file_names, _LEFT_OUT_NAMED))
                terminal.note(f"left out {count(len(paths), 'file')} {what}: {first}{ellipsis}")
        remarks = dict.fromkeys(  # in order and without repetitions
            document.note for document in self._imported if document.note and document.added
        )
        terminal.note(*remarks)
        if not self._imported:
            raise Refused(self._without_stdin(self._import.nothing()))
        elsewhere = [self._without_stdin(finding) for finding in self._import.findings]
        if terminal.prints_json():
            document = ImportDocument(
                db=db, imported=tuple(self._imported), findings=tuple(elsewhere)
            )
            terminal.emit(document)
            return
        notes = len(remarks) + sum(bool(paths) for _, paths in left_out)
        findings = len(elsewhere) + sum(document.findings_count for document in self._imported)
        numbers = ((findings, "finding"), (notes, "note"))
        named = " and ".join(count(number, what) for number, what in numbers if number)
        end = f"; {named}, named above." if named else "."
        terminal.say_wrapped(f"{self._sum()} added to {store_name(db)}{end}")

    def _sum(self) -> str:
        """Say how many records were added, and to how many conversations. Without new records, all
        conversations that were read are counted.
        """
        with_records = [document for document in self._imported if document.added]
        if not with_records:
            with_records = [document for document in self._imported if not document.refused]
        names = {document.conversation for document in with_records}
        records = sum(document.added for document in with_records)
        return f"{count(records, 'record')} of {count(len(names), 'conversation')}"

    def states(self) -> dict[str, bytes]:
        """Return the states of the files at and below the imported paths."""
        return {
            file: state
            for path in self._paths
            for file in files_below(path)
            if (state := state_of(Path(file)))
        }

    def wait(self, before: dict[str, bytes]) -> dict[str, bytes]:
        """Wait until a file has changed, and return the new states."""
        while (present := self.states()) == before:
            time.sleep(_LOOK_EVERY_S)
        return present

    def _document(self, outcome: Imported | Failed) -> ImportedDocument:
        """Return the document of one import."""
        path = self._without_stdin(outcome.path)
        if isinstance(outcome, Failed):
            return ImportedDocument.of(
                outcome,
                path=path,
                records=0,
                forked_at=None,
                older=False,
                waits=False,
                refused=True,
                findings=(self._without_stdin(f"{path}: {_problem(outcome.error)}"),),
                findings_count=1,
                note="",
            )
        return ImportedDocument.of(
            outcome,
            path=path,
            older=outcome.is_older,
            refused=False,
            findings=tuple(map(self._without_stdin, outcome.findings)),
        )

    def _report(self, document: ImportedDocument, *, again: bool) -> None:
        """Print the findings of an import, and its line."""
        tell = terminal.warn if document.refused or self._strict else terminal.note
        self._warn_once(document.findings, document.path, document.findings_count, tell)
        if terminal.prints_json() or (again and not document.added):
            return
        what, style = _outcome_words(document)
        if document.waits:
            what += "; its last line is incomplete, and the next import reads it"
        lines = terminal.PrintedLines()
        lines.write(
            (terminal.typed_id(document.conversation), "bold"),
            (f" ({document.format}): ", ""),
            (what, style),
        )

    def _warn_once(
        self,
        findings: Sequence[str],
        where: str,
        total: int | None = None,
        tell: Callable[[str], object] = terminal.warn,
    ) -> None:
        """Print the findings that were not printed before. ``total`` is their number, if the list
        was cut.
        """
        new = [finding for finding in findings if finding not in self._reported]
        self._reported.update(new)
        for finding in new[:_FINDINGS_SHOWN]:
            tell(finding)
        hidden = max(len(new), (total or 0) if new else 0) - _FINDINGS_SHOWN
        if hidden > 0:
            shown = f"the first {len(findings):,}" if (total or 0) > len(findings) else "them"
            tell(f"{hidden:,} more in {where}; --json shows {shown}")

    def _without_stdin(self, message: object) -> str:
        """Return a message without the temporary folder of a history from stdin."""
        return str(message).replace(self._stdin, "")


def _outcome_words(document: ImportedDocument) -> tuple[str, str]:
    """Say what an import added, with the style of the words."""
    added = count(document.added, "record")
    if document.refused:
        if document.added:
            return f"{added} so far: import it again to continue", "red"
        return "not imported", "red"
    if document.forked_at is not None:
        return f"{added} in a fork that begins at record {document.forked_at:,}", "green"
    if document.added == 0:
        older = " (the file is an older copy)" if document.older else ""
        return f"nothing new{older}, {count(document.records, 'record')} as before", "dim"
    if document.added < document.records:
        return f"{count(document.added, 'new record')}, {document.records:,} in all", "green"
    return count(document.records, "record"), "green"


def _problem(error: Exception) -> str:
    """Say why a source was not imported."""
    strerror = getattr(error, "strerror", None)
    return f"cannot be read: {strerror}" if strerror else str(error)
