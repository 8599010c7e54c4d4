"""A change of the system prompt becomes an event, and a View has the new prompt."""

import re

import pytest

from foldlog.eventstore import CondensationAction, Retraction, summary_id
from foldlog.runtimes import change_of_prompt

CHANGES = """
0 1 2 | 0 1 2 | unknown | none | none
0 1 2 | 0 1 2 | compaction | none | none
0 1 2 | 0 1 | unknown | none | retraction to 2
0 1 2 | 0 1 | return | none | retraction to 2
0 1 2 | 0 1 | compaction | none | condensation of 2
0 1 2 | 0 2 | unknown | none | condensation of 1
0 1 2 | 0 2 | return | none | condensation of 1
0 1 2 | 0 "…" 2 | unknown | none | condensation of 1, with the summary at index 1
0 1 2 | 0 "…" 2 | compaction | none | condensation of 1, with the summary at index 1
0 1 2 | 0 1 "…" | unknown | none | condensation of 2, with the summary at index 2
0 1 2 | "…" 0 1 2 | compaction | none | condensation of no event, with the summary at index 0
0 1 2 | 1 2 | system prompt | none | condensation of 0, the system prompt was updated
S4 5 6 | S4 5 | unknown | 4 | retraction to 6
S4 5 6 | 5 6 | unknown | 4 | condensation of S4
S4 5 6 | nothing | return | 4 | condensation of S4 5 6
0 3 5 | 0 | return | 4 | condensation of 3 5
"""
"""The prompt was; it is now; because of; the newest condensation; the event that is added. ``0 1 2``
are events in the prompt, ``S4`` is the summary of condensation 4, and ``"…"`` a new summary.
"""
REPLACED = {"outcome": "replaced", "reason": "the system prompt was updated"}


def rows():
    return [tuple(line.split(" | ")) for line in CHANGES.strip().splitlines()]


def id_of(word):
    if word == '"…"':
        return "the summary"
    if word.startswith("S"):
        return summary_id(int(word[1:]))
    return int(word)


def ids(cell):
    """Return the ids in a cell, and its new summary as the text."""
    if cell in ("no event", "nothing", "none"):
        return []
    return [id_of(word) for word in cell.split()]


@pytest.mark.parametrize("row", rows(), ids=" | ".join)
def test_change_of_prompt_adds_this_event(row):
    before, after, cause, condensed, expected = row
    at = -1 if condensed == "none" else int(condensed)
    if cause == "unknown":
        cause = None
    change = change_of_prompt(ids(before), ids(after), cause, condensed_at=at)
    match = re.fullmatch(
        r"none|retraction to (?P<version>\d+)"
        r"|condensation of (?P<gone>[S\d ]*\d|no event)(, with the summary at index"
        r" (?P<place>\d))?(?P<prompt>, the system.*)?",
        expected,
    )
    assert match is not None
    if expected == "none":
        assert change is None
    elif match["version"]:
        assert change == Retraction(version=int(match["version"]))
    else:
        place = match["place"] and int(match["place"])
        summary = {} if place is None else {"summary": "the summary", "summary_offset": place}
        metadata = REPLACED if match["prompt"] else {}
        assert change == CondensationAction(
            forgotten_event_ids=tuple(ids(match["gone"])), metadata=metadata, **summary
        )
