"""Sessions of Strands Agents in foldlog: a session repository.

    repository = FoldlogSessionRepository("sqlite:///history.db")
    agent = Agent(session_manager=RepositorySessionManager("7", repository))
    agent("hello")

An agent's messages are the conversation ``PREFIX/SESSION/AGENT`` in the format ``strands``. The
document ``agent`` of this conversation has the agent's state. If the agent's conversation manager
removes or summarizes messages, the View forgets them, but they stay in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.agent.conversation_manager.compression.pin_message import is_pinned
from strands.hooks import (
    AfterModelCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookRegistry,
)
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from foldlog import History
from foldlog.adapters._shared import (
    Attributes,
    StoreOrUrl,
    WithHistories,
    begin_effect,
    below,
    chat_request,
    document,
    erase_all,
    from_plain,
    quote_id,
    shown_records,
    stood_for,
    to_plain,
)
from foldlog.adapters._streams import ReplyStreams
from foldlog.eventstore import (
    NOTHING_SEEN,
    ConversationErased,
    Event,
    InvalidArgument,
    Redaction,
    Seen,
    VersionConflict,
)
from foldlog.eventstore.documents.differences import difference
from foldlog.runtimes import (
    REDACTED,
    Fields,
    change_of_prompt,
    companion,
    companion_of,
    note_left_behind,
)
from foldlog.types import CallDelta, Delta, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase

_FORMAT = "strands"
_AGENT = "agent"
"""The name of the document with the state of an agent."""
_REWRITTEN = "rewritten"
"""The name of the document with the messages that were updated. The document maps the id of a
message's first event to the ids of all its events, and to the new record of the message.
"""
_MANAGER = "conversation_manager_state"
"""The SDK's key in an agent's state for the state of its conversation manager."""
_TIME = {"updated_at": None}
"""The field of an agent's state that does not count when two states are compared."""
_SUMMARY = "condensation"
"""The key in an agent's state for the condensation that its conversation manager made."""
_GONE: Any = {"role": "user", "content": [{"text": REDACTED}]}
"""Stands for a summary that may contain redacted content."""
_REPLACED = "the runtime replaced the message"
_REMOVED_COUNT = "removed_message_count"
_SUMMARY_MESSAGE = "summary_message"


class _Held:
    """What this process remembers about an agent's conversation.

    ``seen`` is what this process saw when it began or read the agent. ``messages`` maps the id of a
    message's first event to the SDK's message, which shows whether it is pinned. ``state`` is the
    state of the agent at the version ``state_at``. ``grouped`` is a version, and the event ids of
    each message before it.
    """

    seen = NOTHING_SEEN
    state: Fields | None = None
    state_at = 0
    grouped: tuple[int, list[list[int]]] = (0, [])

    def __init__(self, history: History) -> None:
        self.history = history
        self.messages = WeakValueDictionary[int, SessionMessage]()
        with suppress(ConversationErased):
            self.seen = history._seen()

    def group(self, version: int) -> list[list[int]]:
        """Return the event ids of each message. Only events since the last call are read."""
        start, messages = self.grouped
        if start < version:
            records = _records_by_events(self.history, start, version)
            messages = [*messages, *(events for events, _ in records)]
            self.grouped = version, messages
        return messages


class _Pieces:
    """Gives each content block of a reply a place of its own. Strands names no places."""

    def __init__(self) -> None:
        self._at = -1
        self._block: str | None = None

    def read(self, reported: Fields) -> list[Delta]:
        """Return the piece that Strands reports, or nothing if it is of another kind."""
        if "data" in reported:
            return [TextDelta(reported["data"], self._place("text"))]
        if reported.get("reasoningText"):
            return [ReasoningDelta(reported["reasoningText"], self._place("reasoning"))]
        call = reported.get("current_tool_use")
        if not call:
            return []
        is_new = self._block != call["toolUseId"]
        at = self._place(call["toolUseId"])
        arguments = reported["delta"].get("toolUse", {}).get("input", "")
        if is_new:
            return [CallDelta(at, call["toolUseId"], call["name"], arguments)]
        return [CallDelta(at, arguments=arguments)]

    def _place(self, block: str) -> int:
        """Return the place of a block. Pieces of one block follow each other, so another block
        begins a new place.
        """
        if self._block != block:
            self._block = block
            self._at += 1
        return self._at


