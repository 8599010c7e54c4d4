"""Search for histories whose Views are slow to open: histories with scattered events, with many
small condensations, and with many summaries.

The baseline is a View with the same number of consecutive events. The sizes of the stored revisions
are compared with the sizes of the events.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from benchmarks.opening import round_of_ours
from benchmarks.prepared import prepared
from foldlog.condensers.strategies.digest import Digest
from foldlog.condensers.strategies.digest.layout import text_of
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Event,
    Message,
    Observation,
    codec,
    summary_id,
)
from foldlog.eventstore.codec_json import Undecodable

_SCATTERED = 150
_STACKED = 100
_TEXT = "a sentence of the kind that people say to agents when they ask them for something " * 8

Made = Callable[[], Iterator[Event]]


def said(event_id: int) -> Message:
    return Message(
        id=event_id, source="user" if event_id % 2 else "agent", content=f"{event_id}: {_TEXT}"
    )


def forgot(
    event_id: int, forgotten: list[int], summary: str | None = None, offset: int | None = None
) -> Event:
    return CondensationAction(
        id=event_id,
        forgotten_event_ids=forgotten,
        summary=summary,
        summary_offset=offset,
        metadata={} if summary else {"reason": "scattered"},
    )


def scattered(intervals: int) -> Iterator[Event]:
    """Yield a history with one condensation, after which the View shows only every third event."""
    yield from map(said, range(3 * intervals))
    yield forgot(3 * intervals, [n for n in range(3 * intervals) if n % 3])


def scattering(condensations: int) -> Iterator[Event]:
    """Yield a history in which each condensation forgets eleven of the newest twelve events, so the
    remaining events are scattered over the log. If more than ``_SCATTERED`` events would remain,
    the condensation also forgets the oldest event.
    """
    for nth in range(condensations):
        first = 13 * nth
        yield from map(said, range(first, first + 12))
        oldest = [13 * (nth - _SCATTERED) + 1] if nth >= _SCATTERED else []
        yield forgot(first + 12, [*oldest, first, *range(first + 2, first + 12)])


def stacked(summaries: int) -> Iterator[Event]:
    """Yield a history in which each condensation adds a summary after the earlier summaries. If the
    View would then have more than ``_STACKED`` summaries, the condensation also forgets the oldest
    summary.
    """
    for nth in range(summaries):
        first = 13 * nth
        yield from map(said, range(first, first + 12))
        oldest = [summary_id(13 * (nth - _STACKED) + 12)] if nth >= _STACKED else []
        forgotten = [*oldest, *range(first, first + 12)]
        yield forgot(
            first + 12, forgotten, summary=f"{nth}: {_TEXT}", offset=min(nth, _STACKED - 1)
        )


def whole(events: int) -> Iterator[Event]:
    """Yield a history with one condensation, followed by consecutive events that are all in the
    View.
    """
    yield from map(said, range(4))
    yield forgot(4, [0, 1, 2, 3])
    yield from map(said, range(5, 5 + events))


def opening(
    name: str,
    history: Callable[[int], Iterator[Event]],
    size: int,
    shown: int,
    scale: Scale,
    folder: Path,
) -> Iterator[Round]:
    """Open a View of ``shown`` scattered events, and a View of ``shown`` consecutive events."""
    size = size if scale.name == "full" else size // 20
    shown = min(shown, size)
    jagged = prepared(folder.parent, size, name, partial(history, size))
    smooth = prepared(folder.parent, shown, "whole", partial(whole, shown))
    for _ in range(scale.rounds):
        yield round_of_ours(jagged, smooth)


def revisions(
    name: str, history: Callable[[int], Iterator[Event]], size: int, scale: Scale, folder: Path
) -> Iterator[Round]:
    """Measure the size of the revisions and of the events. One round is enough, because the sizes
    do not vary.
    """
    size = size if scale.name == "full" else size // 20
    stores = prepared(folder.parent, size, name, partial(history, size))
    db = sqlite3.connect(stores.ours)
    (revision_bytes,) = db.execute("SELECT sum(length(body)) FROM records").fetchone()
    (said_bytes,) = db.execute("SELECT sum(length(CAST(body AS BLOB))) FROM events").fetchone()
    db.close()
    yield Round(revision_bytes / 1_000, said_bytes / 1_000)


def digesting(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the CPU time that a digest takes for each thousand calls, in a long and in a short
    history.
    """

    def took_ms(count: int) -> float:
        events = [
            event
            for n in range(count)
            for event in (
                Action(tool="run", arguments={"command": f"step {n} {'x' * 60}"}, call_id=f"c{n}"),
                Observation(content=f"done {n}", call_id=f"c{n}"),
            )
        ]
        begun = time.process_time()
        text = text_of(Digest.of(events), 1_500)
        took_s = time.process_time() - begun
        if "earlier left out" not in text:
            raise AssertionError(f"a digest of {count} calls leaves nothing out")
        return 1_000_000 * took_s / count

    for _ in range(scale.rounds):
        yield Round(took_ms(15_000), took_ms(1_500))


_HOSTILE: tuple[Callable[[int], bytes], ...] = (
    lambda n: b"[" * n,
    lambda n: b'{"kind":"message","source":"user","content":"' + b"\\u0000" * n + b'"}',
    lambda n: b'{"kind":"message","source":"user","content":"x","extra_%b":1}' % (b"a" * n),
    lambda n: b'{"kind":"message","forgotten_event_ids":[' + b"1," * n + b"1]}",
    lambda n: b'{"kind":"message","source":"user","content":"x","n":' + b"9" * min(n, 4_000) + b"}",
)


def decoding(scale: Scale, folder: Path) -> Iterator[Round]:
    """Decode several hostile bodies, and yield the figures of the body with the worst ratio. The
    baseline decodes, eight times, a body that is an eighth as long.
    """

    def took_ms(body: bytes, times: int) -> float:
        begun = time.process_time()
        for _ in range(times):
            with contextlib.suppress(Undecodable):
                codec.decode("message", 1, body, 0)
        return 1_000 * (time.process_time() - begun)

    for _ in range(scale.rounds):
        both = [(took_ms(body(800_000), 1), took_ms(body(100_000), 8)) for body in _HOSTILE]
        yield Round(*max(both, key=lambda pair: pair[0] / pair[1]))


_CLIFFS: tuple[tuple[str, str, Callable[[int], Iterator[Event]], int, int], ...] = (
    ("scattered", "1,000 scattered intervals", scattered, 1_000, 1_000),
    (
        "scattering",
        f"1,000 condensations that leave {_SCATTERED} scattered ids",
        scattering,
        1_000,
        _SCATTERED,
    ),
    (
        "stacked",
        f"1,000 condensations and {_STACKED} stacked summaries",
        stacked,
        1_000,
        _STACKED,
    ),
)
QUESTIONS = [
    Question(
        "decode a hostile body of 800 KB", "ms CPU", 4.0, "at most", decoding, raw="8 of 100 KB"
    ),
    Question(
        "digest 1,000 of 15,000 calls", "ms CPU", 2.0, "at most", digesting, raw="1,000 of 1,500"
    ),
    *(
        Question(
            f"cold open, {words}",
            "ms",
            4.0,
            "at most",
            partial(opening, name, history, size, shown),
            raw="ours, in one piece",
        )
        for name, words, history, size, shown in _CLIFFS
    ),
    *(
        Question(
            f"revisions, {words}",
            "KB",
            0.1,
            "at most",
            partial(revisions, name, history, size),
            raw="the events",
        )
        for name, words, history, size, _ in _CLIFFS
    ),
]
