"""Code that all adapters share.

This module imports no SDK. Python values that JSON cannot express are marked:

    bytes                {"$bytes": base64}
    tuple                {"$tuple": […]}
    infinity and NaN     {"$float": "nan"}

An object with a single key that begins with ``$`` becomes ``{"$dict": object}``. A time becomes a
text, as in the JSON of the SDKs. pydantic converts any other type.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Token
from datetime import datetime
from functools import cached_property, partial, wraps
from hashlib import sha256
from itertools import islice
from math import isfinite
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Self, TypeVar
from urllib.parse import quote, unquote

from pydantic_core import to_jsonable_python

from foldlog import Histories, History, aio, open as open_histories
from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers.reports import reports_of
from foldlog.eventstore import (
    ATTRIBUTES,
    Action,
    Annotation,
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    Event,
    ReadTransaction,
    RecentConversation,
    VersionConflict,
    summary_id,
)
from foldlog.eventstore.arguments import NUMBER_MAX, check_map
from foldlog.eventstore.documents.values import newest_documents, newest_value
from foldlog.eventstore.lists.pages import recent_conversations
from foldlog.eventstore.log.appending import Seen
from foldlog.eventstore.log.finding import Moment, beginning_with
from foldlog.eventstore.times import parse_event_time
from foldlog.formats import Encoder
from foldlog.projections import View
from foldlog.projections.call_states import APPROVAL
from foldlog.projections.messages.requests import SentBeside
from foldlog.runtimes import (
    CURRENT,
    REDACTED,
    CachedValues,
    Erasure,
    HistoryRecords,
    Records,
    RuntimeCall,
    erase_conversations,
    is_of,
    parse_stored,
    place_of,
)

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_PAGE = 200
"""The number of conversations that are read together."""
CLEARED = "the session was cleared"
"""The reason that the log records when a runtime clears a session."""
_KEPT_CODE = 1
"""The version of the values that adapters cache for conversations. Increase this number to discard
all cached values.
"""

StoreOrUrl = aio.AsyncHistories | Histories | str
"""Open histories, sync or async, or a URL such as ``sqlite:///history.db``."""
Attributes = Mapping[str, Any] | None
"""The attributes of new conversations: see ``Histories.create``."""


def begin(histories: Histories, conversation: str, attributes: JsonMap) -> None:
    """Begin a conversation with attributes, unless it already has events. An erased conversation
    with the same id is replaced.
    """
    with suppress(VersionConflict):
        histories.create(conversation, attributes, replace_erased=True)


def merge_attributes(history: History, defaults: JsonMap, runtime_keys: JsonMap) -> JsonMap:
    """Merge the attributes of a conversation that a runtime begins to use: the adapter's defaults,
    then the conversation's own attributes (such as its user or its parent), then the keys by which
    the runtime finds its conversations. Later attributes win.
    """
    return {**defaults, **history.document(ATTRIBUTES, {}), **runtime_keys}


