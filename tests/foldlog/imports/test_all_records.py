"""``HistoryRecords``: all records of a history without its events, for readers such as the
adapters.
"""

import pytest

from foldlog.adapters._shared import from_plain, records_of, sent_whole, to_plain
from foldlog.condensers.reports import CONDENSER_METADATA_KEY
from foldlog.eventstore import Annotation, CondensationAction, Message

FORMAT = "openai-responses"
MORE = {"role": "user", "content": "more"}
ITEMS = [{"role": "user", "content": f"{number}"} for number in range(300)]


@pytest.fixture
def history(histories):
    history = histories["s"]
    for start in range(0, len(ITEMS), 4):
        history.append_records(ITEMS[start : start + 4], format=FORMAT)
    return history


def test_unchanged_records_need_no_events(history, monkeypatch):
    monkeypatch.setattr(type(history), "events", None)
    monkeypatch.setattr(type(history), "view", None)
    whole = sent_whole(history, FORMAT)
    assert list(whole.records()) == ITEMS
    assert list(whole.records(7)) == ITEMS[-7:]
    assert list(whole.records(0)) == []
    assert [(span.start, span.stop) for span in whole.spans] == [(n, n + 1) for n in range(300)]
    assert list(records_of(history, FORMAT)) == ITEMS


@pytest.mark.parametrize(
    "change",
    [
        lambda history: history.append(
            CondensationAction(forgotten_event_ids=[0], summary="0", summary_offset=0)
        ),
        lambda history: history.retract(299, "a mistake"),
        lambda history: history.redact(3, reason="asked to"),
        lambda history: history.append(Message(source="user", content="ours")),
        lambda history: history.append(
            Annotation(name=CONDENSER_METADATA_KEY, data=[{"condenser": "recent", "rule": {}}])
        ),
    ],
    ids=["condensed", "taken back", "redacted", "another message", "masked"],
)
def test_changed_records_need_the_events(history, change):
    change(history)
    assert sent_whole(history, FORMAT) is None


def test_hidden_events_change_no_record(history):
    history.append(Annotation(name="usage", data={}))
    history.append_records([MORE], format=FORMAT)
    history.set_attributes(user="u7")
    assert list(sent_whole(history, FORMAT).records()) == [
        *ITEMS,
        MORE,
    ]
    added = history._all_records().added(history.events)
    assert [type(event).__name__ for event in added] == ["Annotation", "DocumentChanges"]


def test_fork_has_the_earlier_records(history):
    fork = history.fork(100, "fork")
    fork.append_records([MORE], format=FORMAT)
    assert list(sent_whole(fork, FORMAT).records()) == [
        *ITEMS[:100],
        MORE,
    ]
    assert list(records_of(fork, FORMAT, 98)) == [
        *ITEMS[98:100],
        MORE,
    ]


def test_records_before_an_event_come_newest_first(history):
    texts = [bytes(text) for text in history._stored_records().before(250)]
    assert len(texts) == 250
    assert b'"249"' in texts[0]
    assert b'"0"' in texts[-1]
    history.redact(248, reason="asked to")
    assert len(list(history._stored_records().before(250))) == 1, (
        "what stays of a redacted record is not a record"
    )


@pytest.mark.parametrize(
    "value", [{"a": [(1, {"$x": 2}), b"\x00"], "b": {"c": None}}, [], {"$y": 1}, float("nan")]
)
def test_values_outside_json_come_back(value):
    assert repr(from_plain(to_plain(value))) == repr(value)
