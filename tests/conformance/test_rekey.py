"""Every change of compression and encryption, on every recorder: events, heads and Views stay,
``verify`` is clean.
"""

import random
from functools import partial
from itertools import product
from typing import NamedTuple

import pytest
from pydantic import SecretStr

from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    CondensationRequest,
    CorruptEvent,
    KeyChanged,
    KeyRing,
    KeyUnavailable,
    Store,
    StoreRefused,
)
from foldlog.eventstore.log.importing import staged_keys
from foldlog.eventstore.log.row import PLAIN, checksum_seed, with_checksums
from foldlog.eventstore.log.seal import ENCRYPTED, Compression, WriteSettings, compress
from foldlog.eventstore.maintenance import rekey_steps as rekeying
from foldlog.eventstore.maintenance.rekey import Rekeyed, rekey
from foldlog.eventstore.recorders.types import Conversation, as_rows
from foldlog.projections import Views
from tests.between import Between, call_before
from tests.how_many import some
from tests.privacy import erased, redacted
from tests.said import said, say
from tests.sound import assert_sound

SECRETS = {"one": SecretStr("11" * 32), "other": SecretStr("22" * 32)}
LENGTH = 14
REDACTED = 6
"""The event that is redacted. Its receipt is the last event."""
NAMES = ["c1", "lone \udcff\0"]


class Form(NamedTuple):
    """The form in which a store writes: its compression, and the name of its key."""

    compression: Compression
    key: str | None


FORMS = [
    Form(compression, key)
    for compression, key in product(("none", "zlib", "zstd"), (None, "one", "other"))
]


def ring(*names):
    return KeyRing([SECRETS[name] for name in names if name]) if any(names) else None


def store_on(recorder, compression, *keys):
    return Store(recorder, WriteSettings(compression, ring(*keys)))


def event(n):
    """Return the event ``n`` of a conversation. The kinds and the sizes of events change with
    ``n``.
    """
    noise = random.Random(n).randbytes(200)
    match n % 7:
        case 1:  # a text that hardly shrinks
            return said("".join(chr(0x4E00 + byte) for byte in noise))
        case 2:  # a text that every compression makes larger
            return said(noise.hex()[:9])
        case 3:
            return Annotation(name="note", data={"n": n})
        case 4:
            return CondensationAction(
                forgotten_event_ids=[n - 2, n - 3], summary=f"summary {n}", summary_offset=1
            )
        case 5:
            return CondensationRequest()
        case _:
            return said(f"message {n} " + "the same words " * 40)


def fill(store):
    store.register(Views(store))
    for name in NAMES:
        for n in range(LENGTH - 1):
            store.append(name, event(n), expected_version=n, idempotency_key=f"turn-{n}")
        redacted(store, name, REDACTED)


def state(store):
    """Return everything that a change of the encryption must leave unchanged."""
    views = Views(store)
    return {
        name: (
            store.conversation(name),
            list(store.events(name)),
            [tuple(views.at(name, version).events) for version in (3, LENGTH - 2, LENGTH)],
            # Each key still belongs to its event: a repeated append returns that event, whatever
            # its expected version.
            [
                store.append(name, event(n), expected_version=0, idempotency_key=f"turn-{n}")[0].id
                for n in (0, REDACTED, 9)
            ],
        )
        for name in NAMES
    } | {
        "order": [
            (entry.position, entry.conversation, entry.id)
            for entry in store.follow()
            if type(entry.event) is not KeyChanged
        ]
    }


def stored(recorder):
    """Return the stored state and the stored rows of each conversation."""
    with recorder.read() as reader:
        conversations = [reader.conversation(name) for name in NAMES]
        return {
            conversation.id: (
                conversation,
                as_rows(reader.rows(conversation.key, 0, LENGTH, LENGTH)),
            )
            for conversation in conversations
            if conversation is not None
        }


