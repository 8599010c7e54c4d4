"""The event kinds: frozen, tagged values without behaviour.

A conversation is a sequence of events. Eleven kinds are enough, because a tool is data and not a
class. An event of an unknown kind is kept whole, as an ``UnknownEvent``.

    SystemMessage        the system prompt
    Message              something said, by the user, the agent or the environment
    Action               a tool call
    Observation          the result of a tool call
    Annotation           bookkeeping, never shown to a model
    DocumentChanges      new values of documents beside the conversation, never shown to a model
    CondensationRequest  "please condense"                     structural: changes a View
    CondensationAction   "these are forgotten, this stands for them"   structural: changes a View
    Retraction           "these events are taken back"         structural: changes a View
    Redaction            the receipt of a redaction: these events lost their content
    Erased, Forked, Detached, KeyChanged, RedactionCopied, StoreRestored   for followers only:
                         entries of the ledger
    CondensationSummary  stands in a View for what was forgotten; synthetic, with id -(c+2)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, get_args

import msgspec

from foldlog.eventstore.errors import InvalidEvent

ATTRIBUTES = "attributes"
"""The name of the document that holds a conversation's attributes: see
``foldlog.eventstore.documents.listing``.
"""
_NAMES_SOURCE_IDS = "openhands-v0"
VIEWS = "views"
"""The name of the projection of Views. The records of this projection hold no content, so a
redaction does not delete them.
"""

NOT_RECORDED = -1
"""The id of an event that is in no conversation yet."""

Source = Literal["user", "agent", "environment"]

Content = str | tuple[dict[str, Any], ...]
"""Text, or parts in OpenAI's shape: ``{"type": "text", "text": …}`` and ``{"type": "image_url",
"image_url": …}``.
"""


def names_source_ids(event: Event) -> bool:
    """Return whether a condensation or a request names ids of its source instead of ids of the
    conversation. Only events that were imported from OpenHands V0 name ids of their source. The ids
    of their source cannot be translated: see ``projections/v0_dialect.py``.
    """
    return event.origin is not None and event.origin.format == _NAMES_SOURCE_IDS


def is_structural(event: Event) -> bool:
    """Return whether the event is structural: a structural event changes more of a View than the
    View's end.
    """
    if isinstance(event, UnknownEvent):
        return event.is_structural
    return event.structural


def summary_id(condensation_id: int) -> int:
    """Return the synthetic id of the summary of condensation ``condensation_id``: ``-(c+2)``, so it
    is never -1.
    """
    return -(condensation_id + 2)


def summary_of(synthetic_id: int) -> int:
    """Return the id of the condensation whose summary has this synthetic id (< -1). This function
    is the inverse of ``summary_id``.
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
    """Where an imported event comes from.

    ``format``     the name of the format
    ``id``         the source's own id with its JSON type, or None
    ``time``       a time of the source without a time zone, as text; do not read it as UTC
    ``rest``       how many events of its record come before this one; None for the first
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
    """The mark of an event whose content ``History.redact`` erased. The head of the event is
    unchanged.

    ``at``      when, UTC
    ``by``      who did it
    ``reason``  why
    ``hash``    the commitment to the former content, in hexadecimal: SHA-256 of 16 random bytes,
                which were erased too, and the stored body
    ``bytes``   how many bytes the event took without a trace context, including the bytes beside
                its body
    """

    at: datetime
    by: str
    reason: str
    hash: str
    bytes: int


# gc=False: events hold JSON, so they are in no reference cycles. With it, the search for cycles
# would take two thirds of the time of reading 10,000 events (``benchmarks/reading.py``).
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
    """The fields that every event has. All arguments of an event are passed by name.
    ``_COMMON_FIELDS`` describes these fields.
    """

    structural: ClassVar[bool] = False

    id: int = NOT_RECORDED
    timestamp: datetime | None = None
    cause: int | None = None
    origin: Origin | None = None
    meta: dict[str, Any] = {}
    stays_with_next: bool = False
    extra: dict[str, Any] = {}
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
        tools: tuple[Any, ...] = ()  # readers get a tuple; callers may pass a list


class Message(_Common, frozen=True, kw_only=True, tag="message"):
    """A text of the user, the agent or the environment.

    ``content``    a text, or parts: texts and images in OpenAI's shape
    ``source``     "user", "agent" or "environment"; the chat role follows: the user's is user, the
                   agent's is assistant
    ``thinking``   the model's thinking blocks that came before the text
    """

    content: Content
    source: Source
    shown: bool = True
    thinking: tuple[dict[str, Any], ...] = ()


class Action(_Common, frozen=True, kw_only=True, tag="action"):
    """A tool call that the model made.

    ``tool``         the name of the tool
    ``arguments``    a map, or the exact text that the model wrote, if it is not a JSON object
    ``call_id``      pairs it with its observation; without one the observation's ``cause`` does
    ``response_id``  calls of one model response share it
    ``thought``      what the model said beside the call
    ``thinking``     the model's thinking blocks: an action that has them starts a tool loop
    """

    tool: str
    arguments: dict[str, Any] | str | None = None
    call_id: str | None = None
    response_id: str | None = None
    thought: Content = ""
    thinking: tuple[dict[str, Any], ...] = ()
    source: Source = "agent"
    shown: bool = True


class Observation(_Common, frozen=True, kw_only=True, tag="observation"):
    """The result of an action. ``cause`` is the action's id.

    ``content``    the result: a text, or parts
    ``tool``       the name of the tool
    ``call_id``    the action's ``call_id``
    ``is_error``   whether the call failed
    ``extras``     parts of the result that no model is shown
    """

    content: Content
    tool: str = ""
    call_id: str | None = None
    is_error: bool = False
    extras: dict[str, Any] = {}
    source: Source = "environment"
    shown: bool = True


class Annotation(_Common, frozen=True, kw_only=True, tag="annotation"):
    """Bookkeeping: state changes, metrics, reports of a condenser without a condensation. A View
    shows an annotation only if its ``shown`` is true.

    ``name``  its subject
    ``data``       any JSON
    """

    name: str
    data: Any = None
    source: Source = "environment"
    shown: bool = False


class DocumentChanges(_Common, frozen=True, kw_only=True, tag="document_changes"):
    """New values of documents beside the conversation: ``foldlog.eventstore.documents`` makes and
    reads these events.

    ``changed`` has a change for each document that changed: ``{"value": …}``, or ``{"base": id,
    "difference": …}``, a difference to the value that event ``id`` gave the document, or
    ``{"deleted": true}``. ``others`` maps every other document to the id of the event with its
    newest value. Raises ``InvalidEvent`` if the arguments have another form.
    """

    changed: dict[str, dict[str, Any]]
    others: dict[str, int] = {}
    source: Source = "environment"
    shown: bool = False

    def __post_init__(self) -> None:
        if type(self.changed) is not dict or type(self.others) is not dict or not self.changed:
            raise InvalidEvent(
                "changes of documents are empty or incomplete; name at least one changed document,"
                " and each other document with its event"
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
                    f"document {name!r} is named twice, or its event id {short(event_id)} is not a"
                    " whole number from 0"
                )

    def newest(self) -> dict[str, int]:
        """Return, for each document that exists after this recorded event, the id of the event with
        its newest value.
        """
        changed = {
            name: self.id for name, change in self.changed.items() if "deleted" not in change
        }
        return {**self.others, **changed}


_CHANGES = ({"value"}, {"base", "difference"}, {"deleted"})


def _is_id(value: object) -> bool:
    return type(value) is int and value >= 0


class CondensationRequest(_Common, frozen=True, kw_only=True, tag="condensation_request"):
    """A request to condense. The request is the View's ``unhandled_condensation_request`` until the
    next condensation.

    ``reason``     why, in words
    """

    structural: ClassVar[bool] = True

    reason: str = ""
    source: Source = "agent"
    shown: bool = False


_TUPLE_MAX = 10_000
"""The most ids of a range that become a tuple. A longer range stays a ``range``, which needs less
memory.
"""


class EventIds(tuple[int, ...]):
    """A tuple of ids that also equals a list with these ids."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)


