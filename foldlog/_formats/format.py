"""The interface of a format: it recognizes, reads and writes records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from foldlog._formats.record import RecordReader, SourceTime, read_time, within
from foldlog._formats.usage import IN_REPLIES, ToldUsage
from foldlog.eventstore import Event, EventStoreError
from foldlog.projections.messages.turns import Dialect

if TYPE_CHECKING:
    from foldlog._formats.skeleton import Skeleton

Beside = tuple[Sequence[Any], Sequence[dict[str, Any]]]
LOOK_AT = 50
"""The number of first records in which the format and the name of a history are searched."""


def first_named(name_in: Callable[[Any], str | None]) -> Callable[[Iterable[Any]], str | None]:
    """Return what ``Format.conversation`` asks for: the first name that ``name_in`` finds in the
    first records, if that is not an empty one.
    """

    def first(records: Iterable[Any]) -> str | None:
        names = map(name_in, islice(records, LOOK_AT))
        return next((name for name in names if name is not None), None) or None

    return first


class UnusableFormat(EventStoreError, TypeError):
    """A format of a program or of an installed package cannot be used: correct it, or uninstall its
    package.
    """


class RecordDecoder(ABC):
    """Turns the records of one history into events, one record after the other.

    One decoder reads one history from its first record on, so it may keep what later records need
    of earlier ones, such as the ids of calls. It never looks ahead: the events of a record depend
    on it and on those before. The same records must become the same events each time: a source that
    has grown is decoded again, and its new records are stored. ``next_id`` is the id of the next
    event.
    """

    def __init__(self, options: Options) -> None:
        self.next_id = 0

    @abstractmethod
    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record, at least one.

        Number them from ``next_id`` on, without a gap between records, and set ``next_id``. Give
        the event that stands for the record ``Origin(format=…, id=…)``: the name of the format, the
        id of the record. The record itself is stored apart, so an event needs no more of it than
        people and models read. Raises ``NotAnEvent`` for a value that is not a record of the
        format; it becomes a finding, and the state must be as before.
        """

    def skip_to(self, next_id: int) -> None:
        """Go on with the event ``next_id``: other events stand in between, or some of a record that
        was redacted.
        """
        self.next_id = next_id


class RecordEncoder(ABC):
    """Writes records for the events of one history that have none: those that were not imported.

    Imported events have their records, which are written unchanged, and ``follow`` is told of them.
    An event without its record, because one of its parts was redacted, is written as one that was
    not imported, with the source's id.
    """

    rules: Any
    """The format, which ``Format.writer`` adds."""
    last: Any = None
    """The id of the last record that has one."""

    @abstractmethod
    def records(self, event: Event) -> Sequence[Any] | None:
        """Return the records that are complete with ``event``: none while later events belong to
        the same record.

        None says that the format has no record for what the event tells: an export counts these
        events in a note.
        """

    def head(self, event: Event) -> Sequence[Any]:
        """Return what a history begins with where no record was imported. ``event`` is that of the
        first record.
        """
        return ()

    def follow(self, events: Sequence[Event], record: Any) -> None:
        """Remember of a record what later records need: by default its id. ``events`` were made of
        it. None stands for no record: of a step to another branch, and of an event that was taken
        back.
        """
        if record is None:
            self.last = self.last
        else:
            self.last = self.rules.source_id(record) or self.last

    def end(self) -> Sequence[Any]:
        """Return the record that is complete only when no further event of it comes, if there is
        one.

        It is called before ``follow``, and after the last event.
        """
        return ()


class NoEncoder(RecordEncoder):
    """Of a format that foldlog does not write."""

    def records(self, event: Event) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Options:
    """The caller's knowledge about the records of one history. A format ignores options that it
    does not use.

    ``as_history``  the records are the agent's history, not a stream that holds more (OpenHands V0)
    ``prefix``      the text before the names of conversations: a link to another conversation has
                    it too
    ``findings``    the list to which a decoder adds problems of records of which it made events all
                    the same
    ``format``      the format of the records, which ``Format.reader`` adds
    """

    as_history: bool = False
    prefix: str = ""
    findings: list[str] = field(default_factory=list)
    format: Format | None = None


class Contained(NamedTuple):
    """One history in a file or folder: the name that it has there, or None, its records, and other
    files that are read for it. ``title`` is what its program calls it now, outside of its records.
    """

    name: str | None
    records: RecordReader
    others: Sequence[Path] = ()
    title: str = ""


