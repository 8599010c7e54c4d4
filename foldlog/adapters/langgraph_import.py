"""Move the threads of another saver of LangGraph into foldlog, with every checkpoint and every write.

    with FoldlogSaver("sqlite:///history.db") as saver:
        import_checkpoints("checkpoints.sqlite", saver)         # the file of a SqliteSaver, or any open saver

Importing the same source again adds only what is new.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from eventstore import InvalidArgument
from foldlog.adapters.langgraph import FoldlogSaver
from foldlog.adapters.langgraph_values import config_of

__all__ = ["ImportedCheckpoints", "import_checkpoints"]


class ImportedCheckpoints(NamedTuple):
    """The numbers of checkpoints and writes that were added."""

    checkpoints: int
    writes: int


class _Source(NamedTuple):
    """A checkpoint of another saver. ``rows`` are its writes: task, task path, index, channel and value."""

    thread_id: str
    namespace: str
    parent: str | None
    checkpoint: Any
    metadata: Any
    rows: Sequence[tuple[str, str, int, str, Any]]


def import_checkpoints(
    source: str | os.PathLike[str] | BaseCheckpointSaver[Any],
    saver: FoldlogSaver,
    *,
    serde: SerializerProtocol | None = None,
) -> ImportedCheckpoints:
    """Import all threads of ``source``, the path of a ``SqliteSaver``'s file or an open saver. Return what was added.

    A file is opened for reading only, with ``serde``, by default that of ``saver``. An open saver does not tell the
    paths of tasks: their writes keep their order. Raises ``InvalidArgument`` if the file is not that of a
    ``SqliteSaver``. Checkpoints imported before an error stay, and the next import continues. Cost: all checkpoints.
    """
    found = _of_file(Path(source), serde or saver.serde) if isinstance(source, str | os.PathLike) else _of_saver(source)
    checkpoints = writes = 0
    for each in found:
        checkpoint_id = each.checkpoint["id"]
        config = config_of(each.thread_id, each.namespace, checkpoint_id)
        thread = saver.thread(config["configurable"])
        if saver.checkpoints.find(thread, checkpoint_id, hidden=True) is None:
            before = config_of(each.thread_id, each.namespace, each.parent)
            saver.put(before, each.checkpoint, each.metadata, each.checkpoint["channel_versions"])
            checkpoints += 1
        notes = saver.checkpoints.notes(thread, checkpoint_id) if each.rows else ()
        known = {(note["task"], place) for note in notes for place, _, _ in note["writes"]}
        tasks: dict[tuple[str, str], list[tuple[int, str, Any]]] = defaultdict(list)
        for task, path, place, name, value in each.rows:
            if (task, place) not in known:
                tasks[task, path].append((place, name, value))
        for (task, path), rows in tasks.items():
            saver.put_rows(config, task, path, rows)
            writes += len(rows)
    return ImportedCheckpoints(checkpoints, writes)


def _of_saver(source: BaseCheckpointSaver[Any]) -> Iterator[_Source]:
    """Yield the checkpoints of an open saver, the oldest first."""
    for found in sorted(source.list(None), key=lambda each: str(each.checkpoint["id"])):
        conf, parent = found.config["configurable"], (found.parent_config or {}).get("configurable", {})
        rows: list[tuple[str, str, int, str, Any]] = []
        paths: dict[str, str] = {}
        for task, name, value in found.pending_writes or ():
            path = paths.setdefault(task, f"{len(paths):08}")
            place = sum(row[0] == task for row in rows)
            rows.append((task, path, WRITES_IDX_MAP.get(name, place), name, value))
        namespace = conf.get("checkpoint_ns", "")
        yield _Source(conf["thread_id"], namespace, parent.get("checkpoint_id"), found.checkpoint, found.metadata, rows)


def _of_file(path: Path, serde: SerializerProtocol) -> Iterator[_Source]:
    """Yield the checkpoints of a SqliteSaver's file, the oldest of each namespace first."""
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
            yield _Source(
                thread_id,
                namespace,
                parent,
                serde.loads_typed((kind, written)),
                json.loads(metadata) if metadata else {},
                [
                    (task, path, place, name, serde.loads_typed((type_, value)))
                    for task, path, place, name, type_, value in rows
                ],
            )
