"""Why an answer of ours may differ from a recorded one: the labels of the README beside this file.

Each is a bug of the reference, or a difference of the dialects, that touches this View with these
parameters: were it not there, the answers would have to agree. A label says no more than what it is
about, so each explains some fields of an answer (``EXPLAINS``), and applies only where the bug has
bitten or would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import pairwise
from typing import Any

from foldlog.eventstore.events import CondensationSummary, Message, SystemMessage
from foldlog.projections import View
from tests.conformance.condenser_answers import Answer, Script, source_id
from tests.conformance.condensers_mended import Replies, mended, tokens_tail, too_large, usable
from tests.reference_policy import cut_points_of_reference

Json = dict[str, Any]

_ORDER = """
c.0 D16 P2 W2 W4 A1 L2 L1 L5 L3 L4 T1 T5 T7 T2 T3 T4 T6 R2 R1 M1 P1 A2 A3 L7 L8 L6 A4 W1 T8 K1 S3 S1 K2 S4
B-V1 D10 U1 D9 D4
"""
ORDER = _ORDER.split()
"""Every label, the decisive ones first: an answer that several touch is counted under the first of
them.
"""

_OUTCOME = frozenset({"result", "after", "step"})
_ASKED = _OUTCOME | {"prompts", "metadata", "calls"}
EXPLAINS: Mapping[str, Set[str]] = {
    "c.0": {"refused"},
    "D16": {"action"},
    "P2": {"metadata"},
    "A4": {"after"},
    "D4": {"after", "step"},
    "L6": {"prompts", "after"},
    **dict.fromkeys(
        ("W2", "W4", "A1", "R1", "R2", "M1", "P1", "A2", "A3", "W1", "T2", "T3", "T4", "T8"),
        _OUTCOME,
    ),
    **dict.fromkeys(("L7", "L8", "T6", "D9", "D10"), _OUTCOME | {"prompts"}),
    "U1": _OUTCOME,
    **dict.fromkeys(
        ("L1", "L2", "L3", "L4", "L5", "T1", "T5", "T7", "K1", "K2", "S1", "S3", "S4", "B-V1"),
        _ASKED,
    ),
}
"""What of an answer may differ for each of them."""


def first_label(labels: set[str]) -> str:
    return min(labels, key=ORDER.index)


def explaining(labels: Set[str], fields: Set[str]) -> set[str]:
    """Those of ``labels`` that explain something of what differs; none where some field is
    explained by none.
    """
    telling = {label for label in labels if EXPLAINS[label] & fields}
    return telling if fields <= set().union(*(EXPLAINS[label] for label in telling)) else set()


_NOTHING_AVAILABLE = frozenset({"error", "view"})
_OUTCOMES: Mapping[str, Set[str]] = {
    **dict.fromkeys(("W2", "W4", "A1", "T7"), _NOTHING_AVAILABLE),
    "S3": _NOTHING_AVAILABLE | {"reset"},
}
"""What our answer must be for a label to explain it: where the reference condenses nothing, so do
we.
"""

_OF_UNITS = frozenset({"T8", "W1", "U1"})
_WITHOUT_A_SUMMARY = frozenset({"recent", "amortized", "conversation_window", "llm_attention"})


def bearing_on(labels: Set[str], spec: Json, answer: Answer, recorded: Json) -> set[str]:
    """Return the labels that our answer does not contradict. Whole units are a reason to keep more,
    never to keep less, in a strategy that writes no summary: what the reference keeps must stay
    here.
    """
    outcome = answer.result["result"]
    if answer.plan is not None and answer.plan.metadata["outcome"] == "reset":
        outcome = "reset"
    contradicted = {label for label, outcomes in _OUTCOMES.items() if outcome not in outcomes}
    if spec["type"] in _WITHOUT_A_SUMMARY and not keeps_more(answer.result, recorded):
        contradicted |= _OF_UNITS
    return set(labels) - contradicted


def keeps_more(ours: Json, recorded: Json) -> bool:
    """Whether every event that the reference keeps stays here. Masked and synthetic ones have no id
    to be told by.
    """
    if recorded["result"] == "view" and ours["result"] == "view":
        return set(recorded["ids"]) - {None} <= set(ours["ids"])
    if recorded["result"] == "condensation":
        return set(ours.get("forgotten", ())) - {None} <= set(recorded["forgotten"])
    return ours["result"] != "condensation"


def v0_labels(spec: Json, view: View, recorded: Json, script: Script) -> set[str]:
    """``recorded`` is the reference's answer."""
    if spec["type"] == "pipeline":
        return v0_pipeline_labels(spec, view, recorded, script)
    return {*v0_own_labels(spec, view, recorded, script), *dialect_labels(spec, view)}


