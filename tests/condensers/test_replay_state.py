"""What a replay remembers in few bytes is what plain sets and lists would have told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from condensers.replay_state import Fates, Numbers, Turn, Turns


@given(st.lists(st.tuples(st.integers(0, 6), st.sets(st.integers(0, 3)), st.booleans()), max_size=20))
def test_fates_are_those_that_sets_tell(steps: list[tuple[int, set[int], bool]]) -> None:
    fates, next_event = Fates(), 0
    stood_for: dict[int, set[int]] = {}
    lost: set[int] = set()
    for number, (count, places, has_summary) in enumerate(steps):
        events = list(range(next_event, next_event + count))
        next_event += count
        summaries = [list(stood_for)[place] for place in places if place < len(stood_for)]
        summary = -number - 2 if has_summary else None
        fates.forget(events, summaries, summary)
        gone = set(events).union(*(stood_for.pop(each) for each in summaries))
        if summary is None:
            lost |= gone
        else:
            stood_for[summary] = gone
    summarized: set[int] = set().union(*stood_for.values())
    assert fates.settled() == (tuple(sorted(summarized)), tuple(sorted(lost)))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=30))
def test_numbers_lead_there_and_back(steps: list[tuple[int, int]]) -> None:
    numbers, known, old, new = Numbers(), {}, 0, 0
    for old_step, new_step in steps:
        old, new = old + old_step, new + new_step
        numbers.add(old, new)
        known[old] = new
    assert all(numbers.new(each) == known.get(each) for each in range(old + 2))
    assert all(numbers.old(known[each]) == each for each in known)


def test_turns_are_a_sequence_of_what_was_appended():
    some = [Turn(3, 10, 0, None), Turn(7, 12, 2, 900)]
    turns = Turns()
    for turn in some:
        turns.append(turn)
    assert list(turns) == some
    assert turns[-1] == some[-1]
    assert turns[0:1] == (some[0],)
    turns.set_tokens(0, 0)
    assert turns[0].tokens == 0
