"""Copied rows go to the target in groups: all events of a record are in one group."""

import random
from itertools import accumulate, pairwise

import pytest

from foldlog.eventstore.recorders.types import row_of
from foldlog.eventstore.sources.moving import split_at_records


def row(event_id):
    return row_of(event_id, "message", 1, True, False, 1_000, 0, b"{}", bytes(32))


def groups_by_definition(chunks, made):
    """After each chunk, everything up to the last border between two records that has been read."""
    inside = {
        event_id for first, count in made.values() for event_id in range(first + 1, first + count)
    }
    groups = []
    start = 0
    for stop in accumulate(map(len, chunks)):
        borders = [border for border in range(start + 1, stop + 1) if border not in inside]
        if borders:
            groups.append([*range(start, borders[-1])])
            start = borders[-1]
    end = sum(map(len, chunks))
    return groups, [*range(start, end)]


@pytest.mark.parametrize("is_whole", [True, False])
def test_all_events_of_a_record_are_in_one_group(is_whole):
    rng = random.Random(5)
    for _ in range(300):
        made = {}
        end = 0
        for number in range(rng.randint(1, 6)):
            end += rng.choice([0, 0, 1])
            made[number] = end, rng.choice([0, 1, 1, 2, 3, 5])
            end += made[number][1]
        end += rng.choice([0, 1])
        cuts = sorted({0, end, *(rng.randint(0, end) for _ in range(rng.randint(0, 4)))})
        chunks = [[row(event_id) for event_id in range(*cut)] for cut in pairwise(cuts)]
        groups = split_at_records(iter(chunks), made, lambda: is_whole)
        expected, rest = groups_by_definition(chunks, made)
        if is_whole and rest:
            expected.append(rest)
        assert [[read.id for read in group] for group in groups] == expected
