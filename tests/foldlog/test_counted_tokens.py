"""The tokens of one event by itself, as a tokenizer counts them: their sums are near those of whole prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldlog._page.document import PageFold
from foldlog._page.report import new_fold
from foldlog._reports.sizes import CountedTokens
from foldlog.condensers import LLM, LLMConfig, TokensUnknown, event_tokens
from foldlog.eventstore import Action, Annotation, Message, Observation, SystemMessage, open_store
from foldlog.formats import open_sources
from foldlog.projections import View, Views
from tests.page_samples import usual_history

SAMPLE = Path(__file__).parents[2] / "foldlog" / "sample"
GPT = LLM(LLMConfig(model="gpt-4o"))


def sample() -> list:
    (source,) = open_sources([SAMPLE])
    return list(source.events())


@pytest.mark.parametrize("history", [sample, lambda: list(usual_history())], ids=["sample", "usual"])
def test_the_sum_over_a_view_is_near_the_count_of_its_prompt(history):
    events, counted = history(), CountedTokens(GPT)
    for version in (2, len(events) // 3, len(events)):
        view = View.from_events(events[:version])
        sent = [event for event in view if event.id not in {call.id for call in view.open_calls}]
        exact = GPT.token_sums(view)[-1]
        assert abs(sum(map(counted, sent)) - exact) <= 3 + 4 * len(sent) // 10
    assert counted.estimated == set()


def test_a_call_and_its_result_and_the_tools_are_counted_each():
    call = Action(tool="terminal", arguments={"command": "make"}, call_id="c1", source="agent")
    result = Observation(tool="terminal", content="done " * 50, call_id="c1")
    prompt = SystemMessage(content="Help.", tools=({"type": "function", "function": {"name": "terminal"}},))
    counted = CountedTokens(GPT)
    assert 5 < counted(call) < 40
    assert 50 <= counted(result) <= 65
    assert counted(prompt) > counted(SystemMessage(content="Help.")) + 3
    assert counted(Annotation(name="note", data={"x": 1})) == 0
    assert counted(Message(source="user", content=" \n")) == 0


class Stumbles:
    """A model whose tokenizer fails on one word."""

    model = "example"

    def count_tokens(self, messages, tools=()) -> int:
        if "odd" in str(messages):
            raise TokensUnknown("an odd text")
        return 3 + len(messages)


def test_an_event_that_cannot_be_counted_is_estimated_and_told(tmp_path):
    events = [Message(source="user", content="plain"), Message(source="user", content="odd " * 10)]
    with open_store("memory:") as store:
        store.ingest("c", iter(events))
        fold = new_fold(store, "c", model=Stumbles())
        fold.take(store.log("c"))
        document = fold.document()
        assert (document.tokens_are, document.counted_as) == ("counted", "example")
        assert document.tokens_estimated == (1,)
        assert document.events.tokens == [1, event_tokens(events[1])]
        plain = PageFold("c")
        plain.take(store.log("c"))
        assert plain.document().tokens_are == "estimated"
        assert [event.id for event in Views(store).current("c")] == [0, 1]


def test_a_tokenizer_that_is_not_there_is_said_at_once():
    with pytest.raises(TokensUnknown, match="would have to be downloaded"):
        CountedTokens(LLM(LLMConfig(model="huggingface/meta-llama/Llama-3-8b")))