class _Adapter:
    """The base class of adapters. An adapter has the sync and the async interface of the open
    histories.

    ``async with`` closes a store that the adapter opened by its URL. A new conversation gets
    ``attributes`` before its first event. Raises the errors of ``foldlog.open``.
    """

    def __init__(self, store: StoreOrUrl, attributes: Attributes = None) -> None:
        self._attributes = dict(check_map("attributes", attributes or {}))
        self._asked = dict[str, int]()
        """Maps a conversation to the version of the View that was last sent to a model. The answer
        may be appended through another ``History``.
        """
        self._sent_beside = dict[str, SentBeside]()
        """Maps a conversation to what was last sent to a model beside its messages."""
        self._owned = not isinstance(store, aio.AsyncHistories | Histories)
        if isinstance(store, aio.AsyncHistories):
            self.histories = store
            self._sync = store.sync
        elif isinstance(store, Histories):
            self._sync = store
        else:
            self._sync = open_histories(store)

    @cached_property
    def histories(self) -> aio.AsyncHistories:
        """The async interface of the adapter's histories."""
        return aio.face_of(self._sync)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._owned:
            await self.histories.close()

    @staticmethod
    def _note_request(history: History, beside: SentBeside) -> None:
        """Note what the SDK sends to its model now. The reply, which the SDK appends later through
        ``history``, names this request.
        """
        history._sent_beside = beside
        if history._asked_at is None:
            history._asked_at = history.version()

    def _attributes_of(self, conversation: str) -> JsonMap:
        """Return the attributes with which a conversation begins. Adapters whose runtime has
        sub-agents add the ``parent`` of a sub-agent.
        """
        return self._attributes

    def _append_or_begin(
        self, history: History, append: Callable[[History], T]
    ) -> tuple[History, T]:
        """Append to a history. If the history has no events, begin the conversation first.

        Return the history that has the appended events, and the result of ``append``. If the
        conversation was erased before ``history`` was first used, a new conversation begins under
        the same id. If the conversation was erased after ``history`` was first used,
        ``ConversationErased`` is raised.
        """
        attributes = self._attributes_of(history.id)
        try:
            if attributes and history._binding.key is None and not history.version():
                begin(self._sync, history.id, attributes)
                if history._asked_at is not None:
                    # The attributes are an event, and a model was asked with the View before it.
                    history._asked_at = history.version()
            return history, append(history)
        except ConversationErased:
            if history._binding.key is not None:
                raise
        begin(self._sync, history.id, attributes)
        history = self._sync[history.id]
        return history, append(history)

    def _append_new_items(
        self,
        conversation: str,
        copied: list[T],
        noun: str,
        format: str,
        item_of: Callable[[Any], T],
        record_of: Callable[[T], Any],
    ) -> tuple[History, int]:
        """Append the items of ``copied`` that follow the items of a session: see
        ``select_new_items``. ``item_of`` returns the item of a record in the ``format``, and
        ``record_of`` the record of an item. An item that another writer appends at the same time is
        not appended again.

        Return the history that has the appended items, and their number.
        """

        def append(history: History) -> int:
            while True:
                view = history.view()
                shown = shown_records(view, format, history)
                stored = [item_of(record) for _, records in shown for record in records]
                new = select_new_items(conversation, stored, copied, noun)
                records = map(record_of, new)
                with suppress(VersionConflict):  # another writer appended
                    history.append_records(records, format=format, expected_version=view.seen)
                    return len(new)

        history = self._sync[conversation]
        if not copied and conversation not in self._sync:
            return history, 0  # a conversation begins with its first item
        return self._append_or_begin(history, append)


class OpenHistories(_Adapter):
    """The base class of adapters for SDKs whose interface is async."""

    async def close(self) -> None:
        """Close the store if the adapter opened the store by its URL."""
        await self.__aexit__()


