"""The results of condensers for small Views equal those of ``tests/golden/condensations``. A case
there has

- a rule, which is its name,
- the settings of a condenser, and the replies of its model,
- the events,
- with ``use``, what a handler lets the step do with models (a name in ``ModelUse``),
- the result, and under ``prompt`` the last prompt of the model.

``python -m tests.condensers.test_condensations`` writes the results again.

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
    NoCondensationAvailable,
    PipelineCondenser,
    condenser_from_config,
    is_masked,
    reports_of,
)
from foldlog.condensers.config.registry import CONDENSER_REGISTRY, config_type_of
from foldlog.condensers.rolling import ModelUse, model_use
from foldlog.condensers.stepping import step
from foldlog.projections import View
from tests.condensers.scripted import Characters, Scripted, Weights, called, failed, said
from tests.golden.cases import cases_in, write_anew
from tests.said import ids

CASES = [case for cases in cases_in("condensations").values() for case in cases]


def condenser_of(models, type, replies=None, condensers=(), **settings):
    """Return the condenser of a case. ``models`` gets the models that it may ask."""
    if type == "pipeline":
        return PipelineCondenser([condenser_of(models, **part) for part in condensers])
    if replies is None:
        return condenser_from_config({"type": type, **settings})
    models.append(Scripted(*map(reply_of, replies)))
    return CONDENSER_REGISTRY[config_type_of(type)](models[-1], **settings)


def step_in_lines(condenser, view, agent, use=None):
    """Yield what a step forgets and shows, and each report. ``use`` is for a step of a handler."""
    token = model_use.set(ModelUse[use or "RETRY"])
    try:
        result, reports = step(condenser, view, agent) if use else condenser.step(view, agent)
    except NoCondensationAvailable as error:
        reports = error.reports
        yield f"declined: {error}"
    else:
        if isinstance(result, Condensation):
            reports = reports_of(result.action)
            yield from forgotten(result.action)
            result = view.then([result.action])
        yield from shown(result, view)
    finally:
        model_use.reset(token)
    for report in reports:
        yield f"report {json.dumps(report)}"


def shown(view, before):
    yield f"shows {' '.join(map(str, ids(view)))}"
    if view.unhandled_condensation_request:
        yield "a request is open"
    whole = {event.id: asdict(event) for event in before}
    for event in filter(is_masked, view):
        fields = asdict(event)
        del fields["meta"]
        masks = {name: fields[name] for name in fields if fields[name] != whole[event.id][name]}
        yield f"{event.id} is masked: {json.dumps(masks)}"


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
    start = action.forgotten_events_start_id
    end = action.forgotten_events_end_id
    forgotten_ids = " ".join(map(str, action.forgotten_event_ids or ()))
    yield f"forgets {forgotten_ids}" if start is None else f"forgets {start} to {end}"
    if action.summary is not None:
        yield f"summary at {action.summary_offset}: {action.summary}"
    yield f"metadata {json.dumps(metadata)}"


def run_case(case, output):
    settings = case.settings()
    agent = agent_of(**settings.pop("agent")) if "agent" in settings else None
    use = settings.pop("use", None)
    models = []
    condenser = condenser_of(models, **settings)
    view = View.from_events(case.events())
    lines = [*step_in_lines(condenser, view, agent, use)]
    if output == "result":
        return "\n".join([*lines, *(f"asked {len(model.calls)} times" for model in models)])
    _, *messages = models[-1].calls[-1]
    return "\n".join(message["content"] for message in messages)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_golden_condensations(case):
    for output, text in case.outputs.items():
        assert run_case(case, output) == text, "python -m tests.condensers.test_condensations"


if __name__ == "__main__":
    write_anew("condensations", run_case)
