"""The interface of a format. A ``Format`` recognizes, reads and writes records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import Event, EventStoreError
from foldlog.formats.model_calls import IN_REPLIES, RecordedUsage
from foldlog.formats.record import Fields, RecordReader, SourceTime, read_timestamp
from foldlog.projections.messages.turns import Dialect

if TYPE_CHECKING:
    from foldlog.formats.skeleton import Skeleton

Beside = tuple[Sequence[Any], Sequence[Fields]]
"""The result of ``Format.beside``: further records, and the usage of calls."""
LOOK_AT = 50
"""foldlog reads at most this many records to find the format and the name of a history."""


def first_named(name_in: Callable[[Any], str | None]) -> Callable[[Iterable[Any]], str | None]:
    """Return a function for ``Format.conversation``. The returned function calls ``name_in`` with
    the first 50 records, and stops at the first name. An empty name stops the search too, and the
    result is None.
    """

    def first(records: Iterable[Any]) -> str | None:
        names = map(name_in, islice(records, LOOK_AT))
        return next((name for name in names if name is not None), None) or None

    return first


class UnusableFormat(EventStoreError, TypeError):
    """A format that a program registered, or that an installed package brings, is not valid.
    Correct the format, or uninstall the package.
    """


class RecordDecoder(ABC):
    """Turns the records of one history into events, one record after another.

    A decoder reads one history from the first record on. The decoder may remember facts for later
    records, such as the ids of calls. A decoder never looks ahead: the events of a record depend
    only on this record and the records before it. Equal records must always give equal events,
    because a grown source is decoded again and only the new events are stored. ``next_id`` is the
    id of the next event.
    """

    minds_others: ClassVar[bool] = False
    """Whether ``skip_to`` does more if somebody else appended messages before the next record."""

    def __init__(self, options: Options) -> None:
        self.next_id = 0

    @abstractmethod
    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record, at least one event.

        Number the events from ``next_id`` on, without a gap between records, and set ``next_id``.
        The main event of the record gets ``Origin(format=…, id=…)``, with the name of the format
        and the id of the record. A store keeps the record itself, so an event needs only the fields
        that people and models read.

        Raises ``NotAnEvent`` for a value that is not a record of the format. The caller reports
        ``NotAnEvent`` as a finding and goes on with the next record, so raise the error before you
        change the decoder.
        """

    def events_of_redacted(self, record: Any, stored: Sequence[Event]) -> list[Event]:
        """Return the events of the next record, which was redacted after its events ``stored`` were
        made. What is left of the record may make fewer events, or hidden ones, but a View still has
        the stored events. A decoder that does not override this method reads what is left.
        """
        return self.events(record)

    def skip_to(self, next_id: int) -> None:
        """Continue with the event id ``next_id``. The ids before ``next_id`` are taken."""
        self.next_id = next_id


class RecordEncoder(ABC):
    """Writes records for the events of one history that were not imported.

    An imported record is written unchanged, and passed to ``follow``. If a redaction deleted a part
    of a record, the encoder writes a new record with the old id.
    """

    format: Format
    """The format of the encoder. ``Format.writer`` sets this attribute."""
    last: Any = None
    """The id of the last record that has an id."""

    @abstractmethod
    def records(self, event: Event) -> Sequence[Any] | None:
        """Return the records that ``event`` completes. Return an empty sequence if the record still
        waits for later events.

        Return None if the format has no record for ``event``. A note of the export counts the
        events without a record.
        """

    def head(self, event: Event) -> Sequence[Any]:
        """Return the records at the beginning of a history that was not imported. ``event`` is the
        first event that is written.
        """
        return ()

    def follow(self, events: Sequence[Event], record: Any) -> None:
        """Remember the facts about a record that later records need. By default, remember the id of
        the record. ``events`` are the events of the record. ``record`` is None for events that get
        no record, such as a retraction between two records.
        """
        if record is not None:
            self.last = self.format.source_id(record) or self.last

    def end(self) -> Sequence[Any]:
        """Return the unfinished record, if there is one. No further event belongs to the unfinished
        record.

        ``end`` is called before ``follow``, and after the last event.
        """
        return ()


