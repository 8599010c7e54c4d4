"""The texts of errors, and the page that names all errors and their kinds."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from foldlog.eventstore import errors

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n\n(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.EventStoreError) and kind.__module__ == errors.__name__
]


def test_page_names_exactly_our_errors():
    named = set(re.findall(r"^\| [`[]([A-Z]\w+)[`\]]", PAGE, re.MULTILINE))
    assert named - {"LeaseTaken", "ReplyFailed"} == {error.__name__ for error in CLASSES} - {
        "EventStoreError"
    }


def test_page_names_every_kind():
    for name, kinds in (
        ("StoreUnavailable", errors.UnavailableKind),
        ("StoreRefused", errors.RefusedKind),
    ):
        cells = " ".join(re.findall(r"^\| (`.+?) \|", SECTIONS[name], re.MULTILINE))
        assert set(re.findall(r"`(\w+)`", cells)) == set(get_args(kinds)), name


@pytest.mark.parametrize(
    "kind, values, words",
    [
        (errors.TooManyBytes, ("c", 2_000), "of conversation 'c' has more than 2,000 bytes"),
        (errors.UnknownEventType, ("k", 2, "a newer version wrote it"), "a newer version wrote it"),
        (errors.StreamNotFound, ("c", "7"), "conversation 'c' has no stream 7; if it was closed"),
        (
            errors.StreamConflict,
            ("c", "r", "is closed", None),
            "'c': stream 'r' is closed; nothing",
        ),
        (errors.EventsNotMade, ("c", 1, 0), "'c' has 1 imported record without events; open"),
        (errors.EventsNotMade, ("c", 0, 5), "'c' is archived; open the store with foldlog.open"),
        (errors.CorruptEvent, ("c", 3, "it is cut"), "conversation 'c', event 3: it is cut; run"),
        (errors.DocumentsChanged, ("c", "d", 4), "an old value of document 'd'; read the newest"),
        (errors.IdempotencyConflict, ("c", "k", 4), "under idempotency key 'k' (from event 4 on)"),
        (errors.HistoryDiverged, ("c", 1, 2), "'c' has 2 events, and the other history differs"),
        (errors.ConversationNotFound, ("c",), "no conversation 'c'; list the conversations"),
        (errors.VersionConflict, ("c", 1, 2), "'c' is at version 2, but the append expected"),
        (
            errors.ConversationErased,
            ("c", "today", ""),
            "'c' was erased at today (no reason given)",
        ),
        (errors.StoreDamaged, ("page 7",), "page 7"),
        (errors.KeyUnavailable, ("no key",), "no key"),
    ],
)
def test_message_names_what_it_is_about(kind, values, words):
    error = kind(*values)
    assert str(error) == error.args[0]
    assert words in str(error)


def test_refusals_have_their_kinds():
    kinds = [error("it is cut").kind for error in (errors.StoreDamaged, errors.KeyUnavailable)]
    assert kinds == ["damaged", "key"]


TEN = "'f0', 'f1', 'f2', 'f3', 'f4', 'f5', 'f6', 'f7', 'f8', 'f9'"


@pytest.mark.parametrize(
    "number, words",
    [
        (1, "has a fork that needs its events ('f0'); nothing was erased; erase the forks too"),
        (10, f"has 10 forks that need its events ({TEN}); nothing was erased"),
        (11, f"has 11 forks that need its events ({TEN}, …); nothing was erased"),
    ],
)
def test_ten_forks_are_named(number, words):
    error = errors.ConversationHasForks("c", tuple(f"f{n}" for n in range(number)))
    assert words in str(error)
