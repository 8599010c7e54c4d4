"""Condensers against the recorded answers of the two references, case by case: OpenHands V0 and V1.

Every answer agrees, or differs for a reason that has a name: a bug of the reference, or a
difference between dialects, labelled as in the README beside this file. Either way it must be what
``condensers_mended`` says, which was written apart from the condensers. A part of the cases lies
beside this file; all are read where ``../shared/conformance`` is there. How many agree, and how
many differ under which label, is printed at the end of the run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.prompts.rendering import truncated
from foldlog.condensers.strategies.showing import is_masked
from foldlog.eventstore.events import CondensationAction, CondensationSummary, Origin
from foldlog.formats import decode
from foldlog.projections import View
from tests.conformance.condenser_answers import (
    NO_SUMMARY,
    V0_CLASS_DEFAULTS,
    V1_CLASS_DEFAULTS,
    Answer,
    CharacterAgent,
    answered,
    source_id,
    v0_calls,
    v0_condenser,
    v0_history,
    v0_script,
    v0_view,
    v1_condenser,
    v1_names,
    v1_view,
    with_defaults,
)
from tests.conformance.condenser_labels import (
    ORDER,
    bearing_on,
    explaining,
    first_label,
    v0_labels,
    v1_labels,
    without_the_bugs_of_masks,
)
from tests.conformance.condensers_mended import Mended, Replies, mended
from tests.reference_policy import loaded_by_reference

HERE = Path(__file__).parent / "condensers"
SHARED = Path(__file__).parents[3] / "shared" / "conformance"

Json = dict[str, Any]
Record = Callable[[str, object], None]
Compared = tuple[dict[str, str], set[str]]
"""What differs, field by field, and the labels that may explain a difference."""


def test_condensers_on_the_recorded_v0_cases_at_hand(record_property: Record) -> None:
    compare(v0_compared, lines(HERE / "v0.jsonl"), record_property)


def test_condensers_on_the_recorded_v1_cases_at_hand(record_property: Record) -> None:
    compare(v1_compared, lines(HERE / "v1.jsonl"), record_property)


def test_condensers_on_every_recorded_v0_case(record_property: Record) -> None:
    compare(v0_compared, all_cases("v0", "v0.edge"), record_property)


def test_condensers_on_every_recorded_v1_case(record_property: Record) -> None:
    compare(v1_compared, all_cases("v1", "v1.edge"), record_property)


# --- V0 ---


def v0_compared(case: Json) -> Compared:
    match case.get("op", "view"):
        case "action":
            return v0_action(case)
        case "simulate":
            return v0_simulation(case)
    expected = case["expected"]
    events = v0_history(case["events"])
    view = View.from_events(events)
    script = v0_script(case, events)
    try:
        condenser = v0_condenser(case["condenser"], script)
    except InvalidCondenser as error:
        assert_names_the_numbers(str(error), expected["condenser"].get("message", ""))
        return differing(("refused", True, expected["condenser"]["result"] == "init_error")), {
            "c.0"
        }
    assert expected["condenser"]["result"] != "init_error", "the reference refuses these parameters"
    force = case.get("force", False)
    answer = answered(condenser, view, source_id, v0_view, force=force)
    spec = with_defaults(case["condenser"], V0_CLASS_DEFAULTS)
    if not force:
        assert_mended(answer, mended(spec, view, Replies(script), script.source_ids, "v0"), view)
    if spec["type"] in ("observation_masking", "browser_output_masking"):
        assert v0_reduced(answer.result) == without_the_bugs_of_masks(
            v0_reduced(expected["condenser"]), view
        )
    length = spec.get("max_event_length", 10_000)
    ours = v0_calls(
        script,
        lambda event_id: source_id(events[event_id]) if 0 <= event_id < len(events) else None,
    )
    return differing(
        ("result", v0_reduced(answer.result), v0_reduced(expected["condenser"], view)),
        ("after", answer.after, expected.get("after")),
        ("metadata", answer.metadata_keys, expected["metadata_keys"]),
        (
            "prompts",
            [our_call(call, view, length) for call in ours],
            [v0_call(c, view, length) for c in expected["llm_calls"]],
        ),
    ), bearing_on(
        v0_labels(spec, view, expected["condenser"], script), spec, answer, expected["condenser"]
    )


def v0_reduced(result: Json, view: View | None = None) -> Json:
    """What both sides say: no message, no choice between range and list; of what is forgotten, what
    the View shows.
    """
    kept = {
        key: result[key]
        for key in ("result", "ids", "synthetic", "unhandled_condensation_request", "summary")
        if key in result
    }
    if result["result"] == "condensation":
        shown = (
            result["forgotten"]
            if view is None
            else [i for i in result["forgotten"] if i in set(map(source_id, view))]
        )
        kept |= {
            "forgotten": sorted(i for i in shown if i is not None),
            "summary_offset": result["summary_offset"],
        }
    return kept


def our_call(call: Json, view: View, length: int) -> Json:
    text = None if call["previous_summary"] == NO_SUMMARY else call["previous_summary"]
    return {
        "events": call["event_ids"],
        "summary": which_summary(text, view, lambda summary: truncated(summary, length)),
    }


def v0_call(call: Json, view: View, length: int) -> Json:
    text = call["previous_summary"]
    if text == v0_truncated("No events summarized", length):
        text = None
    ids = [event_id for event_id in call["event_ids"] if event_id != -1]
    return {
        "events": ids,
        "summary": which_summary(text, view, lambda summary: v0_truncated(summary, length)),
    }


def which_summary(text: str | None, view: View, cut: Callable[[str], str]) -> object:
    """The id of the summary that a prompt shows, however it was cut."""
    if text is None:
        return None
    texts = [
        (event.id, cut(event.content)) for event in view if isinstance(event, CondensationSummary)
    ]
    return next((event_id for event_id, shown in texts if shown == text), text)


def v0_truncated(text: str, length: int) -> str:
    if length < 0 or len(text) <= length:
        return text
    half = length // 2
    return text[:half] + "\n[... Observation truncated due to length ...]\n" + text[-half:]


def v0_action(case: Json) -> Compared:
    """A condensation from its fields: refused, or which ids it forgets."""
    (event,) = v0_history(
        [{"id": 0, "action": "condensation", "source": "agent", "args": case["fields"]}]
    )
    recorded = case["expected"]["action"]
    ours = None
    if isinstance(event, CondensationAction):
        intervals, summaries = event.forgotten
        ours = sorted(
            {*summaries, *(i for first, last in intervals for i in range(first, last + 1))}
        )
    return differing(
        ("action", ours, None if "error" in recorded else sorted(set(recorded["forgotten"])))
    ), {"D16"}


def v0_simulation(case: Json) -> Compared:
    """Events arrive one at a time, with the next id each; after each the condenser is asked until
    it gives a View.

    Only up to the first difference are the recorded steps a measure; from there on the mended
    reference alone is.
    """
    arriving = v0_history(case["events"])
    script = v0_script(case, [])
    script.source_ids = dict(zip(range(IDS_MAX), range(IDS_MAX), strict=True))
    replies = Replies(script)
    condenser = v0_condenser(case["condenser"], script)
    spec = with_defaults(case["condenser"], V0_CLASS_DEFAULTS)
    recorded = iter(case["expected"]["steps"])
    view, new_ids = View.from_events([]), dict[int | None, int]()
    found: Compared = {}, set()
    for event in arriving:
        new_ids[event.id] = at = view.version
        view = view.then(
            [
                replace(
                    event,
                    id=at,
                    cause=new_ids.get(event.cause),
                    origin=Origin(format="openhands-v0", id=at),
                )
            ]
        )
        for _ in range(case.get("max_reentry", REENTRY_MAX)):
            answer = answered(condenser, view, source_id, v0_view)
            assert_mended(answer, mended(spec, view, replies, script.source_ids, "v0"), view)
            if not found[0]:
                step = next(recorded, {"at": None, "result": "nothing"})
                differs = differing(
                    ("at", at, step["at"]),
                    ("step", v0_reduced(answer.result), v0_reduced(step, view)),
                )
                found = differs, bearing_on(v0_labels(spec, view, step, script), spec, answer, step)
            if answer.plan is None:
                break
            view = view.then([answer.plan])
    return found


IDS_MAX = 10_000
REENTRY_MAX = 10


# --- V1 ---


def v1_compared(case: Json) -> Compared:
    expected = case["expected"]
    events = list(decode(case["events"], format="openhands-v1"))
    naming = v1_names(events)
    folded = View.from_events(events)
    view = folded if case.get("use_incremental") else loaded_by_reference(folded, events)
    script = v0_script(case, [])
    agent = CharacterAgent(**case["agent_llm"]) if "agent_llm" in case else None
    try:
        condenser = v1_condenser(case["condenser"], script)
    except InvalidCondenser:
        return differing(("refused", True, expected["condenser"]["result"] == "init_error")), set()
    assert expected["condenser"]["result"] != "init_error", "the reference refuses these parameters"

    def loaded(after: View) -> Json:
        return v1_view(loaded_by_reference(after, [*events, *after.condensations[-1:]]), naming)

    answer = answered(condenser, view, naming, lambda shown: v1_view(shown, naming), agent)
    after = loaded(folded.then([answer.plan])) if answer.plan is not None else None
    spec = with_defaults(case["condenser"], V1_CLASS_DEFAULTS)
    replies = Replies(script)
    assert_mended(answer, mended(spec, view, replies, script.source_ids, "v1", agent), view)
    due = (
        [
            (
                "handles requests",
                condenser.handles_condensation_requests(),
                expected["handles_requests"],
            )
        ]
        if "handles_requests" in expected
        else []
    )
    if "reasons" in expected:
        requirement = condenser.condensation_requirement(view, agent)
        due += [("reasons", sorted(condenser.reasons(view, agent)), sorted(expected["reasons"]))]
        due += [("requirement", requirement, expected["requirement"])]
    return differing(
        *due,
        ("result", v1_reduced(answer.result), v1_reduced(expected["condenser"])),
        ("after", after, expected.get("after")),
        ("calls", len(script.calls), len(expected.get("llm_calls", []))),
    ), bearing_on(
        v1_labels(spec, view, expected, script, replies, agent), spec, answer, expected["condenser"]
    )


def v1_reduced(result: Json) -> Json:
    kept = {
        key: result[key]
        for key in ("result", "ids", "summaries", "unhandled_condensation_request")
        if key in result
    }
    if result["result"] == "condensation":
        forgotten = result.get("forgotten", result.get("forgotten_event_ids"))
        kept |= {
            "forgotten": sorted(forgotten),
            "summary": result["summary"],
            "offset": result["summary_offset"],
        }
    return kept


# --- how they are compared ---


def differing(*comparisons: tuple[str, Any, Any]) -> dict[str, str]:
    return {
        what: f"{ours} for {recorded}" for what, ours, recorded in comparisons if ours != recorded
    }


def assert_mended(answer: Answer, right: Mended, view: View) -> None:
    """The answer is what the reference's would be without its bugs."""
    assert answer.result["result"] == right.result
    if right.result == "view":
        assert answer.shown is not None
        assert tuple(event.id for event in answer.shown) == right.shown
        assert {event.id for event in answer.shown if is_masked(event)} == right.masked
        assert answer.shown.unhandled_condensation_request == view.unhandled_condensation_request
    elif right.result == "condensation":
        assert answer.named == right.forgotten
        assert answer.plan is not None
        assert answer.plan.summary_offset == right.offset


