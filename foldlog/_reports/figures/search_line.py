"""This module reads the search line of a list. A search line has filters such as ``has:error
tool:Bash``, and words to search in texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import datetime

from foldlog._base.json_types import JsonObject
from foldlog._reports.figures.tables import STATES, Where
from foldlog._reports.words.times import moment_of
from foldlog.eventstore import InvalidArgument

KEYS = ("state", "program", "tool", "model", "attribute", "has", "since", "until")
"""The names of filters, such as ``has`` in ``has:error``. The other words of a search line are
words that a conversation must contain.
"""

_FACET = re.compile(rf'(?:^|(?<=\s))({"|".join(KEYS)}):(?:"([^"]*)"|(\S+))')


def is_filter(word: str) -> bool:
    """Return whether a word of a search line is a filter."""
    return _FACET.match(word) is not None


def chosen_by(
    line: str,
    find_ids: Callable[[str], Collection[str]],
    noted: Callable[[], Collection[str]],
) -> Where:
    """Parse a search line. ``find_ids`` searches texts for words, and returns the ids of
    the conversations that contain the words. ``noted`` returns the ids of the conversations with a
    note. Raises ``InvalidArgument`` if a filter has an unknown value, or two values.
    """
    chosen: JsonObject = {"companions": False, "attributes": {}}
    values: dict[str, str] = {}
    for key, quoted, plain in _FACET.findall(line):
        value = quoted or plain
        if key != "has":
            _add_value(values, key, value)
        _choose(chosen, key, value)
    words = _FACET.sub(" ", line).strip()
    if chosen.pop("has_note", False):
        chosen["only"] = noted()
    if words:
        ids = find_ids(words)
        chosen["only"] = ids if "only" not in chosen else {*ids} & {*chosen["only"]}
    return Where(**chosen)


def _add_value(values: dict[str, str], key: str, value: str) -> None:
    """Add the value of a filter to ``values``. Raises ``InvalidArgument`` if the filter, or the
    attribute that it names, has another value there.
    """
    name = key
    if key == "attribute":
        attribute, _, value = value.partition("=")
        name = f"attribute:{attribute}"
    earlier = values.setdefault(name, value)
    if value != earlier:
        raise InvalidArgument(f"{name} has two values, {earlier} and {value}; leave one out")


def _choose(chosen: JsonObject, key: str, value: str) -> None:
    """Set the field of ``Where`` that a filter is about, or ``has_note``."""
    match key:
        case "attribute":
            name, equals, named = value.partition("=")
            if not equals:
                raise InvalidArgument(
                    f"attribute:{value} names no value; write attribute:NAME=VALUE"
                )
            chosen["attributes"][name] = named
        case "has" if value in ("error", "errors"):
            chosen["has_error"] = True
        case "has" if value in ("note", "notes"):
            chosen["has_note"] = True
        case "has":
            raise InvalidArgument(
                f"has:{value} is not known; use has:error for conversations with an error, has:note"
                " for conversations with a note"
            )
        case "since" | "until":
            chosen[key] = _moment(key, value)
        case "state" if value not in STATES:
            raise InvalidArgument(f"state:{value} is not known; use one of {', '.join(STATES)}")
        case _:
            chosen[key] = value


def _moment(key: str, value: str) -> datetime:
    try:
        return moment_of(value)
    except ValueError as error:
        raise InvalidArgument(
            f"{key}:{value} is not a time; write a date such as 2026-09-20, or 7d"
        ) from error
