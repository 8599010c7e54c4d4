"""Refusals of a store that no other test reaches: each error names the mistake."""

import pytest

from foldlog.eventstore import CondensationAction, InvalidEvent, KeyRing, KeyUnavailable, open_store
from foldlog.eventstore.codec_json import Undecodable, without_list
from foldlog.eventstore.errors import InvalidOption, StoreUnavailable
from foldlog.eventstore.files.compressed import unpacked_of
from foldlog.eventstore.integrations.eventsourcing import Factory


@pytest.mark.parametrize(
    "fields, words",
    [
        ({}, "needs either forgotten_event_ids, or both .*; neither was given"),
        (
            {
                "forgotten_event_ids": (1,),
                "forgotten_events_start_id": 1,
                "forgotten_events_end_id": 1,
            },
            "; both were given",
        ),
        ({"forgotten_events_start_id": 1}, r"only one end \(start 1, end None\)"),
        (
            {"forgotten_events_start_id": True, "forgotten_events_end_id": 2},
            "forgotten_events_start_id must be a whole number, not True",
        ),
        ({"forgotten_event_ids": ("one",)}, "must be whole numbers, not"),
        ({"forgotten_event_ids": (1,), "summary": "s"}, "both summary and summary_offset"),
    ],
)
def test_fields_of_a_condensation_belong_together(fields, words):
    with pytest.raises(InvalidEvent, match=words):
        CondensationAction(**fields)


ENTRY = '{"sha256":"%s","size":1,"at":"data"}'


@pytest.mark.parametrize(
    "listed, words",
    [
        (f"[{ENTRY % ('00' * 31)}],", "invalid entry"),
        (f"[{ENTRY % ('00' * 32)}".replace("1", '"1"') + "],", "invalid entry"),
        (f"[{ENTRY % ('00' * 32)}".replace('"data"', '""') + "],", "invalid entry"),
        (f"[{ENTRY % ('00' * 32)}]", "no other field follows"),
        ("[],", "no other field follows"),
        ("[{}],", "cannot be read"),
    ],
)
def test_list_of_attachments_is_checked(listed, words):
    sound = f'{{"$bytes":[{ENTRY % ("00" * 32)}],"kind":"message"}}'.encode()
    entries, body = without_list(sound)
    assert (len(entries), body) == (1, b'{"kind":"message"}')
    with pytest.raises(Undecodable, match=words):
        without_list(f'{{"$bytes":{listed}"kind":"message"}}'.encode())


def test_a_key_ring_without_a_key_is_refused():
    with pytest.raises(KeyUnavailable, match="the key given holds no key"):
        KeyRing([])


def test_a_url_without_a_file_is_refused():
    for url in ("sqlite:history.db", "sqlite:///", "sqlite://host/h.db"):
        with pytest.raises(InvalidOption, match="names no SQLite file; write three slashes"):
            open_store(url)


def test_compressed_content_that_is_damaged_or_cut_off():
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(b"a line\n" * 1_000)
    assert b"".join(unpacked_of([packed[:9], packed[9:]])) == b"a line\n" * 1_000
    with pytest.raises(OSError, match="its compressed content is cut off"):
        list(unpacked_of([packed[:-1]]))
    with pytest.raises(OSError, match="its compressed content is damaged"):
        list(unpacked_of([packed[:4] + b"\xff" * 20]))


@pytest.mark.parametrize("name", ["CIPHER_TOPIC", "CIPHER_KEY", "COMPRESSOR_TOPIC"])
def test_eventsourcing_does_not_encrypt_a_second_time(name):
    from eventsourcing.persistence import InfrastructureFactoryError
    from eventsourcing.utils import Environment

    with pytest.raises(InfrastructureFactoryError, match=f"leave .*{name}.* unset"):
        Factory(Environment("app", {"FOLDLOG_URL": "memory:", name: "x"}))


def test_tracking_does_not_go_back():
    with open_store("memory:") as store:
        recorder = store.database.recorder
        recorder.transact(lambda transaction: transaction.set_value("tracking app", "7"))
        for position in ("7", "6"):
            with pytest.raises(
                StoreUnavailable, match=f"already at notification 7, so notification {position}"
            ) as refused:
                recorder.transact(
                    lambda transaction, p=position: transaction.set_value("tracking app", p)
                )
            assert refused.value.kind == "taken"
        recorder.transact(lambda transaction: transaction.set_value("tracking app", "8"))
