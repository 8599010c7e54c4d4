"""Find the texts of a record that none of its events contains.

A new version of a program, or another program with similar records, may write content into a field
that the format's decoder does not know. Such content would be missing without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from foldlog.eventstore import Event
from foldlog.formats.json_text import json_of
from foldlog.formats.record import first_of

_TEXTS = frozenset(
    (
        "text",
        "content",
        "message",
        "thinking",
        "reasoning",
        "reasoning_content",
        "refusal",
        "summary",
        "body",
        "stdout",
    )
)
"""Fields that programs use for texts. Only a text directly below such a field is content."""
_VALUES = frozenset(("args", "arguments", "input", "output", "result", "response"))
"""Fields that programs use for arguments and results. All texts inside are content."""
_LABELS = frozenset(("type", "role", "id", "detail", "usage"))
"""Fields about a part. Their texts are never content."""


def unread_fields(
    record: Any, events: Sequence[Event], repeated: Collection[str] = ()
) -> list[str]:
    """Return the paths of those fields of ``record`` whose texts are not in ``events``, such as
    ``message.content.text``. A field whose path is in ``repeated`` is left out.

    Cost: reads all texts of the record and its events once.
    """
    texts = list(_texts_in(record, repeated))
    if not texts:
        return []
    known_texts = set(_texts_of(events))
    unknown = [(path, text) for path, text in texts if text not in known_texts]
    if not unknown:
        return []
    joined = "\n".join(known_texts)
    fields = dict.fromkeys(path for path, text in unknown if not _is_part(text, joined))
    return list(fields)


def _is_part(text: str, joined: str) -> bool:
    """Return whether ``joined`` contains a text, also without its outer white space or as JSON."""
    stripped = text.strip()
    if stripped in joined:
        return True
    in_quotes = json_of(stripped).decode()
    return in_quotes[1:-1] in joined


def _texts_in(record: Any, repeated: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a record that are content, each with the path of its field."""
    waiting: list[tuple[str, Any, bool]] = [("", record, False)]
    while waiting:
        path, value, is_inside = waiting.pop()
        if type(value) is str:
            if value and not value.isspace():
                yield path, value
        elif type(value) is list:
            waiting += [
                (path, member, is_inside)
                for member in value
                if is_inside or type(member) is not str
            ]
        elif type(value) is dict:
            for name, member in value.items():
                is_value = is_inside or (name in _VALUES and not _is_reply(member))
                is_content = is_value or name in _TEXTS or type(member) in (dict, list)
                member_path = f"{path}.{name}" if path else name
                if is_content and name not in _LABELS and member_path not in repeated:
                    waiting.append((member_path, member, is_value))


def _is_reply(value: Any) -> bool:
    """Return whether a value is what a model's server answered, as mini-SWE-agent stores it. Most
    texts of an answer are labels, such as ``finish_reason``.
    """
    return type(value) is dict and type(first_of(value, "choices", "output")) is list


def _texts_of(events: Sequence[Event]) -> Iterator[str]:
    """Yield all texts in events."""
    waiting = [getattr(event, name) for event in events for name in event.__struct_fields__]
    while waiting:
        value = waiting.pop()
        if type(value) is str:
            yield value
        elif type(value) is dict:
            waiting += value.values()
        elif type(value) in (list, tuple):
            waiting += value
