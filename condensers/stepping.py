"""This module runs a condenser, and keeps the events that no model has seen yet.

An event is *unseen* if it was appended after the agent's last turn began, or while a model was
writing that turn. Before the agent's first turn, all events are unseen. If a conversation has no
replies, the events of a View count as seen once a later event records that the View was sent. No
condenser forgets, hides or masks unseen events.

If a prompt exceeds a token limit and no further event can be forgotten, the step shortens the
longest texts of results and messages. The step shortens even texts that a model has seen, and at
last summaries. The log keeps the full texts, and a report in the log names the shortened events. A
later step shortens the texts again if the prompt still exceeds the limit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import replace

from msgspec.structs import replace as with_fields

from foldlog._base.telemetry import SHOWN
from foldlog.condensers.base import (
    AgentModel,
    Condensation,
    Condenser,
    Overrun,
    Reason,
    Step,
    run_step,
    with_step_reports,
)
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.prompts.rendering import arguments_of, truncate
from foldlog.condensers.reports import Report, failures_in, outcomes_in
from foldlog.condensers.rolling import ModelUse, model_use
from foldlog.condensers.selection import SEND_IT
from foldlog.condensers.strategies.digest import default_condenser
from foldlog.condensers.strategies.hiding import MASKED
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.condensers.strategies.summarizing import limit_of, overrun_of
from foldlog.eventstore import (
    Action,
    CondensationRequest,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.projections import View, as_json, begins_reply, with_texts

_LENGTHS = tuple(int(400 * 1.3**step) for step in range(47))
"""The lengths, in characters, to which texts are shortened. Because there are few lengths, a
shortened text rarely changes from step to step. A provider's prompt cache stays valid as long as
the text does not change. Steps of 5 per cent cost more in written caches than the shorter texts of
steps of 30 per cent save.
"""

LENGTH = "length"
"""The value of ``MASKED`` in the ``meta`` of an event with shortened texts."""


def step(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Run a step of ``condenser`` on ``view``, and return the result. All unseen events stay. The
    texts of unseen events are shortened if nothing else makes the prompt fit. If the View does not
    fit into the agent's model, the condenser condenses it as if a condensation had been requested.

    Unless ``condenser.fallback`` is false, a digest takes the place of the condenser in three
    cases: if a condensation is required and the condenser's model fails, if the View does not fit
    even with shortened texts, and if the model fails and the View exceeds the default limit of a
    digest. If nothing else helps, summaries are shortened too. Raises ``NoCondensationAvailable``
    if a condensation is required and impossible, and shorter texts would not help. Cost: the step
    runs the condenser and counts the View's tokens once. If texts are shortened, their tokens are
    counted about 6 times.
    """
    guarded = replace(view, kept_from=_first_unseen(view))
    try:
        result = _step_or_digest(condenser, guarded, agent_llm)
    except NoCondensationAvailable as error:
        if error.last_resort is None:
            raise
        result = error.last_resort
    return result._replace(result=view) if result.result is guarded else result