def assert_is_in(recorder, form, expected):
    """Check that the rows are in this form, and that a store with only its key reads what was
    written.
    """
    store = store_on(recorder, None, form.key)
    assert_sound(store)
    assert state(store) == expected
    key_id = None if form.key is None else ring(form.key).current
    for name, (conversation, rows) in stored(recorder).items():
        assert conversation.key_id == key_id
        assert (conversation.sealed_key is None) == (form.key is None)
        plain = store.query(name, lambda read: read.rows(0, LENGTH, LENGTH))
        for row, opened in zip(rows, plain, strict=True):
            encoding, _ = compress(form.compression, opened.body)
            assert row.encoding == encoding + (ENCRYPTED if form.key else PLAIN)


def refuse_without_key(recorder, target):
    before = stored(recorder)
    with pytest.raises(KeyUnavailable, match="set FOLDLOG_KEY or FOLDLOG_KEY_FILE"):
        list(rekey(store_on(recorder, target.compression)))
    assert stored(recorder) == before


@pytest.mark.parametrize("source", FORMS, ids=lambda form: f"{form.compression}-{form.key}")
def test_every_form_becomes_every_other(open_recorder, source, request, whole):
    """Each form becomes two others in a file, and one other in memory and on a server. With
    ``scripts/test --all``, each form becomes every other.
    """
    targets = FORMS
    if not whole:
        place = FORMS.index(source)
        steps = (1, 4) if "sqlite" in request.node.name else (4,)
        targets = [FORMS[(place + step) % len(FORMS)] for step in steps]
    for target in targets:
        recorder = open_recorder()
        fill(store_on(recorder, source.compression, source.key))
        expected = state(store_on(recorder, None, source.key))
        assert_is_in(recorder, source, expected)
        decrypt = source.key is not None and target.key is None
        if decrypt:
            refuse_without_key(recorder, target)
        store = store_on(recorder, target.compression, *dict.fromkeys([target.key, source.key]))
        for again in (False, True):
            before = stored(recorder)
            rekeyed = list(rekey(store, decrypt=decrypt))
            assert [outcome.conversation for outcome in rekeyed] == NAMES
            assert [(outcome.damaged, outcome.problem) for outcome in rekeyed] == [((), None)] * 2
            assert_is_in(recorder, target, expected)
            if again:
                assert [(outcome.key, outcome.rows) for outcome in rekeyed] == [(False, 0)] * 2
                assert stored(recorder) == before


@pytest.mark.parametrize(
    "source", some(FORMS, 3), ids=lambda form: f"{form.compression}-{form.key}"
)
def test_no_compression_leaves_bodies(open_recorder, source):
    recorder = open_recorder()
    key = "other" if source.key == "one" else "one"
    fill(store_on(recorder, source.compression, source.key))
    expected = state(store_on(recorder, None, source.key))
    list(rekey(store_on(recorder, None, *dict.fromkeys([key, source.key]))))
    assert_is_in(recorder, Form(source.compression, key), expected)
    list(rekey(store_on(recorder, None, key), decrypt=True))
    assert_is_in(recorder, Form(source.compression, None), expected)
    before = stored(recorder)
    assert [outcome.rows for outcome in rekey(store_on(recorder, None))] == [0, 0]
    assert stored(recorder) == before


def test_a_long_conversation_takes_several_transactions(recorder):
    store = store_on(recorder, None)
    store.register(Views(store))
    store.ingest("c1", (event(n) for n in range(700)))
    expected = list(store.events("c1"))
    numbers = []
    counting = Between(recorder, numbers.append)
    for rows in (700, 0):
        (rekeyed,) = rekey(store_on(counting, "zlib", "one"), "c1")
        assert len(numbers) > 700 // rekeying._ROWS_MAX
        assert rekeyed.rows == rows
        keyed = store_on(recorder, None, "one")
        assert list(keyed.events("c1")) == expected
        assert_sound(keyed)
    (rekeyed,) = rekey(keyed, "c1", decrypt=True)
    assert rekeyed.rows == 700
    assert list(store.events("c1")) == expected
    assert_sound(store)


