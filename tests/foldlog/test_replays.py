"""A history replayed under strategies that it never had."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from msgspec.structs import replace

import foldlog
from foldlog._documents import CallDocument as Turn
from foldlog._figures.prices import Price
from foldlog._reports.replays import replay
from foldlog.condensers.base import Condensation, Condenser, stepped
from foldlog.condensers.config.registry import condenser_from_config
from foldlog.condensers.errors import CondenserError, NoCondensationAvailable
from foldlog.condensers.models.tokens import TokenCounter, offered_tools
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)
from foldlog.eventstore.events import is_structural
from foldlog.projections import View
from foldlog.projections.intervals import contains
from foldlog.projections.retractions import intervals_kept
from tests.how_many import examples
from tests.properties.histories import ordered_histories, tidy_histories

STRATEGIES = [
    {"type": "noop"},
    {"type": "recent_events", "max_events": 6},
    {"type": "observation_masking", "attention_window": 2},
    {"type": "amortized_forgetting", "max_size": 8},
    {"type": "digest", "max_size": 8},
    {"type": "conversation_window"},
    {
        "type": "pipeline",
        "condensers": [{"type": "conversation_window"}, {"type": "digest", "max_size": 10}],
    },
]


def work(turns: int) -> list:
    """A user's wish, and an agent that makes one call a turn."""
    events = [
        SystemMessage(id=0, content="be an agent"),
        Message(id=1, source="user", content="do it"),
    ]
    for n in range(2, 2 + 2 * turns, 2):
        events.append(
            Action(
                id=n,
                tool="run",
                arguments={"command": f"step {n}"},
                call_id=f"c{n}",
                response_id=f"r{n}",
            )
        )
        events.append(Observation(id=n + 1, tool="run", call_id=f"c{n}", cause=n, content="done"))
    return events


def call(call_id: str, response_id: str | None = None, *, thinking: bool = False) -> Action:
    thoughts = ({"type": "thinking", "thinking": "hm"},) if thinking else ()
    return Action(
        tool="run", call_id=call_id, response_id=response_id or f"of {call_id}", thinking=thoughts
    )


def answer(call_id: str) -> Observation:
    return Observation(call_id=call_id, content="done")


@examples(100)
@given(ordered_histories)
def test_a_replay_without_a_condenser_ends_with_the_view_as_it_was_recorded(history):
    def said(view):  # without ids: those of a replay are new where a retraction took something back
        return [
            (type(event), event.meta, getattr(event, "content", getattr(event, "call_id", 0)))
            for event in view
        ]

    assert said(replay(history, None).final) == said(View.from_events(history))


def test_condensations_are_replayed_as_they_were_recorded_beside_what_was_taken_back():
    events = [
        *work(3),
        CondensationAction(id=8, forgotten_event_ids=(2, 3), summary="one", summary_offset=1),
    ]
    events += [Message(id=9, source="user", content="wrong"), Retraction(id=10, version=9)]
    events += [replace(event, id=event.id + 9, cause=None) for event in work(3)[2:]]
    gone = {"forgotten_event_ids": (-10, 4, 5), "summary": "two", "summary_offset": 1}
    events += [
        CondensationAction(id=17, **gone, metadata={"condenser_meta": [{"failure": "timeout"}]})
    ]
    events += [
        CondensationAction(
            id=18, forgotten_event_ids=(), metadata={"outcome": "declined", "reason": "no"}
        )
    ]
    events += [Message(id=19, source="agent", content="step 4")]
    done = replay(events, None)
    assert done.condensations == (8, 17)
    assert (done.declined, done.summarized, done.lost, done.condenser_failures) == (
        1,
        (2, 3, 4, 5),
        (),
        1,
    )
    assert [event.content for event in done.final if event.id < 0] == ["two"]


def test_a_turn_is_one_call_of_the_model_and_sees_what_came_before_it():
    done = replay(work(5), condenser_from_config({"type": "noop"}))
    assert [(turn.event_id, turn.events) for turn in done.turns] == [
        (2, 2),
        (4, 4),
        (6, 6),
        (8, 8),
        (10, 10),
    ]
    assert (done.condensations, done.lost, done.summarized, done.tokens_sent) == ((), (), (), None)


def test_forgetting_without_a_summary_is_loss_and_with_one_it_is_not():
    events = work(20)
    forgetting = replay(
        events, condenser_from_config({"type": "amortized_forgetting", "max_size": 10})
    )
    digesting = replay(events, condenser_from_config({"type": "digest", "max_size": 10}))
    assert forgetting.lost
    assert not forgetting.summarized
    assert digesting.summarized
    assert not digesting.lost


