"""The interface of a format: it recognizes, reads and writes records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from foldlog._formats.packing import keep
from foldlog.eventstore import ATTRIBUTES, DocumentChanges, Event, EventStoreError, Redaction, Retraction

if TYPE_CHECKING:
    from foldlog.projections import View

_LEFT_OUT: Final[Mapping[type, str]] = {Retraction: "retraction", Redaction: "redaction receipt"}

LOOK_AT = 50
"""The number of first records in which the format and the name of a history are searched."""


def name_left_out(event: Event) -> str | None:
    """Return the name for people of an event that most formats have no record for; None for another event."""
    if isinstance(event, DocumentChanges):
        return "change of attributes" if event.changed.keys() == {ATTRIBUTES} else "change of documents"
    return _LEFT_OUT.get(type(event))


class UnusableFormat(EventStoreError, TypeError):
    """A format of a program or of an installed package cannot be used: correct it, or uninstall its package."""


class RecordDecoder(Protocol):
    """Turns the records of one history into events, one record after the other.

    One decoder reads one history, so it may keep what later records need of earlier ones, such as the ids of calls. The
    same records must become the same events each time: an import of a source that has grown adds only the new events.
    The decoder of a ``live`` format also has ``skip_to(next_id)``: the next event has this id, because other events
    were appended.
    """

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record, at least one.

        Number them ``Options.first_id``, ``first_id + 1``, and so on, without a gap between records. Give the event
        that stands for the record ``Origin(format=…, id=…)``: the name of the format, the id of the record. The record
        itself is kept beside the events, so an event needs no more of it than people and models read. Raises
        ``NotAnEvent`` for a value that is not a record of the format; it becomes a finding, and the state must be as
        before.
        """


class RecordEncoder(Protocol):
    """Writes records for the events of one history that have none: those that were not imported.

    Imported events have their records, which are written unchanged, and ``follow`` is told of them. An event without
    its record, because one of its parts was redacted, is written as one that was not imported. ``left_out`` counts the
    events that the format has no record for, by a noun in the singular; an export prints it as a note.
    """

    left_out: Counter[str]

    def records(self, event: Event) -> list[Any]:
        """Return the records that are complete with ``event``: none while later events belong to the same record."""

    def follow(self, events: Sequence[Event], record: Any) -> None:
        """Remember of a record what later records need, such as its id. ``events`` were made of it. None stands for a
        step to another branch, which has no record.
        """

    def end(self) -> list[Any]:
        """Return the record that is complete only when no further event of it comes, if there is one.

        It is called before ``follow``, and after the last event.
        """


class SkippingDecoder(RecordDecoder, Protocol):
    """A decoder of a live format."""

    def skip_to(self, next_id: int) -> None:
        """Go on with the event ``next_id``: other events were appended."""


class Past(Protocol):
    """The history before a decoder's first record. It is read only when the decoder asks."""

    def view(self, version: int | None = None) -> View:
        """Return the View at a version, by default at the end. Cost: the size of that View."""

    def records(self, stop: int | None = None) -> Iterator[tuple[Any, Sequence[Event]]]:
        """Yield each record of this format in that history, with the events that were made of it. With ``stop``, only
        events before it. Cost: the events.
        """

    def newest_records(self) -> Iterator[tuple[Any, Sequence[Event]]]:
        """Yield these records, the last one first. Cost: the events that are read."""

    def source_id(self, event_id: int) -> Any:
        """Return the id that the source gave an event of that history, or None."""

    def newest_first(self) -> Iterator[Event]:
        """Yield the events there, the last one first. Cost: the events that are read."""


@dataclass(frozen=True, slots=True)
class Options:
    """The caller's knowledge about the records of one history. A format ignores options that it does not use.

    ``as_history``  the records are the agent's history, not a stream that holds more (OpenHands V0)
    ``leaf``        the id of the record in which the active branch ends (OpenHands V1)
    ``prefix``      the text before the names of conversations: a link to another conversation has it too
    ``findings``    the list to which a decoder adds problems of records of which it made events all the same
    ``first_id``    the id of the first event
    ``past``        the history before the first record; None where there is none
    ``parsed``      whether the records were parsed from JSON
    """

    as_history: bool = False
    leaf: str | None = None
    prefix: str = ""
    findings: list[str] = field(default_factory=list)
    first_id: int = 0
    past: Past | None = None
    parsed: bool = False


