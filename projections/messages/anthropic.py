"""Render turns as Anthropic's messages, which consist of blocks. In Anthropic's dialect, the
results of calls are in user messages, and the system prompt is a separate text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

from foldlog.eventstore import CondensationSummary, Event, SystemMessage
from foldlog.projections.messages.chat import matching, signed_blocks, text_of_empty_result
from foldlog.projections.messages.content import (
    IMAGE_TYPES,
    PDF,
    File,
    Part,
    data_of,
    image_url_of,
    is_blank,
    name_part,
    parts_of,
    sendable,
    text_part,
    without_pictures,
)
from foldlog.projections.messages.growing import MessageList, Rendered
from foldlog.projections.messages.turns import MessageTurn, PairedCall, arguments_of

_NAME_MAX = 64
"""The greatest length of a tool's name, and of a call id, that the server accepts."""


def system_prompt(events: Sequence[Event]) -> str:
    """Return the text of all system prompts among ``events`` in their order, or an empty text."""
    parts = [
        part
        for event in events
        if isinstance(event, SystemMessage)
        for part in parts_of(event.content)
    ]
    return "\n\n".join(
        (part if part["type"] == "text" else name_part(part))["text"] for part in parts
    )


def messages_of(turns: Iterable[MessageTurn], *, opening: bool) -> MessageList:
    """Return the messages of the turns. If ``opening``, they open the conversation."""
    messages = MessageList(opening=opening)
    for turn in turns:
        if turn.role == "user":
            messages.say("user", [_block(part) for part in turn.parts], turn.positions)
        if turn.role != "assistant":
            continue
        messages.begin_reply(turn)
        moved: list[Part] = []
        parts = without_pictures(turn.parts, moved, "what came before", "server_tool")
        blocks = [block for part in parts for block in _blocks(part)]
        blocks += map(_tool_use, turn.calls)
        messages.say(
            "assistant", [*signed_blocks(turn.thinking), *blocks] if blocks else [], turn.positions
        )
        for call in turn.calls:
            messages.say("user", [_tool_result(call, moved)], (call.answered,))
        messages.say("user", [_block(part) for part in moved], turn.positions)
    return messages


def mark_cached(
    messages: Sequence[Part], shared: Sequence[Rendered], events: Sequence[Event]
) -> None:
    """Mark four points up to which the server shall cache the prompt. The first point is the first
    part of the prompt, and the second point is the last summary. The first part and the last
    summary stay when other events are forgotten. The third point is the end of the previous prompt,
    directly before the last answer. The fourth point is the end of the present prompt.
    """
    summaries = {
        position for position, event in enumerate(events) if type(event) is CondensationSummary
    }
    newest_first = range(len(messages) - 1, -1, -1)
    answer = next((index for index in newest_first if messages[index]["role"] == "assistant"), None)
    summary_index = next(
        (index for index in newest_first if not summaries.isdisjoint(shared[index].positions)),
        None,
    )
    # The previous prompt ended with the message before the last answer.
    former_end = None if answer is None else max(0, answer - 1)
    marked = (0, summary_index, former_end, len(messages) - 1) if messages else ()
    for number, index in enumerate(marked):
        content = None if index is None else messages[index]["content"]
        # A conversation without a beginning opens with a text, which has no parts to mark.
        if isinstance(content, list):
            # The first mark is on the first part of its message, and every other mark is on the
            # last part.
            content[-1 if number else 0]["cache_control"] = {"type": "ephemeral"}


def cut_trailing_space(messages: Sequence[Part]) -> None:
    """Cut white space from the end of the last message if the assistant wrote it, because the
    server refuses such white space.
    """
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text":
            last |= {"text": last["text"].rstrip()}


def _blocks(part: Part) -> Sequence[Part]:
    """Return the blocks of a part in a reply. Blocks that the server sent are sent back
    unchanged.
    """
    blocks: list[Part] = part["blocks"] if part["type"] == "server_tool" else [_block(part)]
    return blocks


def _block(part: Part) -> Part:
    """Return the block of a part, or a text block in place of a part that the server refuses."""
    if "cache_control" in part:
        mark = {"cache_control": part["cache_control"]}
    else:
        mark = {}
    if part["type"] == "text":
        return {**text_part(part["text"]), **mark}
    if part["type"] == "file":
        return _document(part, mark)
    if part["type"] == "search_result":
        return part
    if part["type"] == "anthropic":
        return {**part["block"]}
    url = image_url_of(part)
    if url is None:
        return name_part(part)
    media_type, data = data_of(url)
    if not data:
        return {"type": "image", "source": {"type": "url", "url": url}, **mark}
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": media_type, "data": data},
        **mark,
    }


def _document(part: Part, mark: Part) -> Part:
    """Return the block of a file. ``mark`` is its mark for the cache, if it has one. The server
    accepts PDFs, texts and images, and a text names any other file.
    """
    file: File = part["file"]
    source: Part
    if (text := file.text) is not None and not is_blank(text):
        source = {"type": "text", "media_type": "text/plain", "data": sendable(text)}
    elif file.media_type == PDF:
        source = {"type": "base64", "media_type": PDF, "data": file.data}
    elif file.media_type in IMAGE_TYPES:
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": file.media_type, "data": file.data},
            **mark,
        }
    elif file.url.startswith(("https://", "http://")):
        source = {"type": "url", "url": file.url}
    elif file.id.startswith("file_"):  # the ids of other servers have another form
        source = {"type": "file", "file_id": file.id}
    else:
        return file.named("PDFs, texts, and ids of uploaded files")
    context: Part = {
        name: part[name]
        for name, type_ in (("context", str), ("citations", dict))
        if isinstance(part.get(name), type_)
    }
    return {
        "type": "document",
        "source": source,
        **({"title": file.name} if file.name else {}),
        **context,
        **mark,
    }


def _tool_use(call: PairedCall) -> Part:
    """Return the block with a call."""
    arguments = json.loads(
        arguments_of(call.action), parse_float=_parse_number, parse_int=_parse_number
    )
    named_as = {"id": matching(call.id, _NAME_MAX), "name": matching(call.action.tool, _NAME_MAX)}
    return {"type": "tool_use", **named_as, "input": arguments}


def _parse_number(text: str) -> float | str:
    """Return the number in a JSON text. A number that is too large for a float stays a text,
    because most JSON parsers would read it as infinity.
    """
    value = float(text)
    if math.isinf(value):
        return text
    is_whole = "." not in text and "e" not in text.lower()
    return int(text) if is_whole else value


def _tool_result(call: PairedCall, moved: list[Part]) -> Part:
    """Return the block with the result of a call. The result of a failed call may contain only
    texts, so its images and files are added to ``moved``.
    """
    failed = call.observation.is_error
    if failed:
        parts = without_pictures(call.result, moved, "the failed call")
    else:
        parts = call.result
    # A result may not put a file into a container, so a text names the file.
    blocks = [
        name_part(part) if (block := _block(part))["type"] == "container_upload" else block
        for part in parts
    ]
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        content = blocks[0]["text"]
    else:
        content = blocks
    result = {"type": "tool_result", "tool_use_id": matching(call.id, _NAME_MAX)}
    return {
        **result,
        "content": content or text_of_empty_result(call.observation),
        **({"is_error": True} if failed else {}),
    }
