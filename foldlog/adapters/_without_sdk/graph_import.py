"""Read the checkpoints that another saver keeps: those in the file of a ``SqliteSaver``, or of an open saver."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.adapters._without_sdk.channels import Serializer
from foldlog.adapters._without_sdk.graph_threads import Config, GraphThreads, config_of
from foldlog.eventstore import InvalidArgument

Task = tuple[str, str]
"""The id of a task, and its path."""

Write = tuple[int, str, Any]
"""The index of a write among those of its task, its channel and its value."""


class ImportedCheckpoints(NamedTuple):
    """The numbers of checkpoints and writes that were added."""

    checkpoints: int
    writes: int


class ForeignCheckpoint(NamedTuple):
    """A checkpoint of another saver, with the writes of each task."""

    thread_id: str
    namespace: str
    parent: str | None
    checkpoint: Any
    metadata: Any
    tasks: Mapping[Task, Sequence[Write]]

    def config(self, checkpoint_id: str | None) -> Config:
        """Return the config of a checkpoint of the same thread and namespace."""
        return config_of(self.thread_id, self.namespace, checkpoint_id)


def add_missing(
    found: Iterable[ForeignCheckpoint],
    threads: GraphThreads,
    put: Callable[[Config, Any, Any, Any], object],
    put_rows: Callable[[Config, str, str, Sequence[Write]], object],
) -> ImportedCheckpoints:
    """Put the checkpoints and the writes that ``threads`` do not have. Return their numbers."""
    checkpoints = writes = 0
    for each in found:
        checkpoint_id = each.checkpoint["id"]
        thread, config = threads.named(each.thread_id, each.namespace), each.config(checkpoint_id)
        if threads.find(thread, checkpoint_id, hidden=True) is None:
            put(each.config(each.parent), each.checkpoint, each.metadata, each.checkpoint["channel_versions"])
            checkpoints += 1
        notes = threads.notes(thread, checkpoint_id) if each.tasks else ()
        known = {(note["task"], place) for note in notes for place, _, _ in note["writes"]}
        for (task, path), rows in each.tasks.items():
            new = [row for row in rows if (task, row[0]) not in known]
            if new:
                put_rows(config, task, path, new)
                writes += len(new)
    return ImportedCheckpoints(checkpoints, writes)


def checkpoints_of(saver: Any, places: Mapping[str, int]) -> Iterator[ForeignCheckpoint]:
    """Yield the checkpoints of an open saver, the oldest first. It does not tell the paths of tasks: their writes keep
    their order. ``places`` are the indexes of the channels that have the same one in each task.
    """
    for found in sorted(saver.list(None), key=lambda each: str(each.checkpoint["id"])):
        conf, parent = found.config["configurable"], (found.parent_config or {}).get("configurable", {})
        by_task: dict[str, list[Write]] = defaultdict(list)
        for task, name, value in found.pending_writes or ():
            by_task[task].append((places.get(name, len(by_task[task])), name, value))
        yield ForeignCheckpoint(
            conf["thread_id"],
            conf.get("checkpoint_ns", ""),
            parent.get("checkpoint_id"),
            found.checkpoint,
            found.metadata,
            {(task, f"{number:08}"): writes for number, (task, writes) in enumerate(by_task.items())},
        )


def checkpoints_in(path: Path, serde: Serializer) -> Iterator[ForeignCheckpoint]:
    """Yield the checkpoints in a SqliteSaver's file, the oldest of each namespace first. It is opened for reading only.

    Raises ``InvalidArgument`` if the file is not that of a ``SqliteSaver``.
    """
    if not path.is_file():
        raise InvalidArgument(f"{str(path)!r} is not a file; give the path of a SqliteSaver's file")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            columns = [row[1] for row in connection.execute("PRAGMA table_info(writes)")]
            task_path = "task_path" if "task_path" in columns else "''"
            listed = connection.execute(
                "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
                " FROM checkpoints ORDER BY thread_id, checkpoint_ns, checkpoint_id"
            )
        except sqlite3.DatabaseError as error:
            raise InvalidArgument(f"{str(path)!r} is not the file of a SqliteSaver: {error}") from error
        for thread_id, namespace, checkpoint_id, parent, kind, written, metadata in listed:
            rows = connection.execute(
                f"SELECT task_id, {task_path}, idx, channel, type, value FROM writes"
                " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx",
                (thread_id, namespace, checkpoint_id),
            )
            tasks: dict[Task, list[Write]] = defaultdict(list)
            for task, path_of_task, place, name, type_, value in rows:
                tasks[task, path_of_task].append((place, name, serde.loads_typed((type_, value))))
            told = json.loads(metadata) if metadata else {}
            yield ForeignCheckpoint(thread_id, namespace, parent, serde.loads_typed((kind, written)), told, tasks)
