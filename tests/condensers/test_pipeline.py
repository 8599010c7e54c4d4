"""Pipelines: parts in order, up to the first condensation, however deep."""

from __future__ import annotations

import pytest

import foldlog
from foldlog.condensers.base import Condensation, Condenser, Step
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.models.deadline import seconds_left
from foldlog.condensers.reports import CONDENSER_METADATA_KEY, reports_of
from foldlog.condensers.rolling import spares_models
from foldlog.condensers.strategies.digest import default_condenser
from foldlog.condensers.strategies.forgetting import (
    AmortizedForgettingCondenser,
    ConversationWindowCondenser,
)
from foldlog.condensers.strategies.model_summaries import LLMSummarizingCondenser
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.condensers.strategies.showing import (
    BrowserOutputCondenser,
    NoOpCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
    is_masked,
)
from tests.condensers.made import REQUEST, SYSTEM, after, message, messages, pair, plan, viewed
from tests.condensers.scripted import Scripted, failed
from tests.said import ids


def llm(*answers, **parameters):
    return LLMSummarizingCondenser(Scripted(*answers), **parameters)


def test_a_pipeline_answers_requests_if_a_part_does():
    assert PipelineCondenser(
        [NoOpCondenser(), PipelineCondenser([llm()])]
    ).handles_condensation_requests()


def test_the_first_condensation_ends_the_step():
    second = llm("never")
    view = viewed(messages(11))
    pipeline = PipelineCondenser(
        [NoOpCondenser(), AmortizedForgettingCondenser(max_size=10), second]
    )
    assert plan(pipeline.condense(view)).summary is None
    assert second.llm.calls == []


def test_a_request_reaches_the_condenser_behind_a_mask():
    view = viewed(messages(4), pair(1), REQUEST)  # P1
    for mask in (
        ObservationMaskingCondenser(0),
        BrowserOutputCondenser(0),
        RecentEventsCondenser(5),
    ):
        assert (
            plan(PipelineCondenser([mask, llm("NEW", max_size=10)]).condense(view)).summary == "NEW"
        )


def test_masked_events_are_summarized_and_forgotten_like_any_other():
    """L7, A2: V0 takes a masked event for a summary, leaves it where it is, or forgets the head for
    it.
    """
    for last in (
        llm("NEW", max_size=10, keep_first=2),
        AmortizedForgettingCondenser(max_size=10, keep_first=2),
    ):
        view = viewed(messages(2), pair(1), pair(2), messages(7))
        masked = PipelineCondenser([ObservationMaskingCondenser(3), last])
        unmasked = after(view, last.condense(view))
        assert ids(after(view, masked.condense(view))) == ids(unmasked)


def test_the_summarizer_sees_what_the_mask_left():
    condenser = llm("NEW", max_size=10, keep_first=1)
    view = viewed(message(), pair(1, content="secret"), messages(9))
    PipelineCondenser([ObservationMaskingCondenser(3), condenser]).condense(view)
    assert "<MASKED>" in condenser.llm.prompt()
    assert "secret" not in condenser.llm.prompt()
    assert "(none" in condenser.llm.prompt(), "a mask is no summary"


def test_a_summary_goes_where_it_belongs_in_the_whole_view():
    view = viewed(messages(20))
    recent = RecentEventsCondenser(max_events=12, keep_first=1)  # shows 0 and 9 to 19
    result = PipelineCondenser([recent, llm("NEW", max_size=10, keep_first=3)]).condense(view)
    assert ids(after(view, result)) == [*range(11), -22, 19]


def test_a_part_with_nothing_to_forget_leaves_it_to_the_next():
    view = viewed(SYSTEM, message(), REQUEST)
    result = PipelineCondenser([ConversationWindowCondenser(), llm("NEW", max_size=10)]).condense(
        view
    )
    assert plan(result).summary == "NEW"


def test_where_no_part_condenses_it_is_the_first_ones_error():
    view = viewed(REQUEST)
    with pytest.raises(NoCondensationAvailable, match="no user message"):
        PipelineCondenser([ConversationWindowCondenser(), llm("NEW", max_size=10)]).condense(view)


def test_a_part_whose_model_failed_ends_the_step():
    second = llm("never", max_size=10)
    with pytest.raises(NoCondensationAvailable) as caught:
        PipelineCondenser([llm(failed(), max_size=10), second]).condense(
            viewed(messages(11), REQUEST)
        )
    assert second.llm.calls == []
    assert len(caught.value.reports) == 6


