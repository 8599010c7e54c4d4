"""Golden cases in text files: a rule, the events that it is about, and what is made of them.

    === an error is open until the same command succeeds
    {"with": "what a test needs beside the events"}
    {"user": "build it"}
    {"call": "bash", "arguments": {"command": "make"}, "result": "no rule", "exit_code": 2}
    --- name of an output
    any lines

The line of settings may be missing. The first key of an event says its kind and holds its main
field: see ``KINDS``. The other keys are fields of the event. A call may hold its result and the
``exit_code`` of the result; ``{"bytes": "text"}`` are bytes. The program of the test of a folder
writes the outputs anew, after a change that is meant to change them; ``git diff`` shows what has
changed.
"""

import json
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    DocumentChanges,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)

GOLDEN = Path(__file__).parent
KINDS = {
    "system": (SystemMessage, "content"),
    "user": (Message, "content"),
    "agent": (Message, "content"),
    "environment": (Message, "content"),
    "call": (Action, "tool"),
    "result": (Observation, "content"),
    "note": (Annotation, "name"),
    "summary": (CondensationSummary, "content"),
    "forget": (CondensationAction, "forgotten_event_ids"),
    "request": (CondensationRequest, "reason"),
    "retract": (Retraction, "version"),
    "documents": (DocumentChanges, "changed"),
}


class Case(NamedTuple):
    """A rule, its settings and events as they are written, and the outputs by name."""

    rule: str
    lines: list[str]
    outputs: dict[str, str]

    def settings(self):
        return self._read()[0]["with"]

    def events(self):
        parts = (part for line in self._read() if "with" not in line for part in _parts(line))
        return [_event(place, *part) for place, part in enumerate(parts)]

    def _read(self):
        return [json.loads(line, object_hook=_with_bytes) for line in self.lines]

    def __str__(self):
        outputs = "".join(f"--- {name}\n{text}\n" for name, text in self.outputs.items())
        lines = "".join(f"{line}\n" for line in self.lines)
        return f"=== {self.rule}\n{lines}{outputs}"


def cases_in(folder):
    """Return the cases of each file of a folder of golden files."""
    return {
        path: list(_cases(path.read_text("utf-8"))) for path in sorted((GOLDEN / folder).iterdir())
    }


def write_anew(folder, make_output):
    """Write each output of a folder's cases as ``make_output`` makes it of the case and the name."""
    for path, cases in cases_in(folder).items():
        for case in cases:
            case.outputs.update({name: make_output(case, name) for name in case.outputs})
        path.write_text("\n".join(map(str, cases)), "utf-8")


def _cases(text):
    for part in f"\n{text}".split("\n=== ")[1:]:
        head, *outputs = part.rstrip("\n").split("\n--- ")
        rule, *lines = head.split("\n")
        named = (output.partition("\n") for output in outputs)
        yield Case(rule, lines, {name: output for name, _, output in named})


def _with_bytes(value):
    return value["bytes"].encode() if value.keys() == {"bytes"} else value


def _parts(fields):
    """Yield the key and the fields of each event that a line writes."""
    kind = next(iter(fields))
    result = {}
    if kind == "call":
        names = fields.keys() & {"result", "exit_code", "is_error", "extras"}
        result = {name: fields.pop(name) for name in names}
        if result:
            result["tool"] = fields["call"]
        if result and "call_id" in fields:
            result["call_id"] = fields["call_id"]
        if "exit_code" in result:
            result["extras"] = {"metadata": {"exit_code": result.pop("exit_code")}}
    yield kind, fields
    if result:
        yield "result", result


def _event(place, kind, fields):
    type_, main = KINDS[kind]
    fields_of_event = {"id": place, main: fields.pop(kind), **fields}
    if type_ is Message:
        fields_of_event["source"] = kind
    elif kind == "call":
        fields_of_event.setdefault("call_id", f"c{place}")
    elif kind == "result":
        fields_of_event.setdefault("call_id", f"c{place - 1}")
    return msgspec.convert(fields_of_event, type_)
