"""Messages of Anthropic's API, as Cline and Roo Code store them: ``{"role", "content": [blocks],
…}``.

    api_conversation_history.json   of Cline and Roo Code, in a folder with the name of the task
    <session>.messages.json         of Cline since version 4
    any list of such messages       as a program sends them

The messages, and the events that they become:

    user: text, image, file, …      Message; from the environment if Cline or Roo Code wrote
                                    the whole text
    user: tool_result               an Observation for each result
    assistant: text, thinking       Message, with the calls that the server answered and their
                                    results
    assistant: tool_use             an Action for each use, with the text and thinking before it
    assistant: compaction           CondensationAction of all earlier events; the block stays a part
                                    of the Message
    isSummary (Roo Code)            CondensationAction: Roo Code sends its model the summary and all
                                    later messages
    isTruncationMarker (Roo Code)   CondensationAction that forgets the messages with its
                                    ``truncationParent``
    a mark of Cline's deletions     CondensationAction
    a message without content       Annotation
    the field ``system`` of a       SystemMessage; foldlog reads the field as a first message with
    request                         the role "system", and writes such messages into the field

The file ``ui_messages.json`` in the folder of a task contains the texts that the user sees. In
``ui_messages.json``, Cline marks the messages that are no longer sent to the model. Whenever Cline
deletes more messages, the import adds a record with the time, the range of deleted messages, and
the number of the newest message. The record of a deletion comes after the deleted messages. foldlog
reads nothing else in ``ui_messages.json``, because its texts repeat the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    Annotation,
    Content,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats.blocks import (
    THINKING,
    accepted_block,
    as_anthropic,
    blocks_of,
    is_blank,
    kind_of,
    result_of,
    texts_of,
    use_of,
)
from foldlog.formats.claude_code.reading import usage_in
from foldlog.formats.event_fields import parts_in
from foldlog.formats.files.documents import DocumentRecords
from foldlog.formats.files.readers import array_in
from foldlog.formats.format import Contained, FileReader, Format
from foldlog.formats.messages import COMPACTED_BY_PROVIDER, READER
from foldlog.formats.openai_chat import beside
from foldlog.formats.record import (
    Fields,
    Located,
    TimeAndId,
    at,
    dict_or_empty,
    dicts_in,
    first_of,
    member,
    omit,
    pick,
    text_or_empty,
    text_or_none,
    time_at,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.reply_encoders import RepliesEncoder, thinking_before, thoughts_before

NAME = "anthropic-messages"

_DELETED = "conversationHistoryDeletedRange"
"""The field in which Cline stores the numbers of the first and of the last deleted message."""

_THOUGHT = "reasoning"
"""The type of a reasoning item of OpenAI's Responses API. Roo Code stores a reasoning item before
its message.
"""
_ALWAYS_SENT = 2
"""Cline never deletes the first two messages of a task."""
_ADDED = "<environment_details>"
"""The context that Cline and Roo Code add to a user's message begins with this text."""
_MESSAGES = ("api_conversation_history.json", "claude_messages.json")
"""The names of the file with the messages of a task."""
_MARK = ("ts", "conversationHistoryIndex", _DELETED)
"""The fields of a record of a deletion."""
_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"))
"""The types of blocks by which a message is recognized."""
_FOREIGN_KEYS = ("tool_calls", "messageId")
"""A message with one of these fields is from OpenAI or from Amp, even if its blocks look like
Anthropic's blocks.
"""
_MILLISECONDS = 10**11
"""A higher number under ``ts`` is a time in milliseconds."""
_PROMPT_INDEX = -1
"""The number of a system prompt, among the numbers of messages."""


# -- files -----------------------------------------------------------------------------------------


class _Tasks(FileReader):
    """Reads the folders of tasks of Cline and Roo Code."""

    def holds(self, path: Path, begin: bytes) -> bool:
        if begin:
            return path.name in _MESSAGES
        return any((path / name).is_file() for name in _MESSAGES)

    def histories(self, path: Path) -> Iterator[Contained]:
        if path.is_dir():
            path = next(path / name for name in _MESSAGES if (path / name).is_file())
        marked = path.with_name("ui_messages.json")
        yield Contained(path.absolute().parent.name, _messages_with_marks(path, marked), [marked])


def _messages_with_marks(path: Path, marked: Path) -> DocumentRecords:
    """Return the messages of a task, with the records of Cline's deletions from the file
    ``marked``.
    """
    marks = _marks(marked) if marked.is_file() else {}
    text, messages = array_in(path)
    records = list[Located]()
    for number, message in enumerate(messages):
        records += [message, *marks.get(number, ())]
    return DocumentRecords(text, records)


def _marks(path: Path) -> dict[int, list[Located]]:
    """Return a dict from the number of a message to the records of Cline's deletions that come
    after this message. Raises ``NotAHistory`` if the file is damaged: without these records, the
    history would show deleted messages.
    """
    marks: dict[int, list[Located]] = {}
    before: Any = None
    _, messages = array_in(path)
    for located in messages:
        match located.value:
            case {"conversationHistoryDeletedRange": [int(), int(last)] as deleted, **rest} if (
                deleted != before
            ):
                index = rest.get("conversationHistoryIndex")
                before = deleted
                mark = pick(located.value, _MARK)
                number = max(last, index) if type(index) is int else last
                marks.setdefault(number, []).append(at(located.place, mark))
    return marks


