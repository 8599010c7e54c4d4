"""V1's condensers of release 1.58, as they are: each beside the reference, on the same histories."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from openhands.sdk.context.condenser import llm_summarizing_condenser, no_op_condenser, pipeline_condenser
from openhands.sdk.context.condenser.base import NoCondensationAvailableException
from openhands.sdk.context.view import View as TheirView
from openhands.sdk.event import Event
from openhands.sdk.llm import LLM, TextContent
from openhands.sdk.llm import Message as TheirMessage

import foldlog
import foldlog.aio
from foldlog.condensers import base
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.eventstore import Message
from foldlog.formats import decode
from foldlog.projections import View
from tests.condensers.made import history as in_order
from tests.condensers.made import messages
from tests.condensers.scripted import Scripted, failed
from tests.conformance.condenser_answers import source_id, v1_names
from tests.ported.reference.sources import ported

HOME = "openhands.sdk.context.condenser."
CASES = Path(__file__).parents[2] / "conformance" / "condensers" / "v1.jsonl"


def said(number: int) -> dict[str, Any]:
    content = [{"type": "text", "text": f"m{number}"}]
    source = "agent" if number % 2 else "user"
    role = "assistant" if number % 2 else "user"
    return {
        "kind": "MessageEvent",
        "id": f"m{number}",
        "source": source,
        "llm_message": {"role": role, "content": content},
    }


SYSTEM = {"kind": "SystemPromptEvent", "id": "sys", "system_prompt": {"type": "text", "text": "SYS"}, "tools": []}
REQUEST = {"kind": "CondensationRequest", "id": "q"}


def condensed(*ids: str, summary: str, offset: int) -> dict[str, Any]:
    forgotten = {"forgotten_event_ids": list(ids), "summary": summary, "summary_offset": offset}
    return {"kind": "Condensation", "id": "k", "llm_response_id": "r", **forgotten}


HISTORIES = [
    *(case["events"] for case in map(json.loads, CASES.read_text().splitlines())),
    *([said(number) for number in range(count)] for count in (0, 3, 11, 12, 40)),
    *([SYSTEM, *(said(number) for number in range(count)), REQUEST] for count in (0, 1, 5, 6, 30)),
    [*map(said, range(11)), condensed("m2", "m3", "m4", summary="older", offset=2), *map(said, range(11, 24))],
]
PARAMETERS = [{"max_size": 10, "keep_first": 2}, {"max_size": 10, "keep_first": 0}, {}]


class Model(LLM):
    """V1's model, with one reply."""

    def generate(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(id="r1", message=TheirMessage(role="assistant", content=[TextContent(text="NEW")]))


def reference_answer(condenser: Any, records: list[dict[str, Any]]) -> object:
    view = TheirView.from_events([Event.model_validate(record) for record in records])
    try:
        result = condenser.condense(view)
    except (NoCondensationAvailableException, ValueError) as error:
        return "refused", isinstance(error, ValueError)
    if isinstance(result, TheirView):
        return [event.id for event in result.events]
    after = result.apply(view.events)
    return [event.id.replace(result.id, "next") for event in after]


def our_answer(condenser: Any, records: list[dict[str, Any]]) -> object:
    events = in_order(decode(records, format="openhands-v1", as_history=True))
    view = View.from_events(events)
    try:
        result = condenser.step(view).result
    except (NoCondensationAvailable, ValueError) as error:
        return "refused", isinstance(error, ValueError)
    if isinstance(result, base.Condensation):
        result = view.then([replace(result.action, id=view.version)])
    naming = v1_names(events)
    return [naming(event) for event in result]


def is_the_same_to_both(records: list[dict[str, Any]]) -> bool:
    """Whether both show the same and may cut it at the same indices: the reference has faults with calls that wait."""
    theirs = TheirView.from_events([Event.model_validate(record) for record in records])
    ours = View.from_events(in_order(decode(records, format="openhands-v1", as_history=True)))
    names = [source_id(event) for event in ours if event.id >= 0]
    return names == [event.id for event in theirs.events if not event.id.endswith("-summary")] and set(
        ours.cut_points
    ) == set(theirs.manipulation_indices)


def compare(theirs: Any, ours: Any) -> None:
    assert type(theirs) is not type(ours)
    compared = list(filter(is_the_same_to_both, HISTORIES))
    assert len(compared) > 0.7 * len(HISTORIES)
    assert [(reference_answer(theirs, records), records) for records in compared] == [
        (our_answer(ours, records), records) for records in compared
    ]


SENTENCES = [
    ("'stream'; write nothing", "if self.llm.stream and not self.llm.requires_streaming:", "if False:"),
    (
        r"'generate'; write llm.complete\(messages\): it takes maps with a role and a content",
        "self.llm.generate(messages=messages, store=False)",
        "self.llm.complete([{'role': m.role, 'content': m.content[0].text} for m in messages])",
    ),
    (
        "no 'message'; write reply.text",
        """if llm_response.message.content:
            first_content = llm_response.message.content[0]
            if isinstance(first_content, TextContent):
                summary = first_content.text""",
        "summary = llm_response.text",
    ),
    (r"'id'; write reply", "llm_response.id", "llm_response.response_id"),
]


def summarizing(changes: list[tuple[str, str]], llm: Any, **parameters: Any) -> Any:
    return ported(HOME + "llm_summarizing_condenser", changes).LLMSummarizingCondenser(llm=llm, **parameters)


def test_the_summarizing_condenser_is_told_what_to_write_and_then_answers_as_the_reference():
    changes: list[tuple[str, str]] = []
    view = View.from_events(in_order(messages(11)))

    def take_a_step():
        summarizing(changes, Scripted("NEW"), **PARAMETERS[0]).step(view)

    for sentence, old, new in SENTENCES:
        with pytest.raises(AttributeError, match=sentence):
            take_a_step()
        changes.append((old, new))
    for parameters in PARAMETERS:
        theirs = llm_summarizing_condenser.LLMSummarizingCondenser(
            llm=Model(model="gpt-4o", api_key="none", usage_id="c"), **parameters
        )
        compare(theirs, summarizing(changes, Scripted("NEW"), **parameters))
    for wrong in ({"max_size": 0}, {"keep_first": -1}, {"max_size": 10, "keep_first": 8}, {"minimum_progress": 1.5}):
        with pytest.raises(ValueError, match=next(iter(wrong)) if len(wrong) == 1 else "keep_first must be less"):
            summarizing(changes, Scripted(), **wrong)


def test_the_summarizing_condenser_works_in_a_store():
    changes = [(old, new) for _, old, new in SENTENCES]
    condenser = summarizing(changes, Scripted(failed(), failed(), "NEW"), max_size=10)
    with foldlog.open("memory:", condenser=condenser) as histories:
        history = histories["c1"]
        history.append([Message(source=("user", "agent")[number % 2], content=str(number)) for number in range(11)])
        assert len(history.prepare()) == 11, "too many events can wait"
        history.request_condensation("the context is full")
        shown = history.prepare()
        ids = [event.id for event in shown]
        assert ids == [-15, 9, 10], "the first call failed, and the hard reset summarized all that a model was shown"
        assert shown[0].content == "NEW"


def test_counts_of_tokens_are_told_what_to_write():
    utils = ported(HOME + "utils")
    condenser = summarizing([(old, new) for _, old, new in SENTENCES], Scripted("NEW"), max_tokens=5)
    with pytest.raises(AttributeError, match=r"'effective_max_input_tokens'; write llm.max_input_tokens"):
        condenser.step(View.from_events(in_order(messages(3))), Scripted())
    assert utils.get_shortest_prefix_above_token_count([], Scripted(), 5) == 0


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_no_op_and_the_pipeline_run_as_they_are(parts):
    no_op, pipeline = ported(HOME + "no_op_condenser"), ported(HOME + "pipeline_condenser")
    compare(no_op_condenser.NoOpCondenser(), no_op.NoOpCondenser())
    theirs = pipeline_condenser.PipelineCondenser(condensers=[no_op_condenser.NoOpCondenser() for _ in range(parts)])
    ours = pipeline.PipelineCondenser(condensers=[no_op.NoOpCondenser() for _ in range(parts)])
    compare(theirs, ours)
    assert ours.handles_condensation_requests() is theirs.handles_condensation_requests() is False


@pytest.mark.anyio
async def test_the_pipelines_own_acondense_is_awaited():
    pipeline = ported(HOME + "pipeline_condenser").PipelineCondenser
    no_op = ported(HOME + "no_op_condenser").NoOpCondenser
    awaited = []

    class Awaited(no_op):
        async def acondense(self, view, agent_llm=None):
            awaited.append(len(view))
            return view

    async with foldlog.aio.open("memory:", condenser=pipeline(condensers=[Awaited()])) as histories:
        await histories["c1"].append(messages(2))
        assert len(await histories["c1"].prepare()) == 2
    assert awaited == [2]
