"""``/metrics``: figures of the store in Prometheus' text format. No figure contains the content of
an event.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from foldlog._reports.answers.figures import FleetDocument
from foldlog._reports.words.reasons import WORDS
from foldlog._reports.words.safe_text import printable
from foldlog.eventstore import Store, follower_status
from foldlog.eventstore.files.written_files import is_a_copy


class _Gauge(NamedTuple):
    """A figure with one value, or with a value for each value of a label."""

    name: str
    about: str
    values: Mapping[str, float]
    label: str = ""


def metrics(store: Store, fleet: FleetDocument, *, complete: bool = True) -> str:
    """Return the figures. If not ``complete``, leave out the sums over Views and calls, which would
    be too low.

    Cost: the function looks up the size of the store's files, and reads the positions of the
    followers.
    """
    lines = []
    for gauge in chain(_facts(store, fleet), _sums(fleet) if complete else ()):
        name = f"foldlog_{gauge.name}"
        lines += [f"# HELP {name} {gauge.about}", f"# TYPE {name} gauge"]
        lines += [
            f"{name}{_quoted(gauge.label, value)} {figure}"
            for value, figure in gauge.values.items()
        ]
    return "\n".join([*lines, ""])


def _facts(store: Store, fleet: FleetDocument) -> Iterator[_Gauge]:
    """Yield the figures that are known before all conversations are counted."""
    yield _Gauge("conversations", "Conversations that are not erased.", _one(fleet.conversations))
    yield _Gauge(
        "conversations_counted",
        "Conversations whose figures are known.",
        _one(fleet.counted - fleet.needs_key),
    )
    if store.path is not None:
        endings = {"db": "", "wal": "-wal", "search": ".search"}
        sizes = {name: float(size_of(f"{store.path}{end}")) for name, end in endings.items()}
        yield _Gauge("file_bytes", "Bytes of the store's files.", sizes, "file")
    yield _Gauge(
        "bytes_pending",
        "1 if the store still has bytes of erased events, otherwise 0.",
        _one(int(store.database.bytes_pending)),
    )
    yield from _followers(store)


def _sums(fleet: FleetDocument) -> Iterator[_Gauge]:
    """Yield the sums over all conversations."""
    yield _Gauge(
        "sub_agents", "Conversations that another conversation began.", _one(fleet.sub_agents)
    )
    yield _Gauge("events", "Events of counted conversations.", _one(fleet.events))
    yield _Gauge(
        "view_tokens",
        "Estimated tokens of the Views of counted conversations.",
        _one(fleet.view_tokens),
    )
    condensations = Counter[str]()
    saved = Counter[str]()
    for reason in fleet.reasons:
        parts = set(reason.reason.split("; ")[0].split(", "))
        # A condenser of a user may write any reason.
        label = reason.reason if parts <= set(WORDS.values()) else "other"
        condensations[label] += reason.condensations
        saved[label] += reason.tokens_saved or 0
    yield _Gauge(
        "condensations",
        "Condensations in the log, by reason.",
        dict(sorted(condensations.items())),
        "reason",
    )
    yield _Gauge(
        "tokens_saved",
        "Tokens that condensations took from Views.",
        dict(sorted(saved.items())),
        "reason",
    )
    yield _Gauge("condensation_cost_usd", "Recorded cost of condensations.", _one(fleet.cost))
    yield _Gauge("model_cost_usd", "Recorded cost of all calls of models.", _one(fleet.spent.cost))
    yield _Gauge(
        "model_cost_without_sub_agents_usd",
        "Recorded cost of the calls of models in conversations that no other conversation began.",
        _one(fleet.spent_alone.cost),
    )


def _followers(store: Store) -> Iterator[_Gauge]:
    """Yield how far the read models are behind."""
    recorder = store.database.recorder
    about = "Events that a read model has not confirmed."
    if recorder.on_server:
        status = follower_status(store)
        lags = [lag for lag in status.followers if not is_a_copy(lag.follower)]
        yield _Gauge(
            "follower_lag_events", about, {lag.follower: lag.events for lag in lags}, "follower"
        )
        yield _Gauge(
            "follower_lag_seconds",
            "The age of the first event that a read model has not confirmed.",
            {lag.follower: lag.seconds for lag in lags},
            "follower",
        )
        yield _Gauge(
            "events_held_back",
            "Events that a running transaction holds back.",
            _one(status.held_back),
        )
        return
    last, positions = recorder.query(
        lambda reader: (int(reader.value("last_position")), reader.trackings())
    )
    behind = {
        name: max(0, last - int(reached)) for name, reached in positions if not is_a_copy(name)
    }
    yield _Gauge("follower_lag_events", about, behind, "follower")


def _one(figure: float | None) -> Mapping[str, float]:
    """Return a figure without a label, or nothing for an unknown figure, because 0 would be
    wrong.
    """
    return {} if figure is None else {"": figure}


def size_of(path: str) -> int:
    """Return the number of bytes of a file, or 0 if there is none."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # SQLite removes the log when its last connection is closed
        return 0


def _quoted(label: str, value: str) -> str:
    """Return a label with its value in Prometheus' syntax, or nothing for a figure without one."""
    if not label:
        return ""
    return f"{{{label}={json.dumps(printable(value, one_line=True), ensure_ascii=False)}}}"
