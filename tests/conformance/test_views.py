"""Views against the recorded answers of the two references, case by case: OpenHands V0 and V1."""

import json
from pathlib import Path

import pytest

from foldlog.formats import decode
from foldlog.projections import View, well_formed
from tests import reference_policy
from tests.conformance.condenser_answers import v0_view, v1_names, v1_view
from tests.reference_policy import cut_points_of_reference, loaded_by_reference
from tests.said import ids

CASES = Path(__file__).parent / "views"


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_views_are_the_recorded_ones(version):
    compared_fields = {"v0": v0_compared, "v1": v1_compared}[version]
    compared = 0
    for line in (CASES / f"{version}.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        for what, ours, recorded in compared_fields(case):
            assert ours == recorded, f"{case['case']}: {what}"
            compared += 1
    assert compared > 60


def test_a_history_that_v0_refuses():
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
    assert ids(view) == [0], "half a condensation forgets nothing"


# --- what is compared ---


def v0_compared(case):
    """Yield what is compared, ours, and the recorded answer."""
    if "view" not in case:
        return  # The reference refused the history.
    view = View.from_events(decode(case["events"], format="openhands-v0", as_history=True))
    yield "view", v0_view(view), case["view"]
    if "condensation" in case:
        condensation = {
            "id": 10**6,
            "source": "agent",
            "action": "condensation",
            "args": case["condensation"],
        }
        events = decode([*case["events"], condensation], format="openhands-v0", as_history=True)
        yield "view after the condensation", v0_view(View.from_events(events)), case["after"]


def v1_compared(case):
    """Yield what a case compares: its name, our value, and the recorded value."""
    events = list(decode(case["events"], format="openhands-v1"))
    naming = v1_names(events)
    view = View.from_events(events)
    if "incremental" in case:  # Otherwise the reference refused the history.
        yield "view as it is folded", v1_view(view, naming), case["incremental"]
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
        yield "view as it is loaded", v1_view(enforced, naming), case["view"]
        yield (
            "manipulation indices",
            list(cut_points_of_reference(enforced)),
            case["manipulation_indices"],
        )
    fixed = case["fixed"]
    yield (
        "left behind",
        [events[event_id].origin.id for event_id in sorted(view.left_behind)],
        fixed["left_behind"],
    )
    yield "well formed", v1_view(well_formed(view), naming)["ids"], fixed["fixed"]
    yield "cut points", list(view.cut_points), fixed["cut_points"]
    if "condensation" in case:
        condensation = {"kind": "Condensation", "id": "next", **case["condensation"]}
        events = list(decode([*case["events"], condensation], format="openhands-v1"))
        after = loaded_by_reference(View.from_events(events), events)
        yield "view after the condensation", v1_view(after, v1_names(events)), case["after"]
