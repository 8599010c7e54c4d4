"""Views against the recorded answers of the two references, case by case: OpenHands V0 and V1.

A part of the cases lies beside this file; all of them are read where the folder
``../shared/conformance`` is present. How many were compared is printed at the end of the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foldlog.eventstore.events import CondensationSummary, Event, summary_of
from foldlog.formats import decode
from foldlog.projections import View, well_formed
from tests import reference_policy
from tests.reference_policy import cut_points_of_reference, loaded_by_reference

HERE = Path(__file__).parent / "views"
SHARED = Path(__file__).parents[3] / "shared" / "conformance"

Json = dict[str, Any]
Record = Callable[[str, object], None]


def test_views_of_the_recorded_v0_cases_at_hand(record_property: Record) -> None:
    compare(v0_differences, lines(HERE / "v0.jsonl"), record_property)


def test_views_of_the_recorded_v1_cases_at_hand(record_property: Record) -> None:
    compare(v1_differences, lines(HERE / "v1.jsonl"), record_property)


def test_views_of_every_recorded_v0_case(record_property: Record) -> None:
    compare(v0_differences, all_cases("v0", "v0.edge"), record_property)


def test_views_of_every_recorded_v1_case(record_property: Record) -> None:
    compare(v1_differences, all_cases("v1", "v1.edge"), record_property)


def test_a_history_that_v0_refuses_to_read_is_read_and_has_a_view() -> None:
    records = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "m0"}},
        {
            "id": 1,
            "source": "agent",
            "action": "condensation",
            "args": {"forgotten_event_ids": [0], "summary": "x"},
        },
    ]
    view = View.from_events(decode(records, format="openhands-v0", as_history=True))
    assert [event.id for event in view] == [0], "half a condensation forgets nothing"


# --- what is compared ---

Comparison = tuple[str, object, object]
"""What is compared, ours, and the recorded answer."""


def v0_differences(case: Json) -> Iterator[Comparison]:
    if "view" not in case:  # the reference refused the history
        return
    view = View.from_events(decode(case["events"], format="openhands-v0", as_history=True))
    yield "view", v0_answer(view), case["view"]
    if "condensation" in case:
        condensation = {
            "id": 10**6,
            "source": "agent",
            "action": "condensation",
            "args": case["condensation"],
        }
        events = decode([*case["events"], condensation], format="openhands-v0", as_history=True)
        yield "view after the condensation", v0_answer(View.from_events(events)), case["after"]


def v1_differences(case: Json) -> Iterator[Comparison]:
    events = list(decode(case["events"], format="openhands-v1"))
    view = View.from_events(events)
    if "incremental" in case:  # else the reference refused the history
        yield "view as it is folded", v1_answer(view, events), case["incremental"]
        for name, recorded in case["incremental_properties"].items():
            breaking, forbidden = reference_policy.PROPERTIES[name]
            yield (
                f"{name} drops",
                sorted(map(str, breaking(view.events, events))),
                sorted(recorded["enforce"]),
            )
            indices = sorted(set(range(len(view) + 1)) - forbidden(view.events))
            yield f"{name} allows to cut", indices, recorded["indices"]
        enforced = loaded_by_reference(view, events)
        yield "view as it is loaded", v1_answer(enforced, events), case["view"]
        yield (
            "manipulation indices",
            list(cut_points_of_reference(enforced)),
            case["manipulation_indices"],
        )
    fixed = case["fixed"]
    yield (
        "left behind",
        [events[left].origin.id for left in sorted(view.left_behind)],
        fixed["left_behind"],
    )  # type: ignore[union-attr]
    yield "well formed", v1_answer(well_formed(view), events)["ids"], fixed["fixed"]
    yield "cut points", list(view.cut_points), fixed["cut_points"]
    if "condensation" in case:
        condensation = {"kind": "Condensation", "id": "next", **case["condensation"]}
        events = list(decode([*case["events"], condensation], format="openhands-v1"))
        after = loaded_by_reference(View.from_events(events), events)
        yield "view after the condensation", v1_answer(after, events), case["after"]


def v0_answer(view: View) -> Json:
    return {
        "ids": [None if event.origin is None else event.origin.id for event in view],
        "synthetic": [{"position": at, "text": event.content} for at, event in synthetic(view)],
        "unhandled_condensation_request": view.unhandled_condensation_request,
    }


def v1_answer(view: View, events: list[Event]) -> Json:
    ids = [v1_id(event, events) for event in view]
    summaries = [
        (at, event) for at, event in enumerate(view) if isinstance(event, CondensationSummary)
    ]
    return {
        "ids": ids,
        "summaries": [
            {"position": at, "id": ids[at], "text": event.content} for at, event in summaries
        ],
        "unhandled_condensation_request": view.unhandled_condensation_request,
    }


def v1_id(event: Event, events: list[Event]) -> object:
    if event.id >= 0:
        return event.origin.id if event.origin is not None else None
    origin = events[summary_of(event.id)].origin
    return f"{origin.id}-summary" if origin is not None else None


def synthetic(view: View) -> Iterator[tuple[int, CondensationSummary]]:
    for position, event in enumerate(view):
        if event.id < 0:
            assert isinstance(event, CondensationSummary)
            yield position, event


# --- the cases ---


def compare(
    comparisons: Callable[[Json], Iterator[Comparison]], cases: list[Json], record_property: Record
) -> None:
    differences = []
    compared = 0
    for case in cases:
        for what, ours, recorded in comparisons(case):
            compared += 1
            if ours != recorded:
                differences.append((case["case"], what, ours, recorded))
    record_property(
        "compared", f"{len(cases)} recorded cases, {compared} answers, {len(differences)} differ"
    )
    assert differences == []
    assert compared >= len(cases) - REFUSED_MAX


REFUSED_MAX = 10
"""Recorded V0 histories that the reference refuses to read: there is nothing to compare."""


def all_cases(*names: str) -> list[Json]:
    if not SHARED.is_dir():
        pytest.skip(
            "the whole set of recorded cases is not beside the project, in ../shared/conformance"
        )
    return [case for name in names for case in joined_cases(name)]


def joined_cases(name: str) -> Iterator[Json]:
    """Histories with all that was recorded of them as one object, in the shape of the files beside
    this one.
    """
    histories = lines(SHARED / (f"{name}.jsonl" if "edge" in name else f"{name}.cases.jsonl"))
    answers = lines(SHARED / f"{name}.expected.jsonl")
    fixed = SHARED / f"{name}.fixed.expected.jsonl"
    of_fixed: list[Json | None] = [*lines(fixed)] if fixed.exists() else [None] * len(histories)
    for history, answer, fixed_answer in zip(histories, answers, of_fixed, strict=True):
        assert history["case"] == answer["case"]
        if history.get("op", "view") != "view":  # these are of condensers and their configuration
            continue
        case = {"case": history["case"], "events": history["events"], "fixed": fixed_answer}
        case |= {key: answer[key] for key in VIEW_ANSWERS if key in answer}
        condenser = answer.get("condenser", {})
        if "after" in answer and condenser["result"] == "condensation":
            case["after"] = answer["after"]
            case["condensation"] = {
                key: value for key, value in condenser.items() if key not in NO_FIELDS
            }
        yield case


VIEW_ANSWERS = ("view", "incremental", "incremental_properties", "manipulation_indices")
NO_FIELDS = ("result", "forgotten", "message")
"""What is recorded with a condensation but is none of its fields."""


def lines(path: Path) -> list[Json]:
    with path.open(encoding="utf-8") as text:
        return [json.loads(line) for line in text]
