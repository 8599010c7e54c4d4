"""The words that say why a condensation forgot events."""

import pytest

from foldlog import CondensationAction
from foldlog._reports.words.reasons import because


@pytest.mark.parametrize(
    "metadata, words",
    [
        ({}, ""),
        ({"cut": True}, "the summary was cut off at the model's output limit"),
        (
            {"reason": "events", "cut": True},
            "too many events; the summary was cut off at the model's output limit",
        ),
        ({"instead_of": "llm"}, "a digest took the place of the condenser llm"),
    ],
)
def test_words_begin_with_the_first_thing_that_is_recorded(metadata, words):
    assert because(CondensationAction(forgotten_event_ids=(1,), metadata=metadata)) == words
