"""Estimate the tokens of one event by itself, and of a View as the sum over its events: every list, page and figure of
the size of a View shows this sum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from condensers.models.estimate import OF_A_CALL, OF_A_MESSAGE, OF_AN_IMAGE, estimated
from eventstore import Content, Event, events
from eventstore.codec_json import said
from projections import View
from projections.messages.turns import arguments_of

_WHOLE = 2_048
"""A text of up to this many characters is counted whole. For a longer text, four samples of a quarter of it each."""


def event_tokens(event: Event) -> int:
    """Return a high estimate of the tokens that an event adds to a prompt, as ``Estimate`` makes it.

    It is 0 for events that have no form as a message. The sum over the events of a View is close to the estimate of its
    prompt, where neighbouring messages may be joined. Cost: the characters, up to 2,048 for each text.
    """
    match event:
        case events.SystemMessage(content=content, tools=tools):
            return OF_A_MESSAGE + _of_content(content) + sum(OF_A_CALL + _of_value(tool) for tool in tools)
        case events.Message(content=content, thinking=thinking):
            return OF_A_MESSAGE + _of_content(content) + sum(map(_of_value, thinking))
        case events.Observation(content=content) | events.CondensationSummary(content=content):
            return OF_A_MESSAGE + _of_content(content)
        case events.Action(tool=tool, thought=thought, thinking=thinking):
            said = _of_content(thought) + sum(map(_of_value, thinking))
            call = {"name": tool, "arguments": arguments_of(event)}  # messages hold it as a text within JSON
            return OF_A_MESSAGE + OF_A_CALL + _of_value(call) + said
    return 0


def view_tokens(view: View, count: Callable[[Event], int] = event_tokens) -> int:
    """Return the tokens of the events that ``view`` sends to a model, each counted by itself.

    It is the last of ``Lifetimes.sizes`` of the same version and the same ``count``. Cost: the events of the View.
    """
    return sum(count(view[position]) for position in view.fit_positions)


def _of_content(content: Content) -> int:
    return _of_text(content) if isinstance(content, str) else sum(map(_of_part, content))


def _of_part(part: dict[str, Any]) -> int:
    text = part.get("text")
    if isinstance(text, str):
        return _of_text(text)
    return OF_AN_IMAGE if part.get("type") in ("image_url", "image") else _of_value(part)


def _of_value(value: Any) -> int:
    return _of_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=said))


def _of_text(text: str) -> int:
    if len(text) <= _WHOLE:
        return estimated(text)
    size = _WHOLE // 4
    samples = list(_samples(text, size))
    return sum(map(estimated, samples)) * len(text) // (size * len(samples))


def _samples(text: str, size: int) -> Iterable[str]:
    """Yield four pieces of a text at equal distances, the first and the last among them."""
    for number in range(4):
        start = (len(text) - size) * number // 3
        yield text[start : start + size]
