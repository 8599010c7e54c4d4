"""How near a conversation came to its context limit, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from foldlog._figures.context import ContextLimit, ContextUse
from foldlog.eventstore import Action, Annotation, CondensationAction, Event, Message


def reply(number: int, tokens: int, model: str = "gpt-4o") -> Event:
    return Message(
        id=number,
        source="agent",
        content="yes",
        meta={"model": model, "usage": {"prompt_tokens": tokens}},
    )


def token_count(number: int, tokens: int, window: int) -> Event:
    usage = {"last_token_usage": {"input_tokens": tokens}, "model_context_window": window}
    return Annotation(id=number, name="token_count", data={"info": usage})


CONDENSED = CondensationAction(id=9, forgotten_event_ids=(0,), metadata={"tokens_max": 9_000})


@pytest.mark.parametrize(
    "events, largest, limit",
    [
        ([reply(3, 100), reply(7, 900), reply(9, 200)], (7, 900), ContextLimit(128_000, "gpt-4o")),
        ([token_count(4, 900, 2_000), reply(5, 10)], (4, 900), ContextLimit(2_000, None)),
        ([reply(3, 100), CONDENSED], (3, 100), ContextLimit(9_000, None)),
        ([CONDENSED, token_count(4, 900, 2_000)], (4, 900), ContextLimit(2_000, None)),
        ([reply(3, 100), reply(4, 50, "gpt-4")], (3, 100), None),
        ([reply(3, 100), reply(4, 50, "mine")], (3, 100), None),
        ([reply(3, 500_000)], (3, 500_000), None),
        ([Action(id=1, tool="ls", arguments={})], None, None),
    ],
    ids=[
        *("the window of the model", "the window that the source recorded", "a condensation"),
        *("the source before a condensation", "two models", "an unknown model"),
        *("a prompt above the window", "nothing recorded"),
    ],
)
def test_the_largest_prompt_and_its_limit(
    events: Sequence[Event], largest: tuple[int, int] | None, limit: ContextLimit | None
):
    use = ContextUse()
    for event in events:
        use.note(event)
    assert use.largest() == largest
    assert use.limit() == limit
