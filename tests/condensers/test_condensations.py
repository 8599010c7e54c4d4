"""What condensers make of small Views: ``tests/golden/condensations`` has a rule for each, the
condenser with the replies of its model, the events, and the result; with ``prompt``, also what the
model was asked last. ``python -m tests.condensers.test_condensations`` makes the results again.

``scripts/test`` runs this also for the modules ``foldlog.condensers.rolling``,
``foldlog.condensers.selection``, ``foldlog.condensers.prompts.rendering``,
``foldlog.condensers.strategies.clearing`` and ``foldlog.condensers.strategies.summarizing``.
"""

import json

import pytest
from msgspec.structs import asdict

from foldlog.condensers import (
    CONDENSER_METADATA_KEY,
    Condensation,
    LLMAttentionCondenser,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    PipelineCondenser,
    StructuredSummaryCondenser,
    condenser_from_config,
    is_masked,
    reports_of,
)
from foldlog.projections import View
from tests.condensers.scripted import Characters, Scripted, Weights, called, failed, said
from tests.golden.cases import cases_in, write_anew

CASES = [case for cases in cases_in("condensations").values() for case in cases]
ASKING = {
    kind.type: kind
    for kind in (LLMAttentionCondenser, LLMSummarizingCondenser, StructuredSummaryCondenser)
}


class Run:
    """The step of a case, with the models that it may ask."""

    def __init__(self, case):
        settings = case.settings()
        self.models = []
        self.view = View.from_events(case.events())
        agent = settings.pop("agent", None)
        self.agent = None if agent is None else agent_of(**agent)
        self.condenser = self.condenser_of(**settings)

    def condenser_of(self, type, replies=None, condensers=(), **settings):
        if type == "pipeline":
            return PipelineCondenser([self.condenser_of(**part) for part in condensers])
        if replies is None:
            return condenser_from_config({"type": type, **settings})
        self.models.append(Scripted(*map(reply_of, replies)))
        return ASKING[type](self.models[-1], **settings)

    def result(self):
        """Return the lines of the result: what it forgets and shows, and each report."""
        try:
            result, reports = self.condenser.step(self.view, self.agent)
        except NoCondensationAvailable as error:
            return [f"declined: {error}", *self.reported(error.reports)]
        if isinstance(result, Condensation):
            action = result.action
            after = self.view.then([action])
            return [*forgotten(action), *self.shown(after), *self.reported(reports_of(action))]
        return [*self.shown(result), *self.reported(reports)]

    def shown(self, view):
        yield f"shows {' '.join(str(event.id) for event in view)}"
        if view.unhandled_condensation_request:
            yield "a request is open"
        whole = {event.id: asdict(event) for event in self.view}
        for event in filter(is_masked, view):
            fields = asdict(event)
            del fields["meta"]
            masks = {name: fields[name] for name in fields if fields[name] != whole[event.id][name]}
            yield f"{event.id} is masked: {json.dumps(masks)}"

    def reported(self, reports):
        calls = [f"asked {len(model.calls)} times" for model in self.models]
        return [*(f"report {json.dumps(report)}" for report in reports), *calls]


def agent_of(event=None, summary=None, room=None):
    return Characters(room) if event is None else Weights(event, summary, room)


def reply_of(reply):
    if not isinstance(reply, dict):
        return reply
    if "failure" in reply:
        return failed(**reply)
    return called(**reply) if "arguments" in reply else said(**reply)


def forgotten(action):
    left_out = (CONDENSER_METADATA_KEY, "prompt_sha256")
    metadata = {name: value for name, value in action.metadata.items() if name not in left_out}
    start, end = action.forgotten_events_start_id, action.forgotten_events_end_id
    ids = " ".join(map(str, action.forgotten_event_ids or ()))
    yield f"forgets {ids}" if start is None else f"forgets {start} to {end}"
    if action.summary is not None:
        yield f"summary at {action.summary_offset}: {action.summary}"
    yield f"metadata {json.dumps(metadata)}"


def run_case(case, output):
    run = Run(case)
    result = "\n".join(run.result())
    if output == "result":
        return result
    _, *messages = run.models[-1].calls[-1]
    return "\n".join(message["content"] for message in messages)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_golden_condensations(case):
    for output, text in case.outputs.items():
        assert run_case(case, output) == text, "python -m tests.condensers.test_condensations"


if __name__ == "__main__":
    write_anew("condensations", run_case)
