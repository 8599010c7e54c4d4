"""The kinds of events: frozen values with a tag and without behaviour.

A conversation is a sequence of events. A new tool needs no new kind, because an ``Action`` contains
the tool's name. An event of an unknown kind is stored and read unchanged, as an ``UnknownEvent``.

    SystemMessage        the system prompt
    Message              a text of the user, the agent or the environment
    Action               a tool call
    Observation          the result of a tool call
    Annotation           bookkeeping, never shown to a model
    DocumentChanges      new values of documents beside the conversation, never shown to a model
    CondensationRequest  a request to condense, which changes a View
    CondensationAction   forgets events and may put a summary in their place, which changes a View
    Retraction           takes events back, which changes a View
    Redaction            the receipt of a redaction: these events lost their content
    Erased, Forked, Detached, KeyChanged, RedactionCopied, StoreRestored   entries of the ledger,
                         for followers only
    CondensationSummary  the summary of condensation c in a View, with the synthetic id -(c+2)
"""

# No annotations as texts: msgspec would evaluate the texts again for each kind, which takes a
# thirtieth of the start of a process.
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import countOf
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, get_args

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog.eventstore.errors import InvalidEvent

ATTRIBUTES = "attributes"
"""The name of the document that holds a conversation's attributes, such as its title and tags."""
_NAMES_SOURCE_IDS = "openhands-v0"
VIEWS = "views"
"""The name of the projection of Views. The records of Views contain ids and no texts, so a
redaction does not delete these records.
"""

NOT_RECORDED = -1
"""The id of an event that no conversation contains yet."""

Source = Literal["user", "agent", "environment"]

Content = str | tuple[dict[str, Any], ...]
"""A text, or a list of parts in OpenAI's shape: ``{"type": "text", "text": …}`` and ``{"type":
"image_url", "image_url": …}``.
"""


def names_source_ids(event: "Event") -> bool:
    """Return whether the ids in a condensation or a request are ids of the imported source, and not
    ids of the conversation. This is true only for the format OpenHands V0, because foldlog cannot
    translate its ids (``projections/v0_dialect.py``).
    """
    return event.origin is not None and event.origin.format == _NAMES_SOURCE_IDS


def is_structural(event: "Event") -> bool:
    """Return whether the event can change the View at any place, and not only at its end."""
    if isinstance(event, UnknownEvent):
        return event.is_structural
    return event.structural


def summary_id(condensation_id: int) -> int:
    """Return the synthetic id of the summary of condensation ``condensation_id``. The synthetic id
    is ``-(condensation_id + 2)``, so it is never -1.
    """
    return -(condensation_id + 2)


def summary_of(synthetic_id: int) -> int:
    """Return the id of the condensation that made the summary ``synthetic_id``. A synthetic id is
    below -1.
    """
    return -synthetic_id - 2


