"""Laws that hold for every strategy, with every setting, on Views that nobody wrote."""

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from foldlog.condensers import (
    AmortizedForgettingCondenser,
    BrowserOutputCondenser,
    ClearThinkingCondenser,
    ClearToolUsesCondenser,
    Condensation,
    ConversationWindowCondenser,
    DigestCondenser,
    InvalidCondenser,
    LLMAttentionCondenser,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    NoOpCondenser,
    ObservationMaskingCondenser,
    PipelineCondenser,
    RecentEventsCondenser,
    StructuredSummaryCondenser,
)
from foldlog.condensers.reports import is_standing, reports_of
from foldlog.condensers.selection import after_system_prompt, stands_for_forgotten
from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.projections import View, well_formed
from tests.condensers.scripted import FULL_STATE, Characters, Scripted, called, failed, said
from tests.how_many import examples
from tests.properties.histories import THINKING, histories, history
from tests.said import ids

many = examples(120)

sizes = st.tuples(st.integers(2, 14), st.integers(0, 5))
progress = st.sampled_from([0.01, 0.1, 0.5])
windows = st.integers(0, 8)


def _or_none(build):
    def built(*args):
        try:
            return build(*args)
        except InvalidCondenser:
            return None

    return built


def _built(build, *parameters):
    return st.builds(_or_none(build), *parameters).filter(bool)


def _summarizing(build):
    return _built(
        lambda size, minimum, limit: build(
            max_size=size[0],
            keep_first=size[1],
            minimum_progress=minimum,
            max_tokens=limit,
        ),
        sizes,
        progress,
        st.sampled_from([None, 30, 200]),
    )


chosen = st.lists(st.integers(-6, 40), max_size=8)

summarizing = st.one_of(
    _summarizing(lambda **settings: LLMSummarizingCondenser(Scripted("in short"), **settings)),
    _summarizing(
        lambda **settings: StructuredSummaryCondenser(Scripted(called(FULL_STATE)), **settings)
    ),
    _summarizing(lambda **settings: DigestCondenser(max_length=500, **settings)),
)
forgetting = st.one_of(
    _built(lambda size: AmortizedForgettingCondenser(*size), sizes),
    st.builds(ConversationWindowCondenser),
    _built(
        lambda size, ids: LLMAttentionCondenser(
            Scripted(said(f'{{"ids": {ids}}}')), max_size=size[0], keep_first=size[1]
        ),
        sizes,
        chosen,
    ),
)
rolling = st.one_of(summarizing, forgetting)
showing = st.one_of(
    st.builds(NoOpCondenser),
    st.builds(ObservationMaskingCondenser, windows),
    st.builds(BrowserOutputCondenser, windows),
    st.builds(RecentEventsCondenser, windows, windows),
    st.builds(
        ClearToolUsesCondenser,
        st.integers(1, 400),
        windows,
        windows,
        clear_tool_inputs=st.booleans(),
    ),
    st.builds(ClearThinkingCondenser, st.integers(1, 3)),
)
pipelines = st.builds(PipelineCondenser, st.lists(st.one_of(showing, rolling), max_size=3))
condensers = st.one_of(rolling, showing, pipelines)

agents = st.sampled_from(
    [None, Characters(), Characters(60), Characters(400), Characters(60, unknown=True)]
)


def stepped(condenser, view, agent):
    """Return what the condenser answers; None where it must condense and cannot."""
    try:
        result = condenser.condense(view, agent)
    except NoCondensationAvailable:
        return None
    return result.action if isinstance(result, Condensation) else result


def viewed(events, requested):
    return View.from_events([*events, CondensationRequest(id=len(events))] if requested else events)


def _worked(event_id, thinking, answered):
    call = Action(tool="run", call_id=f"c{event_id}", thinking=THINKING if thinking else ())
    return [call, Observation(content="done", call_id=f"c{event_id}")] if answered else [call]


loops = st.builds(
    history,
    st.lists(
        st.one_of(
            st.builds(
                lambda thinking, answered: lambda i: _worked(i, thinking, answered),
                st.booleans(),
                st.booleans(),
            ),
            st.sampled_from(
                [
                    Message(source="user", content="go on"),
                    SystemMessage(content="s"),
                    Annotation(name="a", shown=True),
                ]
            ).map(lambda event: lambda _: [event]),
        ),
        min_size=3,
        max_size=16,
    ),
)
"""Tool loops, many of them with a call that was abandoned, and what stands between them."""


@examples(900)
@given(st.one_of(histories, loops), st.booleans(), condensers, agents)
def test_every_step_keeps_the_laws_and_ends(events, requested, condenser, agent):
    log = [*events, CondensationRequest(id=len(events))] if requested else events
    for _ in range(len(log) + 1):
        view = View.from_events(log)
        result = stepped(condenser, view, agent)
        assert view == View.from_events(log), "a View is never changed"
        if result is None:
            return
        after = result if isinstance(result, View) else view.then([result])
        assert set(ids(well_formed(view))) & set(ids(after)) <= set(ids(well_formed(after))), (
            "what stays is still sent"
        )
        if isinstance(result, View):
            assert_shows_less(view, result)
            return
        assert_forgets_whole_units(view, result)
        if isinstance(condenser, ConversationWindowCondenser | LLMAttentionCondenser):
            summaries = {event.id for event in view if stands_for_forgotten(event)}
            assert summaries <= set(ids(after)), "a strategy that writes no summary loses none"
        log = [*log, replace(result, id=view.version)]
    pytest.fail("condensations of condensations, without end")