def _step_or_digest(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Return the step of a condenser. If its model failed, was spared, or the prompt stays too
    long, a digest takes the place of its summary, unless the condenser has no fallback.
    """
    is_spared = model_use.get() is ModelUse.SPARE
    try:
        with _using_models(ModelUse.SPARE if is_spared else ModelUse.TRY):
            result = _step(condenser, view, agent_llm)
    except NoCondensationAvailable as error:
        is_too_long = error.limit is not None and condenser.handles_condensation_requests()
        if not condenser.fallback or not (is_spared or error.model_failed or is_too_long):
            raise
        return _step_without_model(condenser, view, agent_llm, error)
    if condenser.fallback and (is_spared or failures_in(result.reports)):
        return _digest_above_default(condenser, view, agent_llm, result)
    return result


@contextmanager
def _using_models(use: ModelUse) -> Iterator[None]:
    token = model_use.set(use)
    try:
        yield
    finally:
        model_use.reset(token)


def _step_without_model(
    condenser: Condenser, view: View, agent_llm: AgentModel | None, failed: NoCondensationAvailable
) -> Step:
    """Return a step that asks no model, after a step of ``condenser`` failed. A condenser that
    cannot condense without a model is replaced by the default condenser.
    """
    reports = outcomes_in(failed.reports)
    with _using_models(ModelUse.SPARE):
        try:
            result, new_reports = _step(condenser, view, agent_llm)
        except NoCondensationAvailable as error:
            try:
                result, new_reports = _step(
                    default_condenser(max_tokens=error.limit or None), view, agent_llm
                )
            except NoCondensationAvailable:
                if failed.limit is not None:
                    raise failed from failed.__cause__
                error.reports = (*reports, *error.reports)
                raise error from failed
            result = _marked(result, condenser.type)
    return with_step_reports(result, (*reports, *new_reports))


def _digest_above_default(
    condenser: Condenser, view: View, agent_llm: AgentModel | None, step: Step
) -> Step:
    """Return a digest instead of ``step``, which left the View because the model fails, if no token
    limit is known and the View exceeds the default limit of a digest. The whole View counts: masks
    make its prompt short, but without a condensation the View would grow forever.
    """
    if (
        not isinstance(step.result, View)
        or limit_of(agent_llm) is not None
        or _has_max_tokens(condenser)
        or default_condenser().overrun(view, agent_llm) is None
    ):
        return step
    result, _ = _step(default_condenser(), view, agent_llm)
    if isinstance(result, View):
        return step
    return with_step_reports(_marked(result, condenser.type), outcomes_in(step.reports))


def _has_max_tokens(condenser: Condenser) -> bool:
    if isinstance(condenser, PipelineCondenser):
        return any(map(_has_max_tokens, condenser.condensers))
    return getattr(condenser, "max_tokens", None) is not None


def _marked(result: View | Condensation, instead_of: str) -> View | Condensation:
    if isinstance(result, View):
        return result
    metadata = {**result.action.metadata, "instead_of": instead_of}
    return Condensation(with_fields(result.action, metadata=metadata))


def _step(condenser: Condenser, view: View, agent_llm: AgentModel | None) -> Step:
    """Return the step of a condenser. If the prompt is then still too long for the agent's model,
    condense it as on a request, or shorten its texts.
    """
    shown = view
    over = None
    reports = tuple[Report, ...]()
    try:
        result, reports = run_step(condenser, view, agent_llm)
        if isinstance(result, View):
            shown = result
            over = overrun_of(result, agent_llm, limit_of(agent_llm, margin_ratio=0))
        if over is None:
            return Step(result, reports)
        return _condense_requested(condenser, view, agent_llm, over, reports)
    except NoCondensationAvailable as error:
        error.reports = (*reports, *outcomes_in(error.reports))
        over = over or condenser.overrun(view, agent_llm)
        if over is None or view.unhandled_condensation_request or error.model_failed:
            raise
        return _shorten(condenser, shown, over, error)


def _condense_requested(
    condenser: Condenser,
    view: View,
    agent_llm: AgentModel | None,
    over: Overrun,
    reports: tuple[Report, ...],
) -> Step:
    """Return the condensation that the condenser makes on a request. Raises
    ``NoCondensationAvailable`` if it makes none.
    """
    requested = view.then((CondensationRequest(id=view.version),))
    # ``then`` drops ``state.past``, which a plan needs to check for redactions.
    state = replace(requested.state, past=view.state.past)
    requested = replace(requested, state=state, kept_from=view.kept_from, kept=view.kept)
    result, new_reports = run_step(condenser, requested, agent_llm)
    if isinstance(result, View):
        why = (
            f"the condenser {condenser.type!r} forgets nothing on request; choose one that does,"
            f" such as 'digest', or a model that accepts more than {over.limit} tokens"
        )
        raise NoCondensationAvailable(why, new_reports)
    metadata = {**result.action.metadata, "reason": Reason.TOKENS.value, "tokens_max": over.limit}
    condensation = Condensation(with_fields(result.action, metadata=metadata))
    return with_step_reports(condensation, outcomes_in(reports))


def _first_unseen(view: View) -> int:
    """Return the id of the first unseen event. Usually the first unseen event begins the agent's
    last turn. If other events were appended while a model wrote this turn, the first of these
    events is the first unseen event. If the log records that a View was sent after the last turn,
    the events of this View count as seen. Returns 0 if the log records neither a turn nor a shown
    View. Cost: the function reads only the events from the first unseen event on.
    """
    first: Event | None = None
    shown = 0
    for event in reversed(view.events):
        if 0 <= event.id < shown:
            break  # An earlier turn cannot have seen a later View.
        if begins_reply(event):
            if first is not None and begins_reply(first, event):
                break
            first = event
        elif first is None and SHOWN in event.meta:
            shown = max(shown, _shown_version(event))
    if first is None:
        return shown
    return max(shown, _shown_version(first, first.id))


def _shown_version(event: Event, default: int = 0) -> int:
    """Return the version of the shown View that the ``meta`` of an event records. The version is at
    most the id of the event, because the shown View did not contain the event.
    """
    version = event.meta.get(SHOWN, default)
    return min(version, event.id) if isinstance(version, int) else default


def _shorten(
    condenser: Condenser, view: View, over: Overrun, error: NoCondensationAvailable
) -> Step:
    """Return the step that shortens texts instead of forgetting events, except the texts of
    summaries. Raises ``NoCondensationAvailable`` with the limit if the prompt stays too long; the
    error has the step that shortens summaries too.
    """
    ids = {event.id for event in view.events}
    summaries = {event.id for event in view.events if isinstance(event, CondensationSummary)}
    step = _with_shorter_texts(condenser, view, over, error, ids - summaries)
    if step is None:
        shortest = shorten_texts(view, _LENGTHS[0], ids - summaries)
        too_long = _too_long(shortest, over, error)
        too_long.last_resort = _with_shorter_texts(condenser, view, over, error, ids)
        raise too_long from error
    return step


def _with_shorter_texts(
    condenser: Condenser,
    view: View,
    over: Overrun,
    error: NoCondensationAvailable,
    ids: Container[int],
) -> Step | None:
    """Return the step with the texts of the events ``ids`` as long as the limit allows, or None if
    no length is short enough.
    """

    def tokens(length: int) -> int:
        return over.counter.token_sums(shorten_texts(view, length, ids))[-1]

    fitting = bisect_right(_LENGTHS, over.limit, key=tokens)
    if not fitting:
        return None
    length = _LENGTHS[fitting - 1]
    shown = shorten_texts(view, length, ids)
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


def _too_long(
    shortest: View, over: Overrun, error: NoCondensationAvailable
) -> NoCondensationAvailable:
    """Return the error for a View that exceeds a limit even with its shortest texts, ``shortest``.
    Its message says how many tokens the tools, the system prompt and other events need.
    """
    without_tools = [
        with_fields(event, tools=()) if isinstance(event, SystemMessage) else event
        for event in shortest.events
    ]
    without_prompt = [event for event in shortest.events if not isinstance(event, SystemMessage)]
    total, without_tools_total, others_total = (
        over.counter.token_sums(shortest.with_events(events))[-1]
        for events in (shortest.events, without_tools, without_prompt)
    )
    counts = {
        "the tools": total - without_tools_total,
        "the system prompt": without_tools_total - others_total,
        "other events": others_total,
    }
    tokens_by_part = ", ".join(f"{tokens} for {part}" for part, tokens in counts.items() if tokens)
    longest = max(counts, key=counts.__getitem__)
    advice = "Raise" if longest == "other events" else f"Shorten {longest}, or raise"
    why = str(error).removesuffix(SEND_IT)
    too_long = NoCondensationAvailable(
        f"the prompt may have {over.limit} tokens. If all texts of results, messages and arguments"
        f" were cut to {_LENGTHS[0]} characters, the prompt would have {total}: {tokens_by_part}."
        f" {advice} the limit. {why[:1].upper()}{why[1:]}",
        error.reports,
    )
    too_long.limit = over.limit
    return too_long


def shorten_texts(view: View, length: int, ids: Container[int]) -> View:
    """Return the View with the texts of results, messages, summaries and arguments cut to
    ``length`` characters, where they are of the events with these ids.
    """
    candidates = (
        (index, event)
        for index, event in enumerate(view.events)
        if isinstance(event, Action | Observation | Message | CondensationSummary)
    )
    return view.with_masks(
        {index: _cut(event, length) for index, event in candidates if event.id in ids}
    )


def _cut(event: Action | Observation | Message | CondensationSummary, length: int) -> Event:
    """Return an event whose texts have at most ``length`` characters. The note in a cut text names
    the event in the log.
    """
    if isinstance(event, CondensationSummary):
        hint = "; the log has the whole summary"
    else:
        hint = f"; the log has all of event {event.id}"
    if isinstance(event, Action):
        return _cut_arguments(event, length, hint)
    content = with_texts(event.content, lambda text: truncate(text, length, hint))
    meta = {**event.meta, MASKED: LENGTH}
    if content == event.content:
        return event
    return with_fields(event, content=content, meta=meta)


def _cut_arguments(event: Action, length: int, hint: str) -> Event:
    """Return a call whose arguments have at most ``length`` characters each."""
    arguments = arguments_of(event)
    texts = {name: as_json(value) for name, value in arguments.items()}
    long = {name: text for name, text in texts.items() if len(text) > length}
    if not long:
        return event
    cut = {name: truncate(text, length, hint) for name, text in long.items()}
    meta = {**event.meta, MASKED: LENGTH}
    return with_fields(event, arguments={**arguments, **cut}, meta=meta)
