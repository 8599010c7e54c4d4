"""A history replayed under strategies that it never had. ``tests/golden/replays`` has histories
with a strategy, or null for the recorded condensations, and the figures of the replay.

    python -m tests.foldlog.reports.test_replays

writes the figures again. Look at what changed.
"""

import dataclasses
import json

import pytest
from hypothesis import given
from msgspec.structs import astuple, replace

import foldlog
from foldlog._reports.recall_score import event_terms
from foldlog._reports.words.gist import gist
from foldlog.condensers import ESTIMATE, LLMSummarizingCondenser
from foldlog.condensers.base import Condensation, Condenser, run_step
from foldlog.condensers.config.registry import condenser_from_config
from foldlog.condensers.errors import CondenserError, NoCondensationAvailable
from foldlog.condensers.models.caches import OTHER, cache_rule
from foldlog.condensers.models.tokens import TokenCounter, offered_tools
from foldlog.condensers.reports import CONDENSER_METADATA_KEY, annotation
from foldlog.eventstore import Action, CondensationAction, Message, Observation, SystemMessage
from foldlog.eventstore.events import is_structural
from foldlog.projections import View
from foldlog.projections.intervals import contains
from foldlog.projections.retractions import intervals_kept
from foldlog.replays import replay
from tests.condensers.scripted import Scripted
from tests.figures import Price
from tests.golden.cases import cases_in, write_anew
from tests.how_many import examples
from tests.properties.histories import ordered_histories, tidy_histories
from tests.said import replied, said

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


CASES = cases_in("replays")
FIGURES = (
    "condensations",
    "declined",
    "summarized",
    "lost",
    "masked",
    "condenser_failures",
    "needed",
    "facts",
    "needed_shown",
    "needed_named",
    "facts_shown",
)


def condenser_of(case):
    config = case.settings()
    return None if config is None else condenser_from_config(config)


def figures_of(case):
    """Return the figures that are not empty, the calls, and the View at the end, each in a line. A
    call has its event, and how many events it was shown and were hidden.
    """
    result = replay(case.events(), condenser_of(case), Counted())
    figures = {name: getattr(result, name) for name in FIGURES}
    lines = [f"{name}: {json.dumps(figure)}" for name, figure in figures.items() if figure]
    lines += [f"missing: {json.dumps(missing)}" for missing in map(astuple, result.missing)]
    calls = [[turn.event_id, turn.events, turn.hidden] for turn in result.turns]
    lines.append(f"calls: {calls}")
    if result.final.unhandled_condensation_request:
        lines.append("a condensation is requested")
    return [*lines, f"View: {' '.join(gist(event, 20) for event in result.final)}"]


def written(case, output):
    if output == "terms":
        return "\n".join(" ".join(sorted(event_terms(event))) for event in case.events())
    if output == "tokens":
        turns = replay(case.events(), condenser_of(case), Counted()).turns
        return " ".join(f"{turn.tokens}" for turn in turns)
    return "\n".join(figures_of(case))


@pytest.mark.parametrize(
    "case", [case for cases in CASES.values() for case in cases], ids=lambda case: case.rule
)
def test_a_replay_has_the_figures_of_its_case(case):
    for output, text in case.outputs.items():
        assert written(case, output) == text


def work(turns):
    """Return a user's wish, and an agent that makes one call a turn."""
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


@examples(100)
@given(ordered_histories)
def test_replay_without_condenser_ends_with_recorded_view(history):
    # without ids: a replay gives new ids where a retraction took something back
    def contents(view):
        return [
            (type(event), event.meta, getattr(event, "content", getattr(event, "call_id", 0)))
            for event in view
        ]

    assert contents(replay(history, None).final) == contents(View.from_events(history))


def test_a_number_in_a_summary_that_is_no_id_stays(history):
    history.append([said("a"), said("b"), said("c")])
    summary = f"- the number [{5_000 * '9'}]"
    history.append(
        CondensationAction(forgotten_event_ids=(0, 1), summary=summary, summary_offset=0)
    )
    history.append([Message(source="agent", content="d")])
    assert replay(history.events(), None).final.events[0].content == summary


def test_recorded_calls_that_forgot_nothing_are_counted(history):
    metrics = {"usage": {"total_tokens": 100}, "cost": 0.5}
    report = {"condenser": "llm", "model": "m", "failure": "empty", "metrics": metrics}
    declined = {"outcome": "declined", "reason": "no", CONDENSER_METADATA_KEY: [report]}
    history.append([said("go"), replied("so"), said("on")])
    history.append(annotation([report]))
    history.append(CondensationAction(forgotten_event_ids=(), metadata=declined))
    history.append(replied("done"))
    recorded = replay(history.events(), None)
    assert (recorded.declined, recorded.condenser_failures) == (1, 2)
    assert (recorded.condenser_tokens, recorded.condenser_cost) == (200, 1.0)


@pytest.mark.parametrize("report", [7, "failure", {"metrics": "many", "response": "none"}])
def test_reports_of_other_programs_may_have_any_form(history, report):
    history.append([said("go"), said("on")])
    metadata = {CONDENSER_METADATA_KEY: [report]}
    history.append(CondensationAction(forgotten_event_ids=(0,), metadata=metadata))
    recorded = replay(history.events(), None)
    assert len(recorded.condensations) == 1
    assert (recorded.condenser_failures, recorded.condenser_tokens) == (0, 0)


