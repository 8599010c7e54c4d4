"""A conversation that is erased while others read it is said to be erased, never to be damaged."""

import pytest

from foldlog import Histories
from foldlog.eventstore import ConversationErased, Store, VersionConflict
from foldlog.eventstore.log import importing
from foldlog.eventstore.maintenance import verify as verification
from foldlog.eventstore.maintenance.verify import Check, verify
from tests.privacy import erased
from tests.said import said

EVENTS = 1_200
"""So many events are read in more than one step."""
HISTORY = [said(str(n)) for n in range(EVENTS)]


@pytest.fixture
def filled(store):
    store.ingest("c", HISTORY)
    return store


@pytest.mark.parametrize("read", [Store.events, Store.log], ids=["events", "log"])
def test_reading_on_reports_the_erasure(filled, read):
    reading = read(filled, "c")
    next(reading)
    erased(filled, "c", complete=False)
    with pytest.raises(ConversationErased, match="asked for"):
        list(reading)


@pytest.mark.parametrize("reverse", [False, True])
def test_reading_on_after_the_id_was_reused(filled, reverse):
    reading = filled.events("c", reverse=reverse)
    next(reading)
    erased(filled, "c", complete=False)
    Histories(filled).create("c", replace_erased=True).append([said("new")] * (EVENTS + 1))
    with pytest.raises(ConversationErased, match="asked for"):
        list(reading)


def test_an_import_reports_the_erasure(filled, monkeypatch):
    monkeypatch.setattr(importing, "CHUNK", 400)

    def source():
        for place, event in enumerate(HISTORY):
            if place == 500:
                erased(filled, "c", complete=False)
            yield event

    with pytest.raises(ConversationErased, match="asked for"):
        filled.ingest("c", source())


def test_verifying_finds_no_damage(filled, monkeypatch):
    class ErasesFirst(Check):
        def run(self):
            erased(filled, "c", complete=False)
            return super().run()

    monkeypatch.setattr(verification, "Check", ErasesFirst)
    verdicts = {verdict.conversation: verdict for verdict in verify(filled, "c")}
    assert verdicts["c"].findings == ()


def test_an_erasure_meanwhile_refuses_a_creation(store, monkeypatch):
    histories = Histories(store)
    recorder = store.database.recorder
    histories.create("c", {"app": "x"})
    query = recorder.query

    def and_erase(work):
        answer = query(work)
        monkeypatch.setattr(recorder, "query", query)
        erased(store, "c", complete=False)
        return answer

    monkeypatch.setattr(recorder, "query", and_erase)
    # The one query of ``create`` saw the conversation before its erasure.
    with pytest.raises(VersionConflict):
        histories.create("c", {"app": "x"}, replace_erased=True)