class FileReader(ABC):
    """Reads files that hold no JSON values in a row: a database, Markdown, an archive, a folder
    with parts of records.

    Open a file of another program so that it is neither changed nor locked, SQLite read-only and
    immutable.
    """

    @abstractmethod
    def holds(self, path: Path, begin: bytes) -> bool:
        """Return whether this file, of which ``begin`` are the first bytes, or this folder
        (``b""``) holds histories of the format. It is asked for every file and folder, so it looks
        at the name and the bytes first.
        """

    @abstractmethod
    def histories(self, path: Path) -> Iterator[Contained]:
        """Yield the histories there, in a stable order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of histories. Everything that the rest of the code knows about a format is in this
    object.

    A new format of ours is a file or a folder beside this one with its object in ``FORMAT``, and
    one line in ``registry.py``. It says

    how it is recognized   ``matches``: what only its records have, by more than one field; see
                           ``detection.py``. Files
                           that hold no JSON values in a row: ``files``
    how it is counted      ``skeleton``: what lists and figures need of a record, and what stays of
                           a redacted one
    how it is read         ``decoder``: a record becomes at least one event, an ``Annotation`` if no
                           model reads it.
                           Compactions are condensations, branches are retractions. The record is
                           kept without its help
    how it is written      an import is exported as it came; ``encoder`` and ``lacks``: records for
                           other events too

    Tests, samples and the docs of a format are its own: ``tests/foldlog/formats/test_NAME.py`` and
    a section of ``docs/IMPORTING.md``.

    ``name``          the name in ``--format`` and in ``origin.format``; it never changes, since it
                      is stored. It has no
                      white space, does not begin with ``-``, and is not ``auto``
    ``matches``       whether a JSON value has what only records of this format have
    ``refuses``       whether a JSON value is a record of another program that could pass for one of
                      this format: a
                      history with one is of no format unless the user names it
    ``looks_like``    the name of another format whose records may be of this one: they are where
                      another record is,
                      and none is ``own`` to the other format
    ``own``           whether a record that matches is of this format even where another one
                      ``looks_like`` it
    ``accepts``       whether a JSON value can pass for a record where the user names this format:
                      ``decoder`` refuses
                      others, and a stored record stays in the place of one
    ``expected``      a record in words, for the message about a value that is refused
    ``skeleton``      counts records without making events; None: from the events that ``decoder``
                      makes
    ``decoder``       the decoder of a history, which begins at its first record and never looks
                      ahead
    ``encoder``       the writer of events that were not imported, or whose record was redacted: for
                      what an adapter
                      sends, and for exports of any history where ``lacks`` says what these leave
                      out
    ``lacks``         what the format has no place for, by the nouns of ``export_notes``; None: no
                      history is exported
                      in it that was not imported from it, and what was appended behind an import is
                      a note
    ``conversation``  the name that the first records give their conversation, or None
    ``dialect``       the dialect of ``View.to_messages`` whose messages are records of the format,
                      if there is one
    ``beside``        what the object that holds a history says beside its records, the first 50 and
                      the last of which
                      are given: the records that come after these, and the usage of calls of
                      models, each with its ``reply``, the id of that reply, or else accumulated
                      over the whole run
    ``files``         the reader of its files, where these hold no JSON values in a row
    ``note``          what to know about every history of this format, said when one is imported
    ``document``      the content of a file of the format with these records, where that is not a
                      line for each: a text,
                      or a JSON value
    ``source_id``     the id that the source gave a record, or None: ``origin.id`` of the first
                      event made of it
    ``parts``         the keys under which a record of several events has a list with a part for
                      each: what stays of a
                      redacted one is written as one record
    ``kept_in``       where its program keeps its histories: folders and files, with ``~`` and
                      variables of the
                      environment as a shell has them, for ``foldlog import --from``
    ``time``          when a record happened, as ``read_time`` returns it. None says that no record
                      tells that: then an
                      event of an imported history has no time; in one that is recorded while it
                      happens, the time of its recording stands for it
    ``told_usage``    how its events tell the calls of models
    ``where``         what a record says of where it was written: ``cwd``, ``branch``, ``model``. A
                      skeleton counts it
    ``marks_errors``  whether records of its program say that a call failed
    ``says_again``    whether the events before the condensation of a record are copies of what a
                      model is sent with it
    ``repeats``       whether each record has all that was said before it, as a request to a model
                      has: once one is
                      redacted, no later one is imported
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
    beside: Callable[[Mapping[str, Any], Sequence[Any]], Beside] = lambda fields, records: ((), ())
    files: FileReader | None = None
    looks_like: str = ""
    own: Callable[[Any], bool] = lambda record: False
    refuses: Callable[[Any], bool] = lambda record: False
    note: str = ""
    document: Callable[[Iterable[Any]], Any] | None = None
    source_id: Callable[[Any], Any] = lambda record: None
    parts: Sequence[str] = ()
    kept_in: tuple[str, ...] = ()
    time: Callable[[Any], SourceTime] | None = lambda record: read_time(within(record, "timestamp"))
    told_usage: ToldUsage = IN_REPLIES
    where: Callable[[Any], Mapping[str, Any]] = lambda record: {}
    marks_errors: bool = True
    says_again: bool = False
    repeats: bool = False

    def reader(self, options: Options) -> RecordDecoder:
        """Return the decoder of a history."""
        return self.decoder(replace(options, format=self))

    def writer(self) -> RecordEncoder:
        """Return the encoder of a history."""
        encoder = NoEncoder() if self.encoder is None else self.encoder()
        encoder.rules = self
        return encoder


class Recognize(NamedTuple):
    """Recognizes histories: those of one format, or of any.

    ``format_of``    returns the format of a history by its first records, or None
    ``reader_of``    returns the format whose ``files`` reads a file, by its first bytes, or a
                     folder
    ``nothing``      says of a file with these first records that it holds no history, and what they
                     are
    """

    format_of: Callable[[Iterable[Any]], Format | None]
    reader_of: Callable[[Path, bytes], Format | None]
    nothing: Callable[[Iterable[Any]], str]
