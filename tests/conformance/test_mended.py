"""Every strategy against the mended reference, on histories that nobody recorded.

The recorded cases are some hundreds. Where the two writings of what is right part company on any
other, one is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from foldlog.condensers.base import Condenser
from foldlog.condensers.errors import InvalidCondenser
from foldlog.eventstore.events import CondensationRequest, Event
from foldlog.projections import View
from tests.conformance.condenser_answers import (
    V0_CLASS_DEFAULTS,
    V1_CLASS_DEFAULTS,
    Script,
    answered,
    v0_condenser,
    v1_condenser,
    with_defaults,
)
from tests.conformance.condensers_mended import Replies, joins_loops, mended
from tests.conformance.test_condensers import assert_mended
from tests.how_many import examples
from tests.properties.histories import histories

Json = dict[str, Any]

STATE = {"user_context": "x", "completed_tasks": "x", "pending_tasks": "x"}

sizes = st.one_of(
    *(
        st.builds(
            lambda head, size=size: {"max_size": size, "keep_first": head},
            st.integers(0, size // 2 - 1),
        )
        for size in (2, 3, 4, 6, 8, 12)
    )
)
windows = st.builds(lambda size: {"attention_window": size}, st.integers(0, 6))


def spec(kind: str, *parameters: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.tuples(*parameters).map(
        lambda drawn: {"type": kind} | {k: v for each in drawn for k, v in each.items()}
    )


without_a_model = {
    "recent": spec(
        "recent",
        st.builds(
            lambda n, head: {"max_events": n, "keep_first": head},
            st.integers(0, 8),
            st.integers(0, 5),
        ),
    ),
    "amortized": spec("amortized", sizes),
    "conversation_window": spec("conversation_window"),
    "observation_masking": spec("observation_masking", windows),
    "browser_output_masking": spec("browser_output_masking", windows),
}
texts = st.sampled_from(
    [["NEW"], [None], [""], [" \n"], [{"error": "boom"}, "RESET"], [{"error": "boom"}]]
)
states = st.sampled_from(
    [[{"tool_args": STATE}], [{"raw_tool_args": "{"}], [{"error": "boom"}, {"tool_args": STATE}]]
)
choices = st.one_of(
    st.lists(st.integers(-6, 40), max_size=8).map(lambda ids: [{"ids": ids}]),
    st.sampled_from([[None], ["no JSON"], [{"error": "boom"}]]),
)
parts = st.lists(st.one_of(*without_a_model.values(), spec("llm", sizes)), max_size=3)
v0_cases = {
    **{kind: st.tuples(specs, texts) for kind, specs in without_a_model.items()},
    "llm": st.tuples(spec("llm", sizes), texts),
    "structured": st.tuples(spec("structured", sizes), states),
    "llm_attention": st.tuples(spec("llm_attention", sizes), choices),
    "pipeline": st.tuples(spec("pipeline", parts.map(lambda drawn: {"condensers": drawn})), texts),
}
v1_cases = st.tuples(
    spec(
        "llm",
        sizes,
        st.sampled_from([{}, {"minimum_progress": 0.5}, {"minimum_progress": 0.05}]),
        st.sampled_from(
            [{}, {"max_tokens": 10}, {"max_tokens": 40}, {"hard_context_reset_max_retries": 1}]
        ),
    ),
    texts,
)


class Uneven:
    """An agent's model to which events are worth between 1 and 13 tokens, and a summary 3."""

    model = "uneven"
    max_output_tokens = None

    def __init__(self, max_input_tokens: int | None) -> None:
        self.max_input_tokens = max_input_tokens

    def token_sums(self, view: View) -> list[int]:
        sums = [0]
        for event in view:
            sums.append(sums[-1] + (3 if event.id < 0 else event.id * 7 % 13 + 1))
        return sums


agents = st.sampled_from([None, *map(Uneven, (None, 20, 45, 60, 90))])


def check(
    events: list[Event],
    requested: bool,
    case: tuple[Json, list[Any]],
    build: Callable[[Json, Script], Condenser],
    defaults: dict[str, Json],
    rule: str,
    agent: Uneven | None = None,
) -> None:
    spec, replies = case
    view = View.from_events([*events, CondensationRequest(id=len(events))] if requested else events)
    script = Script(replies, {event.id: event.id for event in view})
    try:
        condenser = build(spec, script)
    except InvalidCondenser:  # V1 wants room for a tail
        assume(rule == "v0")
        raise
    answer = answered(condenser, view, lambda event: event.id, lambda shown: {}, agent)
    right = mended(
        with_defaults(spec, defaults), view, Replies(script), script.source_ids, rule, agent
    )
    assume(not joins_loops(view, right))
    assert_mended(answer, right, view)


@pytest.mark.parametrize("kind", v0_cases)
@examples(120)
@given(histories, st.booleans(), st.data())
def test_every_strategy_of_v0_says_what_the_mended_reference_says(
    kind: str, events: list[Event], requested: bool, data: st.DataObject
) -> None:
    check(events, requested, data.draw(v0_cases[kind]), v0_condenser, dict(V0_CLASS_DEFAULTS), "v0")


@examples(300)
@given(histories, st.booleans(), v1_cases, agents)
def test_the_summarizer_of_v1_says_what_the_mended_reference_says(
    events: list[Event], requested: bool, case: tuple[Json, list[Any]], agent: Uneven | None
) -> None:
    check(events, requested, case, v1_condenser, dict(V1_CLASS_DEFAULTS), "v1", agent)