def v0_own_labels(spec: Json, view: View, recorded: Json, script: Script) -> Iterator[str]:
    match spec["type"]:
        case "recent":
            return recent_labels(spec, view)
        case "observation_masking" | "browser_output_masking":
            return masking_labels(spec, view)
        case "amortized":
            return amortized_labels(spec, view, recorded)
        case "conversation_window":
            return window_labels(view, recorded)
        case "llm" | "structured":
            return summarizing_labels(spec, view, script)
        case "llm_attention":
            return attention_labels(spec, view, recorded, script)
    return iter(())


def recent_labels(spec: Json, view: View) -> Iterator[str]:
    if view.unhandled_condensation_request:
        yield "P1"
    if spec["max_events"] <= spec["keep_first"]:
        yield "R2"
    elif len(view) < spec["max_events"] and spec["keep_first"]:
        yield "R1"


def masking_labels(spec: Json, view: View) -> Iterator[str]:
    if view.unhandled_condensation_request:
        yield "P1"
    if spec["type"] == "observation_masking":
        older = view[: max(0, len(view) - spec["attention_window"])]
        if any(isinstance(event, CondensationSummary) for event in older):
            yield "M1"


def amortized_labels(spec: Json, view: View, recorded: Json) -> Iterator[str]:
    target = spec["max_size"] // 2
    forgotten = view[spec["keep_first"] : max(0, len(view) - (target - spec["keep_first"]))]
    if recorded["result"] == "error":
        yield "A1"
    elif any(event.id < 0 for event in forgotten):
        yield "A4"
        if set(recorded.get("forgotten", ())) - {source_id(event) for event in forgotten}:
            yield "A2"
    if out_of_order(view):
        yield "A3"


def window_labels(view: View, recorded: Json) -> Iterator[str]:
    forgotten = recorded.get("forgotten")
    if forgotten == []:
        has_user = any(isinstance(event, Message) and event.source == "user" for event in view)
        yield "W4" if has_user else "W2"
    if forgotten is not None and (
        parts_a_unit(view, forgotten) or takes_every_place(view, forgotten)
    ):
        yield "W1"


def takes_every_place(view: View, forgotten: list[Any]) -> bool:
    """Whether the window held answers alone, and V0 forgot its newest unit with all else."""
    return bool(view) and source_id(view[-1]) in forgotten


def summarizing_labels(spec: Json, view: View, script: Script) -> Iterator[str]:
    tail = spec["max_size"] // 2 - spec["keep_first"] - 1
    summaries = [
        place for place, event in enumerate(view.events) if isinstance(event, CondensationSummary)
    ]
    due = view.unhandled_condensation_request or len(view) > spec["max_size"]
    if tail == 0 and due:
        yield "L1"
    if view.unhandled_condensation_request and len(view) <= spec["keep_first"] + tail:
        yield "L2"
    if any(view[place].id >= 0 for place in summaries):
        yield "L8"
    if any(view[place].id < 0 and place != spec["keep_first"] for place in summaries):
        yield "L6"
    yield from reply_labels(spec, script)


def reply_labels(spec: Json, script: Script) -> Iterator[str]:
    for reply in script.asked():
        if usable(reply, spec["type"]):
            continue
        if isinstance(reply, dict) and "error" in reply:
            yield "L5"
        elif spec["type"] == "structured":
            yield "T1"
        else:
            yield "L3" if reply is None else "L4"