class Forgotten(NamedTuple):
    """The ids that a condensation forgets: disjoint inclusive ``intervals`` of event ids,
    ascending, and ``summaries``, the synthetic ids (below -1) of forgotten summaries, descending.
    """

    intervals: tuple[tuple[int, int], ...]
    summaries: tuple[int, ...]


_NUMBERS = ("forgotten_events_start_id", "forgotten_events_end_id", "summary_offset")
_NO_NUMBERS = (None, None, None)


class CondensationAction(_Common, frozen=True, kw_only=True, tag="condensation"):
    """Forget these events in the View, where a summary, if there is one, stands for them. The log
    keeps the forgotten events.

    Pass either ``forgotten_event_ids`` (in any order; ids below -1 name summaries), or
    ``forgotten_events_start_id`` and ``forgotten_events_end_id``, both inclusive. The event is
    stored in the form in which it was made. A reader always gets the ids as
    ``forgotten_event_ids``, even if a range was passed: as a tuple, or as a ``range`` if there are
    more than 10,000. ``summary`` and ``summary_offset``, its index in the View after forgetting,
    must be passed together. ``metadata`` says how the condensation was made: its reason, model,
    tokens, cost and latency.

    A condensation that forgets nothing and has no summary must be *declined*:
    ``metadata={"outcome": "declined", "reason": …}``.

    Raises ``InvalidEvent`` if both forms are passed, or neither form. An imported condensation
    (``origin`` set) may be empty, because some histories have empty condensations. If the format of
    the condensation is ``openhands-v0``, it forgets ids of the source.
    """

    structural: ClassVar[bool] = True

    if TYPE_CHECKING:
        forgotten_event_ids: Sequence[int] | None = None
    else:
        # Readers get a tuple; callers may pass a list.
        forgotten_event_ids: tuple[int, ...] | None = None
    forgotten_events_start_id: int | None = None
    forgotten_events_end_id: int | None = None
    summary: str | None = None
    summary_offset: int | None = None
    metadata: dict[str, Any] = {}
    source: Source = "agent"
    shown: bool = False

    @property
    def given_ids(self) -> tuple[int, ...] | None:
        """The ids as they were passed and are stored; None if a range was passed."""
        ids: tuple[int, ...] | None = _GIVEN_IDS.__get__(self)
        return ids

    def __post_init__(self) -> None:
        ids: Any = self.given_ids
        if ids is not None and isinstance(ids, Iterable):
            ids = EventIds(ids)
            _GIVEN_IDS.__set__(self, ids)  # callers may pass a list; a frozen value has a tuple
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
                "a condensation's summary and summary_offset come together or not at all"
            )
        if self.origin is None:
            self._check_it_does_something()

    def _check_types(self, ids: object, start: object, end: object) -> None:
        """Check the types of the fields that this class uses. The codec later checks the fields
        that this class does not use.
        """
        if ids is not None and not (isinstance(ids, tuple) and set(map(type, ids)) <= {int}):
            raise InvalidEvent(
                f"a condensation's forgotten_event_ids must be whole numbers, not {short(ids)}"
            )
        numbers = (start, end, self.summary_offset)
        for name, number in zip(_NUMBERS, numbers, strict=True) if numbers != _NO_NUMBERS else ():
            if number is not None and not isinstance(number, int):
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

    def _check_it_does_something(self) -> None:
        start = self.forgotten_events_start_id
        end = self.forgotten_events_end_id
        if start is not None and end is not None and start > end:
            raise InvalidEvent(f"a condensation's range runs backwards, from {start} to {end}")
        declined = self.metadata.get("outcome") == "declined"
        if not self.given_ids and start is None and self.summary is None:
            if not declined:
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
        """Return the forgotten ids as intervals and summary ids, without -1 ("no id"). Cost: one
        pass over the ids in the event.
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
    """Take back the events from ``version`` on, including condensations: the View is again as it
    was at ``version``.

    The log keeps the retracted events. To reverse a retraction, append a retraction to the version
    at which the first retraction was appended (its id). A retraction does not fulfil a condensation
    request: a pending request stays pending.

    ``version``    the version whose View it brings back
    ``reason``     why, in words

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
    """The receipt of a redaction: the content of these earlier events of the conversation was
    erased. Only a redaction appends a receipt, and followers read the receipt.

    ``event_ids``  the ids of the redacted events
    ``hashes``     for each of them the commitment to its former content, as in ``Redacted``
    ``by``         who did it
    ``reason``     why
    """

    event_ids: tuple[int, ...]
    hashes: tuple[str, ...]
    by: str
    reason: str
    source: Source = "user"
    shown: bool = False


