"""Code that adapters share: for the histories of an adapter, the names of the adapter's
conversations, the newest documents and records of a conversation, and Python values as JSON with
their types. This module imports no SDK.

Values of an SDK that JSON does not have are marked:

    bytes {"$bytes": base64}    tuple {"$tuple": […]}    a float that is not finite {"$float":
                                "nan"}

An object with a single key that begins with ``$`` becomes ``{"$dict": object}``. A time is a text,
as in the SDKs' own JSON. pydantic converts any other type.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Token
from datetime import datetime
from functools import cached_property, partial, wraps
from itertools import islice
from math import isfinite
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar
from urllib.parse import quote, unquote

from pydantic_core import to_jsonable_python

from foldlog import Histories, History, aio, open as open_histories
from foldlog.condensers.reports import reports_of
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    Event,
    ReadTransaction,
    RecentConversation,
    VersionConflict,
    summary_id,
)
from foldlog.eventstore.arguments import check_map
from foldlog.eventstore.inside import (
    beginning_with,
    newest_documents,
    newest_value,
    parse_event_time,
)
from foldlog.formats import Encoder
from foldlog.projections import View
from foldlog.runtimes import (
    CURRENT,
    REDACTED,
    HistoryRecords,
    KeptBeside,
    Records,
    RuntimeCall,
    is_of,
    parse_stored,
    place_of,
)

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_PAGE = 200
CLEARED = "the session was cleared"
"""The reason of a retraction or an erasure of all messages of a session."""
_KEPT_CODE = 1
"""The version of the values that adapters store beside conversations for their lists."""

HistoriesGiven = aio.AsyncHistories | Histories | str
"""The argument of an adapter: open histories, sync or async, or a URL such as
``sqlite:///history.db``.
"""
Attributes = Mapping[str, Any] | None
"""The argument of an adapter with the attributes of the conversations that it begins: see
``Histories.create``.
"""


def begin(histories: Histories, conversation: str, attributes: Mapping[str, Any]) -> None:
    """Begin a conversation with attributes, unless the conversation has begun. An erased
    conversation may have had the same id.
    """
    with suppress(VersionConflict):
        histories.create(conversation, attributes, replace_erased=True)


class _Given:
    """The histories of an adapter, with their async interface. If the adapter opened a store by its
    URL, ``async with`` closes it. Each conversation that the adapter begins gets ``attributes``
    before its first event.

    Raises the errors of ``foldlog.open``.
    """

    def __init__(self, given: HistoriesGiven, attributes: Attributes = None) -> None:
        self._attributes = dict(check_map("attributes", attributes or {}))
        # The versions of the Views that were sent to models. Another ``History`` may append the
        # answer.
        self._asked = dict[str, int]()
        self._owned = not isinstance(given, aio.AsyncHistories | Histories)
        if isinstance(given, aio.AsyncHistories):
            self.histories = given
            self._sync = given.sync
        else:
            if isinstance(given, Histories):
                self._sync = given
            else:
                self._sync = open_histories(given)

    @cached_property
    def histories(self) -> aio.AsyncHistories:
        """The async interface of the histories."""
        return aio.face_of(self._sync)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._owned:
            await self.histories.close()

    def _append_or_begin(
        self, history: History, append: Callable[[History], T]
    ) -> tuple[History, T]:
        """Append to a history, and begin it first if it has no events. If the conversation of
        ``history`` was erased before this ``history`` used it, begin another conversation with the
        same id. Return the history to which ``append`` was applied, and the result of ``append``.

        Raises ``ConversationErased`` if ``history`` wrote to the erased conversation or read it.
        """
        try:
            if self._attributes and history._generation.key is None and not history.version():
                begin(self._sync, history.id, self._attributes)
                if history._asked_at is None:
                    history._asked_at = None
                else:
                    history._asked_at = history.version()
            return history, append(history)
        except ConversationErased:
            if history._generation.key is not None:
                raise
        begin(self._sync, history.id, self._attributes)
        history = self._sync[history.id]
        return history, append(history)


class OpenHistories(_Given):
    """The histories of an async adapter."""

    async def close(self) -> None:
        """Close the store if it was opened by its URL."""
        await self.__aexit__()


class WithHistories(_Given):
    """The histories of an adapter with both a sync and an async interface."""

    def close(self) -> None:
        """Close the store if it was opened by its URL."""
        if self._owned:
            self._sync.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def in_thread(
    method: Callable[Concatenate[S, P], T], *, finish: bool = False
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the async form of an adapter's method, with the same arguments. The method runs in a
    thread of ``histories``.

    If ``finish`` is true, a cancelled call still runs to its end, and the caller waits for the end.
    """

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        histories: aio.AsyncHistories = self.histories
        return await histories.pool.run(partial(method, self, *args, **kwargs), finish=finish)

    return call


