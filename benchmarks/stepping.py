"""Measure a step of an agent: append a call and its result, get the View, and check its exact
number of tokens. Another question measures the check alone.

The baseline of a step is handwritten: it hashes and appends the two events, counts their tokens
with litellm, and adds the counts to a sum. The baseline of the check is litellm, which counts the
whole prompt again, as agents do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.append import workload
from benchmarks.frame import Question, Round, Scale, by_turns
from benchmarks.raw import RawStore, body_of, with_proofs
from foldlog.condensers.models.client import LLM
from foldlog.condensers.models.llm_config import LLMConfig
from foldlog.eventstore import Event, open_store
from foldlog.projections import View, Views

MODEL = "gpt-4o-mini"
BEFORE = 100
STEPS = 15
Messages = Sequence[Mapping[str, Any]]


def _counters() -> tuple[LLM, Callable[[Messages], int]]:
    llm = LLM(LLMConfig(model=MODEL))
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import uses the network
    import litellm

    return llm, lambda messages: int(litellm.token_counter(model=MODEL, messages=messages))


def step(scale: Scale, folder: Path) -> Iterator[Round]:
    llm, count_tokens = _counters()
    rounds = STEPS * scale.rounds
    events = workload(BEFORE + 2 * rounds + 2)
    with (
        closing(RawStore(folder / "raw.db")) as raw,
        open_store(f"sqlite:///{folder}/ours.db") as store,
    ):
        views = Views(store)
        store.register(views)
        store.append("c1", events[:BEFORE], expected_version=0)
        raw.append_batch("c1", 0, map(body_of, events[:BEFORE]))
        total = count_tokens(View.from_events(_number_events(events[:BEFORE])).to_messages())
        our_versions, raw_versions = (count(BEFORE, 2) for _ in range(2))

        def ours() -> int:
            version = next(our_versions)
            store.append("c1", events[version : version + 2], expected_version=version)
            return llm.token_sums(views.current("c1"))[-1]

        def by_hand() -> int:
            nonlocal total
            version = next(raw_versions)
            pair = events[version : version + 2]
            raw.append_batch("c1", version, with_proofs(map(body_of, pair)))
            total += count_tokens(View.from_events(_number_events(pair)).to_messages()[-2:]) - 3
            return total

        yield from by_turns(scale, ours, by_hand, rounds=rounds)


def check(scale: Scale, folder: Path) -> Iterator[Round]:
    """Check the Views of ``STEPS`` steps, after a conversation of a hundred messages."""
    llm, count_tokens = _counters()
    numbers = count()

    def next_views() -> list[View]:
        events = _number_events(workload(BEFORE + 2 * STEPS, seed=next(numbers)))
        views = [View.from_events(events[: BEFORE + 2 * step]) for step in range(STEPS)]
        for view in views:
            view.fit_positions  # noqa: B018  what may be sent is found before the clock runs: both sides need it
        llm.token_sums(views[0])
        return views[1:]

    views = [next_views() for _ in range(scale.rounds + 1)]
    our_views = iter(views)
    raw_views = iter(views)
    yield from by_turns(
        scale,
        lambda: [llm.token_sums(view)[-1] for view in next(our_views)],
        lambda: [count_tokens(view.to_messages()) for view in next(raw_views)],
        count=STEPS - 1,
    )


def _number_events(events: list[Event]) -> list[Event]:
    return [replace(event, id=number) for number, event in enumerate(events)]


QUESTIONS = [
    Question(
        "step of an agent: append 2, View, exact tokens",
        "ms CPU",
        1.2,
        step,
        "append 2, count 2, add",
    ),
    Question(
        f"exact token check of a step at {BEFORE} messages",
        "checks/s",
        5.0,
        check,
        "litellm counts all",
    ),
]
