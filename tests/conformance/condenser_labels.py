"""Why an answer of ours may differ from a recorded one: the labels of ``docs/CONDENSERS.md``.

Each is a bug of the reference, or a difference of the dialects, that touches this View with these parameters: were it
not there, the answers would have to agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventstore.events import CondensationSummary, Message
from projections import View, cut_points
from tests.conformance.condenser_answers import Script, source_id
from tests.conformance.condensers_mended import Replies, mended, usable

Json = dict[str, Any]

_ORDER = """
c.0 D16 P2 W2 W4 A1 L2 L1 L5 L3 L4 T1 T5 T7 T2 T3 T4 T6 R2 R1 M1 A2 A3 L7 L8 L6 W3 A4 W1 T8 P1 K1 S3 S1 S4
B-V1 D10 D9 D4
"""
ORDER = _ORDER.split()
"""Every label, the decisive ones first: an answer that several touch is counted under the first of them."""


def first_label(labels: set[str]) -> str:
    return min(labels, key=ORDER.index)


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
        yield from ("A2", "A4")
    if out_of_order(view):
        yield "A3"


def window_labels(view: View, recorded: Json) -> Iterator[str]:
    forgotten = recorded.get("forgotten")
    if forgotten == []:
        has_user = any(isinstance(event, Message) and event.source == "user" for event in view)
        yield "W4" if has_user else "W2"
    if forgotten and -1 in forgotten:
        yield "W3"
    if parts_units(view):
        yield "W1"


def summarizing_labels(spec: Json, view: View, script: Script) -> Iterator[str]:
    tail = spec["max_size"] // 2 - spec["keep_first"] - 1
    summaries = [place for place, event in enumerate(view.events) if isinstance(event, CondensationSummary)]
    if tail == 0:
        yield "L1"
    if view.unhandled_condensation_request and len(view) <= spec["keep_first"] + tail:
        yield "L2"
    if any(view[place].id >= 0 for place in summaries):
        yield "L8"
    elif any(place != spec["keep_first"] for place in summaries):
        yield "L6"
    yield from reply_labels(spec, script)


def reply_labels(spec: Json, script: Script) -> Iterator[str]:
    for reply in script.replies:
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
    for reply in script.replies:
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
    if recorded.get("forgotten") == [] or len(view) <= spec["max_size"] // 2:
        yield "T7"
    if parts_units(view):
        yield "T8"


def v0_pipeline_labels(spec: Json, view: View, recorded: Json, script: Script) -> set[str]:
    """Those of its parts, each on the View that it is shown; and those of masks before other parts."""
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
    if parts_units(view) and spec["type"] in ("recent", "amortized", "llm", "structured"):
        yield "D9"


def out_of_order(view: View) -> bool:
    """Whether source ids are repeated or run backwards: V0 forgets every event with an id."""
    ids = [source_id(event) for event in view if event.id >= 0]
    return any(not isinstance(event_id, int) for event_id in ids) or ids != sorted(set(ids))


def parts_units(view: View) -> bool:
    """Whether the View has units that V0, which knows none, might part."""
    return len(view.cut_points) <= len(view)


# --- V1 ---


def v1_labels(spec: Json, view: View, expected: Json, script: Script) -> set[str]:
    if spec["type"] == "pipeline":
        return set().union(*(v1_labels(part, view, expected, script) for part in spec["condensers"]))
    return set(v1_own_labels(view, expected, script)) if spec["type"] == "llm" else set()


def v1_own_labels(view: View, expected: Json, script: Script) -> Iterator[str]:
    if any(reply is None or reply == "" for reply in script.replies):
        yield "S1"
    forgotten = expected["condenser"].get("forgotten_event_ids", ())
    if forgotten and all(event_id.endswith("-summary") for event_id in forgotten):
        yield "K1" if "tokens" in expected.get("reasons", ()) else "S3"
    if view.cut_points != cut_points(view, policy="reference"):
        yield "B-V1"
    if view.cut_points[-1] < len(view):
        yield "S4"
