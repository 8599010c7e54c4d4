"""Checkpoints of LangGraph in foldlog: a ``BaseCheckpointSaver``, sync and async.

    with FoldlogSaver("sqlite:///history.db") as saver:
        graph = builder.compile(checkpointer=saver)

The messages of a thread are a conversation of the format ``langchain``: ``saver.history(config)``. The other parts of a
checkpoint are its documents: ``checkpoint``, and ``channel:NAME`` for each other channel. Values that JSON cannot hold
are stored as the serializer writes them. Time travel and ``update_state`` of an earlier checkpoint begin a fork.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from condensers import Condensation
from foldlog.adapters.langgraph_values import (
    Placed,
    Values,
    config_of,
    conversation_of,
    model_input,
    namespace_of,
    next_version,
    pending_writes,
)
from foldlog.adapters.without_sdk.checkpoint_reading import WholeCheckpoint
from foldlog.adapters.without_sdk.checkpoints import Checkpoints
from foldlog.adapters.without_sdk.opening import HistoriesGiven, WithHistories, in_thread
from foldlog.history import History

__all__ = ["FoldlogSaver"]

_PAGE = 20


class FoldlogSaver(WithHistories, BaseCheckpointSaver[Any]):  # type: ignore[misc] # the SDK is not installed where types are checked
    """Keeps the checkpoints of threads: what ``builder.compile(checkpointer=...)`` takes.

    ``histories``  the URL of a store, or open histories of either face. A store that was opened by its URL is closed by
                   ``close``, or by ``with`` and ``async with``
    ``serde``      the serializer, LangGraph's own by default. With another one, such as one that encrypts, messages are
                   kept as that one writes them, and are no history
    ``messages``   the name of the channel that is the history
    ``condense``   whether ``pre_model_hook`` and ``model_input`` condense, where the condenser of ``histories`` says so

    Any number of tasks, threads and processes may use one thread of LangGraph.
    """

    def __init__(
        self,
        histories: HistoriesGiven,
        *,
        serde: SerializerProtocol | None = None,
        prefix: str = "langgraph",
        messages: str = "messages",
        condense: bool = False,
    ) -> None:
        WithHistories.__init__(self, histories)
        BaseCheckpointSaver.__init__(self, serde=serde)
        self._prefix, self._messages, self._condense = prefix, messages, condense
        values = Values(self.serde)
        self.checkpoints = Checkpoints(
            self.histories.sync, "langchain", lambda record: values.key(values.message(record))
        )
        self._hidden_too = False

    # -- sync ---------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest one of the thread, as it was put; None if it does not exist."""
        conf = config["configurable"]
        wanted, thread = conf.get("checkpoint_id"), self.thread(conf)
        if not wanted:
            whole = self.checkpoints.newest(thread, hidden=self._hidden_too)
        else:
            found = self.checkpoints.find(thread, wanted, hidden=self._hidden_too)
            whole = None if found is None else self.checkpoints.whole(thread, found)
        if whole is None:
            return None
        return self._tuple(conf["thread_id"], conf.get("checkpoint_ns", ""), whole, newest=not wanted)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest of each thread and namespace first. They are read lazily."""
        return islice(self._listed(config["configurable"] if config else {}, filter or {}, before), limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: GraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Put a checkpoint after its parent. Return its config. Durability: on disk when it returns.

        A channel that has the version of the parent and is not in ``new_versions`` has the parent's value.
        """
        conf = config["configurable"]
        values = dict(checkpoint["channel_values"])
        rest = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        messages: list[BaseMessage] | None = None
        if self._values.are_messages(values.get(self._messages)):
            messages = values.pop(self._messages)
        body = {
            "rest": self._values.packed(rest),
            "metadata": self._values.packed(get_checkpoint_metadata(config, metadata)),
            "channels": list(values),
        }
        keys = None if messages is None else list(map(self._values.key, messages))
        record = partial(self._values.record, messages or ())
        documents = partial(self._values.changed, values, checkpoint["channel_versions"], new_versions)
        thread = self.thread(conf)
        self.checkpoints.put(thread, checkpoint["id"], conf.get("checkpoint_id"), body, documents, keys, record)
        return config_of(conf["thread_id"], conf.get("checkpoint_ns", ""), checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Add writes of a task to a checkpoint, which may be put later. Durability: on disk when it returns."""
        rows = [[WRITES_IDX_MAP.get(name, place), name, value] for place, (name, value) in enumerate(writes)]
        self.put_rows(config, task_id, task_path, rows)

    def put_rows(self, config: RunnableConfig, task_id: str, task_path: str, rows: Sequence[Sequence[Any]]) -> None:
        """Add writes whose index is known: each is an index, a channel and a value. See ``put_writes``."""
        conf = config["configurable"]
        data = {
            "checkpoint": conf["checkpoint_id"],
            "task": task_id,
            "path": task_path,
            "writes": [[place, name, self._values.packed(value)] for place, name, value in rows],
        }
        self.checkpoints.note(self.thread(conf), conf["checkpoint_id"], "langgraph-writes", data)

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread with all of its namespaces: its bytes are gone when this returns. Its id may be used again."""
        rows = self.checkpoints.conversations(self.thread({"thread_id": thread_id}))
        self.checkpoints.erase(rows, "the thread was deleted")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Hide the checkpoints of these runs. The log keeps them. Cost: all checkpoints of the store."""
        runs = frozenset(run_ids)
        for _, _, thread in self._threads(None) if runs else ():
            walked = self.checkpoints.walk(thread)
            ids = [each.id for each in walked if self._values.metadata(each).get("run_id") in runs]
            if ids:
                self.checkpoints.hide(thread, ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to another one, with their writes. Copying again adds only new ones."""
        for _, namespace, thread in self._threads(source_thread_id):
            target = self.thread({"thread_id": target_thread_id, "checkpoint_ns": namespace})
            self.checkpoints.copy(thread, target)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Hide all checkpoints but the newest of each namespace, or with the strategy ``delete`` erase threads.

        The log keeps hidden checkpoints, so channels that are stored as differences stay whole.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy is {strategy!r}; use 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            for _, _, thread in self._threads(thread_id):
                if (newest := self.checkpoints.find(thread)) is not None:
                    self.checkpoints.hide(thread, below=newest.id)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, Any]:
        """Return the writes and the seed of channels that are stored as differences: see ``BaseCheckpointSaver``."""
        whole = copy.copy(self)
        whole._hidden_too = True
        history: Mapping[str, Any] = super(FoldlogSaver, whole).get_delta_channel_history(
            config=config, channels=channels
        )
        return history

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version after ``current``: a whole number, or a text where the thread came from another saver."""
        return next_version(current)

    # -- async --------------------------------------------------------------------------------------------------------

    aget_tuple = in_thread(get_tuple)
    aput = in_thread(put, finish=True)
    aput_writes = in_thread(put_writes, finish=True)
    adelete_thread = in_thread(delete_thread, finish=True)
    adelete_for_runs = in_thread(delete_for_runs, finish=True)
    acopy_thread = in_thread(copy_thread, finish=True)
    aprune = in_thread(prune, finish=True)
    aget_delta_channel_history = in_thread(get_delta_channel_history)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """Yield what ``list`` yields, with the same options."""
        listed = self.list(config, **options)
        while page := await self.histories.pool.run(lambda: [*islice(listed, _PAGE)], finish=False):
            for each in page:
                yield each

    # -- the history and condensing ----------------------------------------------------------------------------------

    def history(self, config: RunnableConfig) -> History:
        """Return the history of the messages that led to a checkpoint, by default to the newest one of the thread."""
        conf = config["configurable"]
        thread = self.thread(conf)
        found = self.checkpoints.find(thread, conf.get("checkpoint_id"))
        return self.histories.sync[thread if found is None else found.branch]

    def pre_model_hook(self, state: Mapping[str, Any], config: RunnableConfig) -> dict[str, Any]:
        """Return the model's input with the condensed messages replaced by their summary. The state keeps all messages.

        It is a node for ``create_react_agent(..., pre_model_hook=saver.pre_model_hook)``. In a middleware, call it with
        ``{"messages": request.messages}``. Messages that are in no checkpoint yet stay at the end.
        """
        conf, messages = config["configurable"], list(state[self._messages])
        graph = {"thread_id": conf["thread_id"], "checkpoint_ns": conf.get("checkpoint_ns", "").rpartition("|")[0]}
        history = self.history({"configurable": graph})
        while self._condense and isinstance(history.step(), Condensation):
            continue
        recorded = self.checkpoints.newest_records(self.thread(graph))
        return {"llm_input_messages": model_input(messages, recorded, history.view, self._values)}

    @property
    def _values(self) -> Values:
        return Values(self.serde)  # ``with_allowlist`` gives another serializer to a copy

    # -- names --------------------------------------------------------------------------------------------------------

    def thread(self, conf: Mapping[str, Any]) -> str:
        """Return the first conversation of the thread and the namespace of a config."""
        return conversation_of(self._prefix, conf)

    def _threads(self, thread_id: Any) -> Iterator[tuple[str, str, str]]:
        """Yield thread id, namespace and first conversation of one thread or of all."""
        name = self._prefix if thread_id is None else self.thread({"thread_id": thread_id})
        for row in self.checkpoints.conversations(name):
            if (found := namespace_of(self._prefix, row.id)) is not None:
                yield *found, row.id

    def _listed(
        self, conf: Mapping[str, Any], filter: Mapping[str, Any], before: RunnableConfig | None
    ) -> Iterator[CheckpointTuple]:
        wanted, stop = conf.get("checkpoint_id"), before and before["configurable"].get("checkpoint_id")
        walks = [
            map(partial(Placed, thread_id, namespace), self.checkpoints.walk(thread))
            for thread_id, namespace, thread in self._threads(conf.get("thread_id"))
            if conf.get("checkpoint_ns") in (None, namespace)
        ]
        for placed in merge(*walks, key=lambda placed: placed.checkpoint.id, reverse=True):
            if (wanted and placed.checkpoint.id != wanted) or (stop and placed.checkpoint.id >= stop):
                continue
            metadata = self._values.metadata(placed.checkpoint)
            if all(metadata.get(key) == value for key, value in filter.items()):
                thread_id, namespace, found = placed
                thread = self.thread({"thread_id": thread_id, "checkpoint_ns": namespace})
                yield self._tuple(thread_id, namespace, self.checkpoints.whole(thread, found), newest=False)

    # -- values -------------------------------------------------------------------------------------------------------

    def _tuple(self, thread_id: Any, namespace: str, whole: WholeCheckpoint, *, newest: bool) -> CheckpointTuple:
        found, values = whole.checkpoint, self._values
        config, value = config_of(thread_id, namespace, found.id), whole.documents["checkpoint"]
        channels = values.channels(whole.documents, value["channels"])
        if found.ranges is not None:
            messages = channels[self._messages] = [values.message(record) for record in whole.records]
            if newest:
                thread = self.thread(config["configurable"])
                self.checkpoints.remember(thread, found, whole.spans, list(map(values.key, messages)))
        writes = pending_writes(whole.notes)
        return CheckpointTuple(
            config,
            {**values.unpacked(value["rest"]), "channel_values": channels},
            values.unpacked(value["metadata"]),
            None if found.parent is None else config_of(thread_id, namespace, found.parent),
            [(task, name, values.unpacked(packed)) for task, name, packed in writes],
        )