def test_events_appended_meanwhile_are_rekeyed(open_recorder):
    for decrypt in (False, True):
        recorder = open_recorder()
        fill(store_on(recorder, None, "one" if decrypt else None))
        other = store_on(recorder, "none", "one")
        appended = 0

        def append(number, other=other):
            nonlocal appended
            say(other, "c1", "new", idempotency_key=f"new-{number}")
            appended = number + 1

        appending = Between(recorder, append)
        (rekeyed,) = rekey(store_on(appending, "none", "one"), "c1", decrypt=decrypt)
        assert (rekeyed.key, rekeyed.rows) == (decrypt, LENGTH + (appended if decrypt else 0))
        assert (rekeyed.damaged, rekeyed.problem) == ((), None)
        assert rekeyed.bytes_pending is (recorder.value("bytes_pending") != "")
        after = store_on(recorder, None, None if decrypt else "one")
        assert after.version("c1") == LENGTH + appended
        assert len(list(after.events("c1"))) == LENGTH + appended
        assert_sound(after, "c1")


@pytest.mark.parametrize("source, target", [(None, None), (None, "one"), ("one", None)])
def test_a_redaction_meanwhile_stays(recorder, source, target):
    fill(store_on(recorder, "zlib", source))
    keys = dict.fromkeys([target, source])
    other = store_on(recorder, None, *keys)
    met = call_before(recorder, 1, lambda: redacted(other, "c1", 1))
    (rekeyed,) = rekey(
        store_on(met, "none", *keys), "c1", decrypt=target is None and source is not None
    )
    assert (rekeyed.damaged, rekeyed.problem) == ((), None)
    after = store_on(recorder, None, target)
    assert next(after.events("c1", 1, 2)).redacted is not None
    assert_sound(after, "c1")


@pytest.mark.parametrize("nth", [2, 3, 4])
def test_keys_of_appends_during_a_decryption(recorder, nth):
    fill(store_on(recorder, None, "one"))
    other = store_on(recorder, None, "one")
    append = partial(say, other, "c1", "late", idempotency_key="late")
    met = call_before(recorder, nth - 1, append)
    (rekeyed,) = rekey(store_on(met, None, "one"), "c1", decrypt=True)
    assert (rekeyed.key, rekeyed.problem) == (True, None)
    after = store_on(recorder, None, "other", "one")
    (rekeyed,) = rekey(after, "c1")
    assert rekeyed.problem is None
    say(after, "c1", "late", idempotency_key="late")
    assert after.version("c1") == LENGTH + 1
    assert_sound(after, "c1")


def test_rekey_meets_another_rekey(recorder):
    fill(store_on(recorder, "zlib"))
    other = store_on(recorder, None, "other", "one")
    met = call_before(recorder, 1, lambda: list(rekey(other, "c1")))
    (rekeyed,) = rekey(store_on(met, None, "one", "other"), "c1")
    assert (rekeyed.damaged, rekeyed.problem) == ((), None)
    assert_sound(store_on(recorder, None, "one"), "c1")


def test_a_batch_that_differs_is_taken_back(recorder, monkeypatch):
    fill(store_on(recorder, "zlib"))
    before = stored(recorder)
    again = rekeying.RowCodec.encoded_again

    def with_the_checksum_of_the_other_form(self, stored, *others):
        return again(self, stored, *others)._replace(meta=stored.meta)

    monkeypatch.setattr(rekeying.RowCodec, "encoded_again", with_the_checksum_of_the_other_form)
    words = rf"^conversation 'c1': events 0 to {LENGTH - 1} would read differently after"
    with pytest.raises(StoreRefused, match=words):
        list(rekey(store_on(recorder, "none")))
    assert stored(recorder) == before


def test_a_forged_row_is_left_and_named(recorder):
    fill(store_on(recorder, None))
    conversation, rows = stored(recorder)["c1"]
    (forged,) = with_checksums(checksum_seed("c1"), [rows[7]._replace(body=rows[0].body)])
    recorder.transact(lambda transaction: transaction.replace_rows(conversation.key, [forged]))
    store = store_on(recorder, None, "one")
    first = {outcome.conversation: outcome for outcome in rekey(store)}
    assert first["c1"][:4] == ("c1", True, LENGTH - 1, (7,))
    assert stored(recorder)["c1"][1][7].encoding == PLAIN
    second = {outcome.conversation: outcome for outcome in rekey(store)}
    assert second["c1"] == Rekeyed("c1", False, 0, (7,))


