"""What foldlog makes of drawn histories stays the same: their Views, messages, lifetimes, digests and
the steps of each condenser.

``tests/golden/drawn.json`` has hashes of the results, for each seed of ``tests.properties.drawn``. If
a result changes, ``python -m tests.properties.test_drawn_histories SEED RESULT`` prints it: compare
what it prints before and after a change. Without arguments, the command writes the hashes again.
"""

import json
import sys
from hashlib import blake2b

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from foldlog.condensers import Condensation, NoCondensationAvailable
from foldlog.condensers.strategies.digest import digest_of
from foldlog.condensers.strategies.digest.layout import text_of
from foldlog.eventstore import (
    Action,
    CondensationRequest,
    Observation,
    Retraction,
)
from foldlog.eventstore.codec_json import describe_value
from foldlog.projections import LifetimesFold, View
from foldlog.projections.call_states import in_doubt, trace
from foldlog.projections.explain import explain_difference, explain_event
from foldlog.projections.messages.turns import DIALECTS
from foldlog.projections.refusals import words_in_refusal
from foldlog.projections.retractions import target
from tests.condensers.scripted import FULL_STATE, Characters
from tests.condensers.test_condensations import condenser_of, step_in_lines
from tests.golden.cases import GOLDEN
from tests.properties.definition import assert_as_defined, structural_since
from tests.properties.drawn import LEASE, drawn_history
from tests.said import ids

FILE = GOLDEN / "drawn.json"
SEEDS = range(160)
STEPPED = range(60)
SUMMARY = "The agent repaired src/dates.py, ran pytest, asked which port, and went on. " * 3
FAILURE = {"failure": "refused"}
SUMMARIZING = {"type": "llm", "max_size": 8, "keep_first": 1}
STATE = {"arguments": FULL_STATE}
CONDENSERS = {
    "recent": {"type": "recent_events", "keep_first": 1, "max_events": 4},
    "forgetting": {"type": "amortized_forgetting", "max_size": 6, "keep_first": 1},
    "window": {"type": "conversation_window"},
    "attention": {
        "type": "llm_attention",
        "max_size": 6,
        "replies": ['{"ids": [2, 5, 9, 11]}', ""],
    },
    "masks": {"type": "observation_masking", "attention_window": 2},
    "browser": {"type": "browser_output"},
    "clearing": {"type": "clear_tool_uses", "trigger": 1, "keep": 1, "clear_tool_inputs": True},
    "thinking": {"type": "clear_thinking", "keep": 1},
    "digest": {"type": "digest", "max_size": 6},
    "short": {"type": "digest", "max_size": 10, "keep_first": 3, "max_length": 600},
    "summary": {**SUMMARIZING, "replies": [SUMMARY]},
    "continued": {**SUMMARIZING, "prompt": "continue", "digest_length": 900, "replies": [SUMMARY]},
    "structured": {"type": "structured_summary", "max_size": 8, "replies": [STATE, STATE, SUMMARY]},
    "failing": {**SUMMARIZING, "replies": ["", FAILURE]},
    "pipeline": {
        "type": "pipeline",
        "condensers": [
            {"type": "clear_tool_uses", "trigger": 1, "keep": 2},
            {"type": "digest", "max_size": 7},
        ],
    },
}


def views_of(events):
    """Yield the Views of all versions, each grown from the one before."""
    view = View.from_events(())
    yield view
    for event in events:
        view = view.then([event])
        yield view


def views(events):
    for view in views_of(events):
        yield [*ids(view), view.cut_points, view.fit_positions, view.unhandled_condensation_request]
        yield [ids(view.open_calls), sorted(view.left_behind), sorted(view.forgotten_event_ids)]
    yield from map(to_builtins_of, view)