# -- messages to events ----------------------------------------------------------------------------


def _accepts(record: Any) -> bool:
    return (
        type(record) is dict
        and record.get("role") in ("user", "assistant", "system")
        and "content" in record
    )


class AnthropicDecoder(FollowingDecoder):
    """Tags each shown event with the number and the ``truncationParent`` of its message. A system
    prompt has the number -1, because it stays whatever a summary replaces.
    """

    has_own_ids = True

    def set_up(self) -> None:
        self._count = 0
        """The number of the next message."""

    def read_redacted(self, collected: RecordEvents, record: Fields) -> None:
        self._number(collected, record)
        super().read_redacted(collected, record)

    def _number(self, collected: RecordEvents, record: Fields) -> None:
        """Tag the events of a record, and count it if it is a message."""
        is_prompt = record.get("role") == "system"
        collected.tag = (
            _PROMPT_INDEX if is_prompt else self._count,
            text_or_none(record, "truncationParent"),
        )
        if not is_prompt and "role" in record and _DELETED not in record:
            self._count += 1

    def read(self, collected: RecordEvents, record: Fields) -> None:
        self._number(collected, record)
        if record.get("role") == "system":
            content = READER.content(_known(record.get("content")), "the system prompt")
            collected.add(SystemMessage, content=content)
        elif record.get("type") == _THOUGHT:
            data = omit(record, "type", "id", "ts")
            collected.add(
                Annotation,
                name=_THOUGHT,
                data=data,
                source="agent",
                shown=True,
                stays_with_next=True,
            )
        elif not self._condense(collected, record):
            if any(map(_is_summary, dicts_in(record, "content"))):
                collected.condense(
                    lambda known: known[0] == _PROMPT_INDEX,
                    metadata={"reason": COMPACTED_BY_PROVIDER},
                )
            read_blocks(collected, record)
        collected.close("message", first_of(record, "content", _DELETED))

    def begin_record(self, record: Fields, time_and_id: TimeAndId) -> RecordEvents:
        collected = super().begin_record(record, time_and_id)
        _note_usage(collected, record)
        return collected

    def _condense(self, collected: RecordEvents, record: Fields) -> bool:
        """Add the condensation of a summary, or of deleted messages. Return whether one was
        added.
        """
        match record:
            case {"isSummary": True} if summary := _text(record):
                # in 2025 Roo Code wrote the summary as an assistant message after the task, and
                # still sent the task
                first = 0 if record.get("role") == "user" else 1
                collected.condense(lambda known: known[0] < first, summary)
            case {"isTruncationMarker": True, "truncationId": str(marker)} if summary := _text(
                record
            ):
                collected.condense(lambda known: known[1] != marker, summary)
            case {"conversationHistoryDeletedRange": [int(), int(last)]}:
                deleted = {
                    member for member in self.shown.tags() if _ALWAYS_SENT <= member[0] <= last
                }
                if deleted:
                    collected.condense(lambda known: known not in deleted)
        return bool(collected.events)


def read_blocks(collected: RecordEvents, record: Fields) -> None:
    """Add the events of a message. Context that Cline or Roo Code added is the environment's."""
    message = {"role": record.get("role"), "content": _known(record.get("content"))}
    for event in READER.anthropic(message, collected.response):
        if isinstance(event, Message):
            texts = (text_or_empty(part, "text").lstrip() for part in parts_in(event.content))
            is_added = event.source == "user" and all(text.startswith(_ADDED) for text in texts)
            source = "environment" if is_added else event.source
            event = replace(event, source=source, shown=not is_blank(event.content))
        collected.take(event)


def _note_usage(collected: RecordEvents, record: Fields) -> None:
    """Store the model, the usage and the cost in the ``meta`` of a message's first event."""
    collected.meta = usage_in(record)
    model = dict_or_empty(record, "modelInfo")
    metrics = dict_or_empty(record, "metrics")
    # Cline writes the cost 0 for a model without a price
    cost = metrics.get("cost") or None
    tokens = metrics.get("tokens")
    if tokens is not None:
        names = {"cached_tokens": "cached", "completion_tokens": "completion"}
        collected.tell(
            model.get("modelId"), cost, tokens, prompt_tokens=("prompt", "cached"), **names
        )
    elif metrics or model:  # Cline 4: the tokens of the cache are part of the prompt
        named = first_of(model, "modelId", "id")
        names = {"prompt_tokens": "inputTokens", "cached_tokens": "cacheReadTokens"}
        names |= {"cache_write_tokens": "cacheWriteTokens", "completion_tokens": "outputTokens"}
        collected.tell(named, cost, metrics, **names)


def _known(content: Any) -> Any:
    """Cline 4 writes parts with files. Convert such parts into texts, and leave out empty texts."""
    if type(content) is list:
        return [part for block in content if (part := _part(block)) is not None]
    return content


