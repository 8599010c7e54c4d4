"""Append records, in the format of another program, to histories.

The decoders of the 256 conversations with the newest appends stay in memory. The first append of a
process to a conversation, and the next append after a failed append, decode all earlier records of
the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from foldlog._base.telemetry import tell
from foldlog._imports.recording import HistoryRecorder
from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    ConversationNotFound,
    IdempotencyConflict,
    Recorded,
    VersionConflict,
)
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.appending import Seen, version_of
from foldlog.eventstore.log.origins import PartlyKnown
from foldlog.formats.format import Format
from foldlog.formats.json_text import json_of
from foldlog.formats.open_calls import Recent
from foldlog.formats.registry import format_named

if TYPE_CHECKING:
    from foldlog._history.log import ExpectedVersion, HistoryLog

_RECORDERS_MAX: Final = 256
"""The maximum number of recorders in memory. An append whose recorder is in memory decodes no
earlier record.
"""
_TRIES: Final = 100
"""How often an append is tried if other writers append at the same time."""


class Recording:
    """Appends records to histories. Many threads may use the same ``Recording``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._recorders = Recent[tuple[str, str], tuple[HistoryRecorder, int | None]](
            _RECORDERS_MAX
        )
        """Each recorder comes with the key of its conversation, because a new conversation may have
        the id of an erased conversation.
        """
        self._repeating = Recent[str, bool](_RECORDERS_MAX)
        """The histories to which a program has appended a record twice."""

    def append(
        self,
        history: HistoryLog,
        records: Iterable[Any],
        format: str,
        expected_version: ExpectedVersion,
        dedupe: Literal["origin"] | None,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        """Append records, or return what was recorded if they were appended before."""
        if not isinstance(records, Iterable):
            raise TypeError(f"records must be a list of the format's records, not {records!r:.60}")
        record_list = list(records)
        rules = format_named(format)
        is_at_end = version_of(expected_version) is ANY_VERSION
        tries = 0
        while True:
            tries += 1
            # The store would compare events, but a repeated record may decode to other events: the
            # decoder has read the record before.
            earlier = _appended_before(history, record_list, idempotency_key)
            if earlier:
                return earlier
            recorder = self.recorder(history, rules)
            version = recorder.version
            # The decoder gives its events the ids from this version on, so no other event may be
            # appended before them.
            expected = _at(version, expected_version) if is_at_end else expected_version
            new_records = self._new_records(history, record_list, rules, dedupe)
            events = recorder.decode_all(new_records)
            # The append empties ``recorder.findings``, so copy them first.
            findings = tuple(recorder.findings)
            recorded: tuple[Recorded, ...] = ()
            try:
                if events:
                    recorded = history._append_recorded(
                        events, recorder, expected, dedupe=dedupe, idempotency_key=idempotency_key
                    )
                else:
                    self.keep(history, recorder)
            except PartlyKnown:
                if new_records is not record_list:
                    raise
                self._note_repeating(history)
                continue
            except (IdempotencyConflict, VersionConflict) as conflict:
                # Another writer was first, perhaps with this key, or the decoder in memory is of an
                # older version.
                is_final = isinstance(conflict, VersionConflict) and not is_at_end
                if is_final or tries >= _TRIES:
                    raise
                continue
            if events and not recorded:
                self._note_repeating(history)
                return ()
            for finding in findings:
                tell("foldlog.import.finding", of=f"conversation {history.id!r}", finding=finding)
            return recorded

    def _new_records(
        self,
        history: HistoryLog,
        records: list[Any],
        format: Format,
        dedupe: Literal["origin"] | None,
    ) -> list[Any]:
        """Return the records that the history does not have, or all of them if the append itself
        finds the others.
        """
        # Most programs append only new records. So stored records are searched for here only in
        # histories with repeated records. In other histories, the append itself finds a repeated
        # record.
        if dedupe is None or history.id not in self._repeating:
            return records
        return _unknown_records(history, records, format)

    def _note_repeating(self, history: HistoryLog) -> None:
        with self._lock:
            self._repeating[history.id] = True

    def keep(self, history: HistoryLog, recorder: HistoryRecorder) -> None:
        if recorder.committed():
            with self._lock:
                self._recorders[history.id, recorder.format] = recorder, history._conversation_key()

    def recorder(
        self, history: HistoryLog, format: Format, version: int | None = None
    ) -> HistoryRecorder:
        """Return a recorder that has decoded the records before ``version``, by default the present
        version. While the caller uses the recorder, no other caller gets it.
        """
        with self._lock:
            recorder, key = self._recorders.pop((history.id, format.name), (None, None))
        if version is None:
            version = history.version()
        if recorder is None or key != history._conversation_key() or version < recorder.version:
            return HistoryRecorder(history._store, history.id, format, version)
        recorder.go_to(version)
        return recorder


def _at(version: int, expected: ExpectedVersion) -> int | Seen:
    """Return what an append at ``version`` expects, with the redactions in ``expected``."""
    return expected.at(version) if isinstance(expected, Seen) else version


def _appended_before(
    history: HistoryLog, records: list[Any], idempotency_key: str | None
) -> tuple[Recorded, ...]:
    """Return the events that an append of these records with the same key has appended. Raises
    ``IdempotencyConflict`` if the key was used for other records.
    """
    if idempotency_key is None:
        return ()
    try:
        recorded = history._store.recorded(history.id, idempotency_key)
    except (ConversationErased, ConversationNotFound):
        return ()
    if recorded:
        start = recorded[0].id
        stop = recorded[-1].id + 1
        stored = history._stored_records()
        bodies = [stored.text_of(span.start) for span, _ in stored.between(start, stop)]
        requested = [json_of(record) for record in records]
        # A record that was redacted in between has no body to compare.
        pairs = zip(bodies, requested, strict=False)
        if len(bodies) != len(requested) or any(body not in (None, new) for body, new in pairs):
            raise IdempotencyConflict(history.id, idempotency_key, start)
    return recorded


def _unknown_records(history: HistoryLog, records: list[Any], format: Format) -> list[Any]:
    """Return the records whose source ids the history does not have. If several records have the
    same source id, only the first of them counts.
    """
    ids = [format.source_id(record) for record in records]
    is_known = origins.find_known(history._store.database, history.id, format.name, ids)
    unknown_records: dict[Any, Any] = {}
    for index, record in enumerate(records):
        if not is_known[index]:
            unknown_records.setdefault(origins.source_key(format.name, ids[index]) or index, record)
    return list(unknown_records.values())
