"""Compare the document that an export of an import writes with the records of the import.

The text between the records of a document is stored beside them, and no checkpoint covers it,
because each import replaces it. So who can write the store can put a record into the document that
the source does not have, or leave one out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from foldlog.eventstore import Store
from foldlog.eventstore.sources.reading import about, blocks_of, source_of
from foldlog.formats.detection import recognize
from foldlog.formats.files.found_sources import FoundHistory, NotAHistory
from foldlog.formats.files.frames import Frame, frame_in, whole
from foldlog.formats.files.histories import histories
from foldlog.formats.json_text import UnreadableJson, bytes_of
from foldlog.formats.registry import AUTO

_OF_OTHER_FILE = b'"conversationHistoryDeletedRange"'
"""Cline writes what it has deleted into another file than the messages."""
_OTHER_RECORDS = (
    "the text between the records of its source was changed: the document that an export writes"
    " does not have the records of the source"
)


def find_other_records_in_document(store: Store, conversation: str) -> Iterator[str]:
    """Yield a problem if the document that an export writes has other records than the source. If
    a record was redacted, or the source is no document, an export writes the records alone.

    Raises the errors of reading. Cost: reading the records twice, with memory for the document.
    """
    source = source_of(store.database, conversation)
    if source is None:
        return
    try:
        frame = frame_in(about(source))
    except msgspec.ValidationError:
        yield _OTHER_RECORDS
        return
    if frame is None or frame.records != source.records:
        return
    records = [record for block in blocks_of(store.database, source) for record in block.records()]
    in_document = [
        record
        for number, record in enumerate(records)
        if number in frame.order or _OF_OTHER_FILE not in record
    ]
    if in_document not in _read_again(frame, records, source.format):
        yield _OTHER_RECORDS


def _read_again(frame: Frame, records: list[bytes], format: str) -> Iterator[list[bytes]]:
    """Yield the records of each history in the document, as an import reads it."""
    try:
        document = whole(frame, records)
    except (IndexError, UnicodeEncodeError):
        return
    with _file_of(document) as path:
        for name in (format, AUTO):
            with suppress(NotAHistory, UnreadableJson):
                for found in histories(path, recognize(name)):
                    if isinstance(found, FoundHistory):
                        yield [located.text or bytes_of(located.value) for located in found.reader]


@contextmanager
def _file_of(document: bytes) -> Iterator[Path]:
    """Yield the path of a file with the document. Where the system has files in memory, the path is
    a link to one, so that nothing of an encrypted store is on the disk.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "document.json"
        if not hasattr(os, "memfd_create"):
            path.touch(0o600)
            path.write_bytes(document)
            yield path
            return
        with open(os.memfd_create("document"), "wb") as file:
            file.write(document)
            file.flush()
            path.symlink_to(f"/proc/self/fd/{file.fileno()}")
            yield path