class Origin(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """The source of an imported event.

    ``format``     the name of the format
    ``id``         the event's id in the source, with its JSON type, or None
    ``time``       a time of the source without a time zone, as text; do not read it as UTC
    ``rest``       how many events of its source record come before it; None for the first event
    """

    format: str
    id: Any = None
    time: str | None = None
    rest: Any = None


class Redacted(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """The mark of an event whose content ``History.redact`` erased. The event's other fields stay
    unchanged.

    ``at``      the time of the redaction, in UTC
    ``by``      who redacted the event
    ``reason``  why the event was redacted
    ``hash``    the commitment to the former content, in hexadecimal: the SHA-256 of 16 random bytes
                and the stored body; the random bytes were erased too
    ``bytes``   the former size of the event: its body and its attachments, without its trace
                context
    """

    at: datetime
    by: str
    reason: str
    hash: str
    bytes: int


# Events hold JSON, so events never form reference cycles, and ``gc=False`` excludes events from the
# search for cycles. The search would take two thirds of the time of reading 10,000 events
# (``benchmarks/reading.py``).
class _Common(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    gc=False,
):
    """The fields that all events have."""

    structural: ClassVar[bool] = False

    id: int = NOT_RECORDED
    timestamp: datetime | None = None
    cause: int | None = None
    origin: Origin | None = None
    meta: JsonObject = {}
    stays_with_next: bool = False
    extra: JsonObject = {}
    redacted: Redacted | None = None


class SystemMessage(_Common, frozen=True, kw_only=True, tag="system"):
    """The system prompt.

    ``content``    the prompt, a text or parts
    ``tools``      the definitions of the model's tools, in OpenAI's shape if possible
    """

    content: Content
    source: Source = "agent"
    shown: bool = True
    if TYPE_CHECKING:
        tools: Sequence[Any] = ()
    else:
        tools: tuple[Any, ...] = ()  # readers get a tuple, but callers may pass a list


class Message(_Common, frozen=True, kw_only=True, tag="message"):
    """A text of the user, the agent or the environment.

    ``content``    a text, or parts: texts and images in OpenAI's shape
    ``source``     "user", "agent" or "environment"; in a chat, the agent's role is "assistant"
    ``thinking``   the model's thinking blocks that came before the text
    """

    content: Content
    source: Source
    shown: bool = True
    thinking: tuple[JsonObject, ...] = ()


class Action(_Common, frozen=True, kw_only=True, tag="action"):
    """A tool call that the model made.

    ``tool``         the name of the tool
    ``arguments``    a map, or the model's exact text if it is not a JSON object
    ``call_id``      the id that the call and its observation share; without it, the observation's
                     ``cause`` is the id of the action
    ``response_id``  the id that all calls of one model response share
    ``thought``      the text that the model wrote beside the call
    ``thinking``     the model's thinking blocks; an action with thinking blocks starts a tool loop
    """

    tool: str
    arguments: JsonObject | str | None = None
    call_id: str | None = None
    response_id: str | None = None
    thought: Content = ""
    thinking: tuple[JsonObject, ...] = ()
    source: Source = "agent"
    shown: bool = True


class Observation(_Common, frozen=True, kw_only=True, tag="observation"):
    """The result of an action. ``cause`` is the id of the action.

    ``content``    the result: a text, or parts
    ``tool``       the name of the tool
    ``call_id``    the ``call_id`` of the action
    ``is_error``   whether the call failed
    ``extras``     parts of the result that are never shown to a model
    """

    content: Content
    tool: str = ""
    call_id: str | None = None
    is_error: bool = False
    extras: JsonObject = {}
    source: Source = "environment"
    shown: bool = True


class Annotation(_Common, frozen=True, kw_only=True, tag="annotation"):
    """Bookkeeping, such as a state change, a metric, or a condenser's report that it condensed
    nothing. A View shows an annotation only if its ``shown`` is true.

    ``name``       the subject of the annotation
    ``data``       any JSON
    """

    name: str
    data: Any = None
    source: Source = "environment"
    shown: bool = False


class DocumentChanges(_Common, frozen=True, kw_only=True, tag="document_changes"):
    """New values of documents beside the conversation. ``foldlog.eventstore.documents`` makes and
    reads ``DocumentChanges``.

    ``changed`` maps each changed document to its change: ``{"value": …}``, ``{"base": id,
    "difference": …}`` or ``{"deleted": true}``. A difference changes an earlier value, and ``base``
    is the id of the event with that value. ``others`` maps each unchanged document to the id of the
    event with its newest value. Raises ``InvalidEvent`` if ``changed`` or ``others`` has a wrong
    form.
    """

    changed: dict[str, JsonObject]
    others: dict[str, int] = {}
    source: Source = "environment"
    shown: bool = False

    def __post_init__(self) -> None:
        if type(self.changed) is not dict or type(self.others) is not dict or not self.changed:
            raise InvalidEvent(
                "changed must be a dict with at least one document, and others must be a dict from"
                " documents to event ids"
            )
        for name, change in self.changed.items():
            if (
                type(change) is not dict
                or set(change) not in _CHANGES
                or ("base" in change and not _is_id(change["base"]))
            ):
                raise InvalidEvent(
                    f"the change of document {name!r} must be a value, a difference to an earlier"
                    " event, or a deletion"
                )
        for name, event_id in self.others.items():
            if name in self.changed or not _is_id(event_id):
                raise InvalidEvent(
                    f"document {name!r} is named twice, or has the event id {short(event_id)}; name"
                    " each document once, with the id of an event"
                )

    def newest(self) -> dict[str, int]:
        """Return the id of the event with the newest value of each existing document."""
        changed = {
            name: self.id for name, change in self.changed.items() if "deleted" not in change
        }
        return {**self.others, **changed}


_CHANGES = ({"value"}, {"base", "difference"}, {"deleted"})


def _is_id(value: object) -> bool:
    return type(value) is int and value >= 0


class CondensationRequest(_Common, frozen=True, kw_only=True, tag="condensation_request"):
    """A request to condense. The View's ``unhandled_condensation_request`` is true until the next
    condensation.

    ``reason``     why the writer asks for a condensation
    """

    structural: ClassVar[bool] = True

    reason: str = ""
    source: Source = "agent"
    shown: bool = False


_TUPLE_MAX = 10_000
"""A range of at most ``_TUPLE_MAX`` ids becomes a tuple. A longer range stays a ``range``, which
needs less memory.
"""


class EventIds(tuple[int, ...]):
    """A tuple of ids that is also equal to a list of the same ids, so callers may compare it with a
    list.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)


class Forgotten(NamedTuple):
    """The ids that a condensation forgets. ``intervals`` are disjoint inclusive intervals of event
    ids in ascending order. ``summaries`` are the synthetic ids (below -1) of forgotten summaries in
    descending order.
    """

    intervals: tuple[tuple[int, int], ...]
    summaries: tuple[int, ...]


_NUMBERS = ("forgotten_events_start_id", "forgotten_events_end_id", "summary_offset")
_NUMBER_TYPES = frozenset((int, type(None)))


def _are_whole(ids: tuple[object, ...]) -> bool:
    return countOf(map(type, ids), int) == len(ids)


class CondensationAction(_Common, frozen=True, kw_only=True, tag="condensation"):
    """Forget events in the View, and optionally show a summary in their place. The log keeps the
    forgotten events.

    Pass either ``forgotten_event_ids`` in any order, or the inclusive bounds
    ``forgotten_events_start_id`` and ``forgotten_events_end_id``. An id below -1 names a summary.
    The store keeps the condensation in the form that the writer passed. Readers always get the ids
    as ``forgotten_event_ids``, even if the writer passed bounds. ``forgotten_event_ids`` is a
    tuple, or a ``range`` for bounds with more than 10,000 ids. Pass ``summary`` together with
    ``summary_offset``, the index at which the View inserts the summary after it has removed the
    forgotten events. ``metadata`` describes the condensation: its reason, model, tokens, cost and
    latency.

    A condensation that forgets nothing and has no summary must be *declined*:
    ``metadata={"outcome": "declined", "reason": …}``.

    Raises ``InvalidEvent`` if the ids and the bounds are both passed, or both missing. An imported
    condensation (``origin`` is set) may be empty, because some histories contain empty
    condensations. A condensation in the format ``openhands-v0`` forgets ids of the source, and not
    ids of the conversation.
    """

    structural: ClassVar[bool] = True

    if TYPE_CHECKING:
        forgotten_event_ids: Sequence[int] | None = None
    else:
        # Readers get a tuple, but callers may pass a list.
        forgotten_event_ids: tuple[int, ...] | None = None
    forgotten_events_start_id: int | None = None
    forgotten_events_end_id: int | None = None
    summary: str | None = None
    summary_offset: int | None = None
    metadata: JsonObject = {}
    source: Source = "agent"
    shown: bool = False

    @property
    def given_ids(self) -> tuple[int, ...] | None:
        """The ids that the writer passed, or None if it passed bounds."""
        ids: tuple[int, ...] | None = _GIVEN_IDS.__get__(self)
        return ids

    def __post_init__(self) -> None:
        ids: Any = _GIVEN_IDS.__get__(self)
        if ids is not None and isinstance(ids, Iterable):
            ids = EventIds(ids)
            # callers may pass a list, but a frozen value needs a tuple
            _GIVEN_IDS.__set__(self, ids)
        start = self.forgotten_events_start_id
        end = self.forgotten_events_end_id
        self._check_types(ids, start, end)
        if (start is None) != (end is None):
            raise InvalidEvent(
                f"a condensation's range has only one end (start {start}, end {end}); "
                "give both forgotten_events_start_id and forgotten_events_end_id"
            )
        if (ids is None) == (start is None):
            raise InvalidEvent(
                "a condensation needs either forgotten_event_ids, or both forgotten_events_start_id"
                f" and forgotten_events_end_id; {'neither was' if ids is None else 'both were'}"
                " given"
            )
        if (self.summary is None) != (self.summary_offset is None):
            raise InvalidEvent(
                "a condensation needs both summary and summary_offset, or neither of them"
            )
        if self.origin is None:
            self._check_it_does_something(ids, start, end)

    def _check_types(self, ids: object, start: object, end: object) -> None:
        """Check the types of the fields that the constructor uses. The codec checks all other
        fields.
        """
        if ids is not None and not (isinstance(ids, tuple) and _are_whole(ids)):
            raise InvalidEvent(
                f"a condensation's forgotten_event_ids must be whole numbers, not {short(ids)}"
            )
        numbers = (start, end, self.summary_offset)
        if not _NUMBER_TYPES.issuperset(map(type, numbers)):
            for name, number in zip(_NUMBERS, numbers, strict=True):
                if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
                    raise InvalidEvent(
                        f"a condensation's {name} must be a whole number, not {short(number)}"
                    )
        if self.summary is not None and not isinstance(self.summary, str):
            raise InvalidEvent(
                f"a condensation's summary must be a text, not {short(self.summary)}"
            )
        if not isinstance(self.metadata, dict):
            raise InvalidEvent(
                f"a condensation's metadata must be a map, not {short(self.metadata)}"
            )

    def _check_it_does_something(
        self, ids: tuple[int, ...] | None, start: int | None, end: int | None
    ) -> None:
        """Raise ``InvalidEvent`` if the range runs backwards, or if the condensation forgets
        nothing, has no summary, and does not say why it was declined.
        """
        if start is not None and end is not None and start > end:
            raise InvalidEvent(
                f"a condensation's range runs backwards, from {start} to {end}; give the smaller"
                " id first"
            )
        if ids or start is not None or self.summary is not None:
            return
        if self.metadata.get("outcome") != "declined":
            raise InvalidEvent(
                "a condensation that forgets nothing and has no summary must be declined: "
                'metadata={"outcome": "declined", "reason": "..."}'
            )
        if not self.metadata.get("reason"):
            raise InvalidEvent(
                'a declined condensation must have a reason: metadata={"outcome": "declined",'
                ' "reason": "..."}'
            )

    @property
    def forgotten(self) -> Forgotten:
        """The forgotten ids, as intervals of event ids and as ids of summaries. The id -1 is left
        out, because no recorded event has it. Cost: one pass over the ids in the event.
        """
        start = self.forgotten_events_start_id
        end = self.forgotten_events_end_id
        if start is not None and end is not None:
            return Forgotten(((start, end),) if start <= end else (), ())
        ids = set(self.given_ids or ())
        return Forgotten(
            tuple(_runs(sorted(i for i in ids if i >= 0))),
            tuple(sorted((i for i in ids if i < NOT_RECORDED), reverse=True)),
        )


class Retraction(_Common, frozen=True, kw_only=True, tag="retraction"):
    """Take back the events from ``version`` on, including condensations. The View then shows the
    same events as at ``version``.

    The log keeps the retracted events. To reverse a retraction, append a second retraction whose
    ``version`` is the id of the first retraction. A retraction does not fulfil a condensation
    request, so a pending request stays pending.

    ``version``    the retraction restores the View of this version
    ``reason``     why the events are taken back

    Raises ``InvalidEvent`` if the version is not a whole number from 0.
    """

    structural: ClassVar[bool] = True

    version: int
    reason: str = ""
    source: Source = "user"
    shown: bool = False

    def __post_init__(self) -> None:
        if type(self.version) is not int or self.version < 0:
            raise InvalidEvent(
                f"a retraction's version must be a whole number from 0, not {short(self.version)}"
            )


class Redaction(_Common, frozen=True, kw_only=True, tag="redaction"):
    """The receipt of a redaction, with the ids of the redacted events. Only a redaction appends a
    receipt, and followers read the receipt.

    ``event_ids``  the ids of the redacted events
    ``hashes``     the commitments to the former contents, in the order of ``event_ids``
    ``by``         who redacted the events
    ``reason``     why the events were redacted
    ``bodies``     SHA-256 of the redacted bodies, in the order of ``event_ids``; empty in receipts
                   of earlier versions of foldlog
    """

    event_ids: tuple[int, ...]
    hashes: tuple[str, ...]
    by: str
    reason: str
    bodies: tuple[str, ...] = ()
    source: Source = "user"
    shown: bool = False


class Entry(_Common, frozen=True, kw_only=True):
    """An entry of the ledger: a change of a stored conversation, such as its erasure. Only the
    store makes entries, and only followers read entries. The id of an entry is the version that the
    conversation had when the store made the entry.
    """

    source: Source = "environment"
    shown: bool = False


class Erased(Entry, frozen=True, kw_only=True, tag="erased"):
    """The conversation was erased, with all its earlier events and entries. Later events with the
    conversation's id belong to a new conversation that uses the id again.

    ``reason``   why the conversation was erased
    """

    reason: str


class Forked(Entry, frozen=True, kw_only=True, tag="forked"):
    """The conversation began as a fork.

    ``parent``   the conversation that holds the last shared event
    ``version``  the number of shared events
    """

    parent: str
    version: int


class Detached(Entry, frozen=True, kw_only=True, tag="detached"):
    """The conversation is no longer a fork. Before a ``Detached`` entry, followers read copies of
    the shared events, with the id of the fork. The fork gets one ``Detached`` entry for each
    conversation with which it shared events.

    ``parent``   the conversation with which the fork shared events
    ``version``  the version up to which the events were shared
    """

    parent: str
    version: int


class KeyChanged(Entry, frozen=True, kw_only=True, tag="key_changed"):
    """From a ``KeyChanged`` entry on, another key encrypts the conversation. Earlier events may
    still be stored in their former form.

    ``key_id``   the name of the new key; None if the conversation is no longer encrypted
    """

    key_id: str | None = None


class RedactionCopied(Entry, frozen=True, kw_only=True, tag="redaction_copied"):
    """Events were copied without their content, because the source store had redacted them. This
    entry serves as the receipt until the receipt itself is copied from the source store. If a fork
    shares a redacted event, the receipt may be in the parent conversation.

    ``event_ids``  the ids of the copied events
    ``bodies``     SHA-256 of their bodies, in the order of ``event_ids``; empty in entries of
                   earlier versions of foldlog
    """

    event_ids: tuple[int, ...]
    bodies: tuple[str, ...] = ()


class StoreRestored(Entry, frozen=True, kw_only=True, tag="store_restored"):
    """The store was restored from a backup, or the store is a copy. The events between position
    ``after`` and this entry are lost. A follower has to discard all results that it computed from
    the lost events. The entry belongs to no conversation.

    ``after``   the last position that the store still has
    """

    after: int


def _forgotten_event_ids(action: CondensationAction) -> Sequence[int] | None:
    """Return the forgotten ids, even if the writer passed bounds."""
    start = action.forgotten_events_start_id
    end = action.forgotten_events_end_id
    if start is None or end is None:
        return action.given_ids
    ids = range(start, end + 1)
    return EventIds(ids) if end - start < _TUPLE_MAX else ids


_GIVEN_IDS: Any = CondensationAction.__dict__["forgotten_event_ids"]
"""The descriptor of the struct field ``forgotten_event_ids``. msgspec encodes, compares and copies
the value of this field. In the class, a property with the same name replaces the descriptor.
"""
CondensationAction.forgotten_event_ids = property(_forgotten_event_ids)  # type: ignore[assignment]


class CondensationSummary(_Common, frozen=True, kw_only=True, tag="condensation_summary"):
    """A summary that stands in a View in place of forgotten events. The View makes the summary of
    condensation ``c``, with the id ``summary_id(c)``. Only an imported history stores a summary as
    an event.

    ``content``     the summary
    ``summary_of``  the id of the condensation
    """

    content: str
    summary_of: int | None = None
    source: Source = "environment"
    shown: bool = True


class UnknownEvent(_Common, frozen=True, kw_only=True, tag=False):
    """An event whose kind or schema version is unknown to this version of foldlog. The store keeps
    the event unchanged.

    ``body`` is the stored JSON of the event. The writer of the event chose ``is_structural`` and
    ``shown``. Folding a View over an unknown structural event raises ``UnknownEventType``.

    ``stored_kind``    the kind under which the event was stored
    ``stored_schema``  the schema version of the stored event
    """

    stored_kind: str
    stored_schema: int
    body: bytes
    source: str = "environment"
    shown: bool = False
    is_structural: bool = False


KnownEvent = (
    SystemMessage
    | Message
    | Action
    | Observation
    | Annotation
    | DocumentChanges
    | CondensationRequest
    | CondensationAction
    | Retraction
    | Redaction
    | Erased
    | Forked
    | Detached
    | KeyChanged
    | RedactionCopied
    | StoreRestored
    | CondensationSummary
)
"""The kinds that this version of foldlog knows."""

Event = KnownEvent | UnknownEvent

MAY_BE_STRUCTURAL: Final = frozenset(
    kind for kind in get_args(Event) if kind.structural or kind is UnknownEvent
)
"""The types of events that may be structural. An event of another type needs no further check."""

_COMMON_FIELDS = """
    Fields of every event:

    ``id``         the index of the event in the conversation, set by the store; -1 before the
                   append; below -1 for a summary in a View
    ``timestamp``  the time of the event, with a time zone, from year 1 to 9999 in UTC; None if the
                   writer does not know the time
    ``source``     "user", "agent" or "environment": who caused the event
    ``shown``      whether a View shows the event
    ``cause``      the id of the earlier event that this event answers
    ``origin``     where an imported event comes from
    ``meta``       an open map for trace, correlation, writer and tenant, never shown to a model
    ``stays_with_next``  whether this event must stay with the agent's next event, as thinking must
                   stay with the call after it: the two events are forgotten or sent only together,
                   and start a tool loop
    ``extra``      fields that a newer version of foldlog wrote and this version does not know
    ``redacted``   when, why and by whom the event's content was erased, or None if the event has
                   its content; only the store sets this field
    """
for _kind in get_args(Event):
    _kind.__doc__ = f"{(_kind.__doc__ or '').rstrip()}\n{_COMMON_FIELDS}"

CondensationRequestAction = CondensationRequest
AgentCondensationObservation = CondensationSummary
"""The names of these two kinds in OpenHands."""


def _runs(ascending: list[int]) -> Iterable[tuple[int, int]]:
    """Yield each run of consecutive integers as a pair of its first and last integer."""
    if not ascending:
        return
    first = last = ascending[0]
    for i in ascending[1:]:
        if i != last + 1:
            yield first, last
            first = i
        last = i
    yield first, last
