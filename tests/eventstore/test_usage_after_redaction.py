"""A redaction leaves the usage of model calls: figures count the same tokens and cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

import foldlog
from foldlog import CondensationAction, Message, Retraction
from foldlog.eventstore import Origin, Redacted
from foldlog.eventstore.log.redacted import _redact, may_remain_of, without_content
from foldlog.eventstore.usage import WRITTEN_AGAIN, usage_of
from foldlog.formats.model_calls import ModelCall, calls_of_event, calls_of_replies, is_copy
from foldlog.formats.repeated_events import is_replacing
from tests.golden.rows import rows
from tests.said import said

RECEIPT = Redacted(at=datetime(2026, 1, 1, tzinfo=UTC), by="me", reason="mine", hash="", bytes=0)
NAMES = st.sampled_from(
    (
        "prompt_tokens",
        "input_tokens",
        "cached_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "completion_tokens",
        "reasoning_tokens",
        "total_tokens",
        "ephemeral_5m_input_tokens",
        "ephemeral_1h_input_tokens",
        "calls",
    )
)
COUNTS = st.dictionaries(
    NAMES, st.one_of(st.integers(-1, 40), st.integers(0, 40).map(str), st.floats(0, 40))
)
MAPS = st.dictionaries(
    st.sampled_from(("prompt_tokens_details", "output_tokens_details", "cache_creation")), COUNTS
)


def reply_with_meta(meta: dict[str, Any]) -> Message:
    return Message(content="secret", source="agent", meta=meta)


@given(st.builds(lambda counts, maps: {**counts, **maps}, COUNTS, MAPS))
def test_usage_counts_the_same_tokens(usage: dict[str, Any]) -> None:
    remaining = without_content(reply_with_meta({"usage": usage}), RECEIPT)
    assert usage_of(remaining.meta["usage"]) == usage_of(usage)
    # ``verify`` compares a redacted event with its own redacted form.
    assert without_content(remaining, RECEIPT) == remaining
    beside = without_content(reply_with_meta({"model": "m", **usage}), RECEIPT)
    assert usage_of(beside.meta.get("usage")) == usage_of(usage)
    assert without_content(beside, RECEIPT) == beside


VALUES = st.one_of(st.none(), st.sampled_from((-1, 0, 2, 0.5, "", "0", "3", "x")), COUNTS)
META = st.builds(
    lambda fields, counts: {**counts, **fields},
    st.dictionaries(
        st.sampled_from(("model", "usage", "cost", "calls", "accumulated")),
        st.one_of(VALUES, MAPS, st.lists(COUNTS, max_size=2)),
    ),
    COUNTS,
)


def calls_of(event: Message) -> list[ModelCall]:
    """The calls that figures count in an event."""
    if event.origin is None:
        return [*calls_of_event(RECEIPT.at, event)]
    return [*calls_of_replies([event])]


@given(META, st.sampled_from((None, Origin(format="atif"))))
@example({"model": "m", "calls": 2}, Origin(format="atif"))
@example({"model": "", "prompt_tokens": 7}, None)
@example({"model": 5, "prompt_tokens": 7}, None)
@example({"usage": {"service_tier": "x"}}, Origin(format="atif"))
@example({"usage": {"cache_read_input_tokens": 10, "cached_tokens": "0"}}, None)
def test_redaction_neither_makes_nor_removes_calls(
    meta: dict[str, Any], origin: Origin | None
) -> None:
    reply = replace(reply_with_meta(meta), origin=origin)
    remaining = without_content(reply, RECEIPT)
    assert calls_of(remaining) == calls_of(reply)
    assert without_content(remaining, RECEIPT) == remaining
    of_earlier_version = _redact(reply, RECEIPT, all_counts=False)
    assert without_content(of_earlier_version, RECEIPT) == of_earlier_version


@pytest.mark.parametrize(
    "usage, _", rows("usage.json", "usage as others write it, and as foldlog does")
)
@pytest.mark.parametrize("is_beside", [False, True])
def test_figures_stay_after_a_redaction(usage: Any, _: Any, is_beside: bool) -> None:
    """Usage is in a map of its own, or in the fields beside the model."""
    fields = usage if is_beside and isinstance(usage, dict) else {"usage": usage}
    meta = {"model": "gpt-4o", "cost": "0.5", "calls": 4, **fields}
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append([said("hi"), reply_with_meta(meta)])
        before = history.stats()
        assert (before.spent.calls, before.spent.cost) == (4, 0.5)
        history.redact(1, reason="asked to")
        assert history.stats().models == before.models


@pytest.mark.parametrize("cost", [None, 0.0, 0.25])
def test_cost_of_a_condensation_stays_after_a_redaction(cost: float | None) -> None:
    """An unknown cost does not become 0."""
    metrics = {"attempts": 2, "cost": cost, "usage": {"prompt_tokens": 9, "total_tokens": 9}}
    report = {"condenser": "llm", "model": "m", "metrics": metrics}
    condensation = CondensationAction(
        forgotten_event_ids=[0],
        summary="secret",
        summary_offset=0,
        metadata={"condenser": "llm", "condenser_meta": [report]},
    )
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append([said("hi"), condensation])
        before = history.stats()
        history.redact(1, reason="asked to")
        after = history.stats()
        assert after.models == before.models
        assert after.condensations["llm"].cost == before.condensations["llm"].cost == cost


@pytest.mark.parametrize("format", ["openai-chat", "opencode"])
def test_calls_of_an_import_stay_after_a_redaction(format: str) -> None:
    """Some programs record the sum of several calls."""
    origin = Origin(format=format)
    meta = {"model": "m", "calls": 4, "cost": 0.5, "usage": {"prompt_tokens": 9}}
    sums = Message(content="secret", source="agent", origin=origin, meta=meta)
    with foldlog.open("memory:") as histories:
        histories.store.ingest("c", [Message(content="hi", source="user", origin=origin), sums])
        before = histories["c"].stats().models
        assert [figures.calls for figures in before.values()] == [4]
        histories["c"].redact(1, reason="asked to")
        assert histories["c"].stats().models == before


def test_texts_in_nested_usage_are_removed() -> None:
    usage = {
        "prompt_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2, "note": "SECRET", "SECRET words": 1},
        "SECRET details": {"reasoning_tokens": 1},
    }
    remaining = without_content(reply_with_meta({"usage": usage}), RECEIPT)
    assert remaining.meta == {
        "usage": {"prompt_tokens": 7, "cached_tokens": 2, "reasoning_tokens": 1}
    }


def test_event_that_an_earlier_version_redacted_is_known_by_a_retry() -> None:
    """Earlier versions left no counts of nested maps."""
    reply = reply_with_meta(
        {"usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}}
    )
    remaining = without_content(reply, RECEIPT)
    assert remaining.meta == {"usage": {"prompt_tokens": 7, "cached_tokens": 2}}
    of_earlier_version = replace(remaining, meta={"usage": {"prompt_tokens": 7}})
    of_another_reply = replace(remaining, meta={"usage": {"prompt_tokens": 8}})
    assert may_remain_of(remaining, reply)
    assert may_remain_of(of_earlier_version, reply)
    assert not may_remain_of(of_another_reply, reply)
    assert without_content(of_earlier_version, RECEIPT) == of_earlier_version


ORIGIN = Origin(format="gemini-cli")


@pytest.mark.parametrize("meta", [{"copied": True}, {"placed_from": 3}, {"placed_from": None}])
def test_marks_of_an_imported_event_remain(meta: dict[str, Any]) -> None:
    """Figures leave out a copy, and so do exports, also once its content is redacted."""
    event = replace(reply_with_meta({**meta, "note": "secret"}), origin=ORIGIN)
    remaining = without_content(event, RECEIPT)
    assert remaining.meta == meta
    assert is_copy(remaining) == is_copy(event)
    assert without_content(remaining, RECEIPT) == remaining
    assert may_remain_of(replace(remaining, meta={}), event)  # of an earlier version


def test_each_form_that_a_redaction_had_is_known() -> None:
    details = {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}
    event = replace(reply_with_meta({"copied": True, "usage": details}), origin=ORIGIN)
    forms = [
        _redact(event, RECEIPT, all_counts=all_counts, marks=marks)
        for all_counts, marks in ((True, True), (True, False), (False, False), (False, True))
    ]
    assert len({str(form.meta) for form in forms}) == 4
    assert [may_remain_of(form, event) for form in forms] == [True, True, True, False]


def test_marks_that_are_texts_or_of_no_import_do_not_remain() -> None:
    texts = {"copied": "secret", "placed_from": "secret"}
    assert without_content(replace(reply_with_meta(texts), origin=ORIGIN), RECEIPT).meta == {}
    assert without_content(reply_with_meta({"copied": True}), RECEIPT).meta == {}


def test_retraction_before_repeated_records_keeps_its_reason() -> None:
    """Figures count the repeated events once. Another reason is a text of a user."""
    again = Retraction(version=1, reason=WRITTEN_AGAIN, origin=ORIGIN)
    remaining = without_content(again, RECEIPT)
    assert is_replacing(remaining)
    assert without_content(remaining, RECEIPT) == remaining
    for event in (replace(again, reason="my secret"), replace(again, origin=None)):
        assert without_content(event, RECEIPT).reason == "[redacted]"
