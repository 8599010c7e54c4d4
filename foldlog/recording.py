"""Records of other agents, appended to a history as they come."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Set
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from eventstore import ANY_VERSION, Event, InvalidEvent, Recorded, VersionConflict
from foldlog.formats import Decoder, NotAnEvent
from foldlog.formats.registry import format_named

if TYPE_CHECKING:
    from foldlog.histories import ExpectedVersion, History

__all__ = ["Recording"]

_log = logging.getLogger("foldlog")
_DECODERS_MAX = 256
"""Decoders of the histories that were appended to last are kept, so that most appends read nothing."""


class Recording:
    """Appends records to the histories of a store. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._decoders: OrderedDict[tuple[str, str], Decoder] = OrderedDict()
        self._ids: OrderedDict[str, _SourceIds] = OrderedDict()

    def append(
        self,
        history: History,
        records: Iterable[Any],
        format: str,
        expected_version: ExpectedVersion,
        dedupe: Literal["origin"] | None,
    ) -> tuple[Recorded, ...]:
        """Append the events of these records, all or none; see ``History.append_records``."""
        if dedupe not in (None, "origin"):
            raise ValueError(f"dedupe is 'origin' or None, not {dedupe!r}")
        records = list(records)
        while True:
            decoder = self._decoder(history, format, expected_version)
            expected = decoder.version if expected_version is ANY_VERSION else expected_version
            new = records if dedupe is None else self._unknown(history, records, format, decoder.version)
            events, findings = _decoded(decoder, new)
            try:
                recorded = history.append(events, expected_version=expected) if events else ()
            except VersionConflict:  # another writer was first, or the kept decoder is not of the newest version
                if expected_version is not ANY_VERSION:
                    raise
                continue
            for finding in findings:
                _log.warning("conversation %r: %s", history.id, finding)
            self._keep((history.id, format), decoder)
            return recorded

    def _unknown(self, history: History, records: list[Any], format: str, version: int) -> list[Any]:
        """Return the records whose source ids the history did not have at this version, each id once."""
        source_id = format_named(format).source_id
        with self._lock:
            ids = self._ids.setdefault(history.id, _SourceIds())
            self._ids.move_to_end(history.id)
            if len(self._ids) > _DECODERS_MAX:
                self._ids.popitem(last=False)
        known = ids.at(history, version)
        unknown: dict[Any, Any] = {}
        for place, record in enumerate(records):
            key = _key(source_id(record))
            if key is None or key not in known:
                unknown.setdefault(place if key is None else key, record)
        return list(unknown.values())

    def _decoder(self, history: History, format: str, expected_version: ExpectedVersion) -> Decoder:
        """Return a decoder that goes on where the history ends, as far as it is known."""
        with self._lock:
            decoder = self._decoders.pop((history.id, format), None)
        if decoder is None or expected_version not in (ANY_VERSION, decoder.version):
            return Decoder(format, history)
        return decoder

    def _keep(self, key: tuple[str, str], decoder: Decoder) -> None:
        with self._lock:
            self._decoders[key] = decoder
            if len(self._decoders) > _DECODERS_MAX:
                self._decoders.popitem(last=False)


def _decoded(decoder: Decoder, records: Iterable[Any]) -> tuple[list[Event], list[str]]:
    """Return the events of the records, and what is wrong with these."""
    events: list[Event] = []
    findings: list[str] = []
    for place, record in enumerate(records):
        try:
            events += decoder.events(record)
        except NotAnEvent as error:
            raise InvalidEvent(f"record {place}: {error}; nothing was appended, correct the record") from error
        findings += (f"record {place} {finding}" for finding in decoder.findings)
    return events, findings


class _SourceIds:
    """The ids that the source gave the events of one history, as of one version."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version = 0
        self._ids: set[Any] = set()

    def at(self, history: History, version: int) -> Set[Any]:
        """Return the ids of the events up to a version, or later ones too. Cost: what came since it was asked last."""
        with self._lock:
            if self._version < version:
                events = history.events(self._version, version)
                self._ids.update(_key(event.origin.id) for event in events if event.origin is not None)
                self._version = version
            return self._ids


def _key(source_id: Any) -> Any:
    """Return a source id as a key that tells 1 from 1.0 and true; None for what is not a text or a whole number."""
    return (type(source_id), source_id) if type(source_id) in (str, int) else None
