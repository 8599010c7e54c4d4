"""Ctrl-C at any place of an import or of a first use: the store is sound, and the same work goes
on.
"""

from itertools import count

import pytest

from foldlog._imports.importing import Import, Imported
from tests.between import at_each_moment
from tests.eventstore.interruptions import interrupted_at
from tests.foldlog.imports.imports import bytes_of, events_of, imported, open_with_imports
from tests.foldlog.records import lines_of
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
