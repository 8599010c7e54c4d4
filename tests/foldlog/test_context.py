"""The limit that the page of a conversation shows beside its prompts. ``tests/golden/stats`` has
the largest prompt and the limit in figures.
"""

import pytest

from foldlog._figures.context import ContextLimit, ContextUse
from foldlog.eventstore import CondensationAction, Message


def reply(number, tokens, model):
    meta = {"model": model, "usage": {"prompt_tokens": tokens}}
    return Message(id=number, source="agent", content="yes", meta=meta)


@pytest.mark.parametrize(
    "models, tokens, limit",
    [
        (["gpt-4o", "gpt-4o"], 900, ContextLimit(128_000, "gpt-4o")),
        (["gpt-4o", "gpt-4"], 900, None),
        (["gpt-4o", "mine"], 900, None),
        (["gpt-4o"], 500_000, None),
    ],
)
def test_the_window_of_one_known_model_is_the_limit_but_of_a_condensation(models, tokens, limit):
    use = ContextUse()
    for number, model in enumerate(models):
        use.note(reply(number, tokens, model))
    assert use.largest() == (0, tokens)
    assert use.limit() == use.window() == limit
    use.note(CondensationAction(id=9, forgotten_event_ids=(0,), metadata={"tokens_max": 9_000}))
    assert (use.limit(), use.window()) == (ContextLimit(9_000, None), limit)