def _part(block: Any) -> Fields | None:
    """Return a block in Anthropic's format, or None for an empty text."""
    match block:
        case {"type": "compaction"}:
            # the block goes back to the server unchanged
            return {"type": "server_tool", "blocks": [block]}
        case {"type": "file", "content": str(text), "path": str(path)}:
            return {
                "type": "text",
                "text": f'<file_content path="{path}">\n{text}\n</file_content>',
            }
        case {"type": "tool_result"}:
            return {**block, "content": _known(block.get("content"))}
    return accepted_block(block)


def _is_summary(block: Fields) -> bool:
    """Return whether a block is a compaction, after which the server ignores all earlier messages.
    Return False for a block without content, because its compaction failed.
    """
    return kind_of(block) == "compaction" and bool(
        block.get("content") or block.get("encrypted_content")
    )


def _text(record: Fields) -> str:
    """Return the texts of a message."""
    return "\n".join(texts_of(READER.content(_known(record.get("content")), "")))


# -- events to messages ----------------------------------------------------------------------------


class _Encoder(RepliesEncoder):
    """Writes messages. Only system prompts before the first message keep their role."""

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    def follow(self, events: Sequence[Event], record: Any) -> None:
        super().follow(events, record)
        self._has_begun = self._has_begun or not is_prompt(record)

    def records_of_results(self, results: Sequence[Observation]) -> Sequence[Any]:
        return [{"role": "user", "content": list(map(result_of, results))}]

    def records_of(self, events: Sequence[Any]) -> Sequence[Any]:
        event = events[0]
        if isinstance(event, SystemMessage) and not self._has_begun:
            return [{"role": "system", "content": _prompt(event.content)}]
        self._has_begun = True
        match event:
            case Action():
                blocks = [
                    *_only_thinking(thinking_before(events)),
                    *blocks_of(thoughts_before(events)),
                    *map(use_of, events),
                ]
                return [{"role": "assistant", "content": blocks}]
            case Message(source="agent", thinking=thinking, content=content):
                return [
                    {
                        "role": "assistant",
                        "content": [*_only_thinking(thinking), *blocks_of(content)],
                    }
                ]
        # Between Anthropic's messages, there is no role for the system.
        return [{"role": "user", "content": as_anthropic(event.content)}]


def _prompt(content: Content) -> str | list[Fields]:
    """Return a system prompt, which has only texts at Anthropic's server."""
    if isinstance(content, str):
        return content
    return [block for block in blocks_of(content) if block["type"] == "text"]


def _only_thinking(thinking: Iterable[Fields]) -> list[Fields]:
    return [block for block in thinking if kind_of(block) in THINKING]


# -- the format ------------------------------------------------------------------------------------


def is_prompt(record: Any) -> bool:
    """Return whether a record is a system prompt."""
    return type(record) is dict and record.get("role") == "system"


def _document(records: Iterable[Any]) -> Any:
    """Return the body of a request, or for a task of Cline or Roo Code the list that they store."""
    written = [record for record in records if _accepts(record) or _DELETED not in record]
    if any(map(_is_stored, written)):
        return written
    prompts = [record["content"] for record in written if is_prompt(record)]
    messages = [record for record in written if not is_prompt(record)]
    if not prompts:
        return {"messages": messages}
    if len(prompts) == 1:
        return {"system": prompts[0], "messages": messages}
    return {
        "system": [block for prompt in prompts for block in blocks_of(prompt)],
        "messages": messages,
    }


def _is_stored(record: Any) -> bool:
    """Return whether a record has fields that Cline or Roo Code add to a message."""
    time = within(record, "ts")
    return (type(time) is int and time > _MILLISECONDS) or (
        type(within(record, "modelInfo")) is dict
    )


def _matches(record: Any) -> bool:
    """Return whether a record is certainly a message with Anthropic's blocks."""
    if (
        not _accepts(record)
        or type(record["content"]) is not list
        or any(key in record for key in _FOREIGN_KEYS)
    ):
        return False
    kinds = {kind_of(block) for block in record["content"]}
    return (_is_stored(record) and None not in kinds) or not _BLOCKS.isdisjoint(kinds)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=lambda record: (
        _accepts(record)
        or member(_DELETED)(record) is not None
        or member("type")(record) == _THOUGHT
    ),
    expected="a message with content and the 'role' of a user or an assistant",
    time=lambda record: (time_at(record.get("ts"), 1000), None),
    looks_like="openai-chat",
    dialect="anthropic",
    decoder=AnthropicDecoder,
    encoder=_Encoder,
    lacks=frozenset(
        (
            "role of a later system prompt",
            "other part of a system prompt",
            "file",
            "detail of an image",
            "item of reasoning",
            "count of tokens",
            "cost",
            "form of a custom tool's call",
            "field of a chat message",
            "field of a chat call",
        )
    ),
    beside=beside,
    files=_Tasks(),
    kept_in=(
        "~/.cline/data/tasks",
        "~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
        "~/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks",
        "~/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
        "~/Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks",
    ),
    document=_document,
    source_id=member("id"),
)
