"""``/metrics``: figures of the store in Prometheus' text format. No figure contains the content of
an event.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from foldlog._answers.figures import FleetDocument
from foldlog._base.json_types import JsonObject
from foldlog._files.written_files import is_a_copy
from foldlog._words.reasons import WORDS
from foldlog._words.safe_text import printable
from foldlog.eventstore import Store, follower_status

_Sample = tuple[dict[str, str], float]


def metrics(store: Store, fleet: FleetDocument, *, complete: bool = True) -> str:
    """Return the figures. If not ``complete``, leave out the sums over Views and calls, which would
    be too low.

    Cost: the function looks up the size of the store's files, and reads the positions of the
    followers.
    """
    lines = []
    for name, about, samples in chain(_facts(store, fleet), _sums(fleet) if complete else ()):
        lines += [f"# HELP foldlog_{name} {about}", f"# TYPE foldlog_{name} gauge"]
        lines += [f"foldlog_{name}{_labels(labels)} {value}" for labels, value in samples]
    return "\n".join([*lines, ""])


def _facts(store: Store, fleet: FleetDocument) -> Iterator[tuple[str, str, list[_Sample]]]:
    yield "conversations", "Conversations that are not erased.", [({}, fleet.conversations)]
    yield (
        "conversations_counted",
        "Conversations whose figures are known.",
        [({}, fleet.counted - fleet.needs_key)],
    )
    if store.path is not None:
        sizes = [
            ({"file": end[1:] or "db"}, size_of(f"{store.path}{end}"))
            for end in ("", "-wal", ".search")
        ]
        yield (
            "file_bytes",
            "Bytes of the store's files.",
            [(labels, float(size)) for labels, size in sizes],
        )
    pending = int(store.database.bytes_pending)
    yield (
        "bytes_pending",
        "1 if the store still has bytes of erased events, otherwise 0.",
        [({}, pending)],
    )
    yield from _followers(store)


def _sums(fleet: FleetDocument) -> Iterator[tuple[str, str, list[_Sample]]]:
    yield (
        "sub_agents",
        "Conversations that another conversation began.",
        [({}, fleet.sub_agents)],
    )
    yield "events", "Events of counted conversations.", [({}, fleet.events)]
    yield (
        "view_tokens",
        "Estimated tokens of the Views of counted conversations.",
        [({}, fleet.view_tokens)],
    )
    condensations = Counter[str]()
    saved = Counter[str]()
    for reason in fleet.reasons:
        parts = set(reason.reason.split("; ")[0].split(", "))
        # A condenser of a user may write any reason.
        label = reason.reason if parts <= set(WORDS.values()) else "other"
        condensations[label] += reason.condensations
        saved[label] += reason.tokens_saved or 0
    yield "condensations", "Condensations in the log, by reason.", _by_reason(condensations)
    yield "tokens_saved", "Tokens that condensations took from Views.", _by_reason(saved)
    yield "condensation_cost_usd", "Recorded cost of condensations.", _sample_of(fleet.cost)
    yield (
        "model_cost_usd",
        "Recorded cost of all calls of models.",
        _sample_of(fleet.spent.cost),
    )
    yield (
        "model_cost_without_sub_agents_usd",
        "Recorded cost of the calls of models in conversations that no other conversation began.",
        _sample_of(fleet.spent_alone.cost),
    )


def _followers(store: Store) -> Iterator[tuple[str, str, list[_Sample]]]:
    recorder = store.database.recorder
    about = "Events that a read model has not confirmed."
    if recorder.on_server:
        status = follower_status(store)
        lags = [each for each in status.followers if not is_a_copy(each.follower)]
        yield (
            "follower_lag_events",
            about,
            [({"follower": each.follower}, each.events) for each in lags],
        )
        ages: list[_Sample] = [({"follower": each.follower}, each.seconds) for each in lags]
        yield (
            "follower_lag_seconds",
            "The age of the first event that a read model has not confirmed.",
            ages,
        )
        yield (
            "events_held_back",
            "Events that a running transaction holds back.",
            [({}, status.held_back)],
        )
        return
    last, positions = recorder.query(
        lambda reader: (int(reader.value("last_position")), reader.value("trackings"))
    )
    behind = {
        name: max(0, last - int(reached))
        for name, reached in json.loads(positions)
        if not is_a_copy(name)
    }
    yield (
        "follower_lag_events",
        about,
        [({"follower": name}, events) for name, events in behind.items()],
    )


def _by_reason(counted: Counter[str]) -> list[_Sample]:
    return [({"reason": reason}, number) for reason, number in sorted(counted.items())]


def _sample_of(figure: float | None) -> list[_Sample]:
    """Return a list with one sample for a figure, or an empty list for an unknown figure, because 0
    would be wrong.
    """
    return [] if figure is None else [({}, figure)]


def size_of(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _labels(labels: JsonObject) -> str:
    if not labels:
        return ""
    quoted = (
        f"{name}={json.dumps(printable(value, one_line=True), ensure_ascii=False)}"
        for name, value in labels.items()
    )
    return f"{{{','.join(quoted)}}}"
