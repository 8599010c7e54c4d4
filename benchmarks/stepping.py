"""Measure a step of an agent: append a call and its result, get the View, and check its exact
number of tokens.

The baseline is handwritten: it appends the two events in a batch, counts their tokens with litellm,
and adds the counts to a sum. In a second measurement, both sides look up the count of a text in a
table, so the cost of the tokenizer does not hide the cost of the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.frame import Question, Round, Scale
from benchmarks.raw import RawStore, body_of
from benchmarks.workload import history
from foldlog.condensers.models.client import LLM
from foldlog.condensers.models.llm_config import LLMConfig
from foldlog.condensers.models.tokens import TokenCounter
from foldlog.eventstore import NOT_RECORDED, CondensationAction, Event, open_store
from foldlog.projections import View, Views

MODEL = "gpt-4o-mini"
BEFORE = 100
STEPS = 20


def measure(scale: Scale, folder: Path) -> Iterator[Round]:
    # loads litellm, with its habits curbed
    LLM(LLMConfig(model=MODEL)).token_sums(View.from_events([]))
    import litellm

    def by_litellm(messages: Sequence[Mapping[str, Any]]) -> int:
        return int(litellm.token_counter(model=MODEL, messages=messages))

    for seed in range(scale.rounds):
        yield _measured(
            folder / str(seed), seed, LLM(LLMConfig(model=MODEL)).token_sums, by_litellm, known={}
        )


def measure_without_tokenizer(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the same steps, but count the characters of a text instead of its tokens."""
    for seed in range(scale.rounds):
        sizes = {
            index: _characters(_added(pair), ())
            for index, pair in enumerate(_pairs(_workload(seed)[1]))
        }
        counter = TokenCounter(_characters)
        yield _measured(
            folder / f"cached-{seed}",
            seed,
            counter.token_sums,
            lambda messages: _characters(messages, ()),
            known=sizes,
        )


def _measured(
    folder: Path,
    seed: int,
    sums_of: Callable[[View], Sequence[int]],
    count: Callable[[Sequence[Mapping[str, Any]]], int],
    *,
    known: Mapping[int, int],
) -> Round:
    """Measure the steps of one history on both sides. If ``known`` has counts, the baseline looks
    up the count of each pair of events there.
    """
    folder.mkdir()
    before, steps = _workload(seed)
    raw = RawStore(folder / "raw.db")
    raw.append_batch(("c1", place, "event", body_of(event)) for place, event in enumerate(before))
    total = count(View.from_events(before).to_messages())
    with open_store(f"sqlite:///{folder}/ours.db") as store:
        views = Views(store)
        store.register(views)
        store.ingest("c1", before)
        sums_of(views.current("c1"))
        our_seconds = raw_seconds = 0.0
        for number, pair in enumerate(_pairs(steps)):
            version, messages = BEFORE + 2 * number, _added(pair)
            begun = time.perf_counter()
            raw.append_batch(
                ("c1", version + n, "event", body_of(event)) for n, event in enumerate(pair)
            )
            total += (known[number] if known else count(messages)) - 3
            raw_seconds += time.perf_counter() - begun
            begun = time.perf_counter()
            store.append("c1", pair, expected_version=version)
            counted = sums_of(views.current("c1"))[-1]
            our_seconds += time.perf_counter() - begun
            if counted != total:
                raise AssertionError(f"{counted} tokens, by hand {total}")
    raw.close()
    return Round(1_000 * our_seconds / STEPS, 1_000 * raw_seconds / STEPS)


def _workload(seed: int) -> tuple[list[Event], list[Event]]:
    """Return the events before the steps, and the events of the steps."""
    events: list[Event] = [
        replace(event, id=NOT_RECORDED, cause=None)
        for event in history(1_000, seed=seed)
        if not isinstance(event, CondensationAction)
    ]
    return events[:BEFORE], events[BEFORE : BEFORE + 2 * STEPS]


def _added(pair: list[Event]) -> list[dict[str, Any]]:
    """Return the two messages of a pair of events, without the text that begins a prompt."""
    return View.from_events(pair).to_messages()[-2:]


def _characters(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> int:
    """Count characters instead of tokens. Like litellm's count, the count of several messages is
    the sum of their counts.
    """
    return 3 + sum(4 + len(str(message.get("content"))) for message in messages) + len(tools)


def _pairs(events: list[Event]) -> Iterator[list[Event]]:
    source = iter(events)
    while pair := list(islice(source, 2)):
        yield pair


QUESTIONS = [
    Question(
        "step of an agent: append 2, View, exact tokens",
        "ms",
        1.4,
        "at most",
        measure,
        raw="append 2, count 2, add",
    ),
    Question(
        "step of an agent, counts of texts in a table",
        "ms",
        1.4,
        "at most",
        measure_without_tokenizer,
        raw="append 2, add",
        explained="A step with counts of texts in a table",
    ),
]
