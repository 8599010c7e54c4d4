"""Store conversations of pydantic-ai in foldlog: a ``ConversationStore``, and a capability that
saves every message of a run.

    store = FoldlogConversationStore("sqlite:///history.db")
    agent = Agent(model, capabilities=[FoldlogSteps(store)])
    conversation = await store.load("c7") or Conversation(conversation_id="c7")
    await agent.run("hello", conversation=conversation)

A conversation of the SDK is a conversation of foldlog in the format ``pydantic-ai``. The document
``record`` of a conversation is the SDK's record, without the messages. The record and the messages
are written in one transaction. A fork shares the events of its parent. A new branch is stored as a
retraction: the View returns to an earlier version, and all events stay in the log.
"""

from __future__ import annotations

import operator
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_ai import (
    AgentRunResult,
    ModelRequest,
    ModelResponse,
    RunContext,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    UserPromptPart,
)

from foldlog import History
from foldlog._base.json_types import JsonMap
from foldlog.adapters._linked_entries import Entry, LinkedEntries, Moves
from foldlog.adapters._shared import (
    Approval,
    Attributes,
    OpenHistories,
    SeenConversations,
    SentRecords,
    StoreOrUrl,
    cached_values,
    chat_request,
    document,
    effect_of,
    from_plain,
    in_thread,
    merge_attributes,
    newest_document,
    quote_id,
    recent,
    record_approvals,
    shown_records,
    time_from,
    to_its_end,
    to_plain,
    unmark_bytes,
    unquote_id,
)
from foldlog.adapters._streams import ReplyStreams
from foldlog.eventstore import (
    ATTRIBUTES,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    ConversationRow,
    VersionConflict,
)
from foldlog.formats import decode
from foldlog.projections import well_formed
from foldlog.projections.messages.requests import SentBeside
from foldlog.runtimes import (
    CURRENT,
    REDACTED,
    Fields,
    Recent,
    RuntimeCall,
    is_of,
    json_text,
    parse,
    within,
)
from foldlog.types import CallDelta, Delta, ReasoningDelta, TextDelta

_T = TypeVar("_T")

_FORMAT = "pydantic-ai"
_RECORD = "record"
"""The name of the document with the SDK's record of a conversation."""
_NEVER = "1970-01-01T00:00:00Z"
"""The time of the last save of a conversation whose record is redacted."""
_NO_OFFSET = timedelta(0)
_RECORDS_IN_MEMORY = 256
"""The maximum number of records in memory. A save does not read a record that is in memory."""
_records = TypeAdapter(ConversationRecord)