def test_every_report_is_kept_however_deep():
    inner = PipelineCondenser([ObservationMaskingCondenser(3), llm("NEW", max_size=10)])
    result = PipelineCondenser([BrowserOutputCondenser(), inner]).condense(
        viewed(pair(1), messages(9))
    )
    reports = plan(result).metadata[CONDENSER_METADATA_KEY]  # P2
    assert [sorted(report) for report in reports] == [
        ["condenser", "masked", "newest_masked", "rule"],
        ["metrics", "response"],
    ]
    _, reported = PipelineCondenser([inner]).step(viewed(pair(1), messages(5)))
    assert [report["masked"] for report in reported] == [1]


def test_a_pipeline_of_ones_own_stays_what_it_is_while_a_model_is_spared():
    class Own(PipelineCondenser):
        def step(self, view, agent_llm=None):
            return Step(super().step(view, agent_llm).result, ({"own": True},))

    condenser = Own([ObservationMaskingCondenser(1), PipelineCondenser([llm("NEW", max_size=10)])])
    view = viewed(pair(1), pair(2), messages(9))
    spared = spares_models.set(True)
    result, reports = condenser.step(view)
    spares_models.reset(spared)
    assert [is_masked(event) for event in result[:4]] == [False, True, False, True]
    assert reports == ({"own": True},)
    assert isinstance(condenser.step(view).result, Condensation), (
        "the pipeline itself spares nothing"
    )


# --- the default ---


@pytest.mark.parametrize(
    "view", [viewed(SYSTEM, messages(10)), viewed(SYSTEM, messages(6), REQUEST)]
)
def test_the_default_makes_a_digest_by_size_and_on_request(view):
    action = plan(default_condenser(max_size=10).condense(view))
    assert action.metadata["condenser"] == "digest"
    assert action.summary.startswith("# Digest of")


def test_a_part_that_only_masked_leaves_the_request_to_those_after_it():
    inner = PipelineCondenser([ObservationMaskingCondenser(1), ConversationWindowCondenser()])
    with pytest.raises(NoCondensationAvailable) as caught:
        inner.step(viewed(pair(1), pair(2), REQUEST))
    assert ["rule" in report for report in caught.value.reports] == [True], (
        "a mask, and no failed call"
    )
    result = PipelineCondenser([inner, llm("NEW", max_size=10, keep_first=0)]).condense(
        viewed(pair(1), pair(2), pair(3), REQUEST)
    )
    assert plan(result).summary == "NEW"


def test_all_parts_of_a_step_share_its_time():
    left = []

    class Noting(Scripted):
        timeout_s = 100.0

        def complete(self, messages, **how):
            left.append(seconds_left())
            raise failed()

    parts = [LLMSummarizingCondenser(Noting(), max_size=10, keep_first=1) for _ in range(2)]
    PipelineCondenser([PipelineCondenser(parts)]).step(viewed(messages(11)))
    assert len(left) == 2
    assert 60 < left[1] < left[0] <= 100


def test_a_failed_part_is_named_in_the_log_and_in_the_report(caplog):
    parts = [llm(failed(), max_size=8, keep_first=1), AmortizedForgettingCondenser(max_size=10)]
    with foldlog.open("memory:", condenser=PipelineCondenser(parts)) as histories:
        histories["c1"].append(messages(9))
        assert len(histories["c1"].prepare()) == 9
        (report,) = reports_of(list(histories["c1"].events())[-1])
    assert (report["condenser"], report["failure"]) == ("llm", "refused")
    (record,) = (
        record for record in caplog.records if record.name == "foldlog.condensation.failed"
    )
    assert "the condenser 'llm' forgot nothing" in record.getMessage()


def test_a_part_that_declines_is_named_in_the_log(caplog):
    parts = [AmortizedForgettingCondenser(max_size=10), NoOpCondenser()]
    with foldlog.open(
        "memory:", condenser=PipelineCondenser([PipelineCondenser(parts)])
    ) as histories:
        history = histories["c1"]
        history.append(messages(2))
        with pytest.raises(NoCondensationAvailable):
            history.condense()
    (record,) = (
        record for record in caplog.records if record.name == "foldlog.condensation.declined"
    )
    assert "the condenser 'amortized_forgetting' declined" in record.getMessage()


def test_an_error_of_a_part_has_notes_with_the_part_and_the_conversation():
    class Broken(Condenser):
        type = "broken"

        def condense(self, view):
            raise KeyError("a fault of its own")

    with foldlog.open(
        "memory:", condenser=PipelineCondenser([NoOpCondenser(), Broken()])
    ) as histories:
        histories["c1"].append(messages(2))
        with pytest.raises(KeyError) as caught:
            histories["c1"].prepare()
    assert caught.value.__notes__ == [
        "raised by the condenser 'broken', at index 1 of a pipeline",
        "while the condenser 'pipeline' condensed conversation 'c1'",
    ]
