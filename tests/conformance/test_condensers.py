"""Condensers against the recorded answers of OpenHands V0 and V1, case by case.

Each line of ``condensers/v0.jsonl`` and ``condensers/v1.jsonl`` is a case with the answer of the
reference. If our answer differs, the case has our answer too, under ``ours``, and the label that
explains it: the README beside this file has all labels.

    python -m tests.conformance.test_condensers

writes our answers into the cases again. A difference without a label gets the label "?".
"""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from foldlog.condensers.config.registry import condenser_from_config
from foldlog.condensers.errors import InvalidCondenser
from foldlog.eventstore.events import CondensationAction, Origin
from foldlog.formats import decode
from foldlog.projections import View
from tests.conformance.condenser_answers import (
    CharacterAgent,
    answered,
    condenser_of,
    script_of,
    source_id,
    v0_calls,
    v0_view,
    v1_names,
    v1_view,
)
from tests.reference_policy import loaded_by_reference

HERE = Path(__file__).parent

# --- V0 ---


def v0_compared(case):
    """Return the fields of an answer, each with our value and the recorded one."""
    match case.get("op", "view"):
        case "action":
            return v0_action(case)
        case "simulate":
            return v0_simulation(case)
    return v0_answer(case)


def v0_history(records):
    return list(decode(records, format="openhands-v0", as_history=True))


def v0_condenser(case, script):
    if "config" in case:
        return condenser_from_config(case["config"])
    return condenser_of(case["condenser"], script)


def v0_answer(case):
    """Yield what a case compares: its name, our value, and the recorded value."""
    expected = case["expected"]
    events = v0_history(case["events"])
    view = View.from_events(events)
    script = script_of(case, {source_id(event): event.id for event in events})
    answer = answered(v0_condenser(case, script), view, source_id, v0_view)

    def name(event_id):
        return source_id(events[event_id]) if 0 <= event_id < len(events) else None

    yield "result", v0_reduced(answer.result), v0_reduced(expected["condenser"], view)
    yield "after", answer.after, expected.get("after")
    yield "metadata", answer.metadata_keys, expected["metadata_keys"]
    yield (
        "prompts",
        [prompt(call) for call in v0_calls(script, name)],
        [prompt(call) for call in expected["llm_calls"]],
    )


def v0_reduced(result, view=None):
    """Return the fields of a result that can be compared: without its message, and with the ids of
    forgotten events also if a range names them. If ``view`` is given, the result is a recorded one,
    and only the forgotten events that the View shows count.
    """
    reduced = {key: result[key] for key in RESULT_FIELDS if key in result}
    if result["result"] == "condensation":
        shown = result["forgotten"]
        if view is not None:
            in_view = set(map(source_id, view))
            shown = [event_id for event_id in shown if event_id in in_view]
        reduced["forgotten"] = sorted(event_id for event_id in shown if event_id is not None)
    return reduced


RESULT_FIELDS = (
    "result",
    "ids",
    "synthetic",
    "unhandled_condensation_request",
    "summary",
    "summary_offset",
    "summaries",
)


def prompt(call):
    """Return the events that a prompt shows, and the previous summary."""
    summary = call["previous_summary"]
    if summary is not None and summary.startswith(NO_SUMMARIES):
        summary = None
    return {
        "events": [event_id for event_id in call["event_ids"] if event_id != -1],
        "summary": summary,
    }


NO_SUMMARIES = "(none: this is the first)", "No ev"
"""What we write if there is no previous summary, and what V0 writes, which it may cut."""


def v0_action(case):
    """Build a condensation from its fields: it is refused, or names the ids that it forgets."""
    record = {"id": 0, "action": "condensation", "source": "agent", "args": case["fields"]}
    (event,) = v0_history([record])
    recorded = case["expected"]["action"]
    forgotten = sorted(set(recorded["forgotten"])) if "forgotten" in recorded else None
    ours = None
    if isinstance(event, CondensationAction):
        ours = sorted(set(event.forgotten_event_ids))
    yield "action", ours, forgotten


