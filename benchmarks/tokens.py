"""Measure how long a step takes to count the exact tokens of its prompt. In the baseline, litellm
counts the whole prompt again, as agents do.

A step adds a call and its result to a conversation of a hundred messages, and asks for the size of
the prompt. Both sides make the messages of the View. The benchmark first checks that both return
the same number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from benchmarks.workload import history
from foldlog.condensers.models.client import LLM
from foldlog.condensers.models.llm_config import LLMConfig
from foldlog.eventstore import CondensationAction, Event
from foldlog.projections import View

MESSAGES = 100
STEPS = 15


def measure(model: str, scale: Scale, folder: Path) -> Iterator[Round]:
    # loads litellm, with its habits curbed
    LLM(LLMConfig(model=model)).token_sums(View.from_events([]))
    import litellm

    def recount(view: View) -> int:
        return litellm.token_counter(model=model, messages=view.to_messages())

    for seed in range(scale.rounds):
        events = [
            event
            for event in history(1_000, seed=seed)
            if not isinstance(event, CondensationAction)
        ]
        raw, expected = _steps_a_second(recount, events)
        llm = LLM(LLMConfig(model=model))
        llm.token_sums(_view(events, 0))
        ours, counts = _steps_a_second(lambda view, llm=llm: llm.token_sums(view)[-1], events)
        if counts != expected:
            raise SystemExit(f"{model}: the cached counts {counts} are not litellm's {expected}")
        yield Round(ours, raw)


def _view(events: list[Event], steps: int) -> View:
    return View.from_events(events[: MESSAGES + 2 * steps])


def _steps_a_second(count: Callable[[View], int], events: list[Event]) -> tuple[float, list[int]]:
    views = [_view(events, step) for step in range(1, STEPS + 1)]
    for view in views:
        view.fit_positions  # noqa: B018  what may be sent is found before the clock runs: both sides need it
    begun = time.perf_counter()
    counts = [count(view) for view in views]
    return STEPS / (time.perf_counter() - begun), counts


QUESTIONS = tuple(
    Question(
        f"exact token check of a step at {MESSAGES} messages, {model}",
        "checks/s",
        15.0,
        "at least",
        partial(measure, model),
        raw="litellm counts all",
        explained="An exact token check",
    )
    for model in ("gpt-4o-mini", "claude-sonnet-4-5")
)
