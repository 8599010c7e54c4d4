"""A run in a file, for tests: one JSON object a line, in the order of events. A review shows what
changed.

The first line names the run. The next lines are what was sent beside the messages, such as
``{"call": 1, "system": …, "tools": […]}``, and hold from this call of the model on. All other lines
are events in their stored form, without their times.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from foldlog._base.json_types import JsonObject
from foldlog._base.telemetry import SHOWN
from foldlog._base.values import replace_texts, values_in
from foldlog._history.history import History
from foldlog._history.sent_requests import beside_of
from foldlog._reports.search.passwords import (
    PASSWORD,
    is_long,
    is_password,
    passwords_in,
    without_passwords,
)
from foldlog._reports.search.secrets import kinds_in, without_secrets
from foldlog._testing.calls import recorded_calls
from foldlog.eventstore import Annotation, DocumentChanges, Event, InvalidArgument, Redaction
from foldlog.eventstore.codec import decode
from foldlog.eventstore.files.whole_file import whole_file
from foldlog.eventstore.usage import COPIED
from foldlog.formats.record import dict_or_empty, text_or_none
from foldlog.projections.messages.content import data_url
from foldlog.projections.messages.requests import REQUEST

_RUN = "foldlog_run"
"""The field of the first line with the id of the run."""
_VERSION = 1
_META = frozenset(("model", "finish_reason", "usage", "reply", REQUEST, SHOWN, COPIED))
"""The fields of the ``meta`` of an event that a file has."""
_TOO_MUCH = (RecursionError, OverflowError)
"""The errors of values that are nested too deeply, and of numbers that are too large."""


class Run(NamedTuple):
    """A run as a file has it. ``beside`` maps the number of a call to what was sent beside its
    messages, as far as it differs from the call before. ``bodies`` are the stored forms of the
    events.
    """

    id: str
    beside: dict[int, JsonObject]
    bodies: list[JsonObject]

    def beside_call(self, number: int) -> JsonObject:
        """Return what was sent beside the messages of a call."""
        return {
            name: value
            for first, fields in sorted(self.beside.items())
            if first <= number
            for name, value in fields.items()
        }

    def note(self, number: int, name: str, value: Any) -> None:
        """Note what was sent beside the messages of a call."""
        self.beside.setdefault(number, {})[name] = value

    def fill(self, history: History) -> None:
        """Append the events. They get the ids that they had."""
        history.append([*map(_event, self.bodies)])

    def lines(self) -> Iterator[JsonObject]:
        """Yield the objects that are the lines of the file."""
        yield {_RUN: self.id, "version": _VERSION}
        for number, fields in sorted(self.beside.items()):
            yield {"call": number, **fields}
        for event_id, body in enumerate(self.bodies):
            yield {"id": event_id, **body}

    def without_secrets(self) -> tuple[Run, list[str]]:
        """Return a run without secrets, and what was replaced. Raises ``InvalidOption`` if
        ``detect-secrets`` is not installed.
        """
        replacements: list[str] = []
        passwords = self._passwords()

        def replaced(value: Any, place: str) -> Any:
            changed: dict[str, str] = {}
            hidden = _without_password_fields(value)
            if hidden != value:
                replacements.append(f"{place}: a password replaced")
            value = hidden
            parts = (part for pair in values_in(value) for part in pair)
            for text in dict.fromkeys(part for part in parts if isinstance(part, str)):
                rest = without_passwords(without_secrets(text), passwords)
                if rest != text:
                    changed[text] = rest
                    replacements.append(
                        f"{place}: {', '.join(kinds_in(text)) or 'a password'} replaced"
                    )
            return replace_texts(value, changed, names=True)

        beside = {
            number: replaced(fields, f"what call {number} sent beside its messages")
            for number, fields in self.beside.items()
        }
        bodies = [replaced(body, f"event {number}") for number, body in enumerate(self.bodies)]
        return Run(replaced(self.id, "the id"), beside, bodies), replacements

    def _passwords(self) -> list[str]:
        """Return the long values of fields such as ``password`` and ``api_key``, and the long
        passwords in texts, with the longest first.
        """
        values = [*values_in([*self.beside.values(), *self.bodies])]
        passwords = {text for name, text in values if is_password(name, text) and is_long(text)}
        passwords |= {*passwords_in(text for _, text in values if isinstance(text, str))}
        return sorted(passwords, key=len, reverse=True)

    def write(self, path: Path) -> None:
        """Replace the file. Raises the errors of ``whole_file``."""
        with whole_file(path) as file:
            for line in self.lines():
                text = json.dumps(line, ensure_ascii=False)
                # Half a character becomes its escape in JSON.
                file.write(text.encode(errors="backslashreplace") + b"\n")


def _without_password_fields(value: Any, name: str = "") -> Any:
    """Return a JSON value without the values of fields such as ``password``. ``name`` is the field
    with the value.
    """
    if isinstance(value, dict):
        return {key: _without_password_fields(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_password_fields(item, name) for item in value]
    return PASSWORD if is_password(name, value) else value


def read_run(path: Path) -> Run:
    """Return the run in a file. Raises ``InvalidArgument`` for another file, and ``OSError``."""
    try:
        about, *lines = map(json.loads, path.read_bytes().splitlines())
        run_id = str(about[_RUN])
        version = about["version"]
        beside = {int(line.pop("call")): line for line in lines if "call" in line}
        bodies = [line for line in lines if "kind" in line]
        ids = [body["id"] for body in bodies]
    except FileNotFoundError as error:
        raise InvalidArgument(
            f"there is no file {path}; write it with: foldlog export ID --as-test {path.parent}"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, *_TOO_MUCH) as error:
        raise InvalidArgument(
            f"{path} is not a recorded run; write one with: foldlog export ID --as-test DIR"
        ) from error
    if version != _VERSION:
        raise InvalidArgument(
            f"{path} has version {version} of the form of runs, and this foldlog reads version"
            f" {_VERSION}; export the run again"
        )
    if not ids or ids != [*range(len(ids))]:
        raise InvalidArgument(
            f"{path} does not have the events 0, 1, 2 and so on, each in one line; export the run"
            " again"
        )
    for number, fields in beside.items():
        tools = fields.get("tools", [])
        parameters = fields.get("parameters", {})
        if not (_is_list_of_maps(tools) and isinstance(parameters, dict)):
            raise InvalidArgument(
                f"{path} has damaged tools or parameters of call {number}; export the run again"
            )
    for body in bodies:
        try:
            _event(body)
        except (AttributeError, TypeError, ValueError, *_TOO_MUCH) as error:
            raise InvalidArgument(
                f"{path} has a damaged event {body['id']}: {error}; export the run again"
            ) from error
    return Run(run_id, beside, bodies)


def _is_list_of_maps(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _event(body: JsonObject) -> Event:
    """Return the event with this stored form."""
    if not isinstance(body["kind"], str):
        raise TypeError("its kind is not a text")
    return decode(body["kind"], 1, msgspec.json.encode(body), -1)


def run_of(history: History) -> Run:
    """Return the run of a history. Cost: the function reads all events twice."""
    beside: dict[int, JsonObject] = {}
    before: JsonObject = {}
    for call in recorded_calls(history):
        present = beside_of(history, call.reply)
        if present != before:
            beside[call.number] = present
        before = present
    return Run(history.id, beside, [*map(_body, history.events())])


def _body(event: Event) -> JsonObject:
    """Return the stored form of an event, without what differs between runs."""
    if isinstance(event, Redaction | DocumentChanges):
        # Every event must keep its id, because condensations name ids.
        event = Annotation(name="left out", data=type(event).__name__)
    origin = None if event.origin is None else replace(event.origin, time=None, rest=None)
    meta = {name: value for name, value in event.meta.items() if name in _META}
    if name := text_or_none(dict_or_empty(event.meta, "message"), "name"):
        meta["message"] = {"name": name}
    if REQUEST in meta:  # a changed word would change the hashes of all later requests
        meta[REQUEST] = {name: meta[REQUEST][name] for name in ("view", "dialect")}
    stored = replace(event, id=-1, timestamp=None, origin=origin, meta=meta, redacted=None)
    body: JsonObject = _as_text(msgspec.to_builtins(stored, builtin_types=(bytes,)))
    return body


def _as_text(value: Any, key: str = "") -> Any:
    """Return a value in which the texts that foldlog sends in place of bytes replace the bytes.
    ``key`` is the field with the value.
    """
    if isinstance(value, Mapping):
        return {name: _as_text(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if key == "data" else data_url(value)
    return value
