"""Checkpoints of LangGraph in foldlog: a ``BaseCheckpointSaver``, sync and async.

    with FoldlogSaver("sqlite:///history.db") as saver:
        graph = builder.compile(checkpointer=saver)
        saver.copy_from(other)          # the threads of any open saver, such as a SqliteSaver

The messages of a thread are a conversation in the format ``langchain``: ``saver.history(config)``.
The conversation stores the other parts of a checkpoint as documents. Small values of channels are
in the document ``checkpoint``. Each larger value is a document ``channel:NAME``. A run or an
``update_state`` from an earlier checkpoint begins a fork.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import blake2b
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeGuard

import msgspec
from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint import base
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from foldlog import History
from foldlog.adapters._langgraph.approvals import Question
from foldlog.adapters._langgraph.branches import Checkpoint
from foldlog.adapters._langgraph.channels import (
    ChannelValues,
    is_json,
    next_version,
    pending_writes,
)
from foldlog.adapters._langgraph.checkpoints import Checkpoints, WholeCheckpoint
from foldlog.adapters._langgraph.record_lists import SNAPSHOT, WRITES, Listed, RecordList, Span
from foldlog.adapters._shared import (
    Attributes,
    SentRecords,
    StoreOrUrl,
    WithHistories,
    effect_of,
    erase_all,
    in_thread,
    quote_id,
    recent,
    record_approvals,
    to_plain,
    unquote_id,
    with_those_below,
)
from foldlog.adapters.langchain import FoldlogRequests
from foldlog.adapters.langgraph_deltas import DeltaSnapshot, after_writes, messages_in
from foldlog.eventstore import ConversationErased
from foldlog.formats import Options
from foldlog.projections import View, well_formed
from foldlog.runtimes import Fields, Recent, companion_of, format_named

_Names = tuple[str, str, str]
"""A namespace: the thread's id, the namespace's name, and the id of its first conversation."""


class _OfNamespace(NamedTuple):
    """A checkpoint of a namespace. ``whole`` is the checkpoint with its documents, records and
    notes, or None if only the document ``checkpoint`` was read.
    """

    names: _Names
    found: Checkpoint
    whole: WholeCheckpoint | None = None


class _Walked(NamedTuple):
    """The writes before a checkpoint, for channels that are stored as differences.

    ``seeds`` maps a channel to the last checkpoint with the channel's whole value. ``written`` maps
    a channel to the writes after this checkpoint, with their tasks. ``mark`` changes when a write
    is redacted.
    """

    id: str
    mark: Any
    seeds: dict[str, WholeCheckpoint]
    written: dict[str, list[tuple[str, Any]]]


_PAGE = 20
"""The number of checkpoints that the async ``alist`` reads together."""
_TASKS_IN_MEMORY = 1_000
"""The maximum number of tasks whose calls stay in memory."""
_PASTS_IN_MEMORY = 8
"""The maximum number of threads whose writes stay in memory."""
_ABOVE_ALL = chr(0x10FFFF)
"""A text that sorts after every id of a checkpoint."""
_EPOCH = datetime(1582, 10, 15, tzinfo=UTC)
"""The time in LangGraph's ids is counted from this date."""
_SHOWN = frozenset(("human", "ai", "system", "tool", "chat", "function"))
"""The types of messages that are events. A list with other messages is stored as a value."""