class Entry(_Common, frozen=True, kw_only=True):
    """An entry of the ledger: a change of a stored conversation, such as its erasure. Only
    followers read entries, and only the store makes entries. The id of an entry is the version of
    the conversation when the entry was made.
    """

    source: Source = "environment"
    shown: bool = False


class Erased(Entry, frozen=True, kw_only=True, tag="erased"):
    """The conversation was erased: its events and entries at earlier positions are gone. Events
    with the conversation's id at later positions belong to another conversation, which uses the id
    again.

    ``reason``   why
    """

    reason: str


class Forked(Entry, frozen=True, kw_only=True, tag="forked"):
    """The conversation began as a fork.

    ``parent``   the conversation that holds the last shared event
    ``version``  the version up to which events are shared
    """

    parent: str
    version: int


class Detached(Entry, frozen=True, kw_only=True, tag="detached"):
    """The conversation is no longer a fork. Followers read the events that the fork shared just
    before this entry, as the fork's own events. There is an entry for each conversation that the
    fork shared events with.

    ``parent``   that conversation
    ``version``  the version up to which they were shared
    """

    parent: str
    version: int


class KeyChanged(Entry, frozen=True, kw_only=True, tag="key_changed"):
    """Another key encrypts the conversation from now on. The conversation's earlier events may
    still be stored in their former form.

    ``key_id``   the name of the key; None if the conversation is plain from now on
    """

    key_id: str | None = None


