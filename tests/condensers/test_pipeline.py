"""Pipelines, beside the golden cases of ``test_condensations.py``: the time and the names of their
parts.
"""

import pytest

from foldlog.condensers import (
    AmortizedForgettingCondenser,
    Condensation,
    Condenser,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    NoOpCondenser,
    ObservationMaskingCondenser,
    PipelineCondenser,
    Step,
    is_masked,
    reports_of,
)
from foldlog.condensers.models import deadline
from foldlog.condensers.rolling import ModelUse, model_use
from tests.condensers.made import messages, new_history, pair, viewed
from tests.condensers.scripted import Scripted, failed


def llm(*answers, **parameters):
    return LLMSummarizingCondenser(Scripted(*answers), **parameters)


def test_an_own_pipeline_spares_its_models():
    class Own(PipelineCondenser):
        def step(self, view, agent_llm=None):
            return Step(super().step(view, agent_llm).result, ({"own": True},))

    condenser = Own([ObservationMaskingCondenser(1), PipelineCondenser([llm("NEW", max_size=10)])])
    view = viewed(pair(1), pair(2), messages(9))
    spared = model_use.set(ModelUse.SPARE)
    try:
        result, reports = condenser.step(view)
    finally:
        model_use.reset(spared)
    assert [is_masked(event) for event in result[:4]] == [False, True, False, True]
    assert reports == ({"own": True},)
    assert isinstance(condenser.step(view).result, Condensation), (
        "the pipeline itself spares nothing"
    )


class Clock:
    """Stands in for the module ``time``. Its time passes only if a test says so."""

    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds


@pytest.mark.parametrize("is_nested", [False, True])
def test_all_parts_share_the_steps_time(is_nested, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deadline, "time", clock)
    seconds = []

    class Slow(Scripted):
        """A model that fails after 30 seconds."""

        timeout_s = 100.0

        def complete(self, messages, **how):
            seconds.append(deadline.seconds_left())
            clock.seconds += 30
            raise failed()

    parts = [LLMSummarizingCondenser(Slow(), max_size=10, keep_first=1) for _ in range(2)]
    pipeline = PipelineCondenser(parts)
    if is_nested:
        pipeline = PipelineCondenser([pipeline])
    pipeline.step(viewed(messages(11)))
    assert seconds == [100, 70]


def logged(caplog, name):
    """Return the message of the only log record with this name."""
    (record,) = (record for record in caplog.records if record.name == name)
    return record.getMessage()


def test_a_failed_part_is_named(caplog):
    parts = [llm(failed(), max_size=8, keep_first=1), AmortizedForgettingCondenser(max_size=10)]
    with new_history(PipelineCondenser(parts)) as history:
        history.append(messages(9))
        assert len(history.prepare()) == 9
        (report,) = reports_of(list(history.events())[-1])
    assert (report["condenser"], report["failure"]) == ("llm", "refused")
    assert "the condenser 'llm' forgot nothing" in logged(caplog, "foldlog.condensation.failed")


def test_a_declining_part_is_named(caplog):
    parts = PipelineCondenser([AmortizedForgettingCondenser(max_size=10), NoOpCondenser()])
    with new_history(PipelineCondenser([parts])) as history:
        history.append(messages(2))
        with pytest.raises(NoCondensationAvailable):
            history.condense()
    declined = logged(caplog, "foldlog.condensation.declined")
    assert "the condenser 'amortized_forgetting' declined" in declined


def test_an_error_of_a_part_has_notes():
    class Broken(Condenser):
        type = "broken"

        def condense(self, view):
            raise KeyError("a fault of its own")

    pipeline = PipelineCondenser([NoOpCondenser(), Broken()])
    with new_history(pipeline) as history:
        history.append(messages(2))
        with pytest.raises(KeyError) as caught:
            history.prepare()
    assert caught.value.__notes__ == [
        "raised by the condenser 'broken', at index 1 of a pipeline",
        "while the condenser 'pipeline' condensed conversation 'c1'",
    ]
