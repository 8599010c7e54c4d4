"""Append records of other agents to a history one by one."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from foldlog._formats.calls import Recent
from foldlog._formats.registry import format_named
from foldlog._observed import tell
from foldlog.eventstore import ANY_VERSION, Event, InvalidEvent, Recorded, VersionConflict
from foldlog.eventstore.log import origins
from foldlog.formats import Decoder, NotAnEvent

if TYPE_CHECKING:
    from foldlog._history.history import ExpectedVersion, History

_DECODERS_MAX = 256
"""The number of decoders that are kept: most appends then read nothing."""


class Recording:
    """Appends records to the histories of a store. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._decoders = Recent[tuple[str, str], tuple[Decoder, int | None]](_DECODERS_MAX)
        """The decoders, each with the key of its conversation: the id of an erased one may be used again."""

    def append(
        self,
        history: History,
        records: Iterable[Any],
        format: str,
        expected_version: ExpectedVersion,
        dedupe: Literal["origin"] | None,
    ) -> tuple[Recorded, ...]:
        """Append the events of these records, all or none; see ``History.append_records``."""
        if not isinstance(records, Iterable):
            raise TypeError(f"records are a list of the format's records, not {records!r:.60}")
        records = list(records)
        while True:
            decoder = self._decoder(history, format, expected_version)
            expected = decoder.version if expected_version is ANY_VERSION else expected_version
            new = records if dedupe is None else self._unknown(history, records, format)
            events, findings = _decoded(decoder, new)
            try:
                recorded = history.append(events, expected_version=expected, dedupe=dedupe) if events else ()
            except VersionConflict:  # another writer was first, or the kept decoder is of an older version
                if expected_version is not ANY_VERSION:
                    raise
                continue
            for finding in findings:
                tell("foldlog.import.finding", of=f"conversation {history.id!r}", finding=str(finding))
            kept = decoder, history._met()
            with self._lock:
                self._decoders[history.id, format] = kept
            return recorded

    def _unknown(self, history: History, records: list[Any], format: str) -> list[Any]:
        """Return the records whose source ids the history does not have, each id once."""
        source_id = format_named(format).source_id
        ids = [source_id(record) for record in records]
        known = origins.known(history._store.database, history.id, format, ids)
        unknown: dict[Any, Any] = {}
        for place, record in enumerate(records):
            if not known[place]:
                unknown.setdefault(origins.source_key(format, ids[place]) or place, record)
        return list(unknown.values())

    def _decoder(self, history: History, format: str, expected_version: ExpectedVersion) -> Decoder:
        """Return a decoder that continues at the known end of the history."""
        with self._lock:
            decoder, key = self._decoders.pop((history.id, format), (None, None))
        is_usable = decoder and key == history._met() and expected_version in (ANY_VERSION, decoder.version)
        return decoder if decoder and is_usable else Decoder(format, history)


def _decoded(decoder: Decoder, records: Iterable[Any]) -> tuple[list[Event], list[str]]:
    events: list[Event] = []
    findings: list[str] = []
    for place, record in enumerate(records):
        try:
            events += decoder.events(record)
        except NotAnEvent as error:
            raise InvalidEvent(f"record {place}: {error}; nothing was appended, correct the record") from error
        except RecursionError:
            raise InvalidEvent(f"record {place} is nested too deep to be stored; nothing was appended") from None
        findings += (f"record {place} {finding}" for finding in decoder.findings)
    return events, findings