class FoldlogSessionRepository(WithHistories, SessionRepository):  # type: ignore[misc]
    """Stores sessions: ``RepositorySessionManager("7", repository)``.

        histories   the URL of a store, or open histories, sync or async
        attributes  attributes of each new conversation, such as ``{"user": "u7"}``
        stream      whether replies are stored while the model writes them, for
                    ``History.follow_reply``: use ``callback_handler`` and the hooks. ``read_agent``
                    then appends what a killed worker left of a reply

    If ``histories`` is a URL, ``close`` or ``with`` closes the store. Many threads, processes and
    repositories may use the same store. When a method returns, its changes are on disk. A session
    that was deleted or erased can begin again. If a session is erased after this repository has
    used one of its agents, further calls for this agent raise ``ConversationErased``.
    """

    def __init__(
        self,
        histories: StoreOrUrl,
        *,
        prefix: str = _FORMAT,
        attributes: Attributes = None,
        stream: bool = False,
    ) -> None:
        super().__init__(histories, attributes)
        self._prefix = prefix
        self._held: dict[str, _Held] = {}
        self._stream = stream
        self._streams = ReplyStreams(self._sync)
        self._pieces: dict[str, _Pieces] = {}

    def conversation(self, session_id: str, *agent_id: str) -> str:
        """Return the id of an agent's conversation. Without ``agent_id``, return the id of the
        conversation that stores the session itself.
        """
        name = "/".join((self._prefix, *map(quote_id, (session_id, *agent_id))))
        return name if agent_id else companion(name, "session")

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Let each tool that ``foldlog.effect`` marks run at most once for each call, and record
        the tools and the system prompt of each model call. Pass the repository as
        ``Agent(hooks=[repository])``.
        """
        registry.add_callback(BeforeModelCallEvent, self._before_model)
        registry.add_callback(BeforeToolCallEvent, self._before_tool)
        if self._stream:
            registry.add_callback(AfterModelCallEvent, self._after_model)

    def callback_handler(self, **kwargs: Any) -> None:
        """Store a piece of a reply before the program gets it: see ``stream``. Pass the method as
        ``Agent(callback_handler=repository.callback_handler, hooks=[repository])``, or call it
        first in your own handler. It ignores all else that Strands reports.
        """
        if not self._stream or "delta" not in kwargs:
            return
        conversation = self._conversation_of(kwargs["agent"])
        pieces = self._pieces.setdefault(conversation, _Pieces())
        self._streams.feed(conversation, pieces.read(kwargs))

    def _after_model(self, event: AfterModelCallEvent) -> None:
        """If the model failed, drop the reply that it began."""
        if event.exception is not None:
            self._streams.drop(self._conversation_of(event.agent))  # the SDK has no reply either

    def _before_model(self, event: BeforeModelCallEvent) -> None:
        """Note the tools and the system prompt that the model is sent."""
        agent = event.agent
        tools = [
            (tool["name"], tool["description"], tool["inputSchema"]["json"])
            for tool in agent.tool_registry.get_all_tool_specs()
        ]
        conversation = self._conversation_of(agent)
        if self._stream:
            self._streams.drop(conversation)  # of a reply that the SDK discarded
            self._pieces.pop(conversation, None)
        history = self._holding(conversation).history
        self._note_request(history, chat_request(tools, agent.system_prompt))

    def _before_tool(self, event: BeforeToolCallEvent) -> None:
        """Set the current tool call, which ``foldlog.effect`` reads."""
        used = event.tool_use
        conversation = self._conversation_of(event.agent)
        begin_effect(self, conversation, used["toolUseId"], used["name"], to_plain(used["input"]))

    def _conversation_of(self, agent: Any) -> str:
        """Return the id of an agent's conversation. Raises ``InvalidArgument`` if the agent has no
        session manager, which alone knows the session.
        """
        if agent._session_manager is None:
            raise InvalidArgument(
                f"the agent {agent.agent_id!r} has no session manager, so its session is not known;"
                " pass session_manager=RepositorySessionManager(SESSION_ID, repository) to Agent"
            )
        return self.conversation(agent._session_manager.session_id, agent.agent_id)

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Begin a session. Raises ``SessionException`` if the session exists."""
        if self.read_session(session.session_id) is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        self._keep(self.conversation(session.session_id), "session", session.to_dict())
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """Return a session, or None if it does not exist."""
        redacted = {"session_id": session_id, "session_type": SessionType.AGENT}
        session = _read_document(
            self._holding(self.conversation(session_id), begins=True).history, "session", redacted
        )
        return None if session is None else Session.from_dict(session)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Erase a session and its agents; only their tombstones stay. Raises ``SessionException``
        if the session does not exist.
        """
        if self.read_session(session_id) is None:
            raise SessionException(f"Session {session_id} does not exist")
        own = self.conversation(session_id)
        rows = below(self._sync, f"{companion_of(own)}/")
        reason = "the session was deleted"
        erase_all(self._sync, [row for row in rows if row.id != own], reason)
        # The conversation that marks the session is erased last.
        erase_all(self._sync, [row for row in rows if row.id == own], reason)

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Begin an agent, or write its state if it exists."""
        self._holding(self.conversation(session_id, session_agent.agent_id), begins=True)
        self._keep(
            self.conversation(session_id, session_agent.agent_id), _AGENT, session_agent.to_dict()
        )

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """Return the state of an agent, or None if the agent does not exist."""
        conversation = self.conversation(session_id, agent_id)
        # The SDK itself reports open calls as interrupted.
        note_left_behind(self._sync, conversation)
        if self._stream:
            self._take_up(session_id, agent_id)
        state = _agent_state(self._holding(conversation, begins=True).history, agent_id)
        if state is None:
            return None
        return SessionAgent.from_dict(from_plain(state))

    def _take_up(self, session_id: str, agent_id: str) -> None:
        """Append what a killed worker left of a reply, as a message of the agent."""
        conversation = self.conversation(session_id, agent_id)
        if conversation not in self._sync:
            return
        text = self._streams.take_up(conversation)
        if text:
            stored = self.list_messages(session_id, agent_id)
            message_id = stored[-1].message_id + 1 if stored else 0
            content: Any = {"role": "assistant", "content": [{"text": text}]}
            self.create_message(session_id, agent_id, SessionMessage(content, message_id))

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Write the state of an agent, and forget the messages that its conversation manager has
        removed, in one transaction. Raises ``SessionException`` if the agent does not exist.
        """
        agent_id = session_agent.agent_id
        held = self._holding(self.conversation(session_id, agent_id))
        while True:
            seen = held.history._seen()
            if held.state_at == seen.version:
                before = held.state
            else:
                before = _agent_state(held.history, agent_id)
            if before is None:
                raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
            session_agent.created_at = before.get("created_at", session_agent.created_at)
            agent_state = to_plain(session_agent.to_dict())
            events = _condense_removed(held, agent_state[_MANAGER], before[_MANAGER], seen)
            if agent_state[_MANAGER].get(_SUMMARY_MESSAGE) is not None and (
                events or _SUMMARY in before
            ):
                # Only the condensation has the summary.
                del agent_state[_MANAGER][_SUMMARY_MESSAGE]
                agent_state[_SUMMARY] = seen.version if events else before[_SUMMARY]
            if not events and _is_stored(agent_state, before):
                if _SUMMARY not in before:
                    held.state = before
                    held.state_at = seen.version
                return
            try:
                recorded = held.history._append_seen(events, seen, {_AGENT: agent_state})
            except VersionConflict:
                continue  # another writer appended, so the state may be another one
            held.state = None if _SUMMARY in agent_state else agent_state
            if held.state and recorded:
                held.state_at = recorded[-1].id + 1
            else:
                held.state_at = 0
            return

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Append a message to an agent's conversation."""
        records = [to_plain(session_message.to_dict())]
        held = self._holding(self.conversation(session_id, agent_id))
        append = partial(History.append_records, records=records, format=_FORMAT)
        with self._streams.ending(held.history):
            held.history, events = self._append_or_begin(held.history, append)
        held.messages[events[0].id] = session_message
        if held.state_at == events[0].id:
            held.state_at = events[-1].id + 1

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        """Return a message, or None if it does not exist. All messages of the agent are read."""
        message = self._found(self._sync[self.conversation(session_id, agent_id)], message_id)
        if message is None:
            return None
        return SessionMessage.from_dict(from_plain(message[1]))

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Replace the content of a message, and redact the old content. Cost: see
        ``History.redact``. Raises ``SessionException`` if the message does not exist.
        """
        history = self._holding(self.conversation(session_id, agent_id)).history
        message = self._found(history, session_message.message_id)
        if message is None:
            raise SessionException(f"Message {session_message.message_id} does not exist")
        events, before = message
        session_message.created_at = before["created_at"]
        record = to_plain(session_message.to_dict())
        if session_message.redact_message is not None:
            record["message"] = record["redact_message"]  # the replaced message must not be stored
        while True:
            seen = history._seen()
            rewritten = document(history, _REWRITTEN, {}, seen.version)
            new = {f"{events[0]}": {"events": events, "record": record}}
            instead = _condense_updated(history, events, _text_of(record["message"]))
            documents = {_REWRITTEN: {**rewritten, **new}}
            with suppress(VersionConflict):  # another writer appended
                history._append_seen(instead, seen, documents)
                break
        for event_id in events:
            history.redact(event_id, reason=_REPLACED, with_summaries=False)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        """Return the messages of an agent in order, including messages that the conversation
        manager has removed. All messages of the agent are read. Raises ``SessionException`` if the
        agent does not exist.
        """
        conversation = self.conversation(session_id, agent_id)
        if conversation not in self._sync:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        remembered = self._holding(conversation).messages
        stop = None if limit is None else offset + limit
        records = islice(_records_by_events(self._sync[conversation]), offset, stop)
        messages = {
            events[0]: SessionMessage.from_dict(from_plain(record)) for events, record in records
        }
        remembered.update(
            (first, message) for first, message in messages.items() if first not in remembered
        )
        return [*messages.values()]

    def create_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        """Write the state of agents that work together, such as a graph or a swarm."""
        self._keep(
            self.conversation(session_id),
            f"multi-agent/{multi_agent.id}",
            multi_agent.serialize_state(),
        )

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **kwargs: Any
    ) -> Fields | None:
        """Return the state of agents that work together, or None if no state was written."""
        held = self._holding(self.conversation(session_id), begins=True)
        state: Fields | None = from_plain(
            _read_document(held.history, f"multi-agent/{multi_agent_id}")
        )
        return state

    def update_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        """Write a new state of agents that work together. Raises ``SessionException`` if no state
        was written before.
        """
        if (
            self._holding(self.conversation(session_id)).history.document(
                f"multi-agent/{multi_agent.id}"
            )
            is None
        ):
            raise SessionException(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self.create_multi_agent(session_id, multi_agent)

    def _holding(self, conversation: str, *, begins: bool = False) -> _Held:
        """Return what this process remembers about a conversation. With ``begins``, forget what it
        remembers, because the SDK begins to use the conversation.
        """
        if begins or conversation not in self._held:
            self._held[conversation] = _Held(self._sync[conversation])
        return self._held[conversation]

    def _keep(self, conversation: str, name: str, value: Any) -> None:
        """Store a value as a document of a conversation."""
        held = self._holding(conversation)
        documents = {name: to_plain(value)}
        held.history, _ = self._append_or_begin(
            held.history, lambda history: history.append((), documents=documents)
        )

    def _found(self, history: History, message_id: int) -> tuple[list[int], Any] | None:
        """Return the last message with this id: the ids of its events, and its record."""
        with suppress(ConversationErased):
            newest = None
            for events, record in _records_by_events(history):
                if record["message_id"] == message_id:
                    newest = events, record
            return newest
        return None


def _read_document(history: History, name: str, redacted: Any = None) -> Any:
    """Return a document, or None if the document does not exist, or ``redacted`` if all values of
    the document were redacted.
    """
    try:
        value = history.document(name)
        return document(history, name, redacted) if value == REDACTED else value
    except ConversationErased:
        return None


def _agent_state(history: History, agent_id: str) -> Any:
    """Return the state of an agent. The summary in the state is stored only in the condensation,
    and is read from there.
    """
    manager = SlidingWindowConversationManager().get_state()
    state = _read_document(history, _AGENT, {"agent_id": agent_id, "state": {}, _MANAGER: manager})
    if state is not None and _SUMMARY in state:
        event: Any = next(history.events(state[_SUMMARY], state[_SUMMARY] + 1))
        summary = event.metadata.get("message", _GONE)
        if summary is not None:
            state = {**state, _MANAGER: {**state[_MANAGER], _SUMMARY_MESSAGE: summary}}
    return state


def _is_stored(agent_state: Fields, before: Fields) -> bool:
    """Return whether the stored state of an agent, as ``_agent_state`` returns it, is this one, but
    for its time. Unlike Python, a program may distinguish 1 from True and from 1.0.
    """
    stored = {**before, **_TIME}
    if _SUMMARY in before:
        stored[_MANAGER] = {**before[_MANAGER]}
        stored[_MANAGER].pop(_SUMMARY_MESSAGE, None)
    return difference(stored, {**agent_state, **_TIME}) is None


def _records_by_events(
    history: History, start: int = 0, stop: int | None = None
) -> Iterator[tuple[list[int], Any]]:
    """Yield each message as the ids of its events and its record, with replaced contents."""
    rewritten = document(history, _REWRITTEN, {})
    instead = {
        event_id: replacement
        for replacement in rewritten.values()
        for event_id in replacement["events"]
    }
    ours = (
        event
        for event in history.events(start, stop)
        if event.id in instead or (event.origin and event.origin.format == _FORMAT)
    )
    message_id = -1
    stored = history._stored_records()
    for events, records in shown_records(ours, _FORMAT, history):
        replacement = instead.get(events[0].id)
        if replacement is None and records:
            if stored.record(events) is not None:
                message_id = records[0]["message_id"]
            else:
                # A new record has no message id, so count on, as the SDK does.
                message_id += 1
            yield [event.id for event in events], {**records[0], "message_id": message_id}
        elif replacement is not None and replacement["events"][0] == events[0].id:
            message_id = replacement["record"]["message_id"]
            yield replacement["events"], replacement["record"]


def _was_redacted(held: _Held, seen: Seen) -> bool:
    """Return whether an event was redacted after this process had read the agent. A redaction with
    which the runtime replaced a message does not count. A redaction in the shared past of a fork
    adds no event to the fork, and only increases the number of redactions.
    """
    count = seen.redactions - held.seen.redactions
    if count:
        redactions = (
            event
            for event in held.history.events(held.seen.version)
            if isinstance(event, Redaction)
        )
        count -= sum(len(event.event_ids) for event in redactions if event.reason == _REPLACED)
    return count > 0


def _condense_removed(held: _Held, now: Any, then: Any, seen: Seen) -> list[Event]:
    """Return the condensation that forgets the messages which a conversation manager has removed.

    The manager removes the first messages that are not pinned. A summary that may contain redacted
    content is not stored.
    """
    removed_count = now.get(_REMOVED_COUNT)
    summary = now.get(_SUMMARY_MESSAGE)
    former_summary = then.get(_SUMMARY_MESSAGE)
    if summary not in (None, former_summary) and _was_redacted(held, seen):
        summary = _GONE
    if (removed_count, summary) == (then.get(_REMOVED_COUNT), former_summary):
        return []
    view = held.history.view()
    messages = held.group(view.version)
    removed = _removed_messages(held, messages, removed_count or 0)
    stop = removed[-1][-1] + 1 if removed else 0
    staying_ids = {event_id for events in messages for event_id in events}.difference(*removed)
    spans = stood_for(view)
    # The last event for which each event of the View stands.
    ends = {
        event.id: max((end for _, end in spans.get(event.id, ())), default=event.id)
        for event in view
    }
    shown_ids = [event_id for event_id, end in ends.items() if end >= stop or end in staying_ids]
    after: list[int | str] = [*shown_ids]
    text = _text_of(summary or {"content": []})
    if text.strip():
        after.insert(sum(ends[event_id] < stop for event_id in shown_ids), text)
    metadata = {"reason": "the conversation manager removed these messages", "message": summary}
    change = change_of_prompt([*ends], after, "compaction", metadata=metadata)
    return [] if change is None else [change]


def _removed_messages(held: _Held, messages: list[list[int]], count: int) -> list[list[int]]:
    """Return the first ``count`` messages that are not pinned, each as the ids of its events."""
    sdk_messages: list[Any] = []
    for events in messages:
        remembered = held.messages.get(events[0])
        sdk_messages.append({} if remembered is None else remembered.to_message())
    removable = [
        events for place, events in enumerate(messages) if not is_pinned(sdk_messages, place)
    ]
    return removable[:count]


def _condense_updated(history: History, events: list[int], text: str) -> list[Event]:
    """Return the condensation that replaces ``events`` with a text in the View. Return nothing if
    the View shows none of these events, or if the text is empty. A tool's result has no text, so it
    is not replaced, and stays with its call.
    """
    shown = [event.id for event in history.view()]
    if not text.strip() or set(events).isdisjoint(shown):
        return []
    first = next(place for place, event_id in enumerate(shown) if event_id in events)
    after: list[int | str] = [
        *shown[:first],
        text,
        *(event_id for event_id in shown[first:] if event_id not in events),
    ]
    change = change_of_prompt(shown, after, "compaction", metadata={"reason": _REPLACED})
    return [] if change is None else [change]


def _text_of(message: Any) -> str:
    """Return the texts in a message."""
    texts = (content.get("text") for content in message["content"])
    return "\n".join(str(text) for text in texts if text is not None)