class NoEncoder(RecordEncoder):
    """The encoder of a format that foldlog does not write."""

    def records(self, event: Event) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Options:
    """Facts about the records of one history that the caller passes to a decoder. A format ignores
    the options that it does not use.

    ``as_history``  whether the records are the agent's history, not a stream with other events
                    (OpenHands V0).
    ``prefix``      the text before the names of conversations, also in links to conversations.
    ``findings``    the problems in records that could still be read; a decoder adds to this list.
    ``format``      the format of the records; ``Format.reader`` sets this field.
    """

    as_history: bool = False
    prefix: str = ""
    findings: list[str] = field(default_factory=list)
    format: Format | None = None


class Contained(NamedTuple):
    """One history in a file or folder.

    ``name``     the name of the history in the file or folder, or None.
    ``others``   other files that are read for the history.
    ``title``    the present title of the history, if the program stores the title outside of the
                 records.
    ``link``     the attributes that say which history of the file began it, if the records do not
                 say it.
    """

    name: str | None
    records: RecordReader
    others: Sequence[Path] = ()
    title: str = ""
    link: Mapping[str, str] = {}


class FileReader(ABC):
    """Reads files that are not a sequence of JSON values: databases, Markdown, archives, and
    folders with parts of records.

    A reader must not change a file of another program, or make the program wait: open SQLite with
    ``open_read_only``.
    """

    @abstractmethod
    def holds(self, path: Path, begin: bytes) -> bool:
        """Return whether this file or folder contains histories of the format. ``begin`` has the
        first bytes of a file, and is empty for a folder. ``holds`` is called for every file and
        folder, so check the name and the first bytes first.
        """

    @abstractmethod
    def histories(self, path: Path) -> Iterator[Contained]:
        """Yield the histories in this file or folder, in a stable order."""


