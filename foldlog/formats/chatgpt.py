"""Exports of ChatGPT: ``conversations.json``. A conversation is a tree of nodes.

A record is a node without its ``children``, ``{"id", "message", "parent"}``: see
``chat_exports.py``.

    user, system                    Message, SystemMessage; custom instructions and memories become
                                    messages from the environment
    assistant                       Message; an Action if its ``recipient`` is not ``all``
    tool                            Observation of the last call on its branch, then messages from
                                    the environment
    thoughts, recaps, empty texts   Annotation
    the conversation                Annotation with its title

The export does not contain images and sounds. An image or a sound becomes a text with its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foldlog.eventstore import Action, Message, Observation, Source, SystemMessage
from foldlog.formats.chat_exports import Exports, TreeDecoder, in_order
from foldlog.formats.format import Format, first_named
from foldlog.formats.json_text import json_of
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    member,
    omit,
    text_or_empty,
    text_or_none,
    time_at,
    within,
)
from foldlog.formats.record_events import RecordEvents

NAME = "chatgpt"

_HIDDEN = ("thoughts", "reasoning_recap")
"""Kinds of content that ChatGPT does not send to a model again."""
_CONTEXT = {
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context", "repository", "structured_context"),
}
"""Maps a kind of content about the user to its fields with text."""
_TEXTS = ("text", "result", "summary", "content", "name")
"""The fields that may hold the text of any other kind of content. The first text is used."""


# -- the file --------------------------------------------------------------------------------------


class _Files(Exports):
    begins = (frozenset((b"mapping",)), frozenset((b"conversation_id", b"current_node")))
    named = ("conversation_id", "id")
    id = "id"
    parent = "parent"
    title = "title"
    newest = "current_node"
    about: Mapping[str, Any] = {"mapping": {}}

    def is_about(self, record: Any) -> bool:
        return (
            type(record) is dict
            and "current_node" in record
            and type(record.get("mapping")) is dict
        )

    def has(self, value: Any) -> bool:
        if type(value) is not dict or "mapping" not in value:
            return False
        nodes = dict_or_empty(value["mapping"]).values()
        return "current_node" in value or (
            "title" in value and any("message" in dict_or_empty(node) for node in nodes)
        )

    def messages(self, conversation: Fields) -> list[Any]:
        """Return the nodes without their ``children``. Return an empty list if no node has a
        message. The parent of a damaged node is the node that lists it in ``children``.
        """
        mapping = conversation["mapping"]
        if type(mapping) is not dict:
            return [mapping]
        nodes = {name: node if _is_node(node) else {} for name, node in mapping.items()}
        listed = (
            (name, node["children"])
            for name, node in nodes.items()
            if type(node.get("children")) is list
        )
        above = {text_or_none(child): name for name, those in listed for child in those}
        parents = {
            name: text_or_none(node.get("parent", above.get(name)))
            for name, node in nodes.items()
            if node.get("id", name) == name
        }
        if not any(nodes[name].get("message", True) for name in parents):
            return []
        times = {name: time_at(within(nodes[name], "message", "create_time")) for name in parents}
        ordered = in_order(parents, times)
        alone = {name: omit(node, "children") for name, node in nodes.items()}
        return [alone[name] or mapping[name] for name in ordered]

    def left_out(self, conversation: Fields) -> list[str]:
        # As a record, such a node would come before stored records of earlier imports, and an
        # import of the grown export would be a fork.
        return [
            f"node {name!r} has another id, so it was left out"
            for name, node in dict_or_empty(conversation["mapping"]).items()
            if _is_node(node) and node["id"] != name
        ]


_FILES = _Files()
_NONE = object()


# -- records to events -----------------------------------------------------------------------------


def _is_node(record: Any) -> bool:
    """Return whether a record is a node that can be read."""
    message = dict_or_empty(record).get("message", _NONE)
    is_message = type(message) is dict and type(message.get("author", {})) is dict
    return type(within(record, "id")) is str and (message is None or is_message)


class _Decoder(TreeDecoder):
    exports = _FILES
    repeated = ("message.content.content", "message.content.thoughts")
    """The thinking goes into the event of a later record. A recap of it is for people."""

    def set_up(self) -> None:
        super().set_up()
        self._open: dict[Any, Action] = {}
        """Maps the id of a node to the call that still waits for its result after this node."""

    def read_redacted(self, collected: RecordEvents, record: Fields) -> None:
        super().read_redacted(collected, record)
        waiting = self._open.get(text_or_none(record, "parent"))
        for event in collected.stored:
            if isinstance(event, Action):
                waiting = event
            elif isinstance(event, Observation) or (
                isinstance(event, Message) and event.source != "agent"
            ):
                waiting = None
        if waiting is not None and self._tip is not None:
            self._open[self._tip] = waiting

    def say(self, collected: RecordEvents, record: Fields) -> None:
        message = record["message"] or {}
        author = dict_or_empty(message, "author")
        content = dict_or_empty(message, "content")
        metadata = dict_or_empty(message, "metadata")
        role = author.get("role")
        kind = text_or_empty(content, "content_type")
        if role == "user":
            waiting = None
        else:
            waiting = self._open.get(text_or_none(record, "parent"))
        text = "" if kind in _HIDDEN else _said(kind, content)
        fields: Fields = {"timestamp": time_at(message.get("create_time"))}
        if role == "assistant" and type(metadata.get("model_slug")) is str:
            fields["meta"] = {"model": metadata["model_slug"]}
        to = text_or_empty(message, "recipient") or "all"
        if role == "assistant" and to != "all" and content:
            language = text_or_empty(content, "language")
            arguments = {"language": language} if language else {}
            call: Fields = {
                "tool": to,
                "arguments": {**arguments, "text": text},
                "call_id": record["id"],
            }
            waiting = collected.add(Action, response_id=record["id"], **call, **fields)
        elif role == "tool" and waiting is not None:
            answers: Fields = {
                "tool": waiting.tool,
                "call_id": waiting.call_id,
                "cause": waiting.id,
            }
            collected.add(
                Observation, content=text, is_error=kind == "system_error", **answers, **fields
            )
            waiting = None
        elif text.strip() and role == "system":
            collected.add(SystemMessage, content=text, **fields)
        elif text.strip():
            is_user = (
                role == "user"
                and kind not in _CONTEXT
                and metadata.get("is_user_system_message") is not True
            )
            source: Source = "environment"
            if role == "assistant":
                source = "agent"
            elif is_user:
                source = "user"
            collected.add(Message, content=text, source=source, **fields)
        if waiting is not None:
            self._open[record["id"]] = waiting


def _said(kind: str, content: Fields) -> str:
    """Return the text of a content. A content without a known field becomes its JSON."""
    parts = content.get("parts")
    if kind in _CONTEXT:
        texts = (text_or_empty(content.get(key)).strip() for key in _CONTEXT[kind])
        return "\n".join(filter(None, texts))
    if type(parts) is list:
        return "\n".join(filter(None, map(_part, parts)))
    text = next(
        (content[key] for key in _TEXTS if type(content.get(key)) is str and content[key]), ""
    )
    named = [
        content[key] for key in ("title", "url") if type(content.get(key)) is str and content[key]
    ]
    if kind and content.keys().isdisjoint(_TEXTS) and not named:
        return json_of(content).decode()
    return "\n".join([*named, text]) if named else text


def _part(part: Any) -> str:
    """Return a part as text. A part that only refers to a file becomes a text with the
    reference.
    """
    if type(part) is not dict:
        return text_or_empty(part)
    if type(part.get("text")) is str:
        return str(part["text"])
    kind = text_or_empty(part, "content_type").partition("_")[0] or "file"
    place = next(
        (
            part[key]
            for key in ("asset_pointer", "audio_asset_pointer")
            if type(part.get(key)) is str
        ),
        "",
    )
    return f"[{kind} {place}]" if place else f"[{kind}]"


# -- the format ------------------------------------------------------------------------------------


def _matches(record: Any) -> bool:
    """Return whether a record is certainly of an export of ChatGPT."""
    if _FILES.is_about(record):
        return True
    if (
        type(record) is not dict
        or type(record.get("id")) is not str
        or not {"message", "parent"} <= record.keys()
    ):
        return False
    message = record["message"]
    return message is None or (
        type(message) is dict and "author" in message and "content" in message
    )


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=lambda record: _FILES.is_about(record) or _is_node(record),
    expected=(
        "a node of a conversation of ChatGPT with a text under 'id', and a 'message' with an"
        " 'author'"
    ),
    decoder=_Decoder,
    conversation=first_named(_FILES.name_in),
    files=_FILES,
    source_id=member("id"),
)
