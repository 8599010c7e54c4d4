"""Take a condenser's step so that nothing is forgotten before a model was shown it.

The events that came since the agent's last turn began are *unseen*: no model was called since. Before its first turn
all events are. No condenser forgets, hides or masks them. Where a prompt is over a limit of tokens and nothing else can
be forgotten, the texts of results and messages among them are shortened on the way out: the log has them whole, and a
report in the log says which ones were shortened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container
from dataclasses import replace

from msgspec.structs import replace as with_fields

from foldlog.condensers.base import AgentModel, Condensation, Condenser, Overrun, Reason, Step, reported, stepped
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.prompts.rendering import plain_text, truncated
from foldlog.condensers.reports import Report, is_standing
from foldlog.condensers.strategies.showing import MASKED
from foldlog.condensers.strategies.summarizing import limit_of, overrun_of
from foldlog.eventstore import CondensationRequest, Content, Event, Message, Observation
from foldlog.projections import View, begins_reply

_LENGTH_LEAST = 400
"""The fewest characters to which a text is shortened."""

LENGTH = "length"
"""The value of ``MASKED`` in the ``meta`` of an event with shortened texts."""

_WITH_TEXT = (Observation, Message)


def step(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Return the step of ``condenser`` over ``view`` in which unseen events stay, shortened if there is no other way. A
    View for which the agent's model has no room is condensed as if that were requested.

    Raises ``NoCondensationAvailable`` where a condensation is required and impossible, and shorter texts would not
    help. Cost: the condenser's work, and a count of tokens; where texts are shortened, some 20 counts of these.
    """
    kept_from = _first_unseen(view)
    keeping = shown = replace(view, kept_from=kept_from)
    vars(keeping).update(events=view.events)
    over, reports = None, tuple[Report, ...]()
    try:
        result, reports = stepped(condenser, keeping, agent_llm)
        if isinstance(result, View):
            shown, over = result, overrun_of(result, agent_llm, limit_of(agent_llm, margin_ratio=0))
        if over is None:
            return Step(view if result is keeping else result, reports)
        return _requested(condenser, keeping, agent_llm, over, reports)
    except NoCondensationAvailable as error:
        error.reports = (*reports, *(each for each in error.reports if not is_standing(each)))
        over = over or condenser.overrun(view, agent_llm)
        if over is None or view.unhandled_condensation_request or any("failure" in each for each in error.reports):
            raise
        shown, report = _shortened(shown, kept_from, over, error)
        return Step(shown, (*error.reports, {"condenser": condenser.type, **report}))


def _requested(
    condenser: Condenser, view: View, agent_llm: AgentModel | None, over: Overrun, reports: tuple[Report, ...]
) -> Step:
    """Return the condensation of a View that is ``over`` the room of the agent's model. It has the reports so far."""
    requested = replace(view.then((CondensationRequest(id=view.version),)), kept_from=view.kept_from)
    made, more = stepped(condenser, requested, agent_llm)
    if isinstance(made, View):
        why = f"{condenser.type!r} forgets nothing of a prompt of {over.sums[-1]} tokens; the model takes {over.limit}"
        raise NoCondensationAvailable(why, more)
    metadata = {**made.action.metadata, "reason": Reason.TOKENS.value, "tokens_max": over.limit}
    spent = tuple(each for each in reports if not is_standing(each))
    return reported(Condensation(with_fields(made.action, metadata=metadata)), spent)


def _first_unseen(view: View) -> int:
    """Return the id of the first event of the agent's last turn, from which on no model was shown the events. Where the
    View has no turn of the agent it is 0: no model was shown any event. Cost: the events since.
    """
    first: Event | None = None
    for event in reversed(view.events):
        if begins_reply(event):
            if first is not None and begins_reply(first, event):
                break
            first = event
    return 0 if first is None else first.id


def _shortened(view: View, kept_from: int, over: Overrun, error: NoCondensationAvailable) -> tuple[View, Report]:
    """Return the View with unseen texts as long as the limit allows, and the report on it.

    Raises ``NoCondensationAvailable`` where the shortest would not fit.
    """
    unseen = {
        event.id: event.content for event in view.events if event.id >= kept_from and isinstance(event, _WITH_TEXT)
    }

    def tokens(length: int) -> int:
        return over.counter.token_sums(shortened(view, unseen, length))[-1]

    lengths = range(_LENGTH_LEAST, max((len(plain_text(content)) for content in unseen.values()), default=0))
    fitting = bisect_right(lengths, over.limit, key=tokens)
    if not fitting:
        raise NoCondensationAvailable(
            f"the prompt may have {over.limit} tokens, and would have {tokens(_LENGTH_LEAST)} with the texts of the "
            f"{len(unseen)} events that no model was shown cut to {_LENGTH_LEAST} characters each; nothing else can be "
            f"forgotten: {error}",
            error.reports,
        ) from error
    length = lengths[fitting - 1]
    shown = shortened(view, unseen, length)
    report = {
        "rule": {"characters": length, "events": [event.id for event in shown.events if MASKED in event.meta]},
        "outcome": "shortened",
        "reason": "tokens",
        "tokens_max": over.limit,
        "tokens_before": over.sums[-1],
        "tokens_after": tokens(length),
    }
    return shown, report


def shortened(view: View, ids: Container[int], length: int) -> View:
    """Return ``view`` with the texts of these events, if they are unseen, cut to this many characters each."""
    kept_from = _first_unseen(view)
    masks: dict[int, Event] = {}
    for place, event in enumerate(view.events):
        if event.id >= kept_from and event.id in ids and isinstance(event, _WITH_TEXT):
            content = _cut(event, length)
            if content != event.content:
                masks[place] = with_fields(event, content=content, meta={**event.meta, MASKED: LENGTH})
    return view.with_masks(masks)


def _cut(event: Observation | Message, length: int) -> Content:
    """Return the content of an event with each text cut to this many characters."""
    where = f"; the log has all of event {event.id}"
    if isinstance(event.content, str):
        return truncated(event.content, length, where)
    return tuple(
        {**part, "text": truncated(part["text"], length, where)} if isinstance(part.get("text"), str) else part
        for part in event.content
    )