class RedactionCopied(Entry, frozen=True, kw_only=True, tag="redaction_copied"):
    """Events were copied without their content, because the source store had redacted them. This
    entry is the receipt of these events until the receipt event of the source store is copied too.
    The receipt event of a fork may be in its parent conversation.

    ``event_ids``  the events
    """

    event_ids: tuple[int, ...]


class StoreRestored(Entry, frozen=True, kw_only=True, tag="store_restored"):
    """The store was restored from a backup, or is a copy. The store lacks the events that another
    file had at positions after ``after`` and before this entry. A follower has to discard what it
    made from the missing events. The entry belongs to no conversation.

    ``after``   the last position that the store still has
    """

    after: int


def _forgotten_event_ids(action: CondensationAction) -> Sequence[int] | None:
    start = action.forgotten_events_start_id
    end = action.forgotten_events_end_id
    if start is None or end is None:
        return action.given_ids
    ids = range(start, end + 1)
    return EventIds(ids) if end - start < _TUPLE_MAX else ids


_GIVEN_IDS: Any = CondensationAction.__dict__["forgotten_event_ids"]
"""The slot of the field ``forgotten_event_ids``: msgspec encodes, compares and copies the slot.
Readers use ``forgotten_event_ids``.
"""
CondensationAction.forgotten_event_ids = property(_forgotten_event_ids)  # type: ignore[assignment]


class CondensationSummary(_Common, frozen=True, kw_only=True, tag="condensation_summary"):
    """A summary that stands in a View for forgotten events. The View makes the summary, with the id
    ``summary_id(c)`` for condensation ``c``. A summary is stored as an event only if an imported
    history has summaries as events.

    ``content``     the summary
    ``summary_of``  the id of its condensation
    """

    content: str
    summary_of: int | None = None
    source: Source = "environment"
    shown: bool = True


class UnknownEvent(_Common, frozen=True, kw_only=True, tag=False):
    """An event of a kind or schema version that this version of foldlog does not know. The event is
    kept whole.

    ``body`` is the event's stored JSON, unchanged. ``is_structural`` and ``shown`` are as the
    event's writer recorded them. A View cannot be folded over an unknown structural event: folding
    raises ``UnknownEventType``.

    ``stored_kind``, ``stored_schema``  the kind and the schema version that it was written with
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
"""The kinds that this version of foldlog knows. Each kind is stored under the tag of its class."""

Event = KnownEvent | UnknownEvent

MAY_BE_STRUCTURAL: Final = frozenset(
    kind for kind in get_args(Event) if kind.structural or kind is UnknownEvent
)
"""The types of structural events. Callers first ask whether ``map(type, events)`` is disjoint from
these types, because this question runs no Python code for each event.
"""

_COMMON_FIELDS = """
    Fields of every event:

    ``id``         the index in the conversation, set by the store; -1 before that; below -1 for
                   summaries in a View
    ``timestamp``  when it happened, aware, from year 1 to 9999 in UTC; None if the writer does not
                   know
    ``source``     "user", "agent" or "environment": who said or did it
    ``shown``      whether a View shows it
    ``cause``      id of the earlier event that this one answers
    ``origin``     where an imported event comes from
    ``meta``       open map: trace, correlation, writer, tenant; no model is shown it
    ``stays_with_next``  a model needs it together with the agent's event after it, such as thinking
                   and the call that it led to: both are forgotten and sent together, and start a
                   tool loop
    ``extra``      fields that a newer version wrote and this version does not know
    ``redacted``   when, why and by whom its content was erased; None for other events. Only the
                   store sets it
    """
for _kind in get_args(Event):
    _kind.__doc__ = f"{(_kind.__doc__ or '').rstrip()}\n{_COMMON_FIELDS}"

CondensationRequestAction = CondensationRequest
"""The name that people know from OpenHands."""
AgentCondensationObservation = CondensationSummary
"""The name that people know from OpenHands."""


def _runs(ascending: list[int]) -> Iterable[tuple[int, int]]:
    """Yield maximal runs of consecutive integers, as inclusive pairs."""
    if not ascending:
        return
    first = last = ascending[0]
    for i in ascending[1:]:
        if i != last + 1:
            yield first, last
            first = i
        last = i
    yield first, last