# The SDK is not installed where types are checked.
class FoldlogSaver(WithHistories, base.BaseCheckpointSaver[Any]):  # type: ignore[misc]
    """Stores the checkpoints of threads: ``builder.compile(checkpointer=saver)``.

        histories   the URL of a store, or open histories, sync or async
        serde       the serializer, by default LangGraph's own; with another serializer, messages
                    are not stored as events
        messages    the name of the channel with the messages
        condense    whether ``pre_model_hook`` condenses first, if a condensation is due
        attributes  attributes of each new conversation, such as ``{"user": "u7"}``

    If ``histories`` is a URL, ``close``, ``with`` or ``async with`` closes the store. Many tasks,
    threads and processes may use the same thread of LangGraph.
    """

    def __init__(
        self,
        histories: StoreOrUrl,
        *,
        serde: SerializerProtocol | None = None,
        prefix: str = "langgraph",
        messages: str = "messages",
        condense: bool = False,
        attributes: Attributes = None,
    ) -> None:
        WithHistories.__init__(self, histories, attributes)
        base.BaseCheckpointSaver.__init__(self, serde=serde)
        self._messages = messages
        self._condense = condense
        self._hidden_too = False
        self._prefix = prefix
        self._deltas = Recent[str, _Walked](_PASTS_IN_MEMORY)
        self._calls = Recent[str, str | None](_TASKS_IN_MEMORY)
        """Maps a task to the call that it runs, or to None if it runs several calls."""
        self._questions: dict[tuple[str, str, str], Sequence[Question]] = {}
        """Maps a thread, a checkpoint and a task to the interrupts that are not recorded yet."""
        self.requests = FoldlogRequests()
        """A callback for the config of a run: ``{"callbacks": [saver.requests]}``. Then each reply
        names its request.
        """
        self._checkpoints = self._open_checkpoints()

    def _open_checkpoints(self) -> Checkpoints:
        values = self._values
        return Checkpoints(
            self._sync,
            "langchain",
            values.message,
            values.listed,
            self._attributes_of,
            self.requests.of_replies,
        )

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> FoldlogSaver:
        """Return a copy whose serializer also reads the classes of ``extra_allowlist``."""
        saver: FoldlogSaver = super().with_allowlist(extra_allowlist)
        if saver is not self:
            saver._checkpoints = saver._open_checkpoints()
        return saver

    # -- sync --------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> base.CheckpointTuple | None:
        """Return a checkpoint, by default the newest of the thread, or None if there is no such
        checkpoint.
        """
        conf = config["configurable"]
        checkpoint_id = conf.get("checkpoint_id")
        thread = self._thread(conf)
        if checkpoint_id:
            checkpoint = self._checkpoints.find(thread, checkpoint_id, with_hidden=self._hidden_too)
            whole = None
            if checkpoint is not None:
                with suppress(ConversationErased):  # The thread was deleted after it was read.
                    whole = self._checkpoints.whole(thread, checkpoint)
        else:
            whole, _ = self._checkpoints.newest(thread, with_hidden=self._hidden_too)
        if whole is None:
            return None
        return self._tuple(
            conf["thread_id"],
            conf.get("checkpoint_ns", ""),
            whole,
            None if checkpoint_id else thread,
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: Fields | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[base.CheckpointTuple]:
        """Yield checkpoints, the newest first. The order is the order of the checkpoints' ids,
        which contain the time of the writer's clock. Checkpoints are read while the caller
        iterates.

        With ``limit``, only the most recently active threads are read. Without ``limit``, all
        threads of the config are read.
        """
        conf = config["configurable"] if config else {}
        stop = None if before is None else before["configurable"].get("checkpoint_id")
        listed = self._listed(conf, stop, filter or {}, limit)
        return islice(self._tuples(listed), limit)

    def _tuples(self, listed: Iterable[_OfNamespace]) -> Iterator[base.CheckpointTuple]:
        for (thread_id, namespace, thread), checkpoint, whole in listed:
            try:
                whole = whole or self._checkpoints.whole(thread, checkpoint)
            except ConversationErased:  # The thread was deleted after it was listed.
                continue
            yield self._tuple(thread_id, namespace, whole)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: base.Checkpoint,
        metadata: base.CheckpointMetadata,
        new_versions: base.ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint after its parent, and return its config. The checkpoint is on disk
        when the method returns.

        A channel that is not in ``new_versions`` has the parent's value.
        """
        conf = config["configurable"]
        codec = self._values
        values = dict(checkpoint["channel_values"])
        rest = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        body: Fields = {
            "rest": codec.packed(rest),
            "metadata": codec.packed(base.get_checkpoint_metadata(config, metadata)),
        }
        thread = self._thread(conf)
        parent = conf.get("checkpoint_id") or None
        value = values.get(self._messages)
        listed: Callable[[Checkpoint, RecordList], Listed | None] = _no_records
        messages = value.value if isinstance(value, DeltaSnapshot) else value
        if codec.are_messages(messages):
            listed = partial(_same_records, codec.listed(messages))
            del values[self._messages]
            if messages is not value:
                body |= {"delta": SNAPSHOT}
        elif (
            codec.readable
            and self._messages in checkpoint["channel_versions"]
            and self._messages not in values
        ):
            listed = partial(self._after_writes, thread, parent)
            body["delta"] = WRITES
        channels = partial(codec.changed, values, checkpoint["channel_versions"], new_versions)
        self._checkpoints.put(thread, checkpoint["id"], parent, body, channels, listed)
        self._record_questions(thread, checkpoint["id"])
        return _config_of(conf["thread_id"], conf.get("checkpoint_ns", ""), checkpoint["id"])

    def _after_writes(
        self, thread: str, parent: str | None, before: Checkpoint, records: RecordList
    ) -> Listed | None:
        """Apply the writes that are stored with the parent, and return the resulting messages, or
        None if the writes cannot be applied.
        """
        codec = self._values
        notes = (
            self._checkpoints.notes_here(thread, parent) if parent and parent == before.id else ()
        )
        written = [
            codec.unpacked(packed)
            for _, name, packed in pending_writes(notes)
            if name == self._messages
        ]
        writes = [messages for messages in map(messages_in, written) if messages is not None]
        if len(writes) < len(written) or (before.ranges is None and not writes):
            return None
        return after_writes(
            records, writes, codec.key, codec.record, partial(self._checkpoints.record, before)
        )

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Add the writes of a task to a checkpoint. The checkpoint may be stored after its writes.
        The writes are on disk when the method returns.

        An interrupt that asks about a call, and its answer, are recorded as approvals.
        """
        rows = [
            (base.WRITES_IDX_MAP.get(name, place), name, value)
            for place, (name, value) in enumerate(writes)
        ]
        conf = config["configurable"]
        thread = self._thread(conf)
        place = (thread, conf["checkpoint_id"])
        by = config.get("metadata", {}).get("by")
        questions = self._questions_in(place, task_id, dict(writes), by)
        self._put_rows(config, task_id, task_path, rows)
        if questions:
            # Before the checkpoint is looked for, because another thread may store it now.
            self._questions[(*place, task_id)] = questions
            self._record_questions(*place)

    def _questions_in(
        self, place: tuple[str, str], task_id: str, written: Mapping[str, Any], by: str | None
    ) -> Sequence[Question]:
        """Return the interrupt that a task has answered, and the interrupts at which it stops.
        ``place`` is a thread and a checkpoint. The answer of a run has no task, and is repeated by
        the task that reads it.
        """
        asked = [(value, tuple[Any, ...]()) for value in _interrupts(written.get(base.INTERRUPT))]
        match written.get(base.RESUME):
            case [*_, answer]:
                answers = (to_plain(answer, unknown=True),)
                asked[:0] = [
                    (value, answers)
                    for task, name, packed in pending_writes(self._checkpoints.notes_here(*place))
                    if (task, name) == (task_id, base.INTERRUPT)
                    for value in _interrupts(self._values.unpacked(packed))
                ]
        call_id = self._calls.get(task_id)
        return [
            Question(to_plain(value, unknown=True), call_id, answers, by)
            for value, answers in asked
        ]

    def _record_questions(self, thread: str, checkpoint_id: str) -> None:
        """Record what a checkpoint's tasks asked and were answered, once the checkpoint is
        stored.
        """
        keys = [key for key in [*self._questions] if key[:2] == (thread, checkpoint_id)]
        found = self._checkpoints.find(thread, checkpoint_id, with_hidden=True) if keys else None
        if found is not None:
            history = self._sync[found.branch]
            for key in keys:
                for question in self._questions.pop(key, ()):
                    open_calls = history.at(found.version).open_calls
                    record_approvals(history, question.approvals(open_calls))

    def _put_rows(
        self,
        config: RunnableConfig,
        task_id: str,
        task_path: str,
        rows: Sequence[tuple[int, str, Any]],
    ) -> None:
        """Add writes of a task to a checkpoint. Each row has the index, the channel and the value
        of a write.
        """
        conf = config["configurable"]
        data = {
            "task": task_id,
            "path": task_path,
            "writes": [[place, name, self._values.packed(value)] for place, name, value in rows],
        }
        self._checkpoints.note(self._thread(conf), conf["checkpoint_id"], "langgraph-writes", data)

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread with all its namespaces, as ``Histories.erase`` does. A new thread may use
        the same id.
        """
        erase_all(
            self._sync,
            with_those_below(self._sync, self._first_conversation(thread_id)),
            "the thread was deleted",
        )

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Hide the checkpoints of these runs. Hidden checkpoints stay in the log. Cost: reading all
        checkpoints of the store.
        """
        runs = frozenset(run_ids)
        if runs:
            for _, _, thread in self._namespaces():
                walked = self._checkpoints.walk(thread)
                if ids := [
                    checkpoint.id
                    for checkpoint in walked
                    if self._values.metadata(checkpoint).get("run_id") in runs
                ]:
                    self._checkpoints.hide(thread, ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with their writes, to another thread. A second copy
        adds only new checkpoints.
        """
        self._copy(self.list({"configurable": {"thread_id": source_thread_id}}), target_thread_id)

    def copy_from(self, other: base.BaseCheckpointSaver[Any]) -> int:
        """Copy all threads of another open saver, with their writes. Return the number of new
        checkpoints.

        A second copy adds only new checkpoints, but reads all checkpoints of the other saver.
        """
        return self._copy(other.list(None))

    def _copy(self, checkpoints: Iterable[base.CheckpointTuple], target: str | None = None) -> int:
        """Copy checkpoints with their writes, and return the number of new checkpoints. If
        ``target`` is None, each checkpoint is copied to the thread that its config names.
        """
        added = 0
        for original in sorted(checkpoints, key=lambda found: str(found.checkpoint["id"])):
            conf = original.config["configurable"]
            checkpoint_id = original.checkpoint["id"]
            thread_id = conf["thread_id"] if target is None else target
            namespace = conf.get("checkpoint_ns", "")
            thread = self._first_conversation(thread_id, namespace)
            if self._checkpoints.find(thread, checkpoint_id, with_hidden=True) is None:
                parent = (original.parent_config or {}).get("configurable", {}).get("checkpoint_id")
                config = _config_of(thread_id, namespace, parent)
                self.put(
                    config,
                    original.checkpoint,
                    original.metadata,
                    original.checkpoint["channel_versions"],
                )
                added += 1
            notes = (
                self._checkpoints.notes(thread, checkpoint_id) if original.pending_writes else ()
            )
            places = {(note["task"], place) for note in notes for place, _, _ in note["writes"]}
            tasks: dict[str, list[tuple[int, str, Any]]] = defaultdict(list)
            for task, name, value in original.pending_writes or ():
                tasks[task].append((base.WRITES_IDX_MAP.get(name, len(tasks[task])), name, value))
            # A saver does not return the paths of tasks.
            for number, (task, rows) in enumerate(tasks.items()):
                if new := [row for row in rows if (task, row[0]) not in places]:
                    self._put_rows(
                        _config_of(thread_id, namespace, checkpoint_id), task, f"{number:08}", new
                    )
        return added

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Hide all checkpoints except the newest of each namespace. With the strategy ``delete``,
        erase the threads instead.

        Hidden checkpoints stay in the log, because channels that are stored as differences need
        them.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy is {strategy!r}; use 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            for _, _, thread in self._namespaces(thread_id):
                if (newest := self._checkpoints.find(thread)) is not None:
                    self._checkpoints.hide(thread, below=newest.id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return the writes of channels that are stored as differences, and the last whole value
        (the *seed*) of each channel. ``BaseCheckpointSaver`` describes the result.

        The checkpoints since the last snapshot are read, with their writes.
        """
        if not channels:
            return {}
        conf = config["configurable"]
        names = frozenset(channels)
        thread = self._thread(conf)
        target = self._checkpoints.find(thread, conf.get("checkpoint_id"), with_hidden=True)
        if target is None:
            return {name: {"writes": []} for name in channels}
        mark = self._checkpoints.mark(thread, target.branch)
        cached = self._deltas.get(thread)
        if cached is None or cached.mark != mark or cached.written.keys() != names:
            cached = _Walked("", mark, {}, {name: [] for name in names})
        walked = self._walk_on(thread, target, cached)
        self._deltas[thread] = walked
        seeds = {of.checkpoint.id: self._value(of) for of in walked.seeds.values()}
        history = Fields()
        for name in channels:
            unpacked = self._values.fresh
            history[name] = {
                "writes": [(task, name, unpacked(packed)) for task, packed in walked.written[name]]
            }
            if name in walked.seeds:
                history[name]["seed"] = seeds[walked.seeds[name].checkpoint.id][name]
        return history

    def _walk_on(self, thread: str, target: Checkpoint, cached: _Walked) -> _Walked:
        """Return the writes before the checkpoint ``target``. ``cached`` has the writes
        before an earlier checkpoint, so that only later writes are read.
        """
        if target.id == cached.id:
            return cached
        line = list[Checkpoint]()
        seeds = dict[str, WholeCheckpoint]()
        since = dict[str, int]()
        is_known = False
        for checkpoint in self._checkpoints.line(thread, target):
            line.append(checkpoint)
            channels = [
                name
                for name in cached.written
                if name not in seeds and self._has_value(checkpoint, name)
            ]
            if channels:
                whole = self._checkpoints.whole(thread, checkpoint)
                there = self._value(whole).keys() & {*channels}  # redacted values are missing
                seeds |= dict.fromkeys(there, whole)
                since |= dict.fromkeys(there, len(line))
            is_known = checkpoint.id == cached.id
            if is_known or len(seeds) == len(cached.written):
                break
        before = {
            name: cached.written[name] if is_known and name not in seeds else []
            for name in cached.written
        }
        notes = self._checkpoints.all_notes(thread, [checkpoint.id for checkpoint in line])
        written = {name: list(before[name]) for name in before}
        for steps, checkpoint in reversed([*enumerate(line)]):
            for task, name, packed in pending_writes(notes[checkpoint.id]):
                if name in written and steps < since.get(name, len(line)):
                    written[name].append((task, packed))
        return _Walked(
            target.id,
            cached.mark,
            (cached.seeds if is_known else {}) | seeds,
            written,
        )

    def _value(self, whole: WholeCheckpoint) -> Fields:
        """Return the values of a checkpoint's channels."""
        values: Fields = self._tuple(None, "", whole).checkpoint["channel_values"]
        return values

    def _has_value(self, checkpoint: Checkpoint, channel: str) -> bool:
        """Return whether a checkpoint has the whole value of a channel."""
        if channel == self._messages and checkpoint.ranges is not None:
            return checkpoint.delta != WRITES
        return checkpoint.value is not None and channel in checkpoint.value["channels"]

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the channel version that follows ``current``. A version is a whole number, or a
        text if the thread was copied from another saver.
        """
        return next_version(current)

    # -- async -------------------------------------------------------------------------------------

    aget_tuple = in_thread(get_tuple)
    aput = in_thread(put, finish=True)
    aput_writes = in_thread(put_writes, finish=True)
    adelete_thread = in_thread(delete_thread, finish=True)
    adelete_for_runs = in_thread(delete_for_runs, finish=True)
    acopy_thread = in_thread(copy_thread, finish=True)
    aprune = in_thread(prune, finish=True)
    aget_delta_channel_history = in_thread(get_delta_channel_history)

    async def alist(
        self, config: RunnableConfig | None, **options: Any
    ) -> AsyncIterator[base.CheckpointTuple]:
        """Yield the same checkpoints as ``list``, with the same options."""
        listed = self.list(config, **options)
        while page := await self.histories.pool.run(lambda: [*islice(listed, _PAGE)], finish=False):
            for checkpoint in page:
                yield checkpoint

    # -- the history and condensing ----------------------------------------------------------------

    def history(self, config: RunnableConfig) -> History:
        """Return the history with the messages of a checkpoint, by default the newest of the
        thread.
        """
        conf = config["configurable"]
        thread = self._thread(conf)
        checkpoint = self._checkpoints.find(thread, conf.get("checkpoint_id"))
        return self._sync[thread if checkpoint is None else checkpoint.branch]

    def pre_model_hook(self, state: Mapping[str, Any], config: RunnableConfig) -> Fields:
        """Return the messages of ``history.sent`` as ``{"llm_input_messages": […]}``. The graph's
        state still has all messages.

        In a middleware, call this method with ``{"messages": request.messages}``. Messages that are
        not in a checkpoint yet stay at the end, unchanged. With the durability ``sync``, all
        messages are in a checkpoint. A call without its result is not sent.
        """
        conf = config["configurable"]
        codec = self._values
        messages = convert_to_messages(state[self._messages])
        graph = {
            "thread_id": conf["thread_id"],
            "checkpoint_ns": conf.get("checkpoint_ns", "").rpartition("|")[0],
        }
        prompt = None
        recorded = list[tuple[Span, bytes]]()
        try:
            history = self.history({"configurable": graph})
            prompt = SentRecords(history, condense=self._condense)
            recorded = self._checkpoints.newest_records(
                self._thread(graph), history.id, prompt.view.version
            )
        except ConversationErased:  # the thread was deleted during the run
            pass
        count = len(recorded)
        if not 0 < count <= len(messages) or recorded[-1][1] != codec.key(messages[count - 1]):
            # The stored messages belong to another branch.
            prompt = None
            recorded = []
            count = 0
        view = View.from_events(()) if prompt is None else prompt.view
        there = {number for span, _ in recorded for number in range(*span)}
        decoder = format_named("langchain").reader(Options())
        decoder.skip_to(view.version)
        later = [decoder.events(message_to_dict(message)) for message in messages[count:]]
        stored = (event for event in view if event.id < 0 or event.id in there)
        whole = well_formed(view.with_events(chain(stored, *later)))
        if len(whole) == len(there) + sum(map(len, later)) and (prompt is None or prompt.is_all):
            return {"llm_input_messages": messages}
        ids = {event.id for event in whole}
        shown = [event for event in whole if event.id < view.version]
        records = () if prompt is None else prompt.records(shown, "langchain")
        sent = [codec.message(record) for _, record_list in records for record in record_list]
        sent += (
            message
            for message, events in zip(messages[count:], later, strict=True)
            if events[0].id in ids
        )
        return {"llm_input_messages": sent}

    # -- effects -----------------------------------------------------------------------------------

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Let each tool that ``foldlog.effect`` marks run at most once for each call. Pass the
        method to ``ToolNode(tools, wrap_tool_call=…)``, or wrap it with the middleware
        ``wrap_tool_call`` of ``langchain.agents``.
        """
        with self._effect_of(request):
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do what ``wrap_tool_call`` does, for an async handler."""
        with self._effect_of(request):
            return await handler(request)

    def _effect_of(self, request: Any) -> AbstractContextManager[None]:
        """Set the current tool call in a block, and note which call the task runs."""
        call = request.tool_call
        conf = request.runtime.config["configurable"]
        task = conf.get("checkpoint_ns", "").rpartition(":")[2]
        is_only = self._calls.get(task, call["id"]) == call["id"]
        self._calls[task] = call["id"] if is_only else None
        return effect_of(
            self,
            self._first_conversation(conf["thread_id"]),
            call["id"],
            call["name"],
            call["args"],
        )

    # -- threads -----------------------------------------------------------------------------------

    def _first_conversation(self, thread_id: Any, namespace: str = "") -> str:
        """Return the id of a namespace's first conversation: ``PREFIX/THREAD`` or
        ``PREFIX/THREAD/NAMESPACE``.
        """
        name = f"{self._prefix}/{quote_id(str(thread_id))}"
        return f"{name}/{quote_id(namespace)}" if namespace else name

    def _attributes_of(self, conversation: str) -> Mapping[str, Any]:
        thread, namespace, _ = self._namespace_of(conversation)
        if not namespace or companion_of(conversation):
            return self._attributes
        outer = self._first_conversation(thread, namespace.rpartition("|")[0])
        return {**self._attributes, "parent": outer}

    def _thread(self, conf: Mapping[str, Any]) -> str:
        """Return the id of the first conversation of the thread that a config names."""
        return self._first_conversation(conf["thread_id"], conf.get("checkpoint_ns", ""))

    def _namespace_of(self, conversation: str) -> _Names:
        """Return the namespace to which a conversation belongs. It may be a fork or a companion."""
        own = companion_of(conversation) or conversation
        names = own.removeprefix(f"{self._prefix}/").split("/")
        if names[-1].startswith("@"):  # a fork
            names.pop()
        thread = unquote_id(names[0])
        namespace = unquote_id(names[1]) if len(names) > 1 else ""
        return thread, namespace, self._first_conversation(thread, namespace)

    def _namespaces(self, thread_id: Any = None) -> Iterator[_Names]:
        """Yield the namespaces of one thread, or of all threads, even if their first conversations
        were erased.
        """
        name = self._prefix if thread_id is None else self._first_conversation(thread_id)
        rows = with_those_below(self._sync, name)
        yield from dict.fromkeys(
            self._namespace_of(row.id) for row in rows if row.id != self._prefix
        )

    def _recent_namespaces(self) -> Iterator[tuple[str, _Names]]:
        """Yield the namespaces of all threads, the most recently active first.

        Each namespace is yielded with an id that is greater than all checkpoint ids in the
        namespace. Conversations are read while the caller iterates.
        """
        visited = set[_Names]()
        for row in recent(self._sync, {}):
            names = self._namespace_of(row.id)
            if row.id.startswith(f"{self._prefix}/") and names not in visited:
                visited.add(names)
                yield _id_after(row.updated_at), names

    def _listed(
        self,
        conf: Mapping[str, Any],
        before: str | None,
        metadata: Mapping[str, Any],
        limit: int | None,
    ) -> Iterator[_OfNamespace]:
        """Yield the checkpoints that a config names, the newest checkpoint first.

        Only checkpoints with this ``metadata`` and with ids below ``before`` are yielded.
        Checkpoints are read while the caller iterates.
        """
        checkpoint_id = conf.get("checkpoint_id")
        namespace = conf.get("checkpoint_ns")
        thread_id = conf.get("thread_id")
        if thread_id is None and limit is not None:
            there = self._recent_namespaces()
        else:
            there = ((_ABOVE_ALL, names) for names in self._namespaces(thread_id))
        for candidate in self._merge_by_age(
            (bound, names) for bound, names in there if namespace in (None, names[1])
        ):
            checkpoint = candidate.found
            if (
                (not checkpoint_id or checkpoint.id == checkpoint_id)
                and (not before or checkpoint.id < before)
                and self._has(metadata, checkpoint)
            ):
                yield candidate

    def _merge_by_age(self, there: Iterable[tuple[str, _Names]]) -> Iterator[_OfNamespace]:
        """Yield the checkpoints of namespaces, the newest checkpoint first.

        Each namespace comes with a bound: an id that is greater than all checkpoint ids in this
        namespace and in the namespaces after it. Before a namespace is read, all checkpoints of
        earlier namespaces with ids above the bound are yielded.
        """
        # The next checkpoint of each namespace, the newest last, and the checkpoints after it.
        heads: list[tuple[_OfNamespace, Iterator[Checkpoint]]] = []

        def walk_on(names: _Names, walk: Iterator[Checkpoint]) -> None:
            for checkpoint in islice(walk, 1):
                insort(heads, (_OfNamespace(names, checkpoint), walk), key=_id_of)

        for bound, names in chain(there, [("", None)]):
            while heads and heads[-1][0].found.id > bound:
                head, walk = heads.pop()
                yield head
                walk_on(head.names, walk)
            # Many namespaces may be read before the first checkpoint is yielded.
            if names is not None and bound == _ABOVE_ALL:
                walk_on(names, self._checkpoints.walk(names[2]))
            elif names is not None:
                whole, walk = self._checkpoints.newest(names[2])
                if whole is not None:
                    head = _OfNamespace(names, whole.checkpoint, whole)
                    insort(heads, (head, walk), key=_id_of)

    # -- values ------------------------------------------------------------------------------------

    @property
    def _values(self) -> _Values:
        return _Values(self.serde)  # a copy by ``with_allowlist`` has another serializer

    def _has(self, criteria: Mapping[str, Any], checkpoint: Checkpoint) -> bool:
        """Return whether the metadata of a checkpoint has these values."""
        metadata = self._values.metadata(checkpoint) if criteria else {}
        return all(metadata.get(key) == value for key, value in criteria.items())

    def _tuple(
        self, thread_id: Any, namespace: str, whole: WholeCheckpoint, newest_of: str | None = None
    ) -> base.CheckpointTuple:
        """Return a checkpoint in LangGraph's format. If it is the newest checkpoint of a thread,
        ``newest_of`` is the thread's id.
        """
        checkpoint = whole.checkpoint
        codec = self._values
        value = whole.documents["checkpoint"]
        channels = codec.channels(whole.documents)
        if checkpoint.ranges is not None and checkpoint.delta != WRITES:
            messages = list(whole.values)
            channels[self._messages] = DeltaSnapshot(messages) if checkpoint.delta else messages
            if newest_of is not None:
                self._checkpoints.remember(newest_of, whole)
        return base.CheckpointTuple(
            _config_of(thread_id, namespace, checkpoint.id),
            {**codec.unpacked(value["rest"]), "channel_values": channels},
            codec.unpacked(value["metadata"]),
            None
            if checkpoint.parent is None
            else _config_of(thread_id, namespace, checkpoint.parent),
            [
                (task, name, codec.unpacked(packed))
                for task, name, packed in pending_writes(whole.notes)
            ],
        )


class _Values(ChannelValues):
    """Converts messages into records, and other values of channels into JSON, and back."""

    def __init__(self, serde: SerializerProtocol) -> None:
        super().__init__(serde, readable=isinstance(serde, JsonPlusSerializer))

    def are_messages(self, value: Any) -> TypeGuard[list[BaseMessage]]:
        """Return whether a value is a list of messages that are stored as events."""
        return self.readable and type(value) is list and all(map(_is_message, value))

    def key(self, message: BaseMessage) -> bytes:
        """Return a key by which a message is recognized: within one process, equal messages have
        equal keys.
        """
        # A key from the serializer's bytes takes three times as long (``benchmarks.adapters``).
        kind: Any = type(message)
        named = kind.__qualname__, _fields_of(kind)(vars(message)), message.__pydantic_extra__
        try:
            text = msgspec.json.encode(named, enc_hook=self.serde.dumps_typed)
        except (
            TypeError,
            ValueError,
            OverflowError,
        ):  # half a surrogate pair, or a number of more than 64 bits
            text = self._dump_typed(message)
        return blake2b(text, digest_size=16).digest()

    def _dump_typed(self, message: BaseMessage) -> bytes:
        kind, written = self.serde.dumps_typed(message)
        return bytes(kind.encode() + written)

    def listed(self, messages: Sequence[BaseMessage]) -> Listed:
        """Return the keys and ids of messages, and a function that makes their records."""
        ids = [message.id for message in messages]
        return Listed(
            list(map(self.key, messages)), ids, lambda place: self.record(messages[place])
        )

    def record(self, message: BaseMessage) -> Fields:
        """Return the record of a message. If the message cannot be restored from JSON alone, the
        record also has the serializer's bytes.
        """
        record = message_to_dict(message)
        if is_json(record) and self._dump_typed(
            messages_from_dict([record])[0]
        ) == self._dump_typed(message):
            return dict(record)
        data = {key: value for key, value in record["data"].items() if is_json(value)}
        return {"type": record["type"], "data": data, "typed": self.packed(message)}

    def message(self, record: Mapping[str, Any]) -> BaseMessage:
        """Return the message of a record."""
        message: BaseMessage
        if "typed" in record:
            message = self.unpacked(record["typed"])
        else:
            (message,) = messages_from_dict([record])
        return message


@cache
def _fields_of(kind: type[BaseMessage]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that returns the field values of a message of this class."""
    # Cached, because pydantic takes longer to list the fields than to encode their values
    # (``benchmarks.adapters``).
    return itemgetter(*kind.model_fields)


def _no_records(before: Checkpoint, records: RecordList) -> None:
    """Say that a checkpoint has no list of messages: see ``Checkpoints.put``."""
    return None


def _same_records(listed: Listed, before: Checkpoint, records: RecordList) -> Listed:
    """Return the list of a checkpoint that has all its messages: see ``Checkpoints.put``."""
    return listed


def _interrupts(written: Any) -> list[Any]:
    """Return the values of the interrupts in a write of a task."""
    return [value.value for value in written if hasattr(value, "value")] if written else []


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, BaseMessage) and value.type.removesuffix("MessageChunk").lower() in _SHOWN
    )


def _config_of(thread_id: Any, namespace: str, checkpoint_id: str | None) -> Fields:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _id_after(time: datetime) -> str:
    """Return a text that sorts before every id that LangGraph makes after ``time``. Its ids are
    UUIDs of version 6, which begin with the number of 100 ns since ``_EPOCH``.
    """
    ticks = ((time - _EPOCH) // timedelta(microseconds=1) + 1) * 10
    return f"{ticks >> 28:08x}-{ticks >> 12 & 0xFFFF:04x}-6{ticks & 0xFFF:03x}"


def _id_of(head: tuple[_OfNamespace, object]) -> str:
    return head[0].found.id