def test_what_a_digest_leaves_out_is_lost_in_a_replay_and_as_recorded():
    """Where events were taken back, those after them have other ids in a replay than in the lines
    of its digests.
    """
    config = {"type": "digest", "max_size": 12, "max_length": 500}
    with foldlog.open("memory:", condenser=config) as histories:
        history = histories["c"]
        history.append([Message(source="user", content="wrong")] * 3)
        history.retract(0, reason="wrong")
        for n in range(30):
            history.append(Message(source="user", content=f"door {n}: " + "words " * 40))
            history.prepare()
            history.append_reply({"role": "assistant", "content": "yes"})
        said = [
            event
            for event in history.events()
            if isinstance(event, Message) and event.source == "user"
        ]
        asked = {event.id: event.content.split(":")[0] for event in said}
        replays = [replay(history.events(), each) for each in (condenser_from_config(config), None)]
    for done in replays:
        (digest,) = (event.content for event in done.final if event.id < 0)
        told, lost = (
            [asked[each] for each in ids if each in asked] for ids in (done.summarized, done.lost)
        )
        assert all(f"- {each}: " in digest for each in told)
        assert not any(f"- {each}: " in digest for each in lost)
        assert len(lost) > 15 > len(told) > 0


def test_the_recorded_condensations_are_left_out_and_ids_stay_the_historys_own():
    events = work(10)
    forgets = CondensationAction(id=22, forgotten_events_start_id=2, forgotten_events_end_id=15)
    later = [
        Action(id=23, tool="run", call_id="c", response_id="r"),
        Observation(id=24, call_id="c", cause=23, content="x"),
    ]
    done = replay([*events, forgets, *later], condenser_from_config({"type": "noop"}))
    assert (done.turns[-1].event_id, done.turns[-1].events) == (23, 22)


def test_a_request_is_answered_by_the_strategy_that_is_replayed():
    events = [
        *work(10),
        CondensationRequest(id=22),
        Message(id=23, source="agent", content="go on"),
    ]
    done = replay(events, condenser_from_config({"type": "conversation_window"}))
    assert done.condensations == (23,)
    ignored = replay(events, condenser_from_config({"type": "observation_masking"}))
    assert ignored.final.unhandled_condensation_request


def test_a_request_that_cannot_be_met_is_declined_once():
    events = [
        *work(1)[:2],
        CondensationRequest(id=2),
        *(Message(id=n, source="agent", content="on") for n in (3, 4)),
    ]
    done = replay(events, condenser_from_config({"type": "amortized_forgetting"}))
    assert (done.declined, done.condensations) == (1, ())
    assert not done.final.unhandled_condensation_request


def test_an_event_that_a_call_was_not_shown_is_lost_and_one_without_its_content_is_masked():
    done = replay(work(20), condenser_from_config({"type": "recent_events", "max_events": 6}))
    assert (len(done.final), done.masked) == (42, ())
    assert done.lost == tuple(range(1, 1 + done.turns[-1].hidden))
    done = replay(
        work(20), condenser_from_config({"type": "observation_masking", "attention_window": 4})
    )
    assert (done.lost, done.masked) == ((), tuple(range(3, 37, 2)))


def test_a_reply_in_several_records_is_one_call_of_the_model():
    """Claude Code writes a line for a text, and one for each call; a reply is known by its message
    and its request.
    """
    events = [Message(id=0, source="user", content="do it")]
    for n in range(1, 16, 5):
        meta = {"reply": f"r{n} of request {n}"}
        events += [
            Message(id=n, source="agent", content="look", meta=meta),
            Action(id=n + 1, tool="run", call_id=f"c{n}", response_id=f"r{n}", meta=meta),
            Observation(id=n + 2, tool="run", call_id=f"c{n}", cause=n + 1, content="done"),
            Action(id=n + 3, tool="run", call_id=f"d{n}", response_id=f"r{n}"),
            Action(id=n + 4, tool="run", call_id=f"e{n}", response_id=f"r{n}"),
        ]
    done = replay(events, condenser_from_config({"type": "noop"}))
    assert [turn.event_id for turn in done.turns] == [1, 6, 11]


def test_prompts_cost_what_is_new_and_less_what_is_repeated_where_a_cache_takes_them():
    done = replay(work(1), condenser_from_config({"type": "noop"}))
    turns = [Turn(1, 1, 0, 900, 0), Turn(2, 1, 0, 1_124, 900), Turn(3, 1, 0, 1_224, 1_124)]
    for price, cost in (
        (Price(1.0, 9.0, 0.1), (900 * 1.0 + 1_124 * 1.0) + (0.1 * 1_124 + 100 * 1.0)),
        (Price(1.0, 9.0), 900 + 1_124 + 1_224),
        (Price(1.0, 9.0, 0.1, 1.25), 900 * 1.0 + 1_124 * 1.25 + 0.1 * 1_124 + 100 * 1.25),
    ):
        assert dataclasses.replace(done, turns=turns).prompts_cost(price) == pytest.approx(cost)
    assert (
        dataclasses.replace(done, turns=[*turns, Turn(4, 1, 0, None, None)]).prompts_cost(price)
        is None
    )


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: config["type"])
def test_every_event_that_was_shown_is_in_the_view_or_in_a_summary_or_lost(config):
    condenser = condenser_from_config(config)

    @examples(60)
    @given(ordered_histories | tidy_histories)
    def check(events):
        done = replay(events, condenser)
        kept_ids = intervals_kept(events, len(events))
        shown = [
            event.id
            for event in events
            if event.shown and contains(kept_ids, event.id) and not is_structural(event)
        ]
        kept = sum(event.id >= 0 for event in done.final)
        # it forgets nothing, and does not show all
        gone = () if config["type"] == "recent_events" else done.lost
        assert kept + len(done.summarized) + len(gone) == len(shown)
        assert set(done.summarized) | set(done.lost) <= set(shown)
        assert not set(done.summarized) & set(done.lost)

    check()