def v0_simulation(case):
    """Let events arrive one at a time, with the next id each, and ask the condenser after each one
    until it returns a View.
    """
    script = script_of(case, {event_id: event_id for event_id in range(IDS_MAX)})
    condenser = v0_condenser(case, script)
    recorded = iter(case["expected"]["steps"])
    view = View.from_events([])
    new_ids = {}
    for event in v0_history(case["events"]):
        at = view.version
        new_ids[event.id] = at
        origin = Origin(format="openhands-v0", id=at)
        arrived = replace(event, id=at, cause=new_ids.get(event.cause), origin=origin)
        view = view.then([arrived])
        for turn in range(case.get("max_reentry", REENTRY_MAX)):
            answer = answered(condenser, view, source_id, v0_view)
            step = next(recorded, {"at": None, "result": "nothing"})
            yield (
                f"{at}.{turn}",
                (at, v0_reduced(answer.result)),
                (step["at"], v0_reduced(step, view)),
            )
            if answer.plan is None:
                break
            view = view.then([answer.plan])


IDS_MAX = 10_000
"""No simulation has more events."""
REENTRY_MAX = 10
"""How often the condenser is asked at most after one event."""


# --- V1 ---


def v1_compared(case):
    """Yield what a case compares: its name, our value, and the recorded value."""
    expected = case["expected"]
    events = list(decode(case["events"], format="openhands-v1"))
    naming = v1_names(events)
    folded = View.from_events(events)
    view = folded if case.get("use_incremental") else loaded_by_reference(folded, events)
    script = script_of(case, {})
    agent = CharacterAgent(**case["agent_llm"]) if "agent_llm" in case else None
    condenser = condenser_of(case["condenser"], script)

    def after_reloading(plan):
        after = folded.then([plan])
        loaded = loaded_by_reference(after, [*events, *after.condensations[-1:]])
        return v1_view(loaded, naming)

    answer = answered(condenser, view, naming, lambda shown: v1_view(shown, naming), agent)
    if "handles_requests" in expected:
        handles = condenser.handles_condensation_requests()
        yield "handles requests", handles, expected["handles_requests"]
    if "reasons" in expected:
        reasons = sorted(condenser.reasons(view, agent))
        yield "reasons", reasons, sorted(expected["reasons"])
        requirement = condenser.condensation_requirement(view, agent)
        yield "requirement", requirement, expected["requirement"]
    yield "result", v0_reduced(answer.result), v1_recorded(expected["condenser"])
    after = None if answer.plan is None else after_reloading(answer.plan)
    yield "after", after, expected.get("after")
    yield "calls", len(script.calls), len(expected.get("llm_calls", []))


def v1_recorded(result):
    if "forgotten_event_ids" in result:
        result = {**result, "forgotten": result["forgotten_event_ids"]}
    return v0_reduced(result)


# --- the cases ---

COMPARED = {"v0": v0_compared, "v1": v1_compared}


def cases(version):
    lines = (HERE / "condensers" / f"{version}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def labels_of_the_readme():
    """Return the labels in the first column of the README's tables."""
    lines = (HERE / "README.md").read_text("utf-8").splitlines()
    first_cells = [line.split("|")[1] for line in lines if line.startswith("|")]
    return {label for cell in first_cells for label in cell.strip().split(", ")}


def differences(version, case):
    """Return the fields of our answer that differ from the recorded answer."""
    try:
        compared = list(COMPARED[version](case))
    except InvalidCondenser:
        answer = case["expected"].get("condenser", {})
        compared = [("refused", True, answer.get("result") == "init_error")]
    differing = {field: ours for field, ours, recorded in compared if ours != recorded}
    return json.loads(json.dumps(differing))


@pytest.mark.parametrize("version", COMPARED)
def test_answers_are_recorded_or_explained(version):
    labels = labels_of_the_readme()
    agreeing = 0
    for case in cases(version):
        ours = case.get("ours", {})
        label = case.get("label")
        assert differences(version, case) == ours, f"{case['case']}, label {label}"
        assert not ours or label in labels, f"{case['case']}: the README explains no {label}"
        agreeing += not ours
    assert agreeing > len(cases(version)) // 3


if __name__ == "__main__":
    for version in COMPARED:
        recorded = cases(version)
        for case in recorded:
            ours = differences(version, case)
            label = case.pop("label", "?")
            case.pop("ours", None)
            if ours:
                case |= {"label": label, "ours": ours}
        text = "".join(f"{json.dumps(case)}\n" for case in recorded)
        (HERE / "condensers" / f"{version}.jsonl").write_text(text, "utf-8")
