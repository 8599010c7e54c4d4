"""``python -m benchmarks.search``: searches in a large store with an index, and what the index costs.

The events have words of a Zipf distribution, paths, hexadecimal numbers, German compounds and
Chinese. ``--compare N`` also compares the hits of N random queries with those of a scan, while the
index lacks the newest events.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from unittest.mock import patch

import click

import foldlog
from foldlog._reports.search import index, searching
from foldlog.eventstore import InvalidArgument, Message

_EVENTS_OF_CONVERSATION: Final = 200
_WORDS_OF_EVENT: Final = 75
_VOCABULARY: Final = 30_000
_FREQUENT: Final = ("the", "of", "to", "and", "a", "in", "store", "is", "for", "event")
_GERMAN: Final = ("Datenschutzgrundverordnung", "Rechtsschutzversicherung", "Straße", "Übergabe")
_CODE: Final = (
    'def read(path: str) -> "Path":', 'print(f"{name!r}: {value}")', "__init__", "self._rows[0].id",
    "SELECT count(*) FROM t WHERE a='b'", '{"a": [1, "two"], "b\\n": null}', "don't", "“quoted words”",
    r"C:\Users\naïve\x.txt", "https://example.com/a?b=c#d", "x->y::z<int>()", "İstanbul", "cafe\u0301",
)  # fmt: skip
_CHINESE: Final = "数据库索引搜索对话历史模型工具调用错误文件路径测试结果服务器连接超时权限拒绝"
_QUERIES: Final = (
    "the", "store", "rareword7", "rareword7 the", "qx", "Datenschutz", "straße", "数据", "src/core/main_4",
    "src/ui/test_17", '"of the"', '"the store is"', '"in the store for"', '"is a the store"',
)  # fmt: skip
"""The last phrases are rare, and all of their words are frequent."""


class Texts:
    def __init__(self, seed: int) -> None:
        self._chosen = random.Random(seed)
        letters = random.Random(1)
        rare = [
            "".join(letters.choices("abcdefghijklmnoprstuvwyz", k=letters.randrange(3, 12)))
            for _ in range(_VOCABULARY)
        ]
        self._words = [*_FREQUENT, *rare]
        weights = [1 / (place + 2) for place in range(len(self._words))]
        self._weights = [*itertools.accumulate(weights)]
        self._made = 0

    def one(self) -> str:
        words = self._chosen.choices(self._words, cum_weights=self._weights, k=_WORDS_OF_EVENT)
        for _ in range(4):
            words[self._chosen.randrange(len(words))] = self.special()
        self._made += 1
        if self._made % 20_000 == 7:
            words.append(f"rareword{self._made // 20_000}")
        return " ".join(words)

    def special(self) -> str:
        chosen = self._chosen
        match chosen.randrange(5):
            case 0:
                place = f"src/{chosen.choice(['core', 'api', 'ui'])}"
                return (
                    f"{place}/{chosen.choice(['main', 'util', 'test'])}_{chosen.randrange(5000)}.py"
                )
            case 1:
                return f"{chosen.getrandbits(64):x}"
            case 2:
                return chosen.choice(_GERMAN)
            case 3:
                return chosen.choice(_CODE)
            case _:
                return "".join(chosen.choices(_CHINESE, k=chosen.randrange(2, 9)))


def queries(count: int, seed: int) -> Iterator[str]:
    """Yield random queries: words, their beginnings and ends, several words, and phrases. Each fourth
    query is about a path, a number, a German compound, code or Chinese.
    """
    texts = Texts(seed + 1)
    chosen = random.Random(seed)
    for _ in range(count):
        text = texts.special() if chosen.random() < 0.25 else texts.one()
        words = text.split()
        place = chosen.randrange(len(words))
        word = words[place]
        yield chosen.choice([
            word, word[: chosen.randrange(1, len(word) + 1)], word.upper(), word[len(word) // 2 :],
            f"{word} {chosen.choice(words)}", f'"{" ".join(words[place : place + 3])}"',
        ])  # fmt: skip


def fill(histories: foldlog.Histories, events: int) -> None:
    texts = Texts(1)
    for number in range(events // _EVENTS_OF_CONVERSATION):
        batch = [
            Message(source="user", content=texts.one()) for _ in range(_EVENTS_OF_CONVERSATION)
        ]
        histories[f"c{number}"].append(batch)


def append_times(stores: Sequence[foldlog.Histories], rounds: int) -> list[float]:
    """Return the median CPU time of an append to each store, in microseconds, by turns."""
    texts = Texts(4)
    histories = [store[f"appends {time.time_ns()}"] for store in stores]
    times: list[list[float]] = [[] for _ in histories]
    for _ in range(rounds):
        event = Message(source="user", content=texts.one())
        for history, of_store in zip(histories, times, strict=True):
            begun = time.process_time_ns()
            history.append([event])
            of_store.append((time.process_time_ns() - begun) / 1_000)
    return [statistics.median(of_store) for of_store in times]


def measure(histories: foldlog.Histories, words: str, limit: int, rounds: int) -> str:
    walls = []
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        cpu = time.process_time()
        found = histories.search(words, limit=limit)
        walls.append((time.perf_counter() - begun) * 1_000)
        times.append((time.process_time() - cpu) * 1_000)
    return (
        f"{words:24} {len(found):3} hits  median {statistics.median(walls):8.1f} ms, "
        f"longest {max(walls):8.1f} ms, CPU {statistics.median(times):7.1f} ms"
    )


def differences(histories: foldlog.Histories, texts: Sequence[str]) -> list[str]:
    """Return the queries whose hits differ from those of a scan."""
    different = []
    for number, words in enumerate(texts):
        limit = (1, 20, 100)[number % 3]
        try:
            found = histories.search(words, limit=limit)
        except InvalidArgument:  # no letter and no digit
            continue
        with patch.object(searching, "_look_up", lambda *arguments: None):
            if histories.search(words, limit=limit) != found:
                different.append(words)
    return different


@click.command()
@click.option("--events", default=100_000, show_default=True)
@click.option("--db", help="The store, with or without these events. Default: a temporary file.")
@click.option("--rounds", default=7, show_default=True)
@click.option("--compare", default=0, help="Compare so many random queries with a scan.")
@click.option("--seed", default=3, show_default=True, help="Other queries to compare.")
def main(events: int, db: str | None, rounds: int, compare: int, seed: int) -> None:
    """Measure searches in a store with a search index."""
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as folder:
        path = Path(folder) / "search.db"
        with (
            foldlog.open(db or path, durability="relaxed") as histories,
            foldlog.open(Path(folder) / "plain.db", durability="relaxed") as plain,
        ):
            if "c0" not in histories:
                fill(histories, events)
            begun = time.process_time()
            added = histories.maintenance.index()
            seconds = time.process_time() - begun
            histories.maintenance.keep_up()
            appends = append_times([plain, histories], 1_000) if db is None else []
            info = index.info(histories.store)
            size = 0 if info is None else info.bytes
            print(
                f"{added:,} events were added, {seconds / max(added, 1) * 1e6:.0f} µs of CPU each"
            )
            print(f"index: {size:,} bytes")
            if appends:
                print(
                    "append of one event, CPU: {:.0f} µs without an index, {:.0f} with".format(
                        *appends
                    )
                )
            for words in _QUERIES:
                print(measure(histories, words, 20, rounds), flush=True)
            if compare:
                later = Texts(seed)
                histories[f"later {seed}"].append(
                    [Message(source="user", content=later.one()) for _ in range(500)]
                )
                different = differences(histories, [*queries(compare, seed)])
                print(
                    f"{compare} random queries: {len(different)} differ from a scan", different[:5]
                )
                sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
