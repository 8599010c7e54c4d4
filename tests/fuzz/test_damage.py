"""A damaged file gives right answers or errors: no wrong View, and no shortened history for which
``verify`` finds nothing.
"""

import sqlite3
from contextlib import closing

import pytest

from tests.fuzz.damage import PAGE, Trial, draw_bits
from tests.how_many import some

FLIPS = 400


@pytest.fixture(scope="module")
def shared_trial(tmp_path_factory):
    return Trial(tmp_path_factory.mktemp("damage"))


@pytest.fixture
def trial(shared_trial):
    """The trial counts the outcomes of one test."""
    shared_trial.outcomes.clear()
    return shared_trial


def noticed(trial):
    """Return how often the damage changed an answer to an error, or the store was refused."""
    return trial.outcomes["error"] + trial.outcomes["refused"]


def test_flipped_bits_anywhere_in_the_file(trial):
    assert list(trial.flip(some(draw_bits(len(trial.sound), FLIPS, seed=1), 60))) == []
    assert noticed(trial) > 0


def test_flipped_bits_in_page_headers(trial):
    headers = [
        (page + byte, bit)
        for page in range(0, len(trial.sound), PAGE)
        for byte in range(12)
        for bit in (0, 5)
    ]
    assert list(trial.flip(some(headers, 30))) == []
    assert noticed(trial) > 0


def test_flipped_bits_in_the_index_of_events(trial, tmp_path):
    (tmp_path / "sound.db").write_bytes(trial.sound)
    with closing(sqlite3.connect(tmp_path / "sound.db")) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'events_by_id'"
        ).fetchone()
    start = (page - 1) * PAGE
    used = [start + n for n in range(8, PAGE) if trial.sound[start + n]]
    assert list(trial.flip(some([(byte, (0, 3)[byte % 2]) for byte in used], 20))) == []
    assert noticed(trial) > 0


def test_lost_zeroed_and_swapped_pages(trial):
    sound = trial.sound
    failures = []
    for page in some(range(0, len(sound), PAGE), 6):
        other = sound[PAGE : 2 * PAGE]
        for content in (
            sound[:page],
            sound[: page + PAGE // 2],
            sound[:page] + bytes(PAGE) + sound[page + PAGE :],
            sound[:page] + other + sound[page + PAGE :],
        ):
            failures += [(page, failure) for failure in trial.replace_file(content)]
    assert failures == []
    assert noticed(trial) > 0


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"SQLite format 3\0", b"no database at all" * 1_000]
)
def test_what_is_no_store_is_refused(content, trial):
    assert list(trial.replace_file(content)) == []
    assert trial.outcomes == {"refused": 1}