def to_its_end(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the async form of a method that writes: ``in_thread`` with ``finish``."""
    return in_thread(method, finish=True)


@contextmanager
def effect_of(
    given: _Given, conversation: str, call_id: str, tool: str, arguments: Mapping[str, Any] | str
) -> Iterator[None]:
    """Set the current call of a tool while the block runs. A tool that ``foldlog.effect`` marks
    reads it.
    """
    before = begin_effect(given, conversation, call_id, tool, arguments)
    try:
        yield
    finally:
        CURRENT.reset(before)


def begin_effect(
    given: _Given, conversation: str, call_id: str, tool: str, arguments: Mapping[str, Any] | str
) -> Token[RuntimeCall | None]:
    """Set the current call of a tool for the rest of the task. Return the token that resets the
    current call.
    """
    pool = given.histories.pool
    call = RuntimeCall(given._sync, conversation, call_id, tool, arguments, pool, given._attributes)
    return CURRENT.set(call)


# -- names
# --------------------------------------------------------------------------------------------------


def not_here_yet(session_id: Any, here: list[T], there: list[T], things: str) -> list[T]:
    """Return the elements that a copy of a session must add. Raises ``ValueError`` if ``there``
    does not begin with the elements of ``here``.
    """
    if there[: len(here)] != here:
        raise ValueError(
            f"session {session_id!r} has {len(here)} {things}, and the {len(there)} to copy do not"
            " begin with them; nothing was added; copy into another session"
        )
    return there[len(here) :]


def quoted(name: str) -> str:
    """Return an id of the runtime, quoted as in a URL and without slashes, as a part of the id of a
    conversation.
    """
    return quote(name, safe="", errors="surrogatepass")


def unquoted(part: str) -> str:
    """Return the id from which ``quoted`` made ``part``."""
    return unquote(part, errors="surrogatepass")


def recent(
    histories: Histories, attributes: Mapping[str, Any]
) -> Iterator[RecentConversation | ConversationRow]:
    """Yield all conversations that have these ``attributes``, the last active conversation first.
    The conversations are read page by page.

    A store that is open only for reading has no list of conversations by attributes: then all
    conversations of the store are read and yielded.
    """
    if not histories.store.database.recorder.writable:
        rows = (row for row in histories.store.iter_conversations() if row.erased_at is None)
        yield from sorted(rows, key=lambda row: row.updated_at, reverse=True)
        return
    after = None
    while True:
        page = histories.list(attributes, limit=_PAGE, after=after, age_max_s=0)
        yield from page.conversations
        after = page.after
        if after is None:
            return


def below(histories: Histories, start: str) -> list[ConversationRow]:
    """Return the conversations whose ids begin with ``start`` and are longer than ``start``. Erased
    conversations are left out.
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
    """Erase the conversations ``rows``. Forks that are not in ``rows`` get copies of the events
    that they share with an erased conversation.
    """
    from foldlog.runtimes import erase_conversations

    erase_conversations(histories.store, rows, reason=reason, detach_forks=True)


def kept(
    histories: Histories,
    name: str,
    start: str,
    make: Callable[[ConversationRow, Any], Any],
    is_wanted: Callable[[str], bool] = bool,
) -> Iterator[tuple[str, Any]]:
    """Yield the ids of the conversations that begin with ``start``, each with the result of
    ``make``. The result is JSON, and is stored beside the conversation under ``name`` until the
    conversation changes. Conversations are left out if they are erased, if ``is_wanted`` is false
    for the id, or if the result is None.

    ``make`` is called with the row of a conversation and the stored result of an earlier version,
    or None. One statement reads all stored results. ``make`` is called for each conversation
    without a current result.
    """
    with KeptBeside(histories.store, name, _KEPT_CODE) as beside:
        for conversation, value, is_present in beside.below(start):
            if not is_present and is_wanted(conversation):
                row = histories.store.conversation(conversation)
                value = None if row.erased_at else make(row, value)
                if value is not None:
                    beside.keep(row, value)
            if value is not None:
                yield conversation, value


# -- what is newest
# -------------------------------------------------------------------------------------------------


def newest_document(history: History, name: str) -> tuple[int, Any]:
    """Return the version of a history and one of its documents, read at one moment. Return 0 and
    None before the first event.

    The history remembers which conversation has its id, as with ``History.version``: a later append
    to another conversation with this id raises ``ConversationErased``. This function also raises
    ``ConversationErased`` if the conversation is erased.
    """
    try:
        return history._store.query(
            history.id, lambda read: (read.version, newest_value(read, name))
        )
    except ConversationNotFound:
        return 0, None


def standing_version(read: ReadTransaction, name: str, version: int | None = None) -> int:
    """Return the version after the newest value of a document that is not redacted; 0 if all values
    are redacted.
    """
    while (event_id := newest_documents(read, version).get(name)) is not None:
        if newest_value(read, name, version) != REDACTED:
            return event_id + 1
        version = event_id
    return 0


def document(history: History, name: str, default: Any = None, version: int | None = None) -> Any:
    """Return a document as ``History.document`` does, but skip redacted values: if the newest
    values are redacted, the value before them is returned.
    """
    value = history.document(name, default, version=version)
    if value != REDACTED:
        return value
    stop = history._store.query(history.id, lambda read: standing_version(read, name, version))
    return history.document(name, default, version=stop) if stop else default


def records_of(
    history: History, format: str, start: int = 0, stop: int | None = None
) -> Iterator[Any]:
    """Yield the records of a format for the events from ``start`` to ``stop``. Events of other
    formats are left out.

    The records are read. The events are read only if a record was redacted, or an event was
    appended without its record.
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


def newest_records(history: History, stop: int, format: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a format before the event ``stop``, the newest first.

    The format must be one in which each record can be read by itself. Events of other formats are
    left out. Only the yielded records are read.
    """
    group = list[Event]()
    stored = history._stored_records()
    encoder = Encoder(format, stored=stored)
    for event in history.events(0, stop, reverse=True):
        if not is_of(event, format):
            continue
        group.append(event)
        if event.id == stored.ids(event).start:
            yield from islice(
                (record for each in reversed(group) for record in encoder.records(each)), 1
            )
            group.clear()


def sent_whole(history: History, format: str) -> HistoryRecords | None:
    """Return the stored records of a history if all these records are sent to a model unchanged.
    Return None if a record was condensed, taken back, hidden, masked or redacted, or if events
    without a record are shown. The function makes no View.

    The function reads some bytes for each record, and the events that foldlog added.
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
    """The part of a history that is sent to a model. ``log`` is the View of the log. ``view`` is
    the View that is sent, in which events may be hidden, masked or shortened. If ``condense`` is
    true, condensations that are due are made first. ``is_all`` is true if all records of the log
    are sent unchanged.
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
        """Yield the result of ``shown_records`` for events of the View, which may be masked or
        shortened.
        """
        if self.view is self.log:
            log = {}
        else:
            log = {event.id: event for event in self.log}
        return shown_records(shown, format, self._history, log)


def sent_records(history: History, format: str, *, condense: bool) -> Iterator[Any]:
    """Yield the records of a history that are sent to a model. If ``condense`` is true,
    condensations that are due are made first.
    """
    whole = None if condense else sent_whole(history, format)
    if whole is not None:
        yield from whole.records()
        return
    prompt = SentRecords(history, condense=condense)
    for _, records in prompt.records(prompt.view, format):
        yield from records


def empty_session(
    histories: Histories, conversation: str, how: Literal["retract", "erase"]
) -> History:
    """Retract or erase all messages of a conversation. Return the history that continues under its
    id.
    """
    history = histories[conversation]
    if how == "erase":
        with suppress(ConversationNotFound, ConversationErased):  # the session is empty
            histories.erase(conversation, reason=CLEARED, detach_forks=True)
        return histories[conversation]
    with suppress(ConversationErased):  # the session is empty
        while view := history.view():
            with suppress(VersionConflict):  # other writers appended
                history.retract(0, CLEARED, expected_version=view.version)
    return history


def shown_records(
    shown: Iterable[Event], format: str, history: History, log: Mapping[int, Event] | None = None
) -> Iterator[tuple[Sequence[Event], Sequence[Any]]]:
    """Yield, for each record, the shown events of the record and the record itself. A stored record
    is used if all events of the record are shown unchanged. If some events of a record are missing,
    or differ from the events in ``log``, the format writes a new record.
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
            group = _group_at(events, place)
            yield group, encoder.shown(group, _stored_events(group, history, stored, log or {}))
        else:
            encoder.pass_by(group, record)
            yield group, [record]
        place += len(group)


def _is_changed(events: Sequence[Event], log: Mapping[int, Event]) -> bool:
    return any(log.get(event.id, event) != event for event in events)


def _group_at(events: Sequence[Event], place: int) -> list[Event]:
    """Return the event at ``place``, and the following events that were made from the same record
    as this event.
    """
    group = [events[place]]
    for next_place in range(place + 1, len(events)):
        event = events[next_place]
        number = place_of(events[next_place])
        if not number or event.id - group[-1].id != number - place_of(group[-1]):
            break
        group.append(event)
    return group


def stood_for(view: View) -> dict[int, list[tuple[int, int]]]:
    """For each summary that a View shows, return the inclusive intervals of ids that the summary
    replaces, by the id of the summary.
    """
    all_of = dict[int, list[tuple[int, int]]]()
    for each in view.condensations:
        intervals, summaries = each.forgotten
        all_of[summary_id(each.id)] = [
            *intervals,
            *(span for one in summaries for span in all_of.get(one, ())),
        ]
    return {event.id: all_of[event.id] for event in view if event.id in all_of}


def _stored_events(
    group: list[Event], history: History, stored: Records, log: Mapping[int, Event]
) -> list[Event]:
    """Return all events of the record from which the shown events ``group`` were made."""
    ids = stored.ids(group[0])
    if group[0].origin is None or [*ids] == [event.id for event in group]:
        return [log.get(event.id, event) for event in group]
    return [*history.events(ids.start, ids.stop)]


# -- values as JSON
# -------------------------------------------------------------------------------------------------


def to_plain(value: Any, *, unknown: bool = False) -> Any:
    """Return a value as JSON. An object that pydantic does not know becomes a text if ``unknown``
    is true; otherwise an error is raised.
    """
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if kind is dict and all(type(key) is str for key in value):
        plain = {key: to_plain(each, unknown=unknown) for key, each in value.items()}
        if len(plain) == 1 and next(iter(plain)).startswith("$"):
            return {"$dict": plain}
        return plain
    if kind is list:
        return [to_plain(each, unknown=unknown) for each in value]
    if kind is tuple:
        return {"$tuple": [to_plain(each, unknown=unknown) for each in value]}
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


def as_in_sdk(held: Any, key: str) -> None:
    """Replace marked bytes, which ``to_plain`` made, by the base64 text that the SDK's own JSON
    has. The SDK cannot read marks.
    """
    if type(held) is dict and type(held.get(key)) is dict:
        held[key] = held[key]["$bytes"]


def from_plain(plain: Any) -> Any:
    """Return the value from which ``to_plain`` made ``plain``."""
    kind = type(plain)
    if kind is list:
        return [from_plain(each) if type(each) in _HOLDERS else each for each in plain]
    if kind is not dict:
        return plain
    if len(plain) == 1:
        ((key, inside),) = plain.items()
        if key in _MARKED:
            return _MARKED[key](inside)
    return {
        key: from_plain(each) if type(each) in _HOLDERS else each for key, each in plain.items()
    }


def value_in(text: bytes) -> Any:
    """Return the value from which ``to_plain`` made the stored text ``text``. Few texts have marks,
    and a search for the first bytes of a mark takes less time than a check of each value.
    """
    value = parse_stored(text)
    return from_plain(value) if b'{"$' in text else value


_HOLDERS = (dict, list)
"""The types of JSON values that contain other values. Most values are texts, and a call for each
text took half of the time of a read (``benchmarks.adapters``).
"""

_MARKED: dict[str, Callable[[Any], Any]] = {
    "$bytes": b64decode,
    "$tuple": lambda inside: tuple(from_plain(each) for each in inside),
    "$float": float,
    "$dict": lambda inside: {key: from_plain(each) for key, each in inside.items()},
}


def time_from(text: Any) -> Any:
    """Return the time in a text that ends with Z; any other value unchanged."""
    is_time = type(text) is str and text.endswith("Z")
    return (parse_event_time(text) or text) if is_time else text
