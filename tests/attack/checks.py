"""What is wrong with a condensation, a turn, a View, or a list of chat messages, by the law."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from foldlog.condensers import Condensation
from foldlog.eventstore.events import Annotation, CondensationAction, Event
from foldlog.projections import View
from foldlog.projections.messages import DIALECTS
from tests.attack.choices import (
    Piece,
    Spec,
    amortized,
    attention,
    due,
    forgotten_beside,
    middles,
    recent,
    reset,
    window,
)
from tests.attack.law import Shown, answered, condensed, cut_points, named, sent, unseen, waiting, without
from tests.attack.replies import Given
from tests.projections.chat_rules import PROBLEMS

MARK = re.compile(r"<<\d+>>")
ASKING = ("llm", "structured", "llm_attention", "pipeline")
SUMMARIZING = ("llm", "structured", "digest")
SHOWING = ("recent", "observation_masking", "clear_tool_uses", "clear_thinking")
WITHOUT_SUMMARY = ("amortized", "conversation_window", "llm_attention")


# --- a condensation ---


def condensation_problems(
    spec: Spec, limit: int | None, planned: Shown, at: Shown, action: CondensationAction, given: Sequence[Given]
) -> Iterator[str]:
    """``planned`` is the View that it was decided on, ``at`` the one that it was appended to, by the law."""
    gone, outcome = named(action), action.metadata.get("outcome")
    if outcome == "declined":
        if gone or action.summary is not None:
            yield f"condensation {action.id} is declined and forgets {sorted(gone)}"
        if spec["type"] != "pipeline" and not due(spec, planned, limit).hard:
            yield f"condensation {action.id} declines what was not required"
        if not str(action.metadata.get("reason", "")).strip():
            yield f"condensation {action.id} is declined without a reason"
        return
    if not gone <= set(at.ids()):
        yield f"condensation {action.id} forgets {sorted(gone - set(at.ids()))}, which are not shown"
    if not any(event_id >= 0 for event_id in gone):
        yield f"condensation {action.id} forgets no event of the log: {sorted(gone)}"
    if early := gone & {item.id for item in planned.items[unseen(planned) :]}:
        yield f"condensation {action.id} forgets {sorted(early)}, which no model was shown"
    after = condensed(at, action)
    if lost := sent(at) - gone - sent(after):
        yield f"condensation {action.id} of {sorted(gone)} loses {sorted(lost)}, which it does not name"
    held = waiting(at)
    if parted := held & (gone | (after.left_behind - at.left_behind)):
        yield f"condensation {action.id} parts calls that wait: {sorted(parted)}"
    yield from _summary_problems(spec, action, given)
    if spec["type"] in WITHOUT_SUMMARY:
        yield from _choice_problems(spec, planned, action, given)
    elif spec["type"] in SUMMARIZING:
        yield from _piece_problems(spec, limit, planned, action, given)


def _summary_problems(spec: Spec, action: CondensationAction, given: Sequence[Given]) -> Iterator[str]:
    if spec["type"] in WITHOUT_SUMMARY:
        if action.summary is not None:
            yield f"condensation {action.id} has a summary"
    elif spec["type"] in ("llm", "structured"):
        marks = [each.mark for each in given if each.useful]
        if not any(mark in (action.summary or "") for mark in marks):
            yield f"condensation {action.id} has a summary that no good reply gave: {str(action.summary)[:80]!r}"
    elif action.summary is not None and not action.summary.strip():
        yield f"condensation {action.id} has an empty summary"


def _choice_problems(spec: Spec, view: Shown, action: CondensationAction, given: Sequence[Given]) -> Iterator[str]:
    gone = named(action)
    candidates = [first(candidate_list) for candidate_list in candidate_lists(spec, view, given)]
    if not any(agrees(view, gone, candidate) for candidate in candidates):
        wanted = [sorted(candidate) for candidate in candidates]
        yield f"condensation {action.id} forgets {sorted(gone)}, by the law {wanted} of {view.ids()}"


def candidate_lists(spec: Spec, view: Shown, given: Sequence[Given]) -> list[list[set[int]]]:
    """What the strategy may forget: lists of choices, in each of which the first that forgets something counts."""
    if spec["type"] == "amortized":
        return [amortized(spec, view)]
    if spec["type"] == "conversation_window":
        return [window(spec, view)]
    newest = attention(spec, view, ())
    if not given or not view.requested:  # a reply that is of no use chooses nothing: the newest stay
        return [attention(spec, view, each.ids) for each in given] or [newest]
    return [[*attention(spec, view, each.ids), *newest] for each in given]


def first(choices: Sequence[set[int]]) -> set[int]:
    return next((choice for choice in choices if any(event_id >= 0 for event_id in choice)), set())


def agrees(view: Shown, gone: set[int], by_law: set[int]) -> bool:
    """Whether what is forgotten is what the law says; less of it where all of it would lose something else."""
    return gone <= by_law if is_lossy(view, by_law) else gone in (by_law, by_law - parted(view, by_law))


def parted(view: Shown, gone: set[int]) -> set[int]:
    """What of a reply would go while one of its calls stays, though none of them is sent: it may stay too."""
    reply = {item.id: item.response_id for item in view.items}
    stay = {reply[item.id] for item in view.items if item.id not in gone and item.response_id}
    return {item.id for item in view.items if item.id in gone and (reply.get(item.cause) or item.response_id) in stay}


def _piece_problems(
    spec: Spec, limit: int | None, view: Shown, action: CondensationAction, given: Sequence[Given]
) -> Iterator[str]:
    gone, outcome = named(action), action.metadata["outcome"]
    pieces = middles(spec, view, limit)
    if outcome == "reset":
        piece = reset(view)
        by_law = [] if piece is None or not due(spec, view, limit).hard else [piece]
        if pieces and limit is None and not any(not each.useful for each in given):
            yield f"condensation {action.id} resets everything though {pieces} could be summarized"
    else:
        by_law = pieces
    chosen = [piece for piece in by_law if gone == ids(view, piece)]
    if not chosen:
        wanted = [sorted(ids(view, piece)) for piece in by_law]
        yield f"condensation {action.id} ({outcome}) forgets {sorted(gone)}, by the law {wanted} of {view.ids()}"
    elif action.summary_offset != chosen[0].start:
        yield f"condensation {action.id} puts its summary at {action.summary_offset}, by the law {chosen[0].start}"


def ids(view: Shown, piece: Piece) -> set[int]:
    return {item.id for item in view.items[piece.start : piece.stop]}


# --- a turn ---


def turn_problems(
    spec: Spec,
    limit: int | None,
    before: Shown,
    result: View | Condensation | None,
    made: Sequence[CondensationAction],
    given: Sequence[Given],
    *,
    lately: bool,
) -> Iterator[str]:
    """What a step did, where nobody else appended in its course. ``lately``: a model failed not long ago."""
    declined = [action for action in made if action.metadata.get("outcome") == "declined"]
    if result is None and len(declined) > 1:
        yield f"{len(declined)} condensations decline one request"
    if isinstance(result, View) and before.requested and spec["type"] not in SHOWING:
        yield "a request is passed over"
    if spec["type"] == "pipeline":
        return
    if spec["type"] in SHOWING:
        if made or result is None:
            yield "a condenser that only shows less condensed"
        return
    reasons = due(spec, before, limit)
    if not (reasons.hard or reasons.events):
        if made or given or not isinstance(result, View):
            yield f"nothing is due, and the step made {len(made)} condensations and asked {len(given)} times"
        return
    failed = any(not each.useful for each in given)
    if isinstance(result, View):
        if reasons.hard:
            yield f"a condensation is required ({reasons}), and the View was given back"
        elif possible(spec, limit, before, given) and not failed and not (lately and spec["type"] in ASKING):
            yield f"{len(before.items)} events are too many, something can be forgotten, and nothing was done"
    elif result is None:
        if not reasons.hard:
            yield "a step that could wait raised"
        if not failed and limit is None and possible(spec, limit, before, given):
            yield "a step raised though something can be forgotten"


def possible(spec: Spec, limit: int | None, view: Shown, given: Sequence[Given]) -> bool:
    """Whether the law knows something to forget, whatever a model may say. In doubt it does not."""
    if spec["type"] in SUMMARIZING:
        if limit is not None:
            return False  # what a summary saves is not known before
        hard = due(spec, view, limit).hard
        return bool(middles(spec, view, limit)) or (hard and reset(view) is not None)
    if spec["type"] == "llm_attention" and not given:
        return some_unit_goes_whatever_is_chosen(spec, view)
    found = [first(candidates) for candidates in candidate_lists(spec, view, given)]
    return all(any(event_id >= 0 for event_id in gone) and not is_lossy(view, gone) for gone in found)


def is_lossy(view: Shown, gone: set[int]) -> bool:
    """Whether something that stays is lost, because what goes ended a tool loop and nothing comes into its place."""
    return bool(sent(view) - gone - sent(without(view, gone)))


def some_unit_goes_whatever_is_chosen(spec: Spec, view: Shown) -> bool:
    """Whether there are more units than events that may stay: then something goes, whatever the model chooses."""
    head = min(spec["keep_first"], len(view.items))
    gone = forgotten_beside(view, set(range(head)), summaries=False)
    if is_lossy(view, gone):
        return False
    units = {
        next(cut for cut in reversed(cut_points(view)) if cut <= n) for n, i in enumerate(view.items) if i.id in gone
    }
    return len(units) > spec["max_size"] // 2 - head


def attempts_reported(events: Sequence[Event]) -> int:
    """How many calls of a model these events report."""
    reports: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, CondensationAction):
            reports += event.metadata.get("condenser_meta", [])
        elif isinstance(event, Annotation) and event.name == "condenser_meta":
            reports += event.data
    return sum(report.get("metrics", report).get("attempts", 0) for report in reports)


# --- what is shown ---


def shown_problems(view: Shown, result: View) -> Iterator[str]:
    """What no model was shown yet is in the prompt, whole or shortened, and a server takes the prompt."""
    shown = {event.id: event for event in result}
    for item in view.items[unseen(view) :]:
        if item.id not in shown:
            yield f"event {item.id} was never shown to a model, and is hidden"
        elif shown[item.id].meta.get("masked_by", "length") != "length":
            yield f"event {item.id} was never shown to a model, and is masked"
    dialect = DIALECTS[result.version % len(DIALECTS)]
    for problem in PROBLEMS[dialect](result.to_messages(dialect)):
        yield f"{dialect}: {problem}"


def masked_by_law(spec: Spec, view: Shown, result: View) -> Iterator[str]:
    """What a condenser that only shows less shows."""
    if spec["type"] == "recent":
        gone = recent(spec, view)
        shown = [event.id for event in result]
        if shown != [event_id for event_id in view.ids() if event_id not in gone]:
            if not is_lossy(view, gone):
                yield f"recent shows {shown}, by the law all but {sorted(gone)} of {view.ids()}"
            elif not set(view.ids()) - gone <= set(shown):
                yield f"recent hides {sorted(set(view.ids()) - gone - set(shown))}, which its own rule keeps"
        return
    if spec["type"] == "clear_tool_uses":
        yield from _cleared_by_law(spec, view, result)
    if spec["type"] != "observation_masking":
        return
    older = view.items[: min(unseen(view), max(0, len(view.items) - spec["attention_window"]))]
    masked = {item.id for item in older if item.kind == "observation"}
    for event in result:
        if event.id < 0:
            continue
        by_law = event.id in masked
        if (getattr(event, "content", None) == "<MASKED>") != by_law:
            yield f"event {event.id} is {'not ' if by_law else ''}masked"


def _cleared_by_law(spec: Spec, view: Shown, result: View) -> Iterator[str]:
    cleared = [event for event in result if "masked_by" in event.meta]
    kinds = ("Observation", "Action") if spec["clear_tool_inputs"] else ("Observation",)
    results = [item.id for item in view.items if item.kind == "observation"]
    kept = results[max(0, len(results) - spec["keep"]) :]
    for event in cleared:
        if type(event).__name__ not in kinds or event.id in kept:
            yield f"event {event.id} is cleared"
        if str(event.id) not in str(getattr(event, "content", getattr(event, "arguments", ""))):
            yield f"what is left of event {event.id} does not name it"


def chat_problems(messages: Sequence[dict[str, Any]], view: Shown, sent_ids: set[int]) -> Iterator[str]:
    """A model refuses a chat in which a call has no result right behind it, or a result no call."""
    expected: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in expected:
                yield f"a tool message answers {message['tool_call_id']!r}, which is not open"
                return
            expected.remove(message["tool_call_id"])
            continue
        if expected:
            yield f"calls {expected} have no result"
            return
        expected = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(expected)) < len(expected) or seen & set(expected):
            yield f"a call id is used twice: {expected}"
        seen |= set(expected)
    if expected:
        yield f"calls {expected} have no result at the end"
    yield from _content_problems(messages, view, sent_ids)


def _content_problems(messages: Sequence[dict[str, Any]], view: Shown, sent_ids: set[int]) -> Iterator[str]:
    said = set(MARK.findall(json.dumps(messages, ensure_ascii=False)))
    by_mark = {mark: item for item in view.items for mark in MARK.findall(item.text)[:1]}
    for mark, item in by_mark.items():
        repeated = sum(mark in other.text for other in view.items) > 1
        if (mark in said) != (item.id in sent_ids) and not repeated:
            yield f"event {item.id} {mark} is {'not ' if item.id in sent_ids else ''}in the messages"
    results = {m["tool_call_id"]: json.dumps(m["content"]) for m in messages if m["role"] == "tool"}
    item_of = {item.id: item for item in view.items}
    answers = {call: item_of[answer] for answer, call in answered(view).items()}
    for message in messages:
        for call in message.get("tool_calls") or ():
            marks = MARK.findall(json.dumps(call))
            if marks and marks[0] in by_mark and (answer := answers.get(by_mark[marks[0]].id)) is not None:
                wanted = MARK.findall(answer.text)[:1]
                if wanted and wanted[0] not in results[call["id"]]:
                    yield f"call {marks[0]} has another call's result than {wanted[0]}"