def attention_labels(spec: Json, view: View, recorded: Json, script: Script) -> Iterator[str]:
    shown = [source_id(event) for event in view]
    for reply in script.asked():
        ids = reply.get("ids") if isinstance(reply, dict) else None
        if isinstance(reply, dict) and "error" in reply:
            yield "L5"
        elif ids is None:
            yield "T5"
        else:
            if len(set(ids)) < len(ids):
                yield "T2"
            if set(ids) - set(shown):
                yield "T3"
        if len(ids or ()) < spec["max_size"] // 2 - spec["keep_first"] and spec["keep_first"]:
            yield "T4"
    if any(event.id < 0 for event in view):
        yield "T6"
    due = view.unhandled_condensation_request or len(view) > spec["max_size"]
    if due and (recorded.get("forgotten") == [] or len(view) <= spec["max_size"] // 2):
        yield "T7"
    if parts_a_unit(view, recorded.get("forgotten", ())):
        yield "T8"


def v0_pipeline_labels(spec: Json, view: View, recorded: Json, script: Script) -> set[str]:
    """Those of its parts, each on the View that it is shown; and those of masks before other
    parts.
    """
    labels: set[str] = set()
    seen, masking = view, False
    for part in spec["condensers"]:
        labels |= v0_labels(part, seen, recorded, script)
        if part["type"] == "pipeline":
            labels.add("P2")
        if masking and part["type"] in ("llm", "structured"):
            labels.add("L7")
        if masking and part["type"] == "amortized":
            labels.add("A2")
        if part["type"] in ("recent", "observation_masking", "browser_output_masking"):
            masking = True
            answer = mended(part, seen, Replies(script), script.source_ids, "v0")
            seen = seen.with_events(event for event in seen if event.id in answer.shown)
    return labels


def dialect_labels(spec: Json, view: View) -> Iterator[str]:
    """What comes of our condensations being ordered and of whole units, and V0's being neither."""
    if out_of_order(view):
        yield "D10"
    if any(event.id < 0 for event in view):
        yield "D4"
    if not set(v0_borders(spec, view)) <= set(view.cut_points):
        yield "U1" if spec["type"] in _WITHOUT_A_SUMMARY else "D9"


def v0_borders(spec: Json, view: View) -> Iterator[int]:
    """Where V0 cuts this View, if it does; beyond its ends it does not."""
    match spec["type"]:
        case "recent":
            borders = (
                spec["keep_first"],
                len(view) - max(0, spec["max_events"] - spec["keep_first"]),
            )
        case "amortized":
            borders = (spec["keep_first"], len(view) - spec["max_size"] // 2 + spec["keep_first"])
        case "llm" | "structured":
            borders = (
                spec["keep_first"],
                len(view) - spec["max_size"] // 2 + spec["keep_first"] + 1,
            )
        case _:
            borders = ()
    return (border for border in borders if 0 <= border <= len(view))


def out_of_order(view: View) -> bool:
    """Whether source ids are repeated or run backwards: V0 forgets every event with an id."""
    ids = [source_id(event) for event in view if event.id >= 0]
    return any(not isinstance(event_id, int) for event_id in ids) or ids != sorted(set(ids))


def parts_a_unit(view: View, forgotten: Iterable[Any]) -> bool:
    """Whether there is a unit of the View that V0 forgot in part."""
    gone = set(forgotten)
    units = (view[start:stop] for start, stop in pairwise((*view.cut_points, len(view))))
    return any(
        len({source_id(event) in gone for event in unit if event.id >= 0}) > 1 for unit in units
    )


def without_the_bugs_of_masks(recorded: Json, view: View) -> Json:
    """V0's View behind a mask, had it left summaries (M1) and the request (P1) alone."""
    summaries = {
        place: event
        for place, event in enumerate(view.events)
        if isinstance(event, CondensationSummary)
    }
    stored = {place: source_id(event) for place, event in summaries.items() if event.id >= 0}
    synthetic = [each for each in recorded["synthetic"] if each["position"] not in summaries]
    synthetic += [
        {"position": at, "text": event.content} for at, event in summaries.items() if event.id < 0
    ]
    return {
        **recorded,
        "ids": [stored.get(place, event_id) for place, event_id in enumerate(recorded["ids"])],
        "synthetic": sorted(synthetic, key=lambda each: each["position"]),
        "unhandled_condensation_request": view.unhandled_condensation_request,
    }


# --- V1 ---


def v1_labels(
    spec: Json, view: View, expected: Json, script: Script, replies: Replies, agent: Any
) -> set[str]:
    """``replies`` are what the mended reference was given."""
    if spec["type"] == "pipeline":
        return set().union(
            *(
                v1_labels(part, view, expected, script, replies, agent)
                for part in spec["condensers"]
            )
        )
    return (
        set(v1_own_labels(spec, view, expected, script, replies, agent))
        if spec["type"] == "llm"
        else set()
    )


def v1_own_labels(
    spec: Json, view: View, expected: Json, script: Script, replies: Replies, agent: Any
) -> Iterator[str]:
    if any(reply is None or reply == "" for reply in script.asked()):
        yield "S1"
    forgotten = expected["condenser"].get("forgotten_event_ids", ())
    if forgotten and all(event_id.endswith("-summary") for event_id in forgotten):
        yield "K1" if "tokens" in expected.get("reasons", ()) else "S3"
    reference = cut_points_of_reference(view)
    if any(
        _next(view.cut_points, at) != _next(reference, at) for at in v1_borders(spec, view, agent)
    ):
        yield "B-V1"
    if view.cut_points[-1] < len(view):
        yield "S4"
    if replies.too_large or replies.crowded:
        yield "K2"


def v1_borders(spec: Json, view: View, agent: Any) -> Iterator[int]:
    """Where V1 would like to cut this View, for whatever reason."""
    length, size, kept_first = len(view), spec["max_size"], spec["keep_first"]
    prompt = next(
        (place + 1 for place, event in enumerate(view.events) if isinstance(event, SystemMessage)),
        0,
    )
    yield max(kept_first, prompt)
    yield prompt  # of a hard reset
    tails = [size // 2 - kept_first - 1, length // 2 - kept_first - 1]
    if agent is not None and too_large(agent.token_sums(view)[-1], spec, agent):
        tails.append(tokens_tail(spec, view, agent, kept_first))
    yield from (length - tail for tail in tails)


def _next(cuts: Iterable[int], at: int) -> int | None:
    return next((cut for cut in cuts if cut >= at), None)