def test_an_erased_conversation_is_left_alone(recorder):
    fill(store_on(recorder, None))
    store = store_on(recorder, "zlib", "one")
    erased(store, "c1")
    assert [outcome.conversation for outcome in rekey(store)] == NAMES[1:]
    assert_sound(store)


def test_a_missing_key_changes_nothing(recorder):
    fill(store_on(recorder, None, "one"))
    store_on(recorder, None, "other").append("z", event(0), expected_version=0)
    before = stored(recorder)
    with pytest.raises(KeyUnavailable, match="conversation 'z' is encrypted under key"):
        list(rekey(store_on(recorder, "zlib", "one")))
    assert stored(recorder) == before


def test_a_missing_mark_is_left_and_named(recorder):
    fill(store_on(recorder, None, "one"))
    conversation, _ = stored(recorder)["c1"]
    recorder.transact(lambda transaction: transaction.set_mark(conversation.key, None))
    store = store_on(recorder, "zlib", "other", "one")
    first, second = rekey(store)
    assert (first.key, first.rows) == (False, 0)
    assert second.key
    assert second.rows > 0
    assert "the conversation has no mark" in str(first.problem)
    with pytest.raises(CorruptEvent, match="the conversation has no mark"):
        list(store.events("c1"))


@pytest.mark.parametrize("bytes_max, sizes", [(2**21, [32, 64]), (0, [32, 16, 8, 4, 2, *[1] * 8])])
def test_large_rows_are_changed_a_few_at_a_time(recorder, monkeypatch, bytes_max, sizes):
    monkeypatch.setattr(rekeying, "_BYTES", bytes_max)
    store = store_on(recorder, None)
    store.append("c", [said(str(n)) for n in range(70)], expected_version=0)
    step = rekeying._Change._rows
    taken = []

    def noted(change, size):
        taken.append(size)
        return step(change, size)

    monkeypatch.setattr(rekeying._Change, "_rows", noted)
    [outcome] = rekey(store_on(recorder, "zlib", "one"))
    assert outcome[:5] == ("c", True, 70, (), None)
    assert taken == sizes
    assert_sound(store_on(recorder, "zlib", "one"))


def test_a_rekey_ends_at_a_missing_row(recorder):
    fill(store_on(recorder, None))
    conversation, _ = stored(recorder)["c1"]
    database = store_on(recorder, "zlib", "one").database
    state = rekeying.RekeyState(
        decrypt=False,
        compression="zlib",
        until=conversation.version + 3,
        next=0,
        key=None,
        encrypted=False,
    )
    recorder.transact(
        lambda transaction: rekeying.leave_unfinished(transaction, conversation.key, state)
    )
    with pytest.raises(CorruptEvent, match=f"event {conversation.version}"):
        rekeying.change_all(database, conversation.key)
    assert recorder.query(lambda reader: [*reader.unfinished(conversation.key)]) == []


def test_a_rekey_of_one_conversation_leaves_the_imports_of_others(recorder):
    """A rekey discards what killed imports have left in the old form."""
    store = store_on(recorder, None)
    say(store, "a", "hi")
    for name in ("a", "b"):
        staged = Conversation(0, name, 1, b"salt", visible=False)
        recorder.transact(partial(_begin, staged))

    def staged_in():
        with recorder.read() as reader:
            return [name for name in ("a", "b") if staged_keys(reader, name)]

    keyed = store_on(recorder, None, "one")
    assert [rekeyed.conversation for rekeyed in rekey(keyed, "a")] == ["a"]
    assert staged_in() == ["b"]
    assert [rekeyed.conversation for rekeyed in rekey(keyed)] == ["a"]
    assert staged_in() == []


def _begin(conversation, transaction):
    transaction.begin(conversation)
