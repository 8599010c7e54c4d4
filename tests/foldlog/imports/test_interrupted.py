"""Ctrl-C at any place of an import or of a first use: the store is sound, and the same work goes
on.
"""

from itertools import count

import pytest

from foldlog._imports import making_events
from foldlog._imports.importing import Import, Imported
from foldlog.eventstore import Store
from foldlog.eventstore.maintenance import erase
from foldlog.eventstore.maintenance.backup import vacuum
from tests.between import at_each_moment, call_before
from tests.eventstore.interruptions import interrupted_at
from tests.foldlog.imports.imports import (
    bytes_of,
    events_of,
    imported,
    open_with_imports,
)
from tests.foldlog.records import lines_of, write_lines
from tests.sound import assert_sound

_STEP = 311
"""One place of so many is interrupted, each time another one; all of them take minutes."""


def import_and_use(store, path):
    store.version(imported(store, path).conversation)


@pytest.mark.parametrize(
    "first", [pytest.param(1), *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 9))]
)
def test_an_interrupted_import_leaves_nothing_half(first, tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(lines_of("claude-code")[:9]))
    with open_with_imports() as store:
        import_and_use(store, path)
        (row,) = store.conversations()
        expected = events_of(store, row.id)
    for place in count(first, _STEP):
        with open_with_imports() as store:
            exception = KeyboardInterrupt()
            with interrupted_at(place, exception, of="foldlog.") as interrupting:
                try:
                    import_and_use(store, path)
                except KeyboardInterrupt as error:
                    assert error is exception  # noqa: PT017 - or none was raised
            assert_sound(store)
            import_and_use(store, path)
            assert (events_of(store, row.id), bytes_of(store, row.id)) == (
                expected,
                path.read_bytes(),
            ), place
            assert_sound(store)
            if not interrupting.raised:
                assert place > 3 * _STEP
                return


def test_erasure_during_an_import(tmp_path):
    lines = b"".join(lines_of("claude-code")[:9])
    paths = [tmp_path / name for name in ("session.jsonl", "copy.jsonl")]
    for path in paths:
        path.write_bytes(lines)

    def fill(histories):
        (conversation,) = {outcome.conversation for outcome in Import(histories.store, paths[:1])}
        return conversation

    def erase_all(histories):
        for row in histories.store.conversations():
            histories.erase(row.id, reason="asked for")

    for histories, outcomes in at_each_moment(
        fill, erase_all, lambda histories: [*Import(histories.store, paths[1:])]
    ):
        (outcome,) = outcomes
        assert isinstance(outcome, Imported) or "erased" in str(outcome.error)
        assert_sound(histories.store)


def write_messages(path, word):
    """Write a session of three messages."""
    lines = [
        {
            "type": "user",
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": "s",
            "timestamp": f"2026-01-05T09:00:0{number}Z",
            "message": {"role": "user", "content": f"{word} {number}"},
        }
        for number in range(3)
    ]
    return write_lines(path, lines)


@pytest.mark.parametrize("at_once", [1_000, 1])
def test_events_of_an_erased_source_are_not_those_of_its_name(at_once, tmp_path, monkeypatch):
    """An erasure ends after its mark, and the name begins again, while a reader makes events."""
    monkeypatch.setattr(making_events, "_EVENTS", at_once)
    secret, other = (write_messages(tmp_path / f"{word}.jsonl", word) for word in ("key", "tea"))

    def killed(*arguments):
        raise KeyboardInterrupt

    with open_with_imports() as store:
        expected = events_of(store, imported(store, other, "claude-code").conversation)
    with open_with_imports(tmp_path / "store.db") as store:
        name = imported(store, secret).conversation

        def begin_again():
            with open_with_imports(tmp_path / "store.db") as store:
                with monkeypatch.context() as patched:
                    patched.setattr(erase, "_delete_rows", killed)
                    with pytest.raises(KeyboardInterrupt):
                        erase.erase(store, name, reason="asked for")
                imported(store, other, again=True, conversation=name)

        recorder = call_before(store.database.recorder, 0, begin_again)
        making_events.make_events(Store(recorder, store.database.settings), name)
        assert events_of(store, name) == expected
        assert bytes_of(store, name) == other.read_bytes()
        vacuum(store)  # completes the erasure
        assert_sound(store)
