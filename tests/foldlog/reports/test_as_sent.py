"""The View as a model was sent it can be shown again from the log alone."""

import json
from contextlib import contextmanager

import pytest
from hypothesis import given, strategies as st

import foldlog
from foldlog._reports.as_sent import sent
from foldlog.condensers.base import Condensation, Condenser
from foldlog.condensers.config.registry import condenser_from_config
from foldlog.condensers.handler import CondenseHandler
from foldlog.condensers.models.client import LLM
from foldlog.condensers.reports import CONDENSER_METADATA_KEY
from foldlog.condensers.strategies.hiding import NoOpCondenser
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.eventstore import Annotation
from tests.condensers.made import SYSTEM, call, message
from tests.golden.rows import rows
from tests.how_many import examples

RECENT = {"type": "recent_events", "max_events": 6, "keep_first": 2}
MASK = {"type": "observation_masking", "attention_window": 3}
CONDENSERS = (
    RECENT,
    MASK,
    {"type": "clear_tool_uses", "trigger": 300, "keep": 1, "exclude_tools": ["kept"]},
    {"type": "clear_thinking", "keep": 1},
    {"type": "digest", "max_tokens": 3_000},
    {"type": "pipeline", "condensers": [MASK, {"type": "recent_events", "max_events": 9}]},
    {"type": "pipeline", "condensers": [MASK, {"type": "amortized_forgetting", "max_size": 12}]},
    {"type": "pipeline", "condensers": [MASK, {"type": "digest", "max_tokens": 3_000}]},
    {"type": "noop"},
)


def turn(history, number, size=200, *, tool="run"):
    history.append(message(f"ask {number}"))
    history.append(call(tool, f"c{number}"))
    history.append_tool_result(f"c{number}", f"<{number}>" + "x " * size)


@contextmanager
def history_with(condenser, turns=0):
    """A history after so many turns, each with a step of the condenser."""
    with foldlog.open("memory:", condenser=condenser) as histories:
        history = histories["c"]
        for number in range(turns):
            turn(history, number)
            history.prepare()
        yield history


@examples(20)
@given(
    st.lists(
        st.tuples(st.sampled_from(CONDENSERS), st.sampled_from([1, 200, 9_000])),
        min_size=1,
        max_size=20,
    )
)
def test_each_prompt_can_be_shown_again(steps):
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        prompts = {}
        history.append(SYSTEM)
        for number, (condenser, size) in enumerate(steps):
            turn(history, number, size)
            handler = CondenseHandler(
                histories.store, histories.views, condenser_from_config(condenser)
            )
            while isinstance(view := handler.handle("c"), Condensation):
                pass
            prompts[history.version()] = view.to_messages()
        assert {version: history.sent(version).to_messages() for version in prompts} == prompts


@pytest.mark.parametrize("condenser", [RECENT, MASK], ids=json.dumps)
def test_a_prompt_long_after_its_rule_is_known(condenser):
    with history_with(condenser, 45) as history:
        assert history.sent().events == history.prepare().events != history.view().events


def test_why_says_what_hides_an_event():
    with history_with(RECENT, 5) as history:
        hidden = history.why(5)
        sent = history.why(0)
        assert (hidden.fate, hidden.sent, sent.sent) == ("shown", False, True)
        assert "hidden by recent_events (recorded in event 9)" in hidden.reason
        assert history.why(5, at=9).sent, "before a step hid it"


def test_why_says_what_masks_or_shortens():
    with history_with(MASK, 5) as history:
        why = history.why(2)
    assert why.sent
    assert "masked by observation_masking" in why.reason
    with history_with({"type": "digest", "max_tokens": 3_000}) as history:
        turn(history, 0, 50_000)
        view = history.prepare()
        assert view[2].content == history.sent()[2].content != history.view()[2].content
        assert "shortened by digest" in history.why(2).reason


class EveryOther(Condenser):
    """Shows every other event, and reports nothing."""

    def condense(self, view, agent_llm=None):
        return view.with_events(view.events[::2])


@pytest.mark.parametrize(
    "condenser",
    [EveryOther(), PipelineCondenser([NoOpCondenser(), EveryOther()])],
    ids=["alone", "a part"],
)
def test_view_of_an_own_condenser_is_unknown(condenser):
    with history_with(condenser, 20) as history:
        assert len(history.prepare()) < len(history.view())
        why = history.why(1)
        assert why.sent
        assert "cannot say how it was sent" in why.reason
        assert "because this depends on EveryOther (recorded in event" in why.reason
        assert len([event for event in history.events() if isinstance(event, Annotation)]) == 2
        CondenseHandler(history._store, history._views, NoOpCondenser()).handle("c")
        assert "cannot say" not in history.why(1).reason


def test_unchanged_view_is_not_recorded(histories):
    class Whole(EveryOther):
        def condense(self, view, agent_llm=None):
            return view.with_events(view.events)

    turn(histories["c"], 0)
    assert (
        CondenseHandler(histories.store, histories.views, Whole()).handle("c")
        == histories["c"].view()
    )
    assert histories["c"].version() == 3


@pytest.mark.parametrize(
    "rule",
    rows("refusals.json", "rules of a log that choose code or a model, or are malformed"),
    ids=str,
)
def test_log_chooses_no_code_or_model(histories, monkeypatch, rule):
    """The rules in a log may come from a stranger. A rule that does more than show less, or that is
    malformed, is named and not applied.
    """
    requests = []
    monkeypatch.setattr(LLM, "complete", lambda *arguments, **named: requests.append(arguments))
    history = histories["c"]
    for number in range(6):
        turn(history, number)
    history.append(Annotation(name=CONDENSER_METADATA_KEY, data=[rule]))
    assert history.sent() == history.view()
    assert sent(histories.store, "c", history.view()).rules.startswith(
        f"{rule['condenser']} (recorded in event 18), which"
    )
    assert requests == []
