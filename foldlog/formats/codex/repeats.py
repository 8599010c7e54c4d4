"""Predict the repeated parts of records, so that these are stored once: decoding and encoding know them from earlier
records.
"""

from __future__ import annotations

from typing import Any

from foldlog.formats.codex.parts import images_in, text_of, texts_in

ITEMS = ("response_item", "event_msg")
"""Types of records whose payloads have types of their own."""

INSTRUCTIONS = {
    "session_meta": ("base_instructions", "instructions"),
    "turn_context": ("base_instructions", "developer_instructions", "user_instructions"),
}
"""The keys under which a record may have instructions."""

_TOLD = {"user": "user_message", "assistant": "agent_message"}
_THOUGHTS_MAX = 100


class Repeats:
    """The most likely content of the next payload of a type, by key.

    An ``event_msg`` repeats the message or the reasoning before it, or reasoning repeats the events before it; a
    ``turn_context`` and a ``token_count`` repeat most of the last one.
    """

    def __init__(self) -> None:
        self._expected: dict[tuple[str, str], dict[str, Any]] = {}
        self._thoughts: list[str] = []  # told by events, and not yet in a reasoning item
        self._untold: list[str] = []  # in a reasoning item, and not yet told by events

    def expected(self, line: str, name: str) -> dict[str, Any]:
        """Return the expected fields of the payload, of type ``name``, of a record of type ``line``."""
        expected = self._expected.get((line, name), {})
        if (line, name) == ("response_item", "reasoning") and self._thoughts:
            return {**expected, "summary": [{"type": "summary_text", "text": text} for text in self._thoughts]}
        if (line, name) == ("event_msg", "agent_reasoning") and self._untold:
            return {"text": self._untold[0]}
        return expected

    def remember(self, record: dict[str, Any]) -> None:
        line, payload = record.get("type"), record.get("payload")
        if type(payload) is not dict:
            return
        name = payload.get("type")
        match line:
            case "turn_context":
                self._expected["turn_context", "turn_context"] = payload
            case "session_meta":
                kept = {key: payload[key] for key in INSTRUCTIONS["session_meta"] if key in payload}
                self._expected["session_meta", "session_meta"] = kept
            case "event_msg" if name == "token_count":
                kept = {key: value for key, value in payload.items() if key != "type"}
                self._expected["event_msg", "token_count"] = kept
            case "event_msg" if name == "agent_reasoning":
                self._remember_told(payload.get("text"))
            case "response_item" if name == "reasoning":
                self._remember_reasoning(payload)
            case "response_item" if name == "message":
                self._remember_message(payload)

    def _remember_told(self, text: Any) -> None:
        if self._untold and text == self._untold[0]:
            self._untold.pop(0)
        elif type(text) is str and len(self._thoughts) < _THOUGHTS_MAX:
            self._thoughts.append(text)

    def _remember_reasoning(self, payload: dict[str, Any]) -> None:
        self._untold = [] if self._thoughts else texts_in(payload.get("summary"))
        self._thoughts = []
        said_none = "content" in payload and payload["content"] is None
        self._expected["response_item", "reasoning"] = {"content": None} if said_none else {}

    def _remember_message(self, payload: dict[str, Any]) -> None:
        role, content = payload.get("role"), payload.get("content")
        told = _TOLD.get(role) if type(role) is str else None
        if told is not None:
            images = images_in(content)
            self._expected["event_msg", told] = {"message": text_of(content), **({"images": images} if images else {})}
