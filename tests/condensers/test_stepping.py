"""No event is forgotten, hidden or masked before a model was shown it."""

import json
import re

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from foldlog import Histories
from foldlog.condensers import (
    Condensation,
    CondenseHandler,
    Condenser,
    LLMAttentionCondenser,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    PipelineCondenser,
    condenser_from_config,
    is_masked,
    reports_of,
)
from foldlog.condensers.models.estimate import ESTIMATE, event_size
from foldlog.condensers.selection import without_kept
from foldlog.condensers.stepping import shorten_texts, step
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    CondensationAction,
    SystemMessage,
    UnknownEvent,
    open_store,
)
from foldlog.projections import View, Views, content_texts, well_formed
from foldlog.projections.units import pending_positions
from tests.condensers.made import (
    REQUEST,
    SYSTEM,
    answer,
    call,
    condensed,
    message,
    new_history,
    pair,
    parts_with,
    viewed,
)
from tests.condensers.scripted import Characters, Scripted
from tests.golden.rows import rows
from tests.how_many import examples
from tests.properties.histories import histories
from tests.said import ids

LIMIT = 3_000
"""In estimated tokens."""

CONDENSERS = (
    {"type": "digest", "max_tokens": LIMIT},
    {"type": "digest", "max_size": 8},
    {"type": "amortized_forgetting", "max_size": 6},
    {"type": "recent_events", "max_events": 3},
    {"type": "observation_masking", "attention_window": 1},
    {"type": "clear_tool_uses", "trigger": LIMIT, "keep": 0, "clear_tool_inputs": True},
    {
        "type": "pipeline",
        "condensers": [{"type": "observation_masking"}, {"type": "digest", "max_tokens": LIMIT}],
    },
    LLMSummarizingCondenser(
        Scripted("a summary of all that the agent did, its results and what is left to be done"),
        max_tokens=LIMIT,
        keep_first=1,
    ),
    LLMAttentionCondenser(Scripted('{"ids": []}'), max_size=6),
)