def messages(events):
    for version in (len(events) // 2, len(events)):
        view = View.from_events(events[:version])
        for dialect in DIALECTS:
            yield from view.rendered(dialect)


def lifetimes(events):
    returns = [target(event) for event in events if isinstance(event, Retraction)]
    fold = LifetimesFold("c", lambda event: 2 + event.id % 3, returns)
    for start in range(0, len(events), 3):
        fold.take(events[start : start + 3])
    lives = fold.result()
    yield from map(to_builtins_of, lives)
    yield [lives.sizes, lives.order]
    for life in lives:
        yield [life.at(version) for version in range(len(events) + 1)]


def reasons(events):
    structural = structural_since(events)
    shown = View.from_events(events)
    earlier = View.from_events(events[: len(events) // 2])
    for event in events:
        why = explain_event(event, shown, structural)
        by, summary = why.by and why.by.id, why.summary and why.summary.id
        stands_in = why.stands_in and why.stands_in.id
        yield [
            why.fate,
            why.reason,
            why.position,
            why.sent,
            by,
            why.forgotten_at,
            summary,
            stands_in,
        ]
    difference = explain_difference(earlier, shown, structural)
    yield [ids(difference.entered), ids(difference.left)]
    yield [[part.condensation.id, *ids(part.events)] for part in difference.summarized]


def calls(events):
    heads = [(event, bytes([event.id]) * 32) for event in events]
    for event_id, call in trace(heads).items():
        yield [event_id, call.call.id, call.key, call.observation and call.observation.id]
        yield [call.state(None), call.state(LEASE), call.is_left_by_another(LEASE), call.outcome]
        yield [ids(call.marks), ids(call.approvals), call.is_told]
    yield [*in_doubt(events)]
    yield [words_in_refusal(event) for event in events if isinstance(event, Observation)]


def digests(events):
    view = View.from_events(events)
    forgotten = [event for event in view if event.id >= 0][: len(view) // 2 + 1]
    if forgotten:
        digest = digest_of(view, forgotten)
        yield from (text_of(digest, length) for length in (350, 500, 900, 1_600, 3_000, 9_000))


def steps(events, settings):
    """Yield two steps, the second on request; with an agent's model of little room, too."""
    for room in (None, 700):
        view = View.from_events(events)
        for use in (None, "RETRY"):
            models = []
            condenser = condenser_of(models, **settings)
            agent = Characters(room)
            agent.model = "scripted"  # "continue" asks the agent's model
            yield [*step_in_lines(condenser, view, agent, use)]
            yield [[*call] for model in models for call in model.calls]
            try:
                result = condenser.step(view, agent).result
            except NoCondensationAvailable:
                continue
            if isinstance(result, Condensation):
                view = view.then([result.action, CondensationRequest()])


RESULTS = {made.__name__: made for made in (views, messages, lifetimes, reasons, calls, digests)}


def to_builtins_of(value):
    return to_builtins(value, enc_hook=describe_value)


def result_of(seed, name):
    """Return the lines of a result."""
    events = drawn_history(seed)
    made = RESULTS[name](events) if name in RESULTS else steps(events, CONDENSERS[name])
    return [json.dumps(part, default=repr) for part in made]


def hash_of(seed, name):
    lines = "\n".join(result_of(seed, name))
    return blake2b(lines.encode(), digest_size=6).hexdigest()


def seeds_of(name):
    return SEEDS if name in RESULTS else STEPPED


def hashes_of(name):
    return [hash_of(seed, name) for seed in seeds_of(name)]


@pytest.mark.parametrize("name", [*RESULTS, *CONDENSERS])
def test_results_stay_the_same(name):
    stored = json.loads(FILE.read_text())[name]
    pairs = zip(seeds_of(name), stored, strict=True)
    changed = [seed for seed, kept in pairs if hash_of(seed, name) != kept]
    command = f"python -m tests.properties.test_drawn_histories SEED {name}"
    assert not changed, f"{command} prints the result of a seed"


def for_model(event):
    """Return the event as the model knows it: with a text in place of parts, and all calls by the
    agent.
    """
    if isinstance(event, Action):
        event = replace(event, source="agent")
    if isinstance(getattr(event, "content", ""), str):
        return event
    return replace(event, content="parts" * bool(event.content))


@pytest.mark.parametrize("part", range(5))
def test_drawn_views_are_as_the_model_defines_them(part):
    """The model is slow, so this compares half of the histories, at every fourth version."""
    for seed in SEEDS[part::10]:
        events = [*map(for_model, drawn_history(seed))]
        for version, view in enumerate(views_of(events)):
            if version % 4 == part % 4 or version == len(events):
                assert_as_defined(view, events[:version])


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.stdout.write("\n".join(result_of(int(sys.argv[1]), sys.argv[2])))
    else:
        names = [*RESULTS, *CONDENSERS]
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(hashes_of(name))}" for name in names)
        FILE.write_text(f"{{\n{lines}\n}}\n")