class Counted:
    """An agent's model that counts messages as a real one does, and remembers whole Views that it
    was asked about.
    """

    model = "counted"
    max_input_tokens = max_output_tokens = None

    def __init__(self) -> None:
        self.counter = TokenCounter(
            lambda prompt, tools: 3 + sum(map(len, map(json.dumps, prompt))) + 7 * len(tools)
        )
        self.looked_at = 0

    def token_sums(self, view: View) -> Sequence[int]:
        self.looked_at += len(view)
        return self.counter.token_sums(view)


class Watching(Condenser):
    """Hands on to another condenser, and counts what that lets through on the spot."""

    type = "watching"

    def __init__(self, condenser: Condenser) -> None:
        self.condenser, self.counter, self.tokens = condenser, Counted().counter, []

    def step(self, view, agent_llm=None):
        try:
            # a condensation that may forget nothing leaves the View
            step = stepped(self.condenser, view, agent_llm)
        except NoCondensationAvailable:
            self._count(view)
            raise
        if isinstance(step.result, View):
            self._count(step.result)
        return step

    def _count(self, shown):
        self.tokens.append(self.counter.count_tokens(shown.to_messages(), offered_tools(shown)))


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: config["type"])
def test_tokens_are_counted_in_the_prompts_that_would_have_been_sent(config):
    condenser = condenser_from_config(config)

    @examples(150)
    @given(ordered_histories | tidy_histories)
    def check(events):
        watching = Watching(condenser)
        done = replay(events, watching, Counted())
        assert [turn.tokens for turn in done.turns] == watching.tokens

    check()


ASKED = Message(id=0, source="user", content="do it")
TOOL = {"type": "function", "function": {"name": "run", "description": "", "parameters": {}}}


@pytest.mark.parametrize(
    "events",
    [
        [
            ASKED,
            Message(source="agent", content="I am"),
            SystemMessage(content="be", tools=(TOOL,)),
        ],
        [ASKED, call("a", thinking=True), answer("a"), call("b"), call("c"), answer("c")],
        [
            ASKED,
            call("a"),
            Message(source="user", content="wait"),
            Message(source="user", content="no, go on"),
        ],
        [ASKED, call("a", "r"), answer("a"), Message(source="agent", content="hm"), call("b", "r")],
    ],
    ids=[
        "a later system prompt",
        "a loop that breaks",
        "users who go on",
        "a response that goes on",
    ],
)
def test_what_comes_later_does_not_change_what_an_earlier_prompt_took(events):
    events = [replace(event, id=place) for place, event in enumerate(events)]
    events.append(Message(id=len(events), source="agent", content="done"))
    watching = Watching(condenser_from_config({"type": "noop"}))
    done = replay(events, watching, Counted())
    assert [turn.tokens for turn in done.turns] == watching.tokens
    assert len(done.turns) > 1


class Endless(Condenser):
    """Forgets one event more whenever it is asked."""

    type = "endless"

    def condense(self, view, agent_llm=None):
        return Condensation(CondensationAction(forgotten_event_ids=[view[0].id]))


def test_a_condenser_that_never_ends_is_stopped_with_an_error():
    events = [
        Message(id=n, source="user" if n < 20 else "agent", content="so far") for n in range(22)
    ]
    with pytest.raises(CondenserError, match="condensed 10 times before event 21"):
        replay(events, Endless())


@pytest.mark.parametrize("kind", ["digest", "amortized_forgetting", "conversation_window"])
def test_the_head_of_the_prompt_stays_and_the_summary_has_one_place(kind):
    config = (
        {"type": kind}
        if kind == "conversation_window"
        else {"type": kind, "max_size": 12, "keep_first": 2}
    )
    head, places = None, set()
    with foldlog.open("memory:", condenser=config) as histories:
        history = histories["c"]
        for n, event in enumerate(work(40)):
            history.append(replace(event, id=-1, cause=None))
            if n % 30 == 29:
                history.append(CondensationRequest())
            if n % 2 and n > 2:
                view = history.prepare()
                messages = view.to_messages("openai")
                head = head or messages[:2]
                assert messages[0] == head[0]
                # neighbouring messages of the user are one
                assert messages[1]["content"].startswith("do it")
                places |= {
                    place
                    for place, shown in enumerate(view)
                    if isinstance(shown, CondensationSummary)
                }
        assert any(isinstance(event, CondensationAction) for event in history.events())
    assert places == ({2} if kind == "digest" else set())