def unnamed(records: Iterable[Any]) -> str | None:
    """Return None: records of this format do not name their conversation."""
    return None


def no_id(record: Any) -> Any:
    """Return None: records of this format have no ids."""
    return None


@dataclass(frozen=True, slots=True)
class Lookalike:
    """A format that foldlog cannot import, and whose records can be taken for those of one that it can.

    ``name``     what people call it
    ``matches``  whether a JSON value is a record of it, and surely none of ours
    ``hint``     what to do, as the end of a sentence
    ``format``   the name of the format of ours that these are records of, if there is one: it is theirs, unless the
                 user names another one
    """

    name: str
    matches: Callable[[Any], bool]
    hint: str = ""
    format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of histories. Everything that the rest of the code knows about a format is in this object.

    ``name``          the name in ``--format`` and in ``origin.format``; it never changes, since it is stored. It has no
                      white space, does not begin with ``-``, and is not ``auto``
    ``matches``       whether a JSON value is most likely a record of this format
    ``accepts``       whether a JSON value can pass for a record where the user names this format
    ``decoder``       the decoder of a history; it may look through the records first, any number of times
    ``encoder``       the writer of events that were not imported
    ``conversation``  the name that the first records give their conversation, or None
    ``looks_ahead``   whether ``decoder`` reads the records
    ``lookalikes``    formats whose histories would pass for this one; they are refused by their names
    ``note``          what to know about every history of this format, said when one is imported
    ``live``          whether records can be added to a history one by one: ``decoder`` is given no records then, begins
                      at ``Options.first_id`` and asks ``Options.past``; it has ``skip_to``
    ``not_live``      why it is not live, as the beginning of a sentence
    ``source_id``     the id that the source gave a record, or None: ``origin.id`` of the first event made of it
    ``times``         whether records say when they happened. If they never do, the time of its recording stands for the
                      time of an event: that is right for a history that is recorded while it happens
    ``marks_errors``  whether a record of a result that was not imported can say that the call failed
    """

    name: str
    matches: Callable[[Any], bool]
    accepts: Callable[[Any], bool]
    decoder: Callable[[Iterable[Any], Options], RecordDecoder]
    encoder: Callable[[], RecordEncoder]
    conversation: Callable[[Iterable[Any]], str | None] = unnamed
    looks_ahead: bool = False
    lookalikes: tuple[Lookalike, ...] = ()
    note: str = ""
    live: bool = False
    not_live: str = ""
    source_id: Callable[[Any], Any] = no_id
    times: bool = True
    marks_errors: bool = True


def new_decoder(format: Format, records: Iterable[Any], options: Options) -> PackingDecoder:
    """Return a decoder of one history, of one that goes on where ``options.past`` is given.

    Raises ``UnusableFormat`` where it lacks a method.
    """
    decoder = format.decoder(records, options)
    _check(format, "decoder", decoder, "events", *(("skip_to",) if options.past is not None else ()))
    return PackingDecoder(format, decoder, parsed=options.parsed)


class PackingDecoder:
    """A decoder of a format, which keeps each record beside its events."""

    def __init__(self, format: Format, decoder: RecordDecoder, *, parsed: bool) -> None:
        self._name, self._decoder, self._parsed = format.name, decoder, parsed

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record. Raises ``NotAnEvent``; then nothing has changed."""
        events = self._decoder.events(record)
        keep(record, events, self._name, parsed=self._parsed)
        return events

    def skip_to(self, next_id: int) -> None:
        """Go on with the event ``next_id``: see ``SkippingDecoder``."""
        cast(SkippingDecoder, self._decoder).skip_to(next_id)


def new_encoder(format: Format) -> RecordEncoder:
    """Return an encoder of one history. Raises ``UnusableFormat`` where it lacks a method or ``left_out``."""
    encoder = format.encoder()
    _check(format, "encoder", encoder, "records", "follow", "end", "left_out")
    return encoder


def _check(format: Format, role: str, made: object, *members: str) -> None:
    lacking = [member for member in members if not hasattr(made, member)]
    if lacking:
        raise UnusableFormat(
            f"the {role} of the format {format.name!r}, of the class {type(made).__name__}, has no "
            f"{' and no '.join(lacking)}; see foldlog.formats.Record{role.capitalize()}"
        )


Recognize = Callable[[Iterable[Any]], Format | Lookalike | None]
"""Tells the format of a history by its first records: one of ours, one that foldlog cannot import, or none."""