class FoldlogConversationStore(OpenHistories, ConversationStore):  # type: ignore[misc]
    """Stores conversations of pydantic-ai.

        histories   the URL of a store, or open histories, sync or async
        attributes  attributes of each saved conversation besides ``runtime`` and ``scope``, such as
                    ``{"user": "u7"}``
        stream      whether ``FoldlogSteps`` stores replies while the model writes them, for
                    ``History.follow_reply``. ``load`` then appends what a killed worker left of a
                    reply, as an interrupted response: only a worker should pass ``stream=True``

    If ``histories`` is a URL, ``close`` or ``async with`` closes the store. In foldlog, the id of a
    conversation is ``PREFIX/ID``, where ``ID`` is the SDK's id, quoted as in a URL. Many tasks,
    processes and stores may use the same conversation. ``delete`` erases a conversation; its forks
    get copies of the messages that they share with it. ``maintenance.vacuum`` removes the erased
    bytes from a SQLite file.
    """

    def __init__(
        self,
        histories: StoreOrUrl,
        *,
        prefix: str = "pydantic-ai",
        attributes: Attributes = None,
        stream: bool = False,
    ) -> None:
        super().__init__(histories, attributes)
        self._prefix = prefix
        self.stream = stream
        self._entries = LinkedEntries(self._sync, _FORMAT)
        self._streams = ReplyStreams(self._sync)
        self._callers = dict[str, RuntimeCall]()
        """Maps a conversation of a run to the tool call in which the run began."""
        self._written = Recent[str, tuple[History, Any, int]](_RECORDS_IN_MEMORY)
        """Maps a conversation to its history, the record that this object last wrote, and the
        version after this write.
        """

    def conversation(self, conversation_id: str) -> str:
        """Return the id of a conversation in foldlog. ``histories[store.conversation(id)]`` is its
        history.
        """
        return f"{self._prefix}/{quote_id(conversation_id)}"

    async def load(self, conversation_id: str, **options: Any) -> Conversation | None:
        """Return a conversation, or None if it does not exist. With ``stream``, first append what a
        killed worker left of a reply. ``options`` are those of the SDK, such as ``limit``.
        """
        conversation = await super().load(conversation_id, **options)
        if not self.stream or conversation is None:
            return conversation
        take_up = partial(self._streams.take_up, self.conversation(conversation_id))
        text = await self._run(take_up)
        if text:
            await self._save_cut(conversation, text)
        return conversation

    async def _save_cut(self, conversation: Conversation, text: str) -> None:
        """Append the text of a reply that was cut off. The same transaction closes its stream."""
        response = ModelResponse(parts=[TextPart(text)], state="interrupted")
        conversation.messages = [*conversation.messages, response]
        await self.save(conversation)

    @in_thread
    def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None if the conversation does not exist."""
        return self._stored_record(conversation_id)[1]

    @in_thread
    def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> list[ConversationRecord]:
        """Return the records of a scope, or of all scopes, the most recently saved first. With
        ``limit``, older records are not read.
        """
        if limit is None:
            return self._all(scope)
        attributes = _own_attributes(scope)
        records: list[ConversationRecord] = []
        if limit:
            for row in recent(self._sync, attributes):
                if len(records) >= limit and row.updated_at < records[limit - 1].updated_at:
                    break  # a conversation is never saved after its last activity
                record = self._record_in(self._stored_value_of(row.id))
                if record is not None and (scope is None or record.scope == scope):
                    records.append(record)
                    records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    @to_its_end
    def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and new entries, or nothing if an error is raised. The record and the
        entries are on disk when the method returns.
        """
        while True:
            try:
                return self._write_once(record, list(new_entries), expected_revision)
            except (VersionConflict, ConversationErased, ConversationNotFound):
                continue  # another writer was first: its revision decides

    @to_its_end
    def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation. Forks of the conversation get copies of the messages that they
        share with it.
        """
        erase = partial(self._sync.erase, reason="the conversation was deleted", detach_forks=True)
        while True:
            with suppress(ConversationNotFound, VersionConflict, ConversationHasForks):
                _, stored, version = self._stored_record(conversation_id)
                if stored is None or stored.revision != expected_revision:
                    raise ConversationConflict(conversation_id)
                row = self._sync.store.conversation(self.conversation(conversation_id))
                if version == row.version:
                    erase(row.id, expected=row)
                    return

    @in_thread
    def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry of any conversation. Raises ``LookupError`` if the store does not have
        the entry.
        """
        return self._history(entry_id, 1)[0]

    @in_thread
    def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the branch that ends with ``head_id``, the oldest entry first. With ``limit``,
        return only its last entries. Only the returned entries are read.
        """
        return self._history(head_id, limit)

    async def copy_from(self, other: ConversationStore) -> int:
        """Copy the conversations of another store that this store does not have, with all their
        branches. Return the number of copied conversations.

        If a fork was saved later than its parent, its copy shares events with the copy of the
        parent.
        """
        copied = 0
        for record in reversed(await other.list_conversations()):
            if await self.read_record(record.conversation_id) is None:
                await self._copy(other, record)
                copied += 1
        return copied

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await self.histories.pool.run(work, finish=False)

    # -- reading, in threads -----------------------------------------------------------------------

    def _stored_record(
        self, conversation_id: str
    ) -> tuple[History, ConversationRecord | None, int | None]:
        """Return a conversation's history, its record, and the version at which the record was
        read. The record is None if the conversation has none. The record and the version are None
        if the conversation was erased.
        """
        history, value, version = self._stored_value(conversation_id)
        return history, self._record_in(value), version

    def _stored_value(self, conversation_id: str) -> tuple[History, Any, int | None]:
        """Return a conversation's history, its record as JSON, and the version at which the record
        was read: see ``_stored_record``.
        """
        conversation = self.conversation(conversation_id)
        with suppress(ConversationErased):  # another conversation may have the id now
            written = self._written.get(conversation)
            if written is not None and written[0].version() == written[2]:
                return written
        history = self._sync[conversation]
        try:
            version, value = newest_document(history, _RECORD)
        except ConversationErased:
            return history, None, None
        if value == REDACTED:  # find its last entry in the log
            about = {
                "conversation_id": conversation_id,
                "revision": str(version),
                "updated_at": _NEVER,
            }
            value = {
                **document(history, _RECORD, about, version),
                "head_id": self._entries.tip(history, version),
            }
        if value is None or value["conversation_id"] != conversation_id:
            # A program that was killed after a fork leaves the parent's record in the fork.
            return history, None, version
        return history, value, version

    def _record_in(self, value: Any) -> ConversationRecord | None:
        value = from_plain(value)
        if not value:
            return None
        record: ConversationRecord = _records.validate_python(
            {**value, "updated_at": time_from(value["updated_at"])}
        )
        return record

    def _all(self, scope: str | None) -> list[ConversationRecord]:
        """Return the records of a scope, or of all scopes, the most recently saved first."""
        records = [
            (record.updated_at, listed["active"], record)
            for _, listed in cached_values(
                self._sync, _FORMAT, f"{self._prefix}/", self._listed_record
            )
            if (record := self._record_in(listed["record"])) is not None
            and (scope is None or record.scope == scope)
        ]
        return [
            record for _, _, record in sorted(records, key=operator.itemgetter(0, 1), reverse=True)
        ]

    def _listed_record(self, row: ConversationRow, before: object) -> Any:
        value = self._stored_value_of(row.id)
        return {"record": value, "active": row.updated_at.timestamp()} if value else None

    def _stored_value_of(self, conversation: str) -> Any:
        """Return the record of a conversation of foldlog as JSON, or None if it has none."""
        if not conversation.startswith(f"{self._prefix}/"):
            return None
        return self._stored_value(unquote_id(conversation.removeprefix(f"{self._prefix}/")))[1]

    def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        stored = list(self._entries.back(head_id, limit))[::-1]
        messages = _messages_in([entry.text for entry in stored])
        return [
            ConversationEntry(id=entry.entry_id, parent_id=entry.parent_id, message=message)
            for entry, message in zip(stored, messages, strict=True)
        ]

    # -- writing, in threads -----------------------------------------------------------------------

    def _write_once(
        self, record: ConversationRecord, entries: list[ConversationEntry], expected: str | None
    ) -> None:
        """Store a record and entries, if the stored revision is the ``expected`` one. Raises
        ``ConversationConflict`` if it is not, or if an entry is missing to which they are linked.
        """
        history, stored, version = self._stored_record(record.conversation_id)
        if (None if stored is None else stored.revision) != expected:
            raise ConversationConflict(record.conversation_id)
        start = entries[0].parent_id if entries else record.head_id
        there = {
            None,
            *(entry.id for entry in entries),
            *([] if stored is None else [stored.head_id]),
        }
        for needed in {start, record.head_id} - there:
            if needed is not None and self._entries.find_event(needed) is None:
                raise ConversationConflict(record.conversation_id)
        own = _own_attributes(record.scope)
        is_new = stored is None and start is None
        attributes = {**self._attributes, **self._link_to_caller(history, version, is_new)}
        documents = {_RECORD: to_plain(_records.dump_python(record))}
        tip = stored.head_id if stored is not None else None
        if version is None:  # the conversation was deleted, and begins again
            new = {**attributes, **own}
            history = self._sync.create(history.id, new, replace_erased=True)
            version = 1
        elif version == 0 and start is not None:
            version = self._entries.fork(start, history.id)
            tip = start
        elif stored is None:  # another program may have begun it
            tip = self._entries.tip(history, version)
        if stored is None or stored.scope != record.scope:
            begun = merge_attributes(history, attributes, {"scope": None, **own})
            documents[ATTRIBUTES] = {
                name: value for name, value in begun.items() if value is not None
            }
        guard = None
        if start != tip:
            guard = self._guard_of_branch(record, history, stored, entries)
        recorder = history._recorder(_FORMAT, version)
        compacts = any(
            part.part_kind == "compaction" for entry in entries[:1] for part in entry.message.parts
        )
        moves = Moves(self._entries, history.id, recorder, tip, compacts=compacts)
        if guard is not None and start is not None:
            moves.add(self._entries_to_copy(record, version, start, guard))
        moves.add(_entry(entry) for entry in entries)
        moves.go_to(record.head_id)
        history._asked_at = self._asked.get(history.id)
        history._sent_beside = self._sent_beside.get(history.id)
        with self._streams.ending(history):
            recorded = history._append_recorded(
                moves.events,
                recorder,
                version,
                documents=documents,
                dedupe="origin",
                guard=guard,
            )
        if recorded:
            self._written[history.id] = history, documents[_RECORD], recorded[-1].id + 1
        self._callers.pop(history.id, None)
        if history._asked_at is None:  # the prompt was answered
            self._asked.pop(history.id, None)
            self._sent_beside.pop(history.id, None)

    def _link_to_caller(self, history: History, version: int | None, is_new: bool) -> JsonMap:
        """Return the attributes that make a new conversation a sub-agent of the tool call in which
        its run began. They are empty if this store does not have that call, and if the program
        itself named a parent.
        """
        call = self._callers.get(history.id)
        if call is None or not is_new:
            return {}
        begun = (
            self._attributes if version is None else merge_attributes(history, self._attributes, {})
        )
        if "parent" not in begun:
            with suppress(ConversationErased):
                caller = self._sync[call.conversation]
                if any(open_call.call_id == call.call_id for open_call in caller.open_calls()):
                    return {"parent": caller.id, "parent_call": call.call_id}
        return {}

    def _guard_of_branch(
        self,
        record: ConversationRecord,
        history: History,
        stored: ConversationRecord | None,
        entries: list[ConversationEntry],
    ) -> SeenConversations:
        """Return the guard of an append that begins a branch with ``entries``. Raises
        ``ConversationConflict`` if one of the entries has a text that was redacted in the store.
        """
        guard = SeenConversations()
        guard.reads(history)
        if stored is not None and self._are_older(history, entries):
            raise ConversationConflict(record.conversation_id)
        return guard

    def _entries_to_copy(
        self,
        record: ConversationRecord,
        version: int,
        head_id: str,
        guard: SeenConversations,
    ) -> list[Entry]:
        """Return the entries up to ``head_id`` that the conversation lacks. Raises
        ``ConversationConflict`` if another program erased one of them.
        """
        conversation = self.conversation(record.conversation_id)
        try:
            return self._entries.missing(conversation, version, head_id, guard)
        except LookupError as error:
            raise ConversationConflict(record.conversation_id) from error

    def _are_older(self, history: History, entries: list[ConversationEntry]) -> bool:
        """Return whether one of the entries still has the text of a part that is redacted in the
        store.
        """
        if not self._sync.store.conversation(history.id).redactions:
            return False
        ours = (event for event in history.events() if is_of(event, _FORMAT))
        redacted = [
            (event.timestamp or events[0].timestamp, part)
            for events, records in shown_records(ours, _FORMAT, history)
            for event, part in zip(
                events, [p for m in _messages(records) for p in _plain(m)["parts"]], strict=False
            )
            if event.redacted is not None
        ]
        for entry in entries:
            times = {event.timestamp for event in decode([_entry(entry)], format=_FORMAT)} - {None}
            if any(
                time in times and part not in _plain(entry.message)["parts"]
                for time, part in redacted
            ):
                return True
        return False

    async def _copy(self, other: ConversationStore, record: ConversationRecord) -> None:
        """Copy a conversation, one branch after another. The branch with its head comes last."""
        revision = None
        for nth, tip in enumerate([*record.branches, record.head_id]):
            line = await other.read_history(tip)
            new = [
                entry
                for entry in line
                if not await self._run(partial(self._entries.find_event, entry.id))
            ]
            last = nth == len(record.branches)
            if last:
                step = record
            else:
                step = replace(
                    record, head_id=tip, branches=record.branches[:nth], revision=f"{nth}"
                )
            await self.write_record(step, new_entries=new, expected_revision=revision)
            revision = step.revision


def _own_attributes(scope: str | None) -> dict[str, str]:
    """Return the attributes by which the adapter finds the conversations of a scope, or of all."""
    attributes = {"runtime": _FORMAT}
    if scope is not None:
        attributes["scope"] = scope
    return attributes


def _sent_beside(request_context: Any) -> SentBeside:
    """Return the tools and the instructions of a model call."""
    about = request_context.model.customize_request_parameters(
        request_context.model_request_parameters
    )
    # The schemas of native tools are the provider's.
    functions = () if about.native_tools else (*about.function_tools, *about.output_tools)
    tools = [(tool.name, tool.description or "", tool.parameters_json_schema) for tool in functions]
    messages = reversed(request_context.messages)
    instructions = next(
        (message.instructions for message in messages if isinstance(message, ModelRequest)), None
    )
    return chat_request(tools, instructions)


def _plain(message: ModelMessage) -> Any:
    """Return the record of a message."""
    record = to_plain(ModelMessagesTypeAdapter.dump_python([message], warnings=False)[0])
    for content in (part.get("content") for part in record["parts"]):
        for item in content if type(content) is list else [content]:
            if within(item, "kind") == "binary" and within(item, "media_type"):
                unmark_bytes(item, "data")
    return record


def _entry(entry: ConversationEntry) -> Fields:
    return {"entry_id": entry.id, "parent_id": entry.parent_id, **_plain(entry.message)}


def _messages_in(texts: Sequence[bytes]) -> list[ModelMessage]:
    """Return the messages in the JSON of their records. All are parsed together, unless a record
    has marks of ``to_plain`` or halves of surrogate pairs.
    """
    text = b"[%b]" % b",".join(texts)
    if b'{"$' in text or b"\\ud" in text:
        return _messages(map(parse, texts))
    messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(text)
    for message in messages:
        for part in (message, *message.parts):
            time = getattr(part, "timestamp", None)
            if isinstance(time, datetime) and time.utcoffset() == _NO_OFFSET:
                # The SDK's own times have this time zone too.
                part.timestamp = time.replace(tzinfo=UTC)
    return messages


def _messages(records: Iterable[Fields]) -> list[ModelMessage]:
    """Return the messages of records."""
    values: list[Any] = []
    for record in records:
        value = from_plain(
            {key: field for key, field in record.items() if key not in ("entry_id", "parent_id")}
        )
        for holder in (value, *value["parts"]):
            if "timestamp" in holder:
                holder["timestamp"] = time_from(holder["timestamp"])
        values.append(value)
    messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(values)
    return messages


class FoldlogSteps(AbstractCapability[Any]):  # type: ignore[misc]
    """Saves every message of a run immediately, so that a killed run can continue.

        store     a ``FoldlogConversationStore``, or open histories, or a URL
        scope     the scope of the saved conversation
        condense  whether a condensation that is due is made before a model call

    The run's ``conversation_id`` names the conversation. A run that begins in a tool of another run
    is its sub-agent: the attributes of its new conversation name the ``parent`` and its call.

    The model is sent the View, in which a summary replaces forgotten messages. The run and the
    stored conversation still have all messages.

    If two runs save to the same conversation at the same time, one run fails with
    ``ConversationConflict``. A run that does not have the newest stored message fails in the same
    way. After a conflict, load the conversation again. To leave messages out, call ``branch``.
    """

    def __init__(
        self,
        store: FoldlogConversationStore | StoreOrUrl,
        *,
        scope: str | None = None,
        condense: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(store, FoldlogConversationStore):
            self.store = store
        else:
            self.store = FoldlogConversationStore(store)
        self.scope = scope
        self.condense = condense
        self._given: Sequence[ModelMessage] = ()
        """The messages with which the run began."""
        self._saved: Conversation | None = None
        """The conversation as it was last saved, or None before the first save of the run."""
        self._now: RunContext[Any] | None = None
        """The context of the last save."""
        self._results: dict[str, ToolReturn[Any]] = {}
        """Maps a call since the last model call to its result."""
        self._caller: RuntimeCall | None = None
        """The tool call in which the run began."""

    async def for_run(self, ctx: RunContext[Any]) -> FoldlogSteps:
        """Return a new capability for a single run."""
        steps = FoldlogSteps(self.store, scope=self.scope, condense=self.condense)
        steps._given = tuple(ctx.messages)
        steps._caller = CURRENT.get()
        return steps

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Save the request before it is sent to a model, and replace its messages with the messages
        of the View. With ``condense``, a condensation that is due is made first.

        Messages that other hooks add stay at the end. If other hooks change earlier messages, the
        request is returned unchanged. Raises ``NoCondensationAvailable`` if a required condensation
        is impossible.
        """
        await self._save(ctx, ctx.messages)
        if self.store.stream:
            await self._end_stream(ctx)  # the model is asked once more
        self._results.clear()
        run = ctx.messages
        messages = request_context.messages
        conversation = self.store.conversation(ctx.conversation_id)
        self.store._sent_beside[conversation] = _sent_beside(request_context)
        if len(messages) < len(run) or not all(map(operator.is_, run, messages)):
            return request_context
        history = self.store.histories.sync[conversation]
        shown = await self.store._run(partial(self._condensed_messages, history))
        if shown is None:
            return request_context
        return replace(request_context, messages=[*shown, *messages[len(run) :]])

    def _condensed_messages(self, history: History) -> list[ModelMessage] | None:
        """Return the messages that are sent to a model, or None if all are sent unchanged."""
        prompt = SentRecords(history, condense=self.condense)
        self.store._asked[history.id] = prompt.view.version
        if prompt.is_all:
            return None
        records = prompt.records(well_formed(prompt.view), _FORMAT)
        return _messages(record for _, record_list in records for record in record_list)

    @property
    def has_wrap_run_event_stream(self) -> bool:
        """Whether the SDK asks the model for a stream even if the program does not."""
        return self.store.stream

    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[Any]
    ) -> AsyncIterator[Any]:
        """Yield the events of a run. If the store has ``stream``, each piece of a reply is stored
        first.
        """
        conversation = self.store.conversation(str(ctx.conversation_id))
        try:
            async for event in stream:
                if self.store.stream and (delta := _delta_of(event)) is not None:
                    feed = partial(self.store._streams.feed, conversation, [delta])
                    await self.store.histories.pool.run(feed, finish=True)
                yield event
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """Save a model's response before its tools are called."""
        await self._save(ctx, ctx.messages)
        return result

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """If a run fails or is cancelled, save the part of the response that was received, and the
        results of its tools.
        """
        try:
            return await handler()
        except BaseException:
            if self._saved is not None and self._now is not None:
                saved = self._saved.messages
                now = [*self._now.messages]
                if len(saved) < len(now) and all(map(operator.is_, saved, now)):
                    # No later run calls these tools.
                    if now[-1].state == "incomplete" and now[-1].tool_calls:
                        now[-1] = replace(now[-1], state="interrupted")
                    await self._save(self._now, now)
                if self.store.stream:
                    await self._end_stream(ctx)
            raise

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Save the last messages of a run."""
        ended = result.conversation
        await self._save(
            ctx, [*ended.messages, *self._results_without_hook(ended)], ended.deferred_tool_requests
        )
        return result

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, args: Any, handler: Any, **others: Any
    ) -> Any:
        """Run a tool. If ``foldlog.effect`` marks the tool, the same call runs at most once. If the
        call was deferred and approved, first record the decision. ``by`` and ``reason`` are those
        of ``DeferredToolResults.metadata``.
        """
        if ctx.tool_call_approved:
            about = ctx.tool_call_metadata or {}
            who = {"by": about.get("by"), "reason": about.get("reason", "")}
            await self._record(ctx, [Approval.decided(call.tool_call_id, True, **who)])
        conversation = self.store.conversation(str(ctx.conversation_id))
        with effect_of(
            self.store, conversation, call.tool_call_id, call.tool_name, call.args_as_dict()
        ):
            return await handler(args)

    async def after_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, result: Any, **others: Any
    ) -> Any:
        """Keep the result of a tool in memory until the next model call."""
        self._results[call.tool_call_id] = (
            result if isinstance(result, ToolReturn) else ToolReturn(result)
        )
        return result

    def _results_without_hook(self, ended: Conversation) -> list[ModelRequest]:
        """Return a request with the results of the calls in the last response. The method is needed
        because ``run_stream`` calls no hook with these results.
        """
        last = ended.messages[-1] if ended.messages else None
        waits = ended.deferred_tool_requests
        if not isinstance(last, ModelResponse) or last.state != "complete":
            return []
        if waits is None:
            waiting = []
        else:
            waiting = [call.tool_call_id for call in (*waits.approvals, *waits.calls)]
        none = ToolReturn("There is no result: the run ended with its final result.")
        call_results = [
            (call, self._results.get(call.tool_call_id, none))
            for call in last.tool_calls
            if call.tool_call_id not in waiting
        ]
        parts = list[Any](
            ToolReturnPart(
                call.tool_name,
                result.return_value,
                call.tool_call_id,
                tool_kind=call.tool_kind,
                metadata=result.metadata,
            )
            for call, result in call_results
        )
        parts += [UserPromptPart(result.content) for _, result in call_results if result.content]
        about = {"run_id": last.run_id, "conversation_id": ended.conversation_id}
        if parts:
            return [ModelRequest(parts, timestamp=parts[0].timestamp, **about)]
        return []

    async def _end_stream(self, ctx: RunContext[Any]) -> None:
        """End a reply that the SDK did not append, because its model failed."""
        assert self._saved is not None
        conversation = self.store.conversation(str(ctx.conversation_id))
        text = self.store._streams.text(conversation)
        if text:
            await self.store._save_cut(self._saved, text)
        await self.store._run(partial(self.store._streams.drop, conversation))

    async def _save(
        self, ctx: RunContext[Any], messages: Sequence[Any], deferred: Any = None
    ) -> None:
        """Save the messages of a run, if they have changed since the last save. ``deferred`` are
        the calls for which the run waits.
        """
        if self._saved is None:
            assert ctx.conversation_id is not None  # every run has an id
            self._saved = await self._continued_conversation(ctx.conversation_id)
            conversation = self.store.conversation(ctx.conversation_id)
            if self._caller is None:
                self.store._callers.pop(conversation, None)
            else:
                self.store._callers[conversation] = self._caller
        saved = self._saved
        self._now = ctx
        same = len(messages) == len(saved.messages) and all(
            map(operator.is_, messages, saved.messages)
        )
        if not same or deferred is not None:
            saved.messages = list(messages)
            saved.usage = replace(ctx.usage)
            saved.deferred_tool_requests = deferred
            await self.store.save(saved, scope=self.scope)
            await self._record(ctx, _approvals_in(messages, deferred))

    async def _record(self, ctx: RunContext[Any], approvals: Sequence[Approval]) -> None:
        histories = self.store.histories
        history = histories.sync[self.store.conversation(str(ctx.conversation_id))]
        await histories.pool.run(partial(record_approvals, history, approvals), finish=True)

    async def _continued_conversation(self, conversation_id: str) -> Conversation:
        """Return the stored conversation that a run continues, without its messages.

        Raises ``ConversationConflict`` if the run does not have the newest stored message. If the
        newest stored message is a request without an answer, a run that begins with all earlier
        messages is accepted too, because it repeats the request.
        """
        record = await self.store.read_record(conversation_id)
        if record is None or record.head_id is None:
            revision = None if record is None else record.revision
            return Conversation(conversation_id=conversation_id, revision=revision)
        newest = (await self.store.read_entry(record.head_id)).message
        plain = _plain(newest)
        history_length = next(
            (n for n in range(len(self._given), 0, -1) if _plain(self._given[n - 1]) == plain), None
        )
        if history_length is None and (
            isinstance(newest, ModelResponse) or not await self._retries_newest(conversation_id)
        ):
            raise ConversationConflict(conversation_id)
        stored = await self._count_stored(record.head_id, history_length)
        return Conversation(
            conversation_id=conversation_id, revision=record.revision, new_message_index=stored
        )

    async def _count_stored(self, head_id: str, history_length: int | None) -> int | None:
        """Return how many messages at the beginning of the run are stored, or None if the caller
        must compare all messages. ``history_length`` counts the messages of the run up to the
        newest stored message. It is the result if the same messages are the newest in the store.
        """
        if history_length is None:
            return None
        chain = await self.store._run(partial(self.store._entries.chain, head_id, history_length))
        (first,) = _messages(chain[:1])
        if len(chain) == history_length and _plain(first) == _plain(self._given[0]):
            return history_length
        return None

    async def _retries_newest(self, conversation_id: str) -> bool:
        """Return whether the run begins with all stored messages except the newest."""
        stored = await self.store.load(conversation_id)
        before = [] if stored is None else stored.messages[:-1]
        return [*map(_plain, self._given[: len(before)])] == [*map(_plain, before)]


def _delta_of(event: Any) -> Delta | None:
    """Return the piece of a reply in an event of a run, or None if the event has no such piece."""
    match event:
        case PartStartEvent(index=at, part=TextPart(content=text)) if text:
            return TextDelta(text, at)
        case PartDeltaEvent(index=at, delta=TextPartDelta(content_delta=text)) if text:
            return TextDelta(text, at)
        case PartStartEvent(index=at, part=ThinkingPart(content=text)) if text:
            return ReasoningDelta(text, at)
        case PartDeltaEvent(index=at, delta=ThinkingPartDelta(content_delta=text)) if text:
            return ReasoningDelta(text, at)
        case PartStartEvent(index=at, part=ToolCallPart() as call):
            return CallDelta(at, call.tool_call_id, call.tool_name, _json_in(call.args))
        case PartDeltaEvent(index=at, delta=ToolCallPartDelta() as delta):
            return CallDelta(at, arguments=_json_in(delta.args_delta))
        case PartEndEvent(index=at, part=ToolCallPart()):
            return CallDelta(at, ends=True)
    return None


def _json_in(arguments: str | dict[str, Any] | None) -> str:
    """Return arguments of a call as JSON. A piece of the JSON is returned unchanged."""
    if isinstance(arguments, str):
        return arguments
    return json_text(to_plain(arguments)) if arguments else ""


def _approvals_in(messages: Sequence[Any], deferred: Any) -> list[Approval]:
    """Return the calls that wait for an approval, and the newest refusals."""
    waiting = () if deferred is None else deferred.approvals
    approvals = [
        Approval.asked(
            call.tool_call_id, to_plain({"tool": call.tool_name, "arguments": call.args_as_dict()})
        )
        for call in waiting
    ]
    if messages:
        for part in messages[-1].parts:
            if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                reason = part.model_response_str()
                approvals.append(Approval.decided(part.tool_call_id, False, reason=reason))
    return approvals
