"""Refusals of a store that no other test reaches, whose errors name the mistake, and cases at the
limits of what a store accepts.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from eventsourcing.persistence import InfrastructureFactoryError
from eventsourcing.utils import Environment

from foldlog import Histories
from foldlog.eventstore import (
    CondensationAction,
    ConversationNotFound,
    CorruptEvent,
    DocumentChanges,
    Documents,
    InvalidArgument,
    InvalidEvent,
    KeyRing,
    KeyUnavailable,
    Origin,
    Retraction,
    Store,
    VersionConflict,
    confirm,
    open_store,
)
from foldlog.eventstore.codec_json import (
    Undecodable,
    exact_of,
    put_back,
    take_bytes_out,
    text_of,
    with_list,
    without_list,
)
from foldlog.eventstore.documents import changes
from foldlog.eventstore.errors import (
    InvalidOption,
    StoreDamaged,
    StoreRefused,
    StoreUnavailable,
)
from foldlog.eventstore.files import whole_file
from foldlog.eventstore.files.compressed import unpacked_of
from foldlog.eventstore.files.targets import check_target, is_device
from foldlog.eventstore.files.written_files import (
    describe_file,
    erased_sources,
    file_words,
    may_hold,
    note_sources,
    read_models,
    stores_in,
)
from foldlog.eventstore.integrations.eventsourcing import Factory
from foldlog.eventstore.lists.pages import recent_conversations
from foldlog.eventstore.log import finding, seal
from foldlog.eventstore.log.database import Binding
from foldlog.eventstore.log.importing import StagedWriter
from foldlog.eventstore.log.origins import find, index
from foldlog.eventstore.log.row import NotAsWritten
from foldlog.eventstore.log.seal import WriteSettings, checked_compression, compress, decompress
from foldlog.eventstore.log.writing import digests_of
from foldlog.eventstore.maintenance.archive import archive
from foldlog.eventstore.maintenance.archive_objects import read_object, restore
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.proof.time_stamp import stamped_at
from foldlog.eventstore.recorders.types import Record, as_recalled
from tests.privacy import erased
from tests.said import said, say
from tests.sound import assert_sound


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


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
INVALID_ENTRY = r"^the list \$bytes has an invalid entry$"


@pytest.mark.parametrize(
    "listed, words",
    [
        (f"[{ENTRY % ('00' * 31)}],", INVALID_ENTRY),
        (f"[{ENTRY % ('00' * 32)}".replace("1", '"1"') + "],", INVALID_ENTRY),
        (f"[{ENTRY % ('00' * 32)}".replace('"data"', '""') + "],", INVALID_ENTRY),
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


@pytest.mark.parametrize(
    "package, call, error, words",
    [
        ("zstandard", lambda: [*unpacked_of([b"x"])], OSError, "compressed with zstd; pip install"),
        (
            "zstandard",
            lambda: compress("zstd", b"x" * 99),
            InvalidOption,
            "zstd needs the package 'zstandard'; pip install .* or choose compression 'zlib'",
        ),
        (
            "foldlog.eventstore.recorders.postgres",
            lambda: open_store("postgresql://host/db"),
            InvalidOption,
            "PostgreSQL needs psycopg .*: pip install",
        ),
        (
            "rfc3161_client",
            lambda: stamped_at(b"", b"", b""),
            InvalidOption,
            "time stamps need the package 'rfc3161-client'; pip install",
        ),
        (
            "obstore.exceptions",
            lambda: read_object("1 s3://bucket/object"),
            StoreRefused,
            "cannot read the object s3://bucket/object: pip install",
        ),
    ],
)
def test_a_missing_package_is_named(monkeypatch, package, call, error, words):
    if package == "zstandard":
        monkeypatch.setattr(seal, "_contexts", seal._Contexts())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(error, match=words):
        call()


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


def test_a_body_that_is_cut_off_is_named():
    body = b'{"content":"' + b"x" * 1_000 + b'"}'
    number, packed = compress("zlib", body)
    assert decompress(number, packed) == body
    with pytest.raises(NotAsWritten, match="the compressed body is cut off"):
        decompress(number, packed[:-6])


@pytest.mark.parametrize("name", ["CIPHER_TOPIC", "CIPHER_KEY", "COMPRESSOR_TOPIC"])
def test_eventsourcing_does_not_encrypt_a_second_time(name):
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


@pytest.fixture
def store():
    with open_store("memory:") as store:
        say(store, "c", "hi", "again")
        yield store


@pytest.mark.parametrize(
    "call, error, words",
    [
        (
            lambda store: erase(store, "c", reason="r", expected="head"),
            TypeError,
            "expected must be a ConversationRow, as .* not 'head'",
        ),
        (
            lambda store: store.append(7, said("x"), expected_version=0),
            TypeError,
            "conversation must be a text, not 7",
        ),
        (
            lambda store: store.append("c", said("x"), expected_version=2, idempotency_key=7),
            TypeError,
            "an idempotency key must be a text, not 7",
        ),
        (
            lambda store: confirm(store, "reader", -1),
            InvalidArgument,
            "position is -1; use a whole number from 0 to",
        ),
        (
            lambda store: Histories(store).list({7: "x"}),
            InvalidArgument,
            "an attribute has the name 7; use a text",
        ),
        (
            lambda store: store.append("c", Retraction(version=2), expected_version=2),
            InvalidEvent,
            "has no event 2 to take back: its newest event is 1; give 0 to 1",
        ),
        (
            lambda store: store.append("new", Retraction(version=0), expected_version=0),
            InvalidEvent,
            "has no event 0 to take back: it is empty",
        ),
        (
            lambda store: store.append(
                "new", CondensationAction(forgotten_event_ids=[0]), expected_version=0
            ),
            InvalidEvent,
            "and the conversation has none yet",
        ),
        (
            lambda store: store.append(
                "c",
                CondensationAction(forgotten_events_start_id=-5, forgotten_events_end_id=0),
                expected_version=2,
            ),
            InvalidEvent,
            "forgets event -5; it may forget earlier events, 0 to 1",
        ),
        (
            lambda store: Documents(store).append("c", (), {"plan": ("a", "tuple")}),
            InvalidEvent,
            "document 'plan' has a value that JSON cannot hold as it is, such as a tuple",
        ),
        (
            lambda store: Documents(store).append("c", (), {"plan": nested(600)}),
            InvalidEvent,
            "document 'plan' has a value that JSON cannot hold: it is nested too deep",
        ),
    ],
)
def test_a_refused_call_names_the_mistake_and_changes_nothing(store, call, error, words):
    with pytest.raises(error, match=words):
        call(store)
    assert [(row.id, row.version) for row in store.conversations()] == [("c", 2)]


def test_a_clock_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="clock must be a function"):
        open_store("memory:", clock=7)


@pytest.mark.parametrize(
    "call",
    [
        lambda store, _: list(verify(store, "nobody")),
        lambda store, _: list(rekey(store, "nobody")),
        lambda store, folder: archive(store, "nobody", folder.as_uri()),
        lambda store, _: list(copy_store(store, open_store("memory:"), "nobody")),
    ],
    ids=["verify", "rekey", "archive", "copy"],
)
def test_an_unknown_conversation_is_named(store, tmp_path, call):
    with pytest.raises(ConversationNotFound, match="nobody"):
        call(store, tmp_path)


def test_a_store_is_opened_by_a_path_of_bytes(tmp_path):
    class BytesPath:
        def __fspath__(self):
            return bytes(tmp_path / "h.db")

    with open_store(BytesPath()) as store:
        say(store, "c", "hi")
    assert (tmp_path / "h.db").exists()


@pytest.mark.parametrize(
    "fields, at, words",
    [
        ({"data": 1}, ["data"], "leads to a value other than null"),
        ({"data": None}, ["other"], "leads to no value"),
        ({"data": None}, ["data", "part"], "leads to no value"),
        ({"data": [None]}, ["data", 1], "leads to no value"),
    ],
)
def test_bytes_go_back_only_to_their_places(fields, at, words):
    content = {"data": b"bytes"}
    [(path, plain)] = take_bytes_out(content)
    body = with_list(b'{"data":null}', [(path, plain)])
    listed, _ = without_list(body)
    there = {"data": None}
    put_back(there, listed, body)
    assert there == {"data": b"bytes"}
    with pytest.raises(Undecodable, match=words):
        put_back(fields, [{**listed[0], "at": at}], body)


def test_a_bound_conversation_is_no_other_one():
    with open_store("memory:") as store:
        for name in ("a", "b"):
            say(store, name, "zero")
        with store.database.recorder.read() as reader:
            keys = {name: reader.conversation(name).key for name in ("a", "b")}
            found = reader.conversation("b")
            Binding("b", key=keys["b"]).check(reader, found, binds=True)
            with pytest.raises(ConversationNotFound, match="no conversation 'b'"):
                Binding("b", key=keys["a"]).check(reader, found, binds=True)


def test_a_staged_import_of_a_changed_conversation_names_both_versions():
    with open_store("memory:") as store:
        say(store, "a", "zero", "one")
        with store.database.recorder.read() as reader:
            state = reader.conversation("a")
        say(store, "a", "two")

        def conflict(writer, version):
            with pytest.raises(VersionConflict) as error:
                writer._write(version, lambda writing: None)
            return error.value.conversation, error.value.expected, error.value.actual

        database = store.database
        assert conflict(StagedWriter(database, state, state), 2) == ("a", 2, 3)
        assert conflict(StagedWriter(database, state, None), 2) == ("a", 0, 3)
        gone = state._replace(id="b")
        assert conflict(StagedWriter(database, gone, gone), 2) == ("b", 2, 0)


def test_attributes_need_the_key_of_their_conversation():
    assert len(digests_of([b"pair"], None, None)) == 1
    keys = KeyRing(["5c" * 32])
    assert len(digests_of([b"pair"], keys, keys.current)) == 1
    for others in (None, KeyRing(["5d" * 32])):
        with pytest.raises(KeyUnavailable, match="attributes are encrypted") as error:
            digests_of([b"pair"], others, keys.current)
        assert error.value.kind == "key"


def test_an_archived_conversation_is_not_restored_read_only(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        say(store, "a", "zero", "one", "two")
        archive(store, "a", f"file://{tmp_path}/objects")
    with open_store(f"{url}?mode=ro") as store, pytest.raises(StoreRefused) as error:
        restore(store.database, "a")
    assert error.value.kind == "read_only"
    assert str(error.value) == (
        "conversation 'a' is archived, and reading it would restore it; open the store for writing"
    )


def test_a_file_that_was_moved_is_described_and_forgotten(tmp_path):
    there = tmp_path / "there.json"
    there.write_text("{}")
    with open_store("memory:") as store:
        say(store, "a", "zero")
        names = [f'export of ["a"] {path}' for path in (there, tmp_path / "moved.json")]
        for name in names:
            confirm(store, name, 0)
        assert [file_words(describe_file(store, name)) for name in names] == [
            f"export {there} of 'a'",
            f"export {tmp_path / 'moved.json'} of 'a', which was moved or deleted",
        ]
        assert [*read_models(store)] == names[:1]


@pytest.mark.parametrize("columns", [("0", 1, b"p"), (0, None, b"p")])
def test_a_damaged_idempotency_key_fits_no_append(columns):
    assert tuple(as_recalled((3, 2, b"p")))[:3] == (3, 2, b"p")
    assert tuple(as_recalled(columns))[:3] == (-1, 0, b"p")


@pytest.mark.parametrize("others", [{"a": 1}, {"b": -1}, {"b": True}, {"b": "1"}, {"b": None}])
def test_documents_beside_a_change_are_named_once_and_by_an_id(others):
    changed = {"a": {"value": 1}}
    with pytest.raises(InvalidEvent, match="is named twice, or has the event id"):
        DocumentChanges(changed=changed, others=others)
    assert DocumentChanges(changed=changed, others={"b": 0}).newest() == {"a": -1, "b": 0}


def test_exact_fields_are_written_in_one_way():
    written = text_of({"text": "half \ud800"})
    fields = json.loads(written)
    assert exact_of(fields, written) == {"text": "half \ud800"}
    text = fields["$exact"]
    for other in (f"{text}*", f"*{text}", f"{text[:4]}\n{text[4:]}", text[:-1], None):
        with pytest.raises(Undecodable, match="field \\$exact cannot be read"):
            exact_of({**fields, "$exact": other}, written)


def test_a_compression_is_refused_before_it_is_used(monkeypatch):
    def missing():
        raise InvalidOption("zstd is missing")

    monkeypatch.setattr(seal, "_zstandard", missing)
    assert [checked_compression(name) for name in ("none", "zlib")] == ["none", "zlib"]
    with pytest.raises(InvalidOption, match="zstd is missing"):
        checked_compression("zstd")
    with pytest.raises(InvalidOption, match="unknown compression 'lz4'; choose none, zlib, zstd"):
        checked_compression("lz4")


def test_a_target_is_a_name_of_a_new_file(tmp_path):
    with pytest.raises(InvalidOption, match="has a character that no file name can have"):
        check_target(tmp_path / "a\0b")
    with pytest.raises(InvalidOption, match="is a folder; name a file"):
        check_target(tmp_path)
    with open_store(f"sqlite:///{tmp_path}/store.db"):
        with pytest.raises(InvalidOption, match="is a database, and the new file would replace it"):
            check_target(tmp_path / "store.db")
        with pytest.raises(InvalidOption, match=r"belongs to the database .*/store\.db; choose"):
            check_target(tmp_path / "store.db-wal")
    check_target(tmp_path / "other.db-wal")
    check_target(tmp_path / "-wal")


def test_a_link_to_a_file_that_is_open_is_no_target(tmp_path):
    file = tmp_path / "file"
    link = tmp_path / "link"
    link.symlink_to(file)
    assert not is_device(link)
    file.write_text("x")
    assert (is_device(link), is_device(file), is_device(Path("/dev/null"))) == (False, False, True)
    with file.open() as opened:
        named = Path(f"/proc/self/fd/{opened.fileno()}")
        with pytest.raises(InvalidOption, match="is a link to a file that is already open"):
            is_device(named)
    program = (
        "from pathlib import Path\n"
        "from foldlog.eventstore.files.targets import is_device\n"
        "is_device(Path('/dev/stdout'))\n"
    )
    with file.open("w") as output:
        ran = subprocess.run(
            [sys.executable, "-c", program], stdout=output, stderr=subprocess.PIPE, text=True
        )
    assert "/dev/stdout is a link to a file that is already open" in ran.stderr


def test_a_file_system_without_links_replaces_no_file(tmp_path, monkeypatch):
    def refused(*names):
        raise PermissionError("no links here")

    monkeypatch.setattr(whole_file.os, "link", refused)
    part, there, new = (tmp_path / name for name in ("part", "there", "new"))
    part.write_text("new")
    there.write_text("old")
    with pytest.raises(FileExistsError):
        whole_file.give_name(part, there)
    assert (part.read_text(), there.read_text()) == ("new", "old")
    whole_file.give_name(part, new)
    assert (part.exists(), new.read_text()) == (False, "new")


def test_names_of_files_name_their_conversations(tmp_path):
    there = tmp_path / "there.jsonl"
    there.write_text("{}")
    (tmp_path / "folder").mkdir()
    with open_store("memory:") as store:
        say(store, "a", "zero")
        paths = [str(there), str(tmp_path / "moved.jsonl"), str(tmp_path / "folder"), str(there)]
        assert note_sources(store, [], ["a"]) == []
        assert note_sources(store, paths, ["a", "b"]) == [
            f'imported file of ["a", "b"] {there}',
            f'imported file of ["a", "b"] {tmp_path}/moved.jsonl',
            f'imported folder of ["a", "b"] {tmp_path}/folder',
        ]
        assert note_sources(store, paths[:1], ["a", "b"]) == []
        note_sources(store, paths[:1], ["c"])
        confirm(store, f'export of ["d"] {there}', 0)
        confirm(store, "imported by hand", 0)
        both = [str(there), str(tmp_path / "folder")]
        found = {name: sorted(paths) for name, paths in erased_sources(store).items()}
        assert found == {"a": sorted(both), "b": sorted(both), "c": [str(there)]}
    name = f'export of ["a", "b"] {there}'
    conversations = [None, ["b"], ["c"], []]
    assert [may_hold(name, ids) for ids in conversations] == [True, True, False, False]
    assert [may_hold(f"backup {there}", ids) for ids in conversations] == [True] * 4
    assert [may_hold("a read model", ids) for ids in conversations] == [True] * 4


def test_backups_that_are_still_databases(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/store.db"):
        pass
    (tmp_path / "text.db").write_text("no database")
    files = ["store.db", "text.db", "missing.db"]
    names = [f"{kind} {tmp_path}/{file}" for kind in ("backup", "former file") for file in files]
    assert [*stores_in([*names, f"export {tmp_path}/store.db"])] == [f"{tmp_path}/store.db"] * 2


def test_a_page_of_a_list_has_no_negative_size():
    with open_store("memory:") as store:
        say(store, "a", "zero")
        with pytest.raises(InvalidArgument, match="limit is -1; use a whole number from 0"):
            recent_conversations(store.database, {}, limit=-1, after=None, age_max_s=0)
        page = recent_conversations(store.database, {}, limit=0, after=None, age_max_s=0)
        assert (page.conversations, page.after) == ((), None)


def test_few_documents_stay_in_memory(monkeypatch):
    monkeypatch.setattr(changes, "_CACHED_MAX", 2)
    with open_store("memory:") as store:
        for name in "abca":
            Documents(store).append(name, (), {"plan": f"of {name}"})
            Documents(store).append(name, (), {"plan": f"later {name}"})
        assert [*store.last_documents] == ["c", "a"]
        assert Documents(store).all("b") == {"plan": "later b"}


def test_a_redaction_passes_over_a_conversation_that_is_gone():
    """The caller chose the other conversations before one of them was erased."""
    with open_store("memory:") as store:
        for name in ("a", "b", "c"):
            say(store, name, "secret", "more")
        erased(store, "b")
        others = {"b": [0], "missing": [0], "c": [1]}
        receipt = redact(store, "a", 0, reason="asked for", by="me", others=others)
        assert [event.redacted is not None for event in store.events("a")] == [True, False, False]
        assert [event.redacted is not None for event in store.events("c")] == [False, True, False]
        assert (receipt.forks, receipt.bytes_pending) == ((), False)


def test_an_index_names_the_first_event_of_a_source_id():
    with open_store("memory:", keys=KeyRing(["11" * 32])) as store:
        known, other = Origin(format="f", id="one"), Origin(format="f", id="two")
        events = [said("zero"), said("one", origin=known), said("again", origin=known)]
        store.append("c", [*events, said("two", origin=other)], expected_version=0)
        index(store.database, "c")
        found = [find(store.database, "f", source_id) for source_id in ("one", "two", "three")]
        assert found == [(("c", 1),), (("c", 3),), ()]
        assert_sound(store)


@pytest.mark.parametrize("reverse, ids", [(False, range(29)), (True, range(39, 29, -1))])
def test_pages_around_damage_keep_their_order(monkeypatch, reverse, ids):
    """A page that cannot be read is halved, also if it is the first one that is read."""
    read_page = finding._read_page

    def read_but_one(reading, first, stop, decode, *, reverse):
        if first <= 29 < stop:
            raise StoreDamaged("a page is damaged")
        return read_page(reading, first, stop, decode, reverse=reverse)

    monkeypatch.setattr(finding, "PAGE", 8)
    monkeypatch.setattr(finding, "_SHORT_PAGE", 3)
    with open_store("memory:") as store:
        say(store, "c", *map(str, range(40)))
        sound = store.events("c", reverse=reverse)
        assert [event.id for event in sound] == [*range(40)][:: -1 if reverse else 1]
        for stop in (32, 40):
            monkeypatch.setattr(finding, "_read_page", read_but_one)
            read = []
            with pytest.raises(
                CorruptEvent, match="it cannot be read: a page is damaged"
            ) as raised:
                read.extend(event.id for event in store.events("c", 0, stop, reverse=reverse))
            assert raised.value.event_id == 29
            assert read == [event_id for event_id in ids if event_id < stop]
            monkeypatch.setattr(finding, "_read_page", read_page)


def test_a_key_encrypts_the_records_of_the_first_version():
    def repeat(writing):
        writing.put_records("texts", [Record(writing.version, 1, b"secret")])

    with open_store("memory:") as store:
        store.append("c", said("secret"), expected_version=0, also=repeat)
        keyed = Store(store.database.recorder, WriteSettings(keys=KeyRing(["11" * 32])))
        keyed.append("c", said("more"), expected_version=1)
        [record] = keyed.query("c", lambda reading: reading.own_records("texts"))
        assert (record.version, record.body) == (1, b"secret")
        with store.database.recorder.read() as reader:
            [stored] = reader.records(reader.conversation("c").key, "texts", 0, 9)
        assert (stored.version, stored.encoding) == (1, seal.ENCRYPTED)
        assert b"secret" not in stored.body
