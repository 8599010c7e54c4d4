"""The page about errors names all errors, and all their kinds."""

import inspect
import re
from pathlib import Path
from typing import get_args

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
