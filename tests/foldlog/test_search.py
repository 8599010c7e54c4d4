"""The program of a conversation in a search, and the largest prompt beside what the model takes.
The session ``searching`` shows which events a search chooses, and in which order.
"""

from types import SimpleNamespace

import pytest

from foldlog import open as foldlog_open
from foldlog._figures import shown
from foldlog._figures.stored import FiguresOfStore
from foldlog._search import search
from tests.said import said


def test_a_program_is_known_before_and_after_figures_are_counted(histories):
    histories["own"].append(said("is the gauge there?"))
    for _ in range(2):
        assert len(search(histories.store, "gauge", program="foldlog").hits) == 1
        assert search(histories.store, "gauge", program="codex").hits == ()
        FiguresOfStore(histories.store).refresh()


@pytest.mark.parametrize("window, shown_as", [(2_000, "900 of 2,000 tokens"), (800, "900 tokens")])
def test_the_largest_prompt_stands_beside_what_the_model_takes_where_that_can_be(
    foldlog, monkeypatch, window, shown_as
):
    usage = {"prompt_tokens": 900, "completion_tokens": 7}
    with foldlog_open("foldlog.db") as histories:
        reply = {"role": "assistant", "content": "hi", "model": "m", "usage": usage}
        histories["c"].append_reply(reply)
    monkeypatch.setattr(shown, "window_of", lambda model: SimpleNamespace(max_input_tokens=window))
    document = foldlog("stats c --json").document
    limit = window if window >= 900 else None  # of the table, not of these calls
    assert (document["peak_prompt_tokens"], document["max_input_tokens"]) == (900, limit)
    assert f"largest prompt: {shown_as}\n" in foldlog("stats c").out