def test_lines_missing_in_a_digest_are_lost():
    """After a retraction, later events have other ids in a replay than in the lines of its digests."""
    config = {"type": "digest", "max_size": 12, "max_length": 500}
    with foldlog.open("memory:", condenser=config) as histories:
        history = histories["c"]
        history.append([said("wrong")] * 3)
        history.retract(0, reason="wrong")
        for n in range(30):
            history.append(said(f"door {n}: " + "words " * 40))
            history.prepare()
            history.append_reply({"role": "assistant", "content": "yes"})
        messages = [
            event
            for event in history.events()
            if isinstance(event, Message) and event.source == "user"
        ]
        topics = {event.id: event.content.split(":")[0] for event in messages}
        replays = [
            replay(history.events(), condenser)
            for condenser in (condenser_from_config(config), None)
        ]
    for result in replays:
        (digest,) = (event.content for event in result.final if event.id < 0)
        summarized = [topics[event_id] for event_id in result.summarized if event_id in topics]
        lost = [topics[event_id] for event_id in result.lost if event_id in topics]
        assert all(f"- {topic}: " in digest for topic in summarized)
        assert not any(f"- {topic}: " in digest for topic in lost)
        assert len(lost) > 15 > len(summarized) > 0


def test_repeated_tokens_cost_less_with_caching():
    result = replay(work(1), condenser_from_config({"type": "noop"}))
    turn, *_ = result.turns
    tokens = [(900, 0), (1_124, 900), (1_224, 1_124)]
    turns = [replace(turn, tokens=sent, repeated=before) for sent, before in tokens]
    unknown = replace(turn, tokens=None, repeated=None)
    for price, cost in (
        (Price(1.0, 9.0, 0.1), (900 * 1.0 + 1_124 * 1.0) + (0.1 * 1_124 + 100 * 1.0)),
        (Price(1.0, 9.0), 900 + 1_124 + 1_224),
        (Price(1.0, 9.0, 0.1, 1.25), 900 * 1.0 + 1_124 * 1.25 + 0.1 * 1_124 + 100 * 1.25),
    ):
        assert dataclasses.replace(result, turns=turns).prompts_cost(price) == pytest.approx(cost)
    assert dataclasses.replace(result, turns=[*turns, unknown]).prompts_cost(price) is None


@pytest.mark.parametrize("asked", ["events", "continue"])
def test_a_summary_has_the_prompts_of_both_ways(asked):
    condenser = LLMSummarizingCondenser(
        Scripted("words of a summary " * 9), prompt=asked, max_size=10, keep_first=2, fallback=False
    )
    events = [
        Message(id=n, source="agent" if n % 2 else "user", content=f"fact {n} " * 400)
        for n in range(20)
    ]
    result = replay(events, condenser, ESTIMATE)
    first, *_ = result.summaries
    assert len(result.summaries) == len(result.condensations) > 1
    # The agent's next prompt repeats its previous prompt, and a prompt of its own repeats nothing.
    assert first.next > first.own > 1_024
    assert 0.7 * first.next < first.repeated < first.next
    price = Price(1e-6, 5e-6, 1e-7)
    assert first.cost_next(price, OTHER) < 0.6 * first.cost_own(price)
    assert first.cost_next(price, cache_rule("gpt-4o")) > first.cost_next(price, OTHER)
    assert result.tokens_cached(OTHER) <= result.tokens_repeated


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: config["type"])
def test_events_and_tokens_are_accounted_for(config):
    condenser = condenser_from_config(config)

    @examples(150)
    @given(ordered_histories | tidy_histories)
    def check(events):
        watching = Watching(condenser)
        result = replay(events, watching, Counted())
        assert [turn.tokens for turn in result.turns] == watching.tokens
        kept_ids = intervals_kept(events, len(events))
        shown = [
            event.id
            for event in events
            if event.shown and contains(kept_ids, event.id) and not is_structural(event)
        ]
        in_view = sum(event.id >= 0 for event in result.final)
        # it forgets nothing, and does not show all
        lost = () if config["type"] == "recent_events" else result.lost
        assert in_view + len(result.summarized) + len(lost) == len(shown)
        assert set(result.summarized) | set(result.lost) <= set(shown)
        assert not set(result.summarized) & set(result.lost)

    check()


class Counted:
    """An agent's model that counts messages as a real one does."""

    model = "counted"
    max_input_tokens = max_output_tokens = None

    def __init__(self):
        self.counter = TokenCounter(
            lambda prompt, tools: 3 + sum(map(len, map(json.dumps, prompt))) + 7 * len(tools)
        )

    def token_sums(self, view):
        return self.counter.token_sums(view)


class Watching(Condenser):
    """Runs another condenser, and counts the tokens of each prompt that it lets through."""

    type = "watching"

    def __init__(self, condenser):
        self.condenser = condenser
        self.counter = Counted().counter
        self.tokens = []

    def step(self, view, agent_llm=None):
        try:
            # a condensation that may forget nothing leaves the View
            step = run_step(self.condenser, view, agent_llm)
        except NoCondensationAvailable:
            self._count(view)
            raise
        if isinstance(step.result, View):
            self._count(step.result)
        return step

    def _count(self, shown):
        self.tokens.append(self.counter.count_tokens(shown.to_messages(), offered_tools(shown)))


class Endless(Condenser):
    """Forgets one event more whenever it is asked."""

    type = "endless"

    def condense(self, view, agent_llm=None):
        return Condensation(CondensationAction(forgotten_event_ids=[view[0].id]))


def test_endless_condenser_is_stopped():
    events = [
        Message(id=n, source="user" if n < 20 else "agent", content="so far") for n in range(22)
    ]
    with pytest.raises(CondenserError, match="condensed 10 times before event 21"):
        replay(events, Endless())


if __name__ == "__main__":
    write_anew("replays", written)