def refuses_none(record: Any) -> bool:
    """Return False: the records of most formats look like those of no other program."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of histories. All other code uses the format only through this object.

    A new format of foldlog is a file or a folder next to this file, with its object in ``FORMAT``
    and one line in ``registry.py``. A format needs a sample, examples in ``tests/golden/reads``,
    tests of all other cases, and a section of ``docs/IMPORTING.md``.

    ``name``          the name in ``--format`` and in ``origin.format``. The name never changes,
                      because it is stored. A name has no white space, does not begin with ``-``,
                      and is not ``auto``.

    These attributes recognize the format:

    ``matches``       whether a JSON value is a record of this format and of no other format. Check
                      several fields: see ``detection.py``.
    ``refuses``       whether a JSON value comes from another program with similar records. A
                      history with such a record is imported only if the user names its format.
    ``looks_like``    the name of another format that some records of this format match too. Such
                      records count as records of this format, unless the history has an ``own``
                      record of the other format.
    ``own``           whether a record can only be of this format, and not of a format that
                      names this format in ``looks_like``.
    ``files``         the reader of the format's files, if these files are not a sequence of JSON
                      values.
    ``kept_in``       where the format's program stores histories, for ``foldlog import --from``:
                      folders and files, with ``~`` and variables of the environment as in a shell.

    These attributes count records without making events:

    ``skeleton``      the fields of a record for lists and figures. A redaction does not delete the
                      skeleton of a record. If ``skeleton`` is None, the events of ``decoder`` are
                      counted.
    ``conversation``  the name of the conversation, if the first records have it, or None.
    ``where``         the folder (``cwd``), the ``branch`` and the ``model`` in a record. If the
                      format has a skeleton, the skeleton reads these fields.
    ``begun_by``      the attributes that say which conversation (``parent``) and which call
                      (``parent_call``) began the history in a file, if its path or a file beside
                      it says so.
    ``marks_errors``  whether the format's program marks failed calls in its records.

    These attributes read records:

    ``decoder``       returns a decoder for one history. A record becomes at least one event. A
                      record that no model reads becomes an ``Annotation``. Compactions become
                      condensations. Branches become retractions. The store keeps the record itself.
    ``accepts``       whether a JSON value can be a record when the user names this format. The
                      decoder refuses other values.
    ``expected``      a description of a record, for the error about a refused value.
    ``own_key``       what stays the same of a record when the program writes it again in another
                      file, or None. The records that foldlog handed over are found by it.
    ``source_id``     the id of a record in its source, or None. The id becomes the ``origin.id`` of
                      the first event of the record.
    ``time``          the time of a record, in the form of ``read_time``. ``time`` is None if no
                      record of the format has a time. Without ``time``, imported events have no
                      time, and live events have the time of their recording.
    ``beside``        reads the other fields of the JSON object that holds the records. ``beside``
                      is called with the object and its records, and returns further records, and
                      the usage of each call (with the id of its ``reply``) or of the whole run.
    ``recorded_usage``    how events of the format record the calls of models.
    ``says_again``    whether a compaction repeats the events that stay in the prompt. The decoder
                      adds the copies before the condensation.
    ``repeats``       whether each record contains all earlier messages, like a request to a model.
                      After a redaction, no later record of a source in this format is imported.
    ``note``          a sentence about every history of this format. An import prints the sentence.

    These attributes are about writing records. An imported record is exported unchanged:

    ``encoder``       the writer of events that were not imported, or whose record was redacted.
                      Adapters use this writer too. For a history that was not imported from this
                      format, an export uses ``encoder`` only if ``lacks`` is set.
    ``lacks``         what the format cannot hold: a set of nouns from ``export_notes``, such as
                      "error mark". If ``lacks`` is None, only a history that was imported from this
                      format can be exported in this format. Events that were appended after the
                      import are left out, and a note counts them.
    ``dialect``       the dialect of ``View.to_messages`` whose messages are records of this format.
    ``document``      returns the content of a file with the given records, as a text or a JSON
                      value. If ``document`` is None, the file has a line for each record.
    ``parts``         the keys that lead to a record's list of parts. The list has one part per
                      event. After a redaction, the remaining parts become one record.
    """

    name: str
    matches: Callable[[Any], bool]
    accepts: Callable[[Any], bool]
    decoder: Callable[[Options], RecordDecoder]
    encoder: Callable[[], RecordEncoder] | None = None
    lacks: frozenset[str] | None = None
    skeleton: type[Skeleton] | None = None
    conversation: Callable[[Iterable[Any]], str | None] = lambda records: None
    dialect: Dialect | None = None
    expected: str = "a record"
    beside: Callable[[JsonMap, Sequence[Any]], Beside] = lambda fields, records: ((), ())
    files: FileReader | None = None
    looks_like: str = ""
    own: Callable[[Any], bool] = lambda record: False
    refuses: Callable[[Any], bool] = refuses_none
    note: str = ""
    document: Callable[[Iterable[Any]], Any] | None = None
    own_key: Callable[[Any], Any] = lambda record: None
    source_id: Callable[[Any], Any] = lambda record: None
    parts: Sequence[str] = ()
    kept_in: tuple[str, ...] = ()
    time: Callable[[Any], SourceTime] | None = read_timestamp
    recorded_usage: RecordedUsage = IN_REPLIES
    where: Callable[[Any], JsonMap] = lambda record: {}
    begun_by: Callable[[Path], Mapping[str, str]] = lambda path: {}
    marks_errors: bool = True
    says_again: bool = False
    repeats: bool = False

    def reader(self, options: Options) -> RecordDecoder:
        """Return a decoder for one history."""
        return self.decoder(replace(options, format=self))

    def writer(self) -> RecordEncoder:
        """Return an encoder for one history."""
        encoder = NoEncoder() if self.encoder is None else self.encoder()
        encoder.format = self
        return encoder


class Recognize(NamedTuple):
    """Functions that recognize the histories of one format, or of any format.

    ``format_of``    returns the format of a history by its first records, or None.
    ``reader_of``    returns the format whose ``files`` reads a file or folder, or None. The
                     arguments are the path and the first bytes of the file.
    ``nothing``      returns a message for a file without a history, from the first records of the
                     file.
    """

    format_of: Callable[[Iterable[Any]], Format | None]
    reader_of: Callable[[Path, bytes], Format | None]
    nothing: Callable[[Iterable[Any]], str]
