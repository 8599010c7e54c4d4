"""What does a step of an agent cost: append a call and its result, get the View, check its tokens exactly?

Against a batch append of the two by hand, litellm's count of the two, and a sum that is kept. In a second row both
sides find the count of a text in a table: then no tokenizer hides what the steps themselves cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.frame import Question, Round, Scale
from benchmarks.raw import RawStore, body_of
from benchmarks.workload import history
from condensers.models.client import LLM, LLMConfig
from condensers.models.prompt_sums import PromptSums
from condensers.models.tokens import TokenCounter
from eventstore import NOT_RECORDED, CondensationAction, Event, open_store
from projections import View, Views

MODEL = "gpt-4o-mini"
BEFORE = 100
STEPS = 20


def measure(scale: Scale, folder: Path) -> Iterator[Round]:
    LLM(LLMConfig(model=MODEL)).token_sums(View.from_events([]))  # loads litellm, with its habits curbed
    import litellm

    for seed in range(scale.rounds):
        events = [
            replace(event, id=NOT_RECORDED, cause=None)
            for event in history(1_000, seed=seed)
            if not isinstance(event, CondensationAction)
        ]
        before, steps = events[:BEFORE], events[BEFORE : BEFORE + 2 * STEPS]
        raw = RawStore(folder / f"raw-{seed}.db")
        raw.append_batch(("c1", place, "event", body_of(event)) for place, event in enumerate(before))
        total = litellm.token_counter(model=MODEL, messages=View.from_events(before).to_messages())
        with open_store(f"sqlite:///{folder}/ours-{seed}.db") as store:
            views, llm = Views(store), LLM(LLMConfig(model=MODEL))
            store.register(views)
            store.ingest("c1", before)
            llm.token_sums(views.current("c1"))
            our_seconds = raw_seconds = 0.0
            for version, pair in zip(range(BEFORE, BEFORE + 2 * STEPS, 2), _pairs(steps), strict=True):
                messages = View.from_events(pair).to_messages()[-2:]  # without the words that open a View
                begun = time.perf_counter()
                raw.append_batch(("c1", version + n, "event", body_of(event)) for n, event in enumerate(pair))
                total += litellm.token_counter(model=MODEL, messages=messages) - 3
                raw_seconds += time.perf_counter() - begun
                begun = time.perf_counter()
                store.append("c1", pair, expected_version=version)
                counted = llm.token_sums(views.current("c1"))[-1]
                our_seconds += time.perf_counter() - begun
                if counted != total:
                    raise AssertionError(f"{counted} tokens, by hand {total}")
        raw.close()
        yield Round(1_000 * our_seconds / STEPS, 1_000 * raw_seconds / STEPS)


def measure_without_tokenizer(scale: Scale, folder: Path) -> Iterator[Round]:
    """The same, where a count is one look at the number of characters."""
    for seed in range(scale.rounds):
        events = [
            replace(event, id=NOT_RECORDED, cause=None)
            for event in history(1_000, seed=seed)
            if not isinstance(event, CondensationAction)
        ]
        before, steps = events[:BEFORE], events[BEFORE : BEFORE + 2 * STEPS]
        raw = RawStore(folder / f"raw-cached-{seed}.db")
        raw.append_batch(("c1", place, "event", body_of(event)) for place, event in enumerate(before))
        total = _characters(View.from_events(before).to_messages(), ())
        cached = [_characters(View.from_events(pair).to_messages()[-2:], ()) - 3 for pair in _pairs(steps)]
        with open_store(f"sqlite:///{folder}/ours-cached-{seed}.db") as store:
            views, sums = Views(store), PromptSums(TokenCounter(_characters))
            store.register(views)
            store.ingest("c1", before)
            sums.of(views.current("c1"))
            our_seconds = raw_seconds = 0.0
            for number, pair in enumerate(_pairs(steps)):
                version = BEFORE + 2 * number
                begun = time.perf_counter()
                raw.append_batch(("c1", version + n, "event", body_of(event)) for n, event in enumerate(pair))
                total += cached[number]
                raw_seconds += time.perf_counter() - begun
                begun = time.perf_counter()
                store.append("c1", pair, expected_version=version)
                counted = sums.of(views.current("c1"))[-1]
                our_seconds += time.perf_counter() - begun
                if counted != total:
                    raise AssertionError(f"{counted} tokens, by hand {total}")
        raw.close()
        yield Round(1_000 * our_seconds / STEPS, 1_000 * raw_seconds / STEPS)


def _characters(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> int:
    """Count characters in the place of tokens, additive over messages as litellm's count is."""
    return 3 + sum(4 + len(str(message.get("content"))) for message in messages) + len(tools)


def _pairs(events: list[Event]) -> Iterator[list[Event]]:
    source = iter(events)
    while pair := list(islice(source, 2)):
        yield pair


QUESTIONS = [
    Question(
        "step of an agent: append 2, View, exact tokens", "ms", 1.4, "at most", measure, raw="append 2, count 2, add"
    ),
    Question(
        "step of an agent, counts of texts in a table",
        "ms",
        1.4,
        "at most",
        measure_without_tokenizer,
        raw="append 2, add",
    ),
]