def assert_names_the_numbers(ours: str, recorded: str) -> None:
    """A refusal of parameters that contradict each other names the same numbers."""
    if recorded.startswith("keep_first"):
        assert (
            re.findall(r"\(-?\d+\)", recorded)
            == re.findall(r"\(-?\d+\)", ours)[: recorded.count("(")]
        )


def compare(
    compared: Callable[[Json], Compared], cases: Sequence[Json], record_property: Record
) -> None:
    labelled: Counter[str] = Counter()
    unexplained = []
    for case in cases:
        differs, labels = compared(case)
        explained_by = explaining(labels, differs.keys())
        if explained_by:
            labelled[first_label(explained_by)] += 1
        elif differs:
            unexplained.append((case["case"], labels, differs))
    agree = len(cases) - sum(labelled.values()) - len(unexplained)
    by_label = ", ".join(f"{label}: {labelled[label]}" for label in ORDER if labelled[label])
    record_property("compared", f"{len(cases)} recorded cases, {agree} agree; differ by {by_label}")
    assert unexplained == []
    assert agree >= len(cases) / 4, "a suite that explains everything away compares nothing"


# --- the cases ---


def all_cases(*names: str) -> list[Json]:
    if not SHARED.is_dir():
        pytest.skip(
            "the whole set of recorded cases is not beside the project, in ../shared/conformance"
        )
    return [case for name in names for case in joined_cases(name)]


def joined_cases(name: str) -> Iterator[Json]:
    """Cases of condensers with what was recorded of them, in the shape of the files beside this
    one.
    """
    cases = lines(SHARED / (f"{name}.jsonl" if "edge" in name else f"{name}.cases.jsonl"))
    for case, answer in zip(cases, lines(SHARED / f"{name}.expected.jsonl"), strict=True):
        assert case["case"] == answer["case"]
        is_of_a_condenser = {"condenser", "steps", "action"} & answer.keys()
        # the others are of Views and of configuration files, which are tested elsewhere
        if is_of_a_condenser:
            yield {**case, "expected": {key: answer[key] for key in ANSWERS if key in answer}}


ANSWERS = (
    "condenser",
    "after",
    "llm_calls",
    "metadata_keys",
    "steps",
    "action",
    "reasons",
    "requirement",
    "handles_requests",
)


def lines(path: Path) -> list[Json]:
    with path.open(encoding="utf-8") as text:
        return [json.loads(line) for line in text]
