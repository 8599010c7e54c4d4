"""What the references would answer with the bugs of their list mended: written down again, as
plainly as can be.

Nothing of ours is used but the View: its events, where it may be cut, and what of it is sent.
``Mended`` names what happens by our event ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from foldlog.condensers.strategies.model_summaries import FIELDS, REQUIRED, TOOL_NAME
from foldlog.eventstore.events import (
    Action,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.projections import View
from tests.conformance.condenser_answers import Script, Spec

Json = dict[str, Any]


@dataclass(frozen=True)
class Mended:
    """``view``: the ids shown, and which are masked. ``condensation``: the ids forgotten, and where
    a summary goes. ``error``: a condensation was needed and there is none.
    """

    result: str
    shown: tuple[int, ...] = ()
    masked: frozenset[int] = frozenset()
    forgotten: frozenset[int] = frozenset()
    offset: int | None = None


ERROR = Mended("error")


class Replies:
    """The scripted replies, one after the other. ``too_large`` counts those that would have saved
    no tokens, and ``crowded`` the choices of V1 that leave no room for a summary.
    """

    def __init__(self, script: Script) -> None:
        self._script, self.asked, self.too_large, self.crowded = script, 0, 0, 0

    def next(self) -> Any:
        self.asked += 1
        return self._script.reply(self.asked - 1)


def mended_pipeline(
    parts: list[Json], view: View, replies: Replies, source_ids: Any, rule: str, agent: Any
) -> Mended:
    """A part that masks or hides passes on what it shows; one that has nothing to forget leaves it
    to the next.
    """
    seen, masked, failed = view, frozenset[int](), False
    for part in parts:
        asked = replies.asked
        answer = mended(part, seen, replies, source_ids, rule, agent)
        if answer.result == "error":
            failed = True
            if replies.asked > asked:
                break
        elif answer.result == "view":
            masked |= answer.masked
            seen = seen.with_events(event for event in seen if event.id in answer.shown)
        elif answer.offset is None:
            return answer
        else:
            before = seen[answer.offset].id
            place = next(place for place, event in enumerate(view.events) if event.id == before)
            return Mended("condensation", forgotten=answer.forgotten, offset=place)
    shown = tuple(event.id for event in seen)
    return ERROR if failed else Mended("view", shown, masked.intersection(shown))


def mended(
    spec: Json, view: View, replies: Replies, source_ids: Any, rule: str, agent: Any = None
) -> Mended:
    """``spec`` has all its parameters."""
    match spec["type"]:
        case "noop":
            return as_it_is(view)
        case "pipeline":
            return mended_pipeline(spec["condensers"], view, replies, source_ids, rule, agent)
        case "observation_masking":
            older = view.events[: max(0, len(view) - spec["attention_window"])]
            return as_it_is(view, {event.id for event in older if isinstance(event, Observation)})
        case "browser_output_masking":
            outputs = [
                event.id
                for event in view
                if isinstance(event, Observation) and event.tool.startswith("browse")
            ]
            return as_it_is(view, set(outputs[: max(0, len(outputs) - spec["attention_window"])]))
        case "recent":
            return recent(spec, view)
        case "amortized":
            return amortized(spec, view)
        case "conversation_window":
            return window(view)
        case "llm" | "structured":
            return summarizing(spec, view, replies, rule, agent)
        case "llm_attention":
            return attention(spec, view, replies, source_ids)
    raise AssertionError(spec["type"])


def as_it_is(view: View, masked: Iterable[int] = ()) -> Mended:
    return Mended("view", tuple(event.id for event in view), frozenset(masked))


def condensation(events: Iterable[Event], offset: int | None = None) -> Mended:
    return Mended("condensation", forgotten=frozenset(event.id for event in events), offset=offset)


def cut_at_or_after(view: View, wanted: int) -> int | None:
    return next((cut for cut in view.cut_points if cut >= wanted), None)


def is_synthetic(event: Event) -> bool:
    """Whether this is a condensation's summary, which V0's ids do not name. A stored one is an
    event like any other.
    """
    return event.id < 0


def has_real(events: Sequence[Event]) -> bool:
    return any(event.id >= 0 for event in events)


def first_that_forgets(view: View, found: Iterable[set[int]]) -> Mended:
    forgets = (
        Mended("condensation", forgotten=frozenset(gone))
        for gone in found
        if max(gone, default=-1) >= 0
    )
    return next(forgets, unavailable(view))


def unavailable(view: View) -> Mended:
    """What happens where nothing can be forgotten: a request must be told so, a View that is too
    long can wait.
    """
    return ERROR if view.unhandled_condensation_request else as_it_is(view)


# -- strategies without a summary: their own rule counts events one by one, then whole units stay
# ----------------------


def forgotten_beside(view: View, kept: set[int], *, summaries: bool) -> set[int]:
    """What lies between two cut points goes if no place of it is kept. Summaries of what is
    forgotten stay, unless the rule counts them like anything else.
    """
    gone: set[int] = set()
    for start, stop in pairwise(view.cut_points):
        if not kept & set(range(start, stop)):
            gone |= {event.id for event in view[start:stop] if summaries or not is_synthetic(event)}
    return gone


def ends(view: View, head: int, tail: int) -> set[int]:
    places = list(range(len(view)))
    return set(places[:head]) | (set(places[-tail:]) if tail > 0 else set())


def recent(spec: Spec, view: View) -> Mended:
    if len(view) <= spec["max_events"]:
        return as_it_is(view)
    kept = ends(view, spec["keep_first"], spec["max_events"] - spec["keep_first"])
    gone = forgotten_beside(view, kept, summaries=True)
    return Mended("view", tuple(event.id for event in view if event.id not in gone))


def amortized(spec: Spec, view: View) -> Mended:
    if not (view.unhandled_condensation_request or len(view) > spec["max_size"]):
        return as_it_is(view)
    kept = ends(view, spec["keep_first"], spec["max_size"] // 2 - spec["keep_first"])
    return first_that_forgets(view, [forgotten_beside(view, kept, summaries=True)])


def window(view: View) -> Mended:
    """W1: V0 forgets the newest calls because the window shows their outputs alone; here they stay,
    and may only go where nothing else can. To forget only what no model is sent would fulfil no
    request.
    """
    if not view.unhandled_condensation_request:
        return as_it_is(view)
    events, sent = view.events, {view[place].id for place in view.fit_positions}
    asked = next(
        (
            n
            for n, event in enumerate(events)
            if isinstance(event, Message) and event.source == "user"
        ),
        None,
    )
    if asked is None:
        return unavailable(view)
    prompts = [n for n, event in enumerate(events) if isinstance(event, SystemMessage)]
    essential = {asked, *prompts[:1]}
    recalls = [
        n for n in range(asked + 1, len(events)) if is_recall(events[n], text_of(events[asked]))
    ]
    for recall in recalls[:1]:
        causes = [getattr(event, "cause", None) == events[recall].id for event in events]
        found = [
            n
            for n in range(recall + 1, len(events))
            if isinstance(events[n], Observation) and causes[n]
        ]
        essential |= {recall, *found[:1]}
    newest = list(range(len(events)))[-max(1, (len(events) - len(essential)) // 2) :]
    kept = list(newest)
    while kept and isinstance(events[kept[0]], Observation | CondensationSummary):
        kept.pop(0)
    calls = {place for place in newest if events[place].id in sent}
    of_loops = {place for loop in view.units.loops for place in loop}
    choices = [set(kept)] if kept else [calls, calls & of_loops]
    gone = [forgotten_beside(view, essential | each, summaries=False) for each in choices]
    return first_that_forgets(view, [each for each in gone if each & sent])


def is_recall(event: Event, query: str) -> bool:
    arguments = event.arguments if isinstance(event, Action) and event.tool == "recall" else None
    return isinstance(arguments, dict) and arguments.get("query") == query


def text_of(event: Event) -> str:
    assert isinstance(event, Message)
    return (
        event.content
        if isinstance(event.content, str)
        else "".join(part.get("text", "") for part in event.content)
    )


def summarizing(spec: Spec, view: View, replies: Replies, rule: str, agent: Any) -> Mended:
    size, kept_first, length = spec["max_size"], spec["keep_first"], len(view)
    over = agent is not None and too_large(agent.token_sums(view)[-1], spec, agent)
    asked = view.unhandled_condensation_request
    if not (asked or over or length > size):
        return as_it_is(view)

    prompt = behind_prompt(view)
    tails = [size // 2 - kept_first - 1] if length > size or rule == "v0" else []
    if asked and rule == "v1":
        tails.append(length // 2 - kept_first - 1)
    start = cut_at_or_after(view, max(kept_first, prompt) if rule == "v1" else kept_first)
    stops: list[int] = []
    if start is not None:
        by_tokens = [[tokens_tail(spec, view, agent, start)]] if over else [[]]
        stops = [stop_before(view, [*tails, *more]) for more in by_tokens]
        least = max(1, spec.get("minimum_progress", 0.1 if rule == "v1" else 0) * length)
        stops = [
            stop for stop in stops if sum(event.id >= 0 for event in view[start:stop]) >= least
        ]
        made = summarized(spec, view, start, stops, replies, agent)
        if made is not None:
            return made
    if not (asked or over):
        return as_it_is(view)
    if (
        rule == "v0" and not (over or stops) and length <= size
    ):  # L2: the request aims at half of max_size, and that is there
        beyond = [
            event for event in view[kept_first : max(0, length - min(tails))] if event.id >= 0
        ]
        if (
            length <= size // 2
            or not beyond
            or len(beyond) < spec.get("minimum_progress", 0) * length
        ):
            return ERROR

    start = cut_at_or_after(view, prompt)
    if start is None or not has_real(view[start : view.cut_points[-1]]):
        return ERROR
    for _ in range(spec.get("hard_context_reset_max_retries", 5)):
        reply = replies.next()
        if usable(reply, spec["type"]):
            if saves_tokens(view, start, view.cut_points[-1], reply, agent):
                return condensation(view[start : view.cut_points[-1]], start)
            replies.too_large += 1
            return ERROR
    return ERROR


def stop_before(view: View, tails: Sequence[int]) -> int:
    """Where the shortest of these tails begins; 0 where one of them asks for less than nothing."""
    if min(tails) < 0:
        return 0
    stop = cut_at_or_after(view, len(view) - min(tails))
    return view.cut_points[-1] if stop is None else stop


def summarized(
    spec: Spec, view: View, start: int, stops: Sequence[int], replies: Replies, agent: Any
) -> Mended | None:
    """V1's choice. K2: where that, with its summary, is more than the limit, the next one, which
    goes further and is summarized from the first summary on. None where no reply is of use.
    """
    for stop, wider in pairwise([*dict.fromkeys(stops), None]):
        if stop is None:
            return None
        if wider and too_large(tokens_with(view, start, stop, None, agent) + 1, spec, agent):
            replies.crowded += 1  # nothing is left for a summary
            continue
        reply = replies.next()
        if not usable(reply, spec["type"]):
            return None
        if wider and too_large(tokens_with(view, start, stop, reply, agent), spec, agent):
            replies.crowded += 1
            second = replies.next()
            if usable(second, spec["type"]):
                stop, reply = wider, second
        if saves_tokens(view, start, stop, reply, agent):
            return condensation(view[start:stop], start)
        replies.too_large += 1
        return None
    return None


def behind_prompt(view: View) -> int:
    return next(
        (place + 1 for place, event in enumerate(view.events) if isinstance(event, SystemMessage)),
        0,
    )


def tokens_limit(spec: Spec, agent: Any) -> int | None:
    limits = (
        []
        if agent is None
        else [n for n in (spec.get("max_tokens"), agent.max_input_tokens) if n is not None]
    )
    return min(limits, default=None)


def too_large(tokens: int, spec: Spec, agent: Any) -> bool:
    limit = tokens_limit(spec, agent)
    return limit is not None and tokens > limit


def tokens_tail(spec: Spec, view: View, agent: Any, head: int) -> int:
    """How many events stay at the end so that they and the head come below half of the limit."""
    sums, limit = agent.token_sums(view), tokens_limit(spec, agent)
    assert limit is not None
    head = min(head, len(view))
    gone = sums[-1] - limit // 2
    behind = [n for n in range(head, len(sums)) if sums[n] - sums[head] > gone]
    return len(sums) - 1 - behind[0] if behind else 0


def tokens_with(view: View, start: int, stop: int, reply: Any, agent: Any) -> int:
    """The tokens of the prompt with the reply in the place of what it stands for; without any where
    it is None.
    """
    if agent is None:
        return 0
    text = reply if isinstance(reply, str) else "x"
    summary = [] if reply is None else [CondensationSummary(id=-(view.version + 2), content=text)]
    return int(agent.token_sums(view.with_events((*view[:start], *summary, *view[stop:])))[-1])


def saves_tokens(view: View, start: int, stop: int, reply: Any, agent: Any) -> bool:
    return (
        agent is None or tokens_with(view, start, stop, reply, agent) < agent.token_sums(view)[-1]
    )


TEXTS = {"ids", "no_tool_calls"}
"""Scripted replies that are a text too."""


def usable(reply: Any, kind: str) -> bool:
    """Whether there is a memory in it."""
    if kind == "llm":
        return bool(reply.strip()) if isinstance(reply, str) else bool(TEXTS & set(reply or ()))
    if not isinstance(reply, dict) or reply.get("tool_name", TOOL_NAME) != TOOL_NAME:
        return False
    try:
        state = (
            reply["tool_args"]
            if "tool_args" in reply
            else json.loads(reply.get("raw_tool_args", ""))
        )
    except ValueError:
        return False
    required = set(REQUIRED)
    known = set(FIELDS)
    return (
        isinstance(state, dict)
        and required <= set(state)
        and all(isinstance(state[k], str) for k in known & set(state))
    )


def attention(spec: Spec, view: View, replies: Replies, source_ids: Any) -> Mended:
    asked = view.unhandled_condensation_request
    if not (asked or len(view) > spec["max_size"]):
        return as_it_is(view)
    head = set(range(min(spec["keep_first"], len(view))))
    places = spec["max_size"] // 2 - len(head)
    open_to_choice = [
        n for n, event in enumerate(view.events) if n not in head and not is_synthetic(event)
    ]
    if len(open_to_choice) <= places or all_stay_anyway(view, head, open_to_choice, places):
        return unavailable(view)
    reply = replies.next()
    if isinstance(reply, dict) and "error" in reply and not asked:
        return as_it_is(view)
    ids = [
        source_ids.get(each)
        for each in (reply["ids"] if isinstance(reply, dict) and "ids" in reply else [])
    ]
    given = [ids, []] if asked else [ids]  # the newest, where what the model would let go cannot go
    return first_that_forgets(view, [chosen(view, head, places, each) for each in given])


def chosen(view: View, head: set[int], places: int, ids: Sequence[object]) -> set[int]:
    """The head stays, the first distinct ids of the reply that are in the View outside it, and then
    the newest.
    """
    free = [n for n, event in enumerate(view.events) if n not in head and not is_synthetic(event)]
    place_of = {view[place].id: place for place in free}
    named = list(
        dict.fromkeys(place_of[each] for each in ids if type(each) is int and each in place_of)
    )[:places]
    named += [place for place in reversed(free) if place not in named][: places - len(named)]
    return forgotten_beside(view, head | set(named), summaries=False)


def all_stay_anyway(view: View, head: set[int], open_to_choice: list[int], places: int) -> bool:
    """Whether no unit can go, though as many events as possible are chosen from the others."""
    for start, stop in pairwise(view.cut_points):
        unit = [place for place in open_to_choice if start <= place < stop]
        if (
            unit
            and not head & set(range(start, stop))
            and len(open_to_choice) - len(unit) >= places
        ):
            return False
    return True


def joins_loops(view: View, right: Mended) -> bool:
    """Whether what is forgotten, with no summary in its place, makes one tool loop of two, so that
    something is lost that was to stay: docs/internals/decisions/0031-joined-loops.md. Then more
    stays than is said here.
    """
    if right.offset is not None or right.result not in ("view", "condensation"):
        return False
    shown = (
        set(right.shown)
        if right.result == "view"
        else {event.id for event in view} - right.forgotten
    )
    after = view.with_events(event for event in view.events if event.id in shown)
    sent_before, sent_after = (
        {each[place].id for place in each.fit_positions} for each in (view, after)
    )
    return not sent_before & shown <= sent_after
