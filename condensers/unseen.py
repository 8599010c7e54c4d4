"""Take a condenser's step so that nothing is forgotten before a model was shown it.

The events that came since the agent's last turn began, or while a model answered it, are *unseen*,
and before its first turn all events. A View that a step returned was shown, too, once another event
follows it, which notes its version: a conversation may have no reply at all. No condenser forgets,
hides or masks unseen events.

Where a prompt is over a limit of tokens and nothing else can be forgotten, the longest texts of
results and messages, seen or not, are shortened on the way out: the log has them whole, and a
report in the log says which ones were shortened. Each step that needs it does so again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container
from dataclasses import replace

from msgspec.structs import replace as with_fields

from foldlog._telemetry import SHOWN
from foldlog.condensers.base import (
    AgentModel,
    Condensation,
    Condenser,
    Overrun,
    Reason,
    Step,
    reported,
    stepped,
)
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.prompts.rendering import truncated
from foldlog.condensers.reports import Report, is_standing
from foldlog.condensers.strategies.showing import MASKED
from foldlog.condensers.strategies.summarizing import limit_of, overrun_of
from foldlog.eventstore import CondensationRequest, Event, Message, Observation, SystemMessage
from foldlog.projections import View, begins_reply, with_texts

_LENGTHS = tuple(int(400 * 1.05**step) for step in range(250))
"""The lengths to which texts are shortened, in steps: a text that is shortened again mostly stays
the same.
"""

LENGTH = "length"
"""The value of ``MASKED`` in the ``meta`` of an event with shortened texts."""


def step(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Return the step of ``condenser`` over ``view`` in which unseen events stay, shortened if
    there is no other way. A View for which the agent's model has no room is condensed as if that
    were requested.

    Raises ``NoCondensationAvailable`` where a condensation is required and impossible, and shorter
    texts would not help. Cost: the condenser's work, and a count of tokens; where texts are
    shortened, some 9 counts of these.
    """
    keeping = shown = replace(view, kept_from=_first_unseen(view))
    vars(keeping).update(events=view.events)
    over = None
    reports = tuple[Report, ...]()
    try:
        result, reports = stepped(condenser, keeping, agent_llm)
        if isinstance(result, View):
            shown = result
            over = overrun_of(result, agent_llm, limit_of(agent_llm, margin_ratio=0))
        if over is None:
            return Step(view if result is keeping else result, reports)
        return _requested(condenser, keeping, agent_llm, over, reports)
    except NoCondensationAvailable as error:
        error.reports = (*reports, *(each for each in error.reports if not is_standing(each)))
        over = over or condenser.overrun(view, agent_llm)
        if (
            over is None
            or view.unhandled_condensation_request
            or any("failure" in each for each in error.reports)
        ):
            raise
        return _shortened(condenser, shown, over, error)


def _requested(
    condenser: Condenser,
    view: View,
    agent_llm: AgentModel | None,
    over: Overrun,
    reports: tuple[Report, ...],
) -> Step:
    """Return the condensation of a View that is ``over`` the room of the agent's model. It has the
    reports so far.
    """
    requested = replace(
        view.then((CondensationRequest(id=view.version),)), kept_from=view.kept_from, kept=view.kept
    )
    # it keeps what it remembers
    requested = replace(requested, state=replace(requested.state, past=view.state.past))
    made, more = stepped(condenser, requested, agent_llm)
    if isinstance(made, View):
        why = (
            f"{condenser.type!r} forgets nothing of {over.sums[-1]} tokens; take a model of more"
            f" than {over.limit}"
        )
        raise NoCondensationAvailable(why, more)
    metadata = {**made.action.metadata, "reason": Reason.TOKENS.value, "tokens_max": over.limit}
    spent = tuple(each for each in reports if not is_standing(each))
    return reported(Condensation(with_fields(made.action, metadata=metadata)), spent)


def _first_unseen(view: View) -> int:
    """Return the id of the first event that no model was shown: of the agent's last turn, or
    earlier if that answers an earlier View; or later, if a later View was shown since. It is 0
    where neither is recorded. Cost: the events since.
    """
    first: Event | None = None
    shown = 0
    for event in reversed(view.events):
        if 0 <= event.id < shown:
            break  # an earlier turn shows no more
        if begins_reply(event):
            if first is not None and begins_reply(first, event):
                break
            first = event
        elif first is None:
            shown = max(shown, _noted(event))
    if first is None:
        return shown
    return max(shown, _noted(first, first.id))


def _noted(event: Event, default: int = 0) -> int:
    """Return the version of the View that an event notes as shown, which had none of the events
    from this one on.
    """
    version = event.meta.get(SHOWN, default)
    return min(version, event.id) if isinstance(version, int) else default


def _shortened(
    condenser: Condenser, view: View, over: Overrun, error: NoCondensationAvailable
) -> Step:
    """Return the View with its texts as long as the limit allows, and the report on it.

    Raises ``NoCondensationAvailable`` where the shortest would not fit.
    """

    def tokens(length: int) -> int:
        return over.counter.token_sums(shortened(view, length))[-1]

    fitting = bisect_right(_LENGTHS, over.limit, key=tokens)
    if not fitting:
        least = shortened(view, _LENGTHS[0])
        told = [
            with_fields(each, tools=()) if isinstance(each, SystemMessage) else each
            for each in least.events
        ]
        others = [each for each in least.events if not isinstance(each, SystemMessage)]
        made = (least, least.with_events(told), least.with_events(others))
        of_all, no_tools, rest = (over.counter.token_sums(each)[-1] for each in made)
        raise NoCondensationAvailable(
            f"the prompt may have {over.limit} tokens, and would have {of_all} with each text of a"
            f" result or a message cut to {_LENGTHS[0]} characters: {of_all - no_tools} of tools,"
            f" {no_tools - rest} of the system prompt, {rest} of the rest. Tools and system prompt"
            " always stay: shorten them, or raise the limit. A pipeline that begins with"
            " clear_tool_uses, its trigger below the limit, makes a tool loop smaller. Nothing"
            f" else can be forgotten: {error}",
            error.reports,
        ) from error
    length = _LENGTHS[fitting - 1]
    shown = shortened(view, length)
    cut = [event.id for event in shown.events if event.meta.get(MASKED) == LENGTH]
    report = {
        "condenser": condenser.type,
        "rule": {"characters": length, "events": cut},
        "outcome": "shortened",
    }
    counts = {
        "tokens_max": over.limit,
        "tokens_before": over.sums[-1],
        "tokens_after": tokens(length),
    }
    return Step(shown, (*error.reports, {**report, "reason": "tokens", **counts}))


def shortened(view: View, length: int, ids: Container[int] | None = None) -> View:
    """Return ``view`` with the texts of its results and messages, or of these, cut to this many
    characters each.
    """
    told = (
        (place, event)
        for place, event in enumerate(view.events)
        if isinstance(event, Observation | Message)
    )
    return view.with_masks(
        {place: _cut(event, length) for place, event in told if ids is None or event.id in ids}
    )


def _cut(event: Observation | Message, length: int) -> Event:
    """Return an event with each of its texts cut to this many characters; the same one if none is
    longer.
    """
    where = f"; the log has all of event {event.id}"
    content = with_texts(event.content, lambda text: truncated(text, length, where))
    meta = {**event.meta, MASKED: LENGTH}
    if content == event.content:
        return event
    return with_fields(event, content=content, meta=meta)