def assert_shows_less(view, result):
    assert result.version == view.version
    assert result.unhandled_condensation_request == view.unhandled_condensation_request
    remaining = iter(ids(view))
    assert all(event_id in remaining for event_id in ids(result)), "each once, in their order"


def assert_forgets_whole_units(view, action):
    intervals, summaries = action.forgotten
    named = {*summaries, *(i for first, last in intervals for i in range(first, last + 1))}
    assert named <= set(ids(view)), (
        "a range names nothing that stays, nor anything that is not shown"
    )
    assert any(event_id >= 0 for event_id in named)
    after = view.then([action])
    assert not (after.left_behind - view.left_behind) & set(ids(well_formed(view))), (
        "no unit lost a part"
    )
    assert set(ids(after)) - {-(view.version + 2)} == set(ids(view)) - named
    assert not named & set(ids(view[view.cut_points[-1] :])), "a call that waits is never forgotten"


@many
@given(histories, st.booleans(), rolling)
def test_the_head_stays(events, requested, condenser):
    view = viewed(events, requested)
    due = condenser.condensation_requirement(view) is not None
    result = stepped(condenser, view, None)
    if not due:
        assert result is view
    if isinstance(result, CondensationAction) and result.metadata["outcome"] == "condensed":
        head = head_that_stays(condenser, view)
        assert ids(view.then([result]))[:head] == ids(view)[:head]


@pytest.mark.parametrize(
    "condenser",
    [
        DigestCondenser(max_size=30),
        LLMSummarizingCondenser(Scripted("in short"), max_size=30, keep_first=1),
        StructuredSummaryCondenser(Scripted(called(FULL_STATE)), max_size=30),
        AmortizedForgettingCondenser(max_size=30),
        LLMAttentionCondenser(Scripted(said('{"ids": []}')), max_size=30),
        ConversationWindowCondenser(),
        RecentEventsCondenser(max_events=30),
    ],
    ids=lambda condenser: condenser.type,
)
def test_all_system_prompts_at_the_beginning_stay(condenser):
    prompts = [SystemMessage(content=f"Rule {number}") for number in range(3)]
    work = [Message(source="agent", content=f"I look at part_{number}.py.") for number in range(60)]
    view = viewed([*prompts, Message(source="user", content="Mend it."), *work], requested=True)
    result = condenser.condense(view)
    shown = view.then([result.action]) if isinstance(result, Condensation) else result
    assert len(shown) < 40
    assert shown.system_prompt == "Rule 0\n\nRule 1\n\nRule 2"
    assert ids(shown)[:3] == [0, 1, 2]


def head_that_stays(condenser, view):
    """Return how many events stay at the beginning. The next digest replaces a digest there."""
    head = getattr(condenser, "keep_first", 0)
    if isinstance(condenser, DigestCondenser) and any(map(stands_for_forgotten, view[:head])):
        return after_system_prompt(view)
    return head


@many
@given(histories, summarizing)
def test_a_hard_reset_keeps_prompt_and_open_calls(events, condenser):
    view = viewed(events, requested=True)
    try:
        reset = condenser.hard_context_reset(view)
    except NoCondensationAvailable:  # the summary is larger than what it stands for
        return
    if reset is None:
        return
    after = view.then([reset.action])
    prompts = [event.id for event in view if isinstance(event, SystemMessage)]
    assert set(prompts[:1]) <= set(ids(after))
    assert (
        ids(view[view.cut_points[-1] :])
        == ids(after)[len(after) - (len(view) - view.cut_points[-1]) :]
    )


answers = st.lists(
    st.sampled_from(
        [
            *("in short", "y" * 400, "", None),
            *(
                said("half of", finish_reason="length"),
                said('{"ids": [1, 2, 3]}'),
                called(FULL_STATE),
                called("{"),
            ),
            *(failed(), failed("context_window"), failed("rejected")),
        ]
    ),
    min_size=1,
    max_size=4,
)
asking = st.one_of(
    _built(
        lambda size, limit, replies: LLMSummarizingCondenser(
            Scripted(*replies), max_size=size[0], keep_first=size[1], max_tokens=limit
        ),
        *(sizes, st.sampled_from([None, 30, 200]), answers),
    ),
    _built(
        lambda size, replies: LLMAttentionCondenser(
            Scripted(*replies), max_size=size[0], keep_first=size[1]
        ),
        *(sizes, answers),
    ),
)
"""Condensers that ask a model, whose replies nobody knows before."""


@examples(400)
@given(st.one_of(histories, loops), st.booleans(), st.lists(asking, min_size=1, max_size=2), agents)
def test_every_reply_is_reported(events, requested, parts, agent):
    condenser = parts[0] if len(parts) == 1 else PipelineCondenser(parts)
    try:
        result, reports = condenser.step(viewed(events, requested), agent)
    except NoCondensationAvailable as error:
        reports = error.reports
    else:
        if isinstance(result, Condensation):
            reports = tuple(reports_of(result.action))
    of_calls = [report for report in reports if not is_standing(report)]
    assert len(of_calls) == sum(len(part.llm.calls) for part in parts)