class Agent:
    """An agent whose steps two workers take by turns."""

    def __init__(self, store, condenser, model=None):
        self.store = store
        if isinstance(condenser, dict):
            condenser = condenser_from_config(condenser)
        self.workers = [CondenseHandler(store, Views(store), condenser, model) for _ in range(2)]
        self.calls = 0
        self.add(SYSTEM, message("do it"))

    def add(self, *events):
        self.store.append("c", events, expected_version=ANY_VERSION)

    def log(self):
        return list(self.store.events("c"))

    def prepare(self):
        self.workers.reverse()
        while isinstance(result := self.workers[0].handle("c"), Condensation):
            pass
        return result

    def act(self, *sizes):
        """Make parallel calls whose results have these sizes. Return words that the results begin
        with.
        """
        first = self.calls
        self.calls += len(sizes)
        names = [f"call-{first + n}" for n in range(len(sizes))]
        self.add(*(call(call_id=name, response_id=f"r{first}") for name in names))
        for name, size in zip(names, sizes, strict=True):
            self.add(answer(f"<{name}>" + "x " * (size // 2), name))
        return [f"<{name}>" for name in names]


@pytest.fixture
def agent():
    with open_store("memory:") as store:
        yield lambda *how: Agent(store, *how)


def shown(view):
    return json.dumps(view.to_messages())


sizes = st.lists(
    st.one_of(st.integers(1, 2_000), st.integers(1, 10 * 4 * LIMIT)), min_size=1, max_size=4
)


@examples(100)
@given(st.sampled_from(CONDENSERS), st.lists(sizes, min_size=1, max_size=8))
def test_no_unseen_result_is_forgotten(condenser, turns):
    with open_store("memory:") as store:
        agent = Agent(store, condenser)
        for results in turns:
            words = agent.act(*results)
            prompt = shown(agent.prepare())
            assert [word for word in words if word not in prompt] == []


@pytest.mark.parametrize(
    "condenser", CONDENSERS, ids=lambda condenser: str(getattr(condenser, "type", condenser))
)
def test_nothing_is_forgotten_before_the_first_turn(agent, condenser):
    agent = agent(condenser)
    words = [f"<document-{number}>" for number in range(8)]
    agent.add(*(message("x " * 1_000 + word) for word in words))
    prompt = shown(agent.prepare())
    assert [word for word in words if word not in prompt] == []


def test_a_large_result_is_shortened_and_reported(
    agent,
):
    agent = agent({"type": "digest", "max_tokens": LIMIT})
    agent.act(100_000, 10)
    view = agent.prepare()
    agent.prepare()
    long, short = view[-2:]
    assert is_masked(long)
    assert not is_masked(short)
    assert long.content.startswith("<call-0>x x")
    assert long.content.endswith("x x ")
    assert "characters and more left out; the log has all of event 4 ...]" in long.content
    log = agent.log()
    assert len(log[4].content) > 100_000
    (report,) = (report for event in log for report in reports_of(event))
    assert (report["outcome"], report["rule"]["events"]) == ("shortened", [4])
    assert LIMIT * 0.7 < report["tokens_after"] <= LIMIT < report["tokens_before"]
    assert sum(isinstance(event, Annotation) for event in log) == 1


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize("kind", parts_with(""))
@pytest.mark.parametrize("of", [answer, message])
def test_texts_of_all_parts_are_shortened(agent, kind, of):
    agent = agent({"type": "digest", "max_tokens": 2 * LIMIT})
    part = parts_with(f"begin {'y ' * 50_000} end")[kind]
    agent.add(call(), of((part, IMAGE)))
    view = agent.prepare()
    assert ESTIMATE.token_sums(view)[-1] <= 2 * LIMIT
    shortened, image = view[-1].content
    assert image == IMAGE
    (text,) = (text for text in content_texts(shortened) if "y" in text)
    assert text.startswith("begin y y")
    assert "characters and more left out; the log has all of event 3 ...]" in text
    assert text.endswith("y  end")
    assert len(json.dumps(view.to_messages("anthropic"))) < 40_000
    assert agent.log()[3].content == (part, IMAGE)


def test_a_decline_names_the_fewest_possible_tokens(agent):
    agent = agent({"type": "digest", "max_tokens": 200})
    agent.add(call(), answer((*parts_with("y " * 50_000).values(),)))
    pattern = (
        r"may have 200 tokens\. If all texts of results, messages and arguments were cut to 400"
        r" characters, the prompt would have (\d+)"
    )
    with pytest.raises(NoCondensationAvailable, match=pattern) as declined:
        agent.prepare()
    assert int(re.search(pattern, str(declined.value))[1]) < 10_000
    newest = agent.log()[-1]
    assert isinstance(newest, CondensationAction)
    assert not any(newest.forgotten)


@pytest.mark.parametrize(
    "fields, count, problem",
    [
        (
            {"content": "", "tools": ({"description": "a " * 2_500},)},
            1,
            r"3037: 2812 for the tools, 225 for other events\. Shorten the tools, or raise the",
        ),
        (
            {"content": "a " * 2_500},
            1,
            r"2983: 2758 for the system prompt, 225 for other events\. Shorten the system prompt, or"
            " raise the",
        ),
        ({"content": ""}, 20, r"4196: 4196 for other events\. Raise the"),
        (
            {"content": "a " * 100},
            20,
            r"\d+: \d+ for the system prompt, \d+ for other events\. Raise the",
        ),
    ],
    ids=["tools", "system prompt", "other events", "a short system prompt"],
)
def test_a_decline_says_what_takes_the_room(fields, count, problem):
    view = viewed(SystemMessage(**fields), [message("a " * 190)] * count)
    with pytest.raises(NoCondensationAvailable, match=f"would have {problem} limit. ") as error:
        step(condenser_from_config({"type": "digest", "max_tokens": 2_000}), view, ESTIMATE)
    assert "send the View" not in str(error.value)


@pytest.mark.parametrize("kind", ["noop", "clear_tool_uses", "recent_events"])
def test_a_condenser_that_forgets_nothing_names_one_that_does(kind):
    view = viewed(SYSTEM, [message("a " * 190)] * 20)
    with pytest.raises(NoCondensationAvailable) as error:
        step(condenser_from_config({"type": kind}), view, Characters(max_input_tokens=2_000))
    assert type(error.value) is NoCondensationAvailable
    assert str(error.value).endswith(
        f"Raise the limit. The condenser '{kind}' forgets nothing on request; choose one that does,"
        " such as 'digest', or a model that accepts more than 2000 tokens"
    )


def test_a_model_without_room_is_no_wrong_setting():
    view = viewed(SYSTEM, message("a " * 190))
    with pytest.raises(NoCondensationAvailable, match="the prompt may have 0 tokens"):
        step(condenser_from_config({"type": "digest"}), view, Characters(max_input_tokens=0))


def test_results_of_a_whole_loop_are_shortened(agent):
    agent = agent({"type": "digest", "max_tokens": LIMIT})
    thinking = ({"type": "thinking", "thinking": "how?", "signature": "s"},)
    agent.add(Action(tool="run", call_id="begins", thinking=thinking), answer("so", "begins"))
    for turn in range(1, 9):
        agent.act(4_000)
        view = agent.prepare()
        assert len(view) == 4 + 2 * turn
        assert sum(map(event_size, view)) < 1.1 * LIMIT
        assert Histories(agent.store)["c"].sent().events == view.events
    assert sum(map(is_masked, view)) == 8


def test_a_decline_names_unseen_events():
    view = View(viewed(SYSTEM, message(), pair(1), pair(2)).state, (), kept_from=2)
    with pytest.raises(
        NoCondensationAvailable,
        match="after its first 2; its last 4 events stay until a model has seen them",
    ):
        condenser_from_config({"type": "digest", "keep_first": 2}).get_condensation(view)


def test_all_calls_of_the_last_response_are_unseen(agent):
    agent = agent({"type": "observation_masking", "attention_window": 1})
    agent.add(call(call_id="a", response_id="r1"), answer(call_id="a"))
    agent.add(
        call(call_id="b", response_id="r2"),
        answer(call_id="b"),
        call(call_id="c", response_id="r2"),
    )
    agent.add(answer(call_id="c"), answer("delivered twice", "b"))
    assert [event.id for event in agent.prepare() if is_masked(event)] == [3]


# --- the room of the agent's model ---

ROOM = Characters(10_000)


@pytest.mark.parametrize(
    "condenser, condensed",
    [
        *rows("settings.json", "condensers in the room of a model"),
        (LLMAttentionCondenser(Scripted('{"ids": []}'), max_size=20), 4),
    ],
    ids=lambda condenser: str(getattr(condenser, "type", condenser)),
)
def test_every_view_fits_the_agents_model(agent, condenser, condensed):
    agent = agent(condenser, ROOM)
    for size in (*[900] * 7, 60_000, 3_000, 10, 10):
        (word,) = agent.act(size)
        view = agent.prepare()
        assert word in shown(view)
        assert ROOM.token_sums(view)[-1] <= 10_000
        assert Histories(agent.store)["c"].sent().events == view.events
    outcomes = [event.metadata for event in agent.log() if isinstance(event, CondensationAction)]
    assert [metadata["outcome"] for metadata in outcomes] == ["condensed"] * condensed
    assert {(metadata["reason"], metadata["tokens_max"]) for metadata in outcomes} <= {
        ("tokens", 10_000)
    }


# --- condensers of one's own ---


class Own(Condenser):
    """Forgets what ``choose`` gives of the events of a View with more than ``most``."""

    def __init__(self, choose, most=0, summary=None):
        self.choose = choose
        self.most = most
        self.summary = summary

    def condense(self, view, agent_llm=None):
        forgotten = ids(self.choose(view))
        if len(view) <= self.most or not forgotten:
            return view
        offset = None if self.summary is None else len(view) // 2
        return Condensation(condensed(*forgotten, summary=self.summary, offset=offset))


def first_unseen(view):
    """Return the first event that a condenser has to keep."""
    guarded = []

    def guard(view):
        guarded.append(view)
        return ()

    step(Own(guard), view, None)
    return guarded[0].kept_from


def sendable(view):
    return set(ids(well_formed(view)))


@examples(300)
@given(
    histories, st.randoms(use_true_random=False), st.sampled_from([None, "so far"]), st.booleans()
)
def test_an_own_condenser_forgets_nothing_unseen_or_open(events, random, summary, is_requested):
    own = Own(lambda view: [event for event in view if random.random() < 0.6], summary=summary)
    before = viewed(events, [REQUEST] * is_requested)
    waiting = {before[place].id for place in pending_positions(before.units)}
    unseen = {event.id for event in before if event.id >= first_unseen(before)}
    try:
        result = step(own, before, None).result
    except NoCondensationAvailable:
        assert before.unhandled_condensation_request
        return
    if isinstance(result, View):
        assert result.events == before.events
        return
    after = before.then([result.action])
    there = set(ids(after))
    assert waiting | unseen <= there
    assert sendable(before).isdisjoint(after.left_behind - before.left_behind), (
        "no half of a unit that is sent"
    )
    assert sendable(before) & there <= sendable(after)
    assert after.to_messages("anthropic") or not before.to_messages("anthropic")


def test_arguments_that_are_no_texts_are_shortened():
    arguments = {"lines": ["word"] * 300, "count": 7, "text": 500 * "x"}
    event = Action(id=3, tool="write", call_id="k", arguments=arguments)
    (cut,) = shorten_texts(viewed(message(), message(), message(), event), 400, {3}).events[3:]
    assert cut.arguments["count"] == 7
    assert {len(cut.arguments[name]) for name in ("lines", "text")} == {400}
    assert cut.arguments["lines"].startswith('["word", "word", ')
    assert cut.meta == {"masked_by": "length"}
    short = replace(event, arguments={"text": 400 * "x"})
    view = viewed(message(), message(), message(), short)
    assert shorten_texts(view, 400, {3}).events == view.events


def test_an_empty_summary_is_no_message():
    agent_message = replace(message(source="agent"), stays_with_next=True)
    view = viewed(message(), agent_message, condensed(summary="", offset=2))
    with pytest.raises(NoCondensationAvailable, match="no message to send"):
        without_kept(view, condensed(0))


def test_an_own_condenser_cannot_forget_unseen_events(
    agent,
):
    agent = agent(Own(lambda view: view[1:-5], 10))
    agent.add(*(message(f"<requirement-{number}>") for number in range(15)))
    for _ in range(2):
        prompt = shown(agent.prepare())
    assert [number for number in range(15) if f"<requirement-{number}>" not in prompt] == []
    (note,) = (event for event in agent.log() if isinstance(event, Annotation))
    (report,) = reports_of(note)
    assert report["problem"].endswith(
        "or their units must stay; its last 17 events stay until a model has seen them: send the View"
        " to the model"
    )
    agent.add(message("Which file?", source="agent"))
    assert len(agent.prepare()) == 6


def test_the_last_turn_always_stays(agent):
    agent = agent(Own(lambda view: view.events, 2))
    agent.add(call(call_id="paying"))
    assert shown(agent.prepare()).count("do it") == 1, "without it there would be no message"
    agent.add(answer("paid", "paying"))
    assert ids(agent.prepare()) == [2, 4]


def test_an_own_condenser_declines_what_it_cannot(agent):
    agent = agent(Own(lambda view: view.events))
    agent.add(REQUEST)
    with pytest.raises(
        NoCondensationAvailable,
        match=r"the condensation names 2 of the View's 2 events.*; its last 2 events stay",
    ):
        agent.prepare()
    assert len(agent.prepare()) == 2


def test_the_next_part_forgets_instead(agent):
    parts = [Own(lambda view: view[-1:]), condenser_from_config({"type": "digest", "max_size": 8})]
    agent = agent(PipelineCondenser(parts))
    for _ in range(5):
        (word,) = agent.act(10)
        view = agent.prepare()
        assert (word in shown(view), len(view) <= 8) == (True, True)


def test_a_returned_view_counts_as_shown():
    with new_history({"type": "amortized_forgetting", "max_size": 10}) as history:
        sizes = []
        for number in range(40):
            history.append(message(f"note {number}"))
            sizes.append(len(history.prepare()))
        assert max(sizes) == 10
        assert len(history.view().condensations) == 5
        noted = [event.meta.get("shown_version") for event in history.events() if event.shown]
        assert noted[:4] == [None, 1, 2, 3]
        assert first_unseen(history.view()) == history.view()[-1].meta["shown_version"]
        forged = replace(message("b"), meta={"shown_version": 99})
        assert first_unseen(viewed(message("a"), forged)) == 1, (
            "a View before an event does not show it"
        )
        assert history.condense("by hand").action.metadata["reason"] == "request"
        assert first_unseen(history.view()) == first_unseen(View.from_events(history.events()))


def test_a_shown_view_is_noted_once():
    with new_history({"type": "amortized_forgetting", "max_size": 4}) as history:
        history.append([message(f"note {number}") for number in range(6)])
        assert len(history.prepare()) == 6, "no model was shown it yet"
        version = history.prepare().version
        history.request_condensation()
        (first,) = history.append(message("more"))
        (second,) = history.append(message("and more"))
        assert (first.event.meta, second.event.meta) == ({"shown_version": version}, {})
        again = history.append(message("more"), idempotency_key="k")
        history.prepare()
        assert history.append(message("more"), idempotency_key="k") == again
        assert history.append({"role": "assistant", "content": "yes"})[0].event.meta == {}


def test_an_unknown_event_notes_no_view():
    with new_history() as history:
        history.append(message("a"))
        version = history.prepare().version
        (recorded,) = history.append(
            UnknownEvent(stored_kind="of.tomorrow", stored_schema=1, body=b"{}", shown=True)
        )
        assert recorded.event == next(history.events(1))
        assert history.append(message("b"))[0].event.meta == {"shown_version": version}


def test_a_summary_is_cut_where_the_last_turn_leaves_no_room():
    condenser = {"type": "digest", "max_tokens": 6_000}
    with new_history(condenser, agent_llm=Characters(6_000)) as history:
        history.append([message(), message("I looked.", source="agent"), message("Go on.")])
        history.append(condensed(0, 1, 2, summary="the harbour falcon " * 160, offset=0))
        calls = [call(call_id=f"c{number}", path="x" * 90) for number in range(9)]
        history.append(calls)
        for number in range(9):
            history.append(answer("y" * 390, f"c{number}"))
        view = history.prepare()
        assert Characters().token_sums(view)[-1] <= 6_000
        summary, *others = view.events
        assert summary.content.startswith("the harbour falcon")
        assert "left out; the log has the whole summary ...]" in summary.content
        assert not any(map(is_masked, others)), "shorter texts of results would not be enough"
        assert history.sent().to_messages() == view.to_messages()
        assert history.view()[0].content == "the harbour falcon " * 160


def test_a_function_in_place_of_a_method_gets_the_view_and_the_model():
    asked = []

    class Own(Condenser):
        def condense(self, view):
            raise AssertionError("replaced")

    def condense(view, agent_llm):
        asked.append(agent_llm)
        return view

    condenser = Own()
    condenser.condense = condense
    view = View.from_events([SYSTEM, REQUEST])
    assert condenser.step(view, ESTIMATE).result is view
    assert asked == [ESTIMATE]
