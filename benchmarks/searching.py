"""Measure a search. The baseline is a hand-written loop over the stored events."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.frame import Question, Round, Scale
from benchmarks.raw import RawStore, body_of
from foldlog._search import search
from foldlog.eventstore import Message, open_store

_VOCABULARY = 5_000
_WORDS = 60
_QUERIES = ("needle", "needle word17", "haystack")
_PAGE = 1_000


def texts(count: int) -> list[str]:
    """Return texts of random words, the same texts in each run. About one text in a thousand
    contains a needle.
    """
    chance = random.Random(1)
    vocabulary = [f"word{n}" for n in range(_VOCABULARY)]
    return [
        " ".join(chance.choices(vocabulary, k=_WORDS))
        + (" needle" if chance.random() < 0.001 else "")
        for _ in range(count)
    ]


def searches(scale: Scale, folder: Path) -> Iterator[Round]:
    """Find all hits of rare words, by the search and by reading a whole table of events."""
    all_texts = texts(scale.usual)
    raw = RawStore(folder / "raw.db")
    with open_store(f"sqlite:///{folder}/store.db", durability="relaxed") as store:
        for first in range(0, len(all_texts), _PAGE):
            some = [
                Message(source="user", content=text) for text in all_texts[first : first + _PAGE]
            ]
            store.append(f"c{first}", some, expected_version=0)
            raw.append_batch(
                (f"c{first}", number, "message", body_of(event))
                for number, event in enumerate(some)
            )
        names = [f"c{first}" for first in range(0, len(all_texts), _PAGE)]
        for _ in range(scale.rounds):
            ours, hits = _spent(lambda query: len(search(store, query, limit=None).hits))
            by_hand, hits_by_hand = _spent(lambda query: len(_found(raw, names, query)))
            if hits != hits_by_hand:
                raise AssertionError(f"{hits} hits, by hand {hits_by_hand}")
            yield Round(1_000 * ours / len(_QUERIES), 1_000 * by_hand / len(_QUERIES))
    raw.close()


def _found(raw: RawStore, names: Sequence[str], query: str) -> list[str]:
    """Return the texts that contain all words of a query. Only events whose bytes contain the words
    are decoded.
    """
    words = query.split()
    needles = [word.encode() for word in words]
    decode = msgspec.json.Decoder(Message).decode
    events = []
    for name in names:
        for _, body in raw.bodies(name, 0, _PAGE):
            if all(needle in body for needle in needles):
                content = str(decode(body).content)
                if all(word in content for word in words):
                    events.append(content)
    return events


def _spent(count_hits: Callable[[str], int]) -> tuple[float, int]:
    begun = time.perf_counter()
    hits = sum(map(count_hits, _QUERIES))
    return time.perf_counter() - begun, hits


QUESTIONS = [
    Question(
        "search 100,000 events", "ms", 4.0, "at most", searches, raw="read every event by hand"
    ),
]