class WithHistories(_Adapter):
    """The base class of adapters for SDKs whose interface is also sync."""

    def close(self) -> None:
        """Close the store if the adapter opened the store by its URL."""
        if self._owned:
            self._sync.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def in_thread(
    method: Callable[Concatenate[S, P], T], *, finish: bool = False
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the async form of an adapter's method, which runs in a worker thread.

    With ``finish``, a cancelled call waits until the method has ended.
    """

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        histories: aio.AsyncHistories = self.histories
        return await histories.pool.run(partial(method, self, *args, **kwargs), finish=finish)

    return call


def to_its_end(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the async form of a sync method that writes. A cancelled call waits until the write
    has ended.
    """
    return in_thread(method, finish=True)


@contextmanager
def effect_of(
    adapter: _Adapter,
    conversation: str,
    call_id: str,
    tool: str,
    arguments: JsonMap | str,
) -> Iterator[None]:
    """Set the current tool call, which ``foldlog.effect`` reads, while a ``with`` block runs."""
    before = begin_effect(adapter, conversation, call_id, tool, arguments)
    try:
        yield
    finally:
        CURRENT.reset(before)


def begin_effect(
    adapter: _Adapter,
    conversation: str,
    call_id: str,
    tool: str,
    arguments: JsonMap | str,
) -> Token[RuntimeCall | None]:
    """Set the current tool call, until ``CURRENT.reset`` gets the returned token or the next call
    is set. If the SDK says nothing when a tool has ended, the call stays set in the tool's context.
    """
    pool = adapter.histories.pool
    call = RuntimeCall(
        adapter._sync, conversation, call_id, tool, arguments, pool, adapter._attributes
    )
    return CURRENT.set(call)


class Approval(NamedTuple):
    """What an SDK asked or decided about a call. ``call_id`` is the SDK's id of the call, or None.
    ``data`` has the fields of ``History.ask_approval`` or ``History.decide``. A person whom the SDK
    does not name is None.
    """

    call_id: str | None
    data: JsonObject

    @classmethod
    def asked(cls, call_id: str | None, shown: Any, *, to: str | None = None) -> Self:
        """Return that the person ``to`` was asked about a call, and what the person was shown."""
        return cls(call_id, {"asked": to, "shown": shown})

    @classmethod
    def decided(
        cls,
        call_id: str | None,
        approved: bool,
        *,
        by: str | None = None,
        reason: str = "",
        edited: Any = None,
    ) -> Self:
        """Return that a person approved or refused a call. ``edited`` are the arguments that the
        person approved in place of the model's.
        """
        if edited is not None:
            reason = f"{reason} edited: {json.dumps(edited, ensure_ascii=False)}".lstrip()
        return cls(call_id, {"approved": approved, "by": by, "reason": reason, "until": None})


def record_approvals(history: History, approvals: Iterable[Approval]) -> None:
    """Record what an SDK asked and decided about calls of a history, as ``History.ask_approval``
    and ``History.decide`` do. What is recorded already, or has no call in the log, is left out.

    Cost: reading the log backwards to the calls.
    """
    waiting = [approval for approval in approvals if approval.call_id is not None]
    if waiting:
        for event in history.events(reverse=True):
            if not isinstance(event, Action):
                continue
            for approval in waiting:
                if approval.call_id == event.call_id:
                    about = Annotation(name=APPROVAL, data=approval.data, cause=event.id)
                    key = json.dumps(["approval", event.id, approval.data], sort_keys=True)
                    history.append(about, idempotency_key=sha256(key.encode()).hexdigest())
            waiting = [approval for approval in waiting if approval.call_id != event.call_id]
            if not waiting:
                return


# -- copies ----------------------------------------------------------------------------------------


def select_new_items(session_id: Any, stored: list[T], copied: list[T], noun: str) -> list[T]:
    """Return the items of ``copied`` that follow the items that a session has ``stored``. Raises
    ``ValueError`` if ``copied`` does not begin with these. ``noun`` is the name of the items in the
    error.
    """
    if copied[: len(stored)] != stored:
        raise ValueError(
            f"session {session_id!r} has {len(stored)} {noun}, and the {len(copied)} {noun} to"
            f" copy do not begin with the same {len(stored)}; nothing was added; copy into another"
            " session"
        )
    return copied[len(stored) :]


# -- names -----------------------------------------------------------------------------------------


def quote_id(name: str) -> str:
    """Quote an id of a runtime as in a URL. The result has no slash, so it can be one part of a
    conversation's id.
    """
    return quote(name, safe="", errors="surrogatepass")


def unquote_id(part: str) -> str:
    """Return the id that ``quote_id`` has quoted."""
    return unquote(part, errors="surrogatepass")


def recent(histories: Histories, attributes: JsonMap) -> Iterator[RecentConversation]:
    """Yield the conversations that have these attributes, the most recently active first. The
    conversations are read from the store in pages.

    The stored list of a read-only store may be old, so its conversations are read together with
    all changes since. A conversation whose attributes cannot be read has none of them.
    """
    database = histories.store.database
    if not database.recorder.writable:
        everything = recent_conversations(
            database, attributes, limit=NUMBER_MAX, after=None, age_max_s=0, is_complete=True
        )
        yield from everything.conversations
        return
    after = None
    while True:
        page = histories.list(attributes, limit=_PAGE, after=after, age_max_s=0)
        yield from page.conversations
        after = page.after
        if after is None:
            return


def below(histories: Histories, start: str) -> list[ConversationRow]:
    """Return the conversations whose ids begin with ``start``, but not the conversation ``start``
    itself. Erased conversations are left out.
    """
    return [
        row for row in beginning_with(start, histories.store.conversations) if row.erased_at is None
    ]


def with_those_below(histories: Histories, name: str) -> list[ConversationRow]:
    """Return the conversation ``name`` and the conversations below it. Erased conversations are
    left out.
    """
    rows = below(histories, f"{name}/")
    with suppress(ConversationNotFound):
        rows[:0] = [row for row in [histories.store.conversation(name)] if row.erased_at is None]
    return rows


def erase_all(histories: Histories, rows: Iterable[ConversationRow], reason: str) -> None:
    """Erase the conversations. Their forks get copies of the events that they share."""
    erase_conversations(histories.store, rows, Erasure(reason, detach_forks=True))


def cached_values(
    histories: Histories,
    name: str,
    start: str,
    make: Callable[[ConversationRow, Any], Any],
    is_wanted: Callable[[str], bool] = bool,
) -> Iterator[tuple[str, Any]]:
    """Yield the ids of the conversations below ``start``, each with a JSON value that ``make`` has
    computed.

    ``make`` is called with the conversation's row, and with its earlier result or None. The result
    is cached under ``name`` until the conversation changes. A conversation is left out if it is
    erased, if ``is_wanted`` rejects its id, or if its result is None.

    Cost: one statement reads all cached results, and ``make`` is called for each changed
    conversation.
    """
    with CachedValues(histories.store, name, _KEPT_CODE) as beside:
        for conversation, value, is_present in beside.below(start):
            if not is_present and is_wanted(conversation):
                row = histories.store.conversation(conversation)
                if value is not None:
                    # A redaction since the cached results were read has deleted this result.
                    value = beside.load([row], of_any_version=True).get(conversation)
                value = None if row.erased_at else make(row, value)
                if value is not None:
                    beside.keep(row, value)
            if value is not None:
                yield conversation, value


def chat_request(tools: Iterable[tuple[str, str, Any]], instructions: str | None) -> SentBeside:
    """Return what an SDK sends beside its messages, in the form of OpenAI's chat completions. Each
    tool is a name, a description and the schema of the arguments.
    """
    names = ("name", "description", "parameters")
    functions = [dict(zip(names, tool, strict=True)) for tool in tools]
    return SentBeside(
        "openai",
        [{"type": "function", "function": function} for function in functions],
        {"instructions": instructions} if instructions else {},
    )


# -- what is newest --------------------------------------------------------------------------------


def newest_document(history: History, name: str) -> tuple[int, Any]:
    """Return a history's version and one of its documents, read at the same moment. If there is no
    event yet, return 0 and None.

    Raises ``ConversationErased``. An append through ``history`` also raises it if another
    conversation gets the id after this call.
    """
    try:
        return history._store.query(
            history.id, lambda read: (read.version, newest_value(read, name))
        )
    except ConversationNotFound:
        return 0, None


def standing_version(read: ReadTransaction, name: str, version: int | None = None) -> int:
    """Return the version of a document's newest value that is not redacted, or 0 if all values are
    redacted.
    """
    while (event_id := newest_documents(read, version).get(name)) is not None:
        if newest_value(read, name, version) != REDACTED:
            return event_id + 1
        version = event_id
    return 0


def document(history: History, name: str, default: Any = None, version: int | None = None) -> Any:
    """Return a document's newest value that is not redacted, or ``default`` if all values are
    redacted.
    """
    value = history.document(name, default, version=version)
    if value != REDACTED:
        return value
    stop = history._store.query(history.id, lambda read: standing_version(read, name, version))
    return history.document(name, default, version=stop) if stop else default


class SeenConversations:
    """What an adapter read of several conversations. Call ``reads`` before you read a conversation,
    and pass the object as ``guard`` of an append that repeats their content. The append raises
    ``VersionConflict`` if an event of one of them was redacted in between, and
    ``ConversationErased`` if one of them was erased.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def reads(self, history: History) -> None:
        if history.id not in self._seen:
            self._seen[history.id] = history._seen().at_any_version()

    def __call__(self, reading: ReadTransaction) -> None:
        moment = Moment(reading.database, reading._reader)
        for conversation, seen in self._seen.items():
            with suppress(ConversationNotFound):
                seen.check(moment.conversation(conversation).state)


def records_of(
    history: History, format: str, start: int = 0, stop: int | None = None
) -> Iterator[Any]:
    """Yield the records of a format for the events from ``start`` to ``stop``. Events of other
    formats are left out.

    Events are read only if a record was redacted, or if an event has no stored record.
    """
    whole = history._all_records(start)
    is_whole = stop in (None, whole.version) and whole.is_whole(format)
    if is_whole and not any(is_of(event, format) for event in whole.added(history.events)):
        yield from whole.records()
        return
    encoder = Encoder(format, stored=history._stored_records())
    for event in history.events(start, stop):
        if is_of(event, format):
            yield from encoder.records(event)
    yield from encoder.end()


def newest_records(history: History, stop: int, format: str) -> Iterator[JsonObject]:
    """Yield the records of the events before ``stop``, the newest record first. Events of other
    formats are left out.

    ``format`` must be a format in which each record can be read without other records. Only the
    yielded records are read.
    """
    group = list[Event]()
    stored = history._stored_records()
    encoder = Encoder(format, stored=stored)
    for event in history.events(0, stop, reverse=True):
        if not is_of(event, format):
            continue
        group.append(event)
        if event.id == stored.ids(event).start:
            in_order = reversed(group)
            records = (record for event in in_order for record in encoder.records(event))
            yield from islice(records, 1)
            group.clear()


def sent_whole(history: History, format: str) -> HistoryRecords | None:
    """Return the stored records if the prompt contains all records of the conversation unchanged.
    The function builds no View.

    Return None if the prompt contains something else, for example a summary or an event without a
    record. Cost: the function reads a few bytes of every record, and the events that foldlog added.
    """
    whole = history._all_records()
    if whole.changes or not whole.is_whole(format):
        return None
    if sum(span.stop - span.start for span in whole.spans) != whole.shown:
        return None
    if any(reports_of(event) for event in whole.added(history.events)):
        return None
    history._asked_at = whole.version
    return whole


class SentRecords:
    """The events that are sent to a model.

    ``view`` is the View with masks, as it is sent. ``log`` is the View without masks. With
    ``condense``, a condensation that is due is made first.
    """

    def __init__(self, history: History, *, condense: bool) -> None:
        self.view = history.prepare() if condense else history.sent()
        self.log = history.view()
        self._history = history
        history._asked_at = self.view.version

    @property
    def is_all(self) -> bool:
        return self.view is self.log and not self.log.condensations

    def records(
        self, shown: Iterable[Event], format: str
    ) -> Iterator[tuple[Sequence[Event], Sequence[Any]]]:
        """Yield the records that are sent for events of ``view``: see ``shown_records``."""
        if self.view is self.log:
            log = {}
        else:
            log = {event.id: event for event in self.log}
        return shown_records(shown, format, self._history, log)


def sent_records(history: History, format: str, *, condense: bool) -> list[Any]:
    """Return the records that are sent to a model. With ``condense``, a condensation that is due is
    made first.
    """
    whole = None if condense else sent_whole(history, format)
    if whole is not None:
        return [*whole.records()]
    prompt = SentRecords(history, condense=condense)
    return [record for _, records in prompt.records(prompt.view, format) for record in records]


def empty_session(
    histories: Histories, conversation: str, how: Literal["retract", "erase"]
) -> History:
    """Retract or erase all messages of a conversation. Return the history to which further messages
    are appended. It has the attributes of the conversation, so that it is still found by its user
    or its parent.
    """
    history = histories[conversation]
    if how == "erase":
        with suppress(ConversationNotFound, ConversationErased):  # the session has no messages
            attributes = history.document(ATTRIBUTES, {})
            histories.erase(conversation, reason=CLEARED, detach_forks=True)
            if attributes:
                begin(histories, conversation, attributes)
        return histories[conversation]
    with suppress(ConversationErased):  # the session has no messages
        while view := history.view():
            with suppress(VersionConflict):  # another writer has appended: look again
                history.retract(0, CLEARED, expected_version=view.version)
    return history


def shown_records(
    shown: Iterable[Event], format: str, history: History, log: Mapping[int, Event] | None = None
) -> Iterator[tuple[Sequence[Event], Sequence[Any]]]:
    """Yield the records that are sent to a model, each with the shown events that it represents.

    If all events of a stored record are shown, and none of them differs from the event in ``log``,
    the stored record is used. Otherwise the format makes a new record from the events.
    """
    stored = history._stored_records()
    encoder = Encoder(format, stored=stored)
    events = list(shown)
    place = 0
    while place < len(events):
        count = stored.count(events[place])
        group = events[place : place + count]
        is_all = count == len(group) > 0 and group[-1].id - group[0].id == count - 1
        is_whole = is_all and is_of(group[0], format) and not (log and _is_changed(group, log))
        record = stored.record(group) if is_whole else None
        if record is None:
            group = _events_of_record(events, place)
            yield group, encoder.shown(group, _stored_events(group, history, stored, log or {}))
        else:
            encoder.pass_by(group, record)
            yield group, [record]
        place += len(group)


def _is_changed(events: Sequence[Event], log: Mapping[int, Event]) -> bool:
    """Return whether one of the events differs from the event in the log, because it is masked."""
    return any(log.get(event.id, event) != event for event in events)


def _events_of_record(events: Sequence[Event], place: int) -> list[Event]:
    """Return the shown events of the record to which the event at ``place`` belongs."""
    group = [events[place]]
    for next_place in range(place + 1, len(events)):
        event = events[next_place]
        number = place_of(event)
        if not number or event.id - group[-1].id != number - place_of(group[-1]):
            break
        group.append(event)
    return group


def stood_for(view: View) -> dict[int, list[tuple[int, int]]]:
    """Map each shown summary to the ids of the events that it replaces, as inclusive intervals."""
    if all(event.id >= 0 for event in view):
        return {}  # the condensations need not be read
    all_of = dict[int, list[tuple[int, int]]]()
    for condensation in view.condensations:
        intervals, summaries = condensation.forgotten
        all_of[summary_id(condensation.id)] = [
            *intervals,
            *(span for summary in summaries for span in all_of.get(summary, ())),
        ]
    return {event.id: all_of[event.id] for event in view if event.id in all_of}


def _stored_events(
    group: list[Event], history: History, stored: Records, log: Mapping[int, Event]
) -> list[Event]:
    """Return the events of a record as they are in the log, without masks. If only some of them are
    shown, return all events of the record.
    """
    ids = stored.ids(group[0])
    if group[0].origin is None or [*ids] == [event.id for event in group]:
        return [log.get(event.id, event) for event in group]
    return [*history.events(ids.start, ids.stop)]


# -- values as JSON --------------------------------------------------------------------------------


def to_plain(value: Any, *, unknown: bool = False) -> Any:
    """Return a Python value as JSON. With ``unknown``, an object that pydantic does not know
    becomes a text. Otherwise pydantic raises its error.
    """
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if kind is dict and all(type(key) is str for key in value):
        plain = {key: to_plain(item, unknown=unknown) for key, item in value.items()}
        if len(plain) == 1 and next(iter(plain)).startswith("$"):
            return {"$dict": plain}
        return plain
    if kind is list:
        return [to_plain(item, unknown=unknown) for item in value]
    if kind is tuple:
        return {"$tuple": [to_plain(item, unknown=unknown) for item in value]}
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is float:
        return value if isfinite(value) else {"$float": repr(value)}
    if kind is datetime:
        text = value.isoformat()
        if text.endswith("+00:00"):
            return text.removesuffix("+00:00") + "Z"
        return text
    return to_plain(to_jsonable_python(value, serialize_unknown=unknown))


def unmark_bytes(fields: Any, key: str) -> None:
    """Replace marked bytes in a field with base64 text, in place. An SDK cannot read the marks of
    ``to_plain``. A value that is no object with marked bytes in this field stays unchanged.
    """
    marked = fields.get(key) if type(fields) is dict else None
    if type(marked) is dict and marked.keys() == {"$bytes"}:
        fields[key] = marked["$bytes"]


def from_plain(plain: Any) -> Any:
    """Return the Python value that ``to_plain`` has written as JSON."""
    kind = type(plain)
    if kind is list:
        return [from_plain(item) if type(item) in _HOLDERS else item for item in plain]
    if kind is not dict:
        return plain
    if len(plain) == 1:
        ((key, inside),) = plain.items()
        if key in _MARKED:
            return _MARKED[key](inside)
    return {
        key: from_plain(item) if type(item) in _HOLDERS else item for key, item in plain.items()
    }


def value_in(text: bytes) -> Any:
    """Undo ``to_plain``: return the Python value in a stored JSON text."""
    value = parse_stored(text)
    # Few texts have marks: to search the bytes is cheaper than to check each value.
    return from_plain(value) if b'{"$' in text else value


_HOLDERS = (dict, list)
"""The types of JSON values that may hold marked values. Most values are texts, and a call of
``from_plain`` for each text took half of the time of a read (``benchmarks.adapters``).
"""

_MARKED: dict[str, Callable[[Any], Any]] = {
    "$bytes": b64decode,
    "$tuple": lambda inside: tuple(from_plain(item) for item in inside),
    "$float": float,
    "$dict": lambda inside: {key: from_plain(item) for key, item in inside.items()},
}
"""Maps a mark to the function that makes the marked value."""


def time_from(text: Any) -> Any:
    """Return the time in a text that ends with Z. Any other value is returned unchanged."""
    is_time = type(text) is str and text.endswith("Z")
    return (parse_event_time(text) or text) if is_time else text
