"""Logs of Inspect, ``.eval`` and ``.json``. Each sample of a log is a history.

    x.eval   a zip of ``header.json`` and ``samples/<id>_epoch_<n>.json``
    x.json   {"version", "status", "eval", …, "samples": [{"id", "epoch", "messages": […], …}]}

The records are the messages of a sample. In the messages, the texts of the sample's ``attachments``
replace the references to attachments. The last record has the fields of the sample, without its
messages and events. If the log has the calls of models, the record also has the usage of the
sample's own agent (``own_usage``), because ``model_usage`` includes the agents that tools called.

An agent that a tool called is a history too. Its messages are those of its last prompt, and the
reply to it. The records become these events:

    system                   SystemMessage
    user                     Message; with ``summary`` in its metadata a CondensationAction: Inspect
                             sends the system messages, the input and the summary
    assistant                Message, or an Action for each call; the reasoning before the call is
                             its thinking
    tool                     Observation; if the record has an error, the content is the message of
                             the error, because Inspect sends this message to the model
    the end of the sample    Annotation for each model that the agent used, with its tokens

If a compaction without a summary (trim, edit, native) removed messages, the View still shows them,
because the records do not mention the compaction.
"""

from __future__ import annotations

import lzma
import re
import struct
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from foldlog._base.values import replace_texts
from foldlog.eventstore import Annotation, SystemMessage
from foldlog.eventstore.files.compressed import unpacked_of
from foldlog.formats.blocks import kind_of, shown_blocks, texts_of, thinking_of
from foldlog.formats.files.found_sources import NotAHistory
from foldlog.formats.files.readers import Placed, object_in
from foldlog.formats.format import Contained, FileReader, Format
from foldlog.formats.json_text import UnreadableJson, parse
from foldlog.formats.record import (
    Fields,
    Located,
    at,
    dict_or_empty,
    dicts_in,
    first_of,
    member,
    omit,
    read_time,
    text_or_empty,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents

NAME = "inspect-eval"

_NOT_KEPT = frozenset(
    (
        "messages",
        "events",
        "events_data",
        "attachments",
        "store",
        "timelines",
        "input",
        "output",
        "files",
        "setup",
    )
)
"""The fields of a sample that repeat its messages, or do not belong to the history."""
_SAMPLE = re.compile(r"samples/.+\.json")
# The beginning of a log that is not packed.
_LOG = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:')
_ZIP = re.compile(rb"PK\x03\x04.{26}(_journal/start|header)\.json", re.DOTALL)
"""Matches the beginning of a packed log: the header of the first file in the zip."""
_ZSTD = 93
"""The number of the compression zstd in a zip."""
_RATIO_MAX = 100
_SIZE_LEAST = 64 * 2**20
"""A sample may unpack to ``_SIZE_LEAST`` bytes, or to ``_RATIO_MAX`` times its packed bytes. A file
of a megabyte could otherwise fill the memory, because repeated text shrinks to a thousandth.
"""
_PIECE = 2**20
"""The number of bytes that are unpacked together."""
_UNREADABLE = (
    UnreadableJson,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,  # a header of a file that is cut off
    EOFError,
    RuntimeError,  # an encrypted file, or a compression that Python does not know
    UnicodeDecodeError,  # a name that is not in the encoding that its header names
    OSError,
)
"""The errors for a file in a packed log that cannot be read."""
_NO_LIST = (zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError)
"""The errors for a packed log whose list of files is damaged."""
_REFERENCES = ("attachment://", "tc://")
"""The beginnings of texts in messages that refer to an attachment."""
_ROLES = ("system", "user", "assistant", "tool")


# -- files -----------------------------------------------------------------------------------------


class _Logs(FileReader):
    """Reads logs, packed or not."""

    def holds(self, path: Path, begin: bytes) -> bool:
        return _ZIP.match(begin) is not None or (
            _LOG.match(begin) is not None and b'"eval"' in begin
        )

    def histories(self, path: Path) -> Iterator[Contained]:
        with path.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        if is_zip:
            try:
                yield from _in_zip(path)
            except _NO_LIST as error:
                raise NotAHistory(
                    path, f"is a log of Inspect that is damaged, or not yet finished: {error}"
                ) from error
            return
        log = object_in(path).value
        samples = log.get("samples")
        if type(samples) is not list:
            raise NotAHistory(path, "holds no array under 'samples', where its histories would be")
        for number, sample in enumerate(samples):
            yield from _histories_of_sample(log, sample, None, f"{path}, sample {number}")


def _in_zip(path: Path) -> Iterator[Contained]:
    """Yield the histories in a packed log. Raises one of ``_NO_LIST`` if its list is damaged."""
    with zipfile.ZipFile(path) as log:
        # Inspect may write a second header after the other files; the last header counts
        entries = {entry.filename: entry for entry in log.infolist()}
        # a running evaluation has a journal instead of a header
        header = entries.get("header.json", entries.get("_journal/start.json"))
        about = None if header is None else _value_or_problem(log, header)[0]
        for name in sorted(filter(_SAMPLE.fullmatch, entries)):
            yield from _histories_of_sample(
                about, *_value_or_problem(log, entries[name]), f"{path}/{name}"
            )


def _value_or_problem(log: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[Any, str | None]:
    """Return the JSON value of a file in a packed log, or None and why it cannot be read."""
    size_max = max(_SIZE_LEAST, _RATIO_MAX * entry.compress_size)
    try:
        text = b"".join(_at_most(size_max, _unpacked(log, entry)))
        return parse(text), None
    except _UNREADABLE as error:
        return None, f"cannot be read: {getattr(error, 'strerror', error) or 'it is cut off'}"


def _unpacked(log: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the content of a file in ``log``, in pieces of at most some megabytes."""
    if entry.compress_type != _ZSTD:
        with log.open(entry) as content:
            yield from iter(partial(content.read, _PIECE), b"")
        return
    # before Python 3.14, ``zipfile`` cannot read zstd
    file = log.fp
    assert file is not None  # an open ZipFile has its file
    file.seek(entry.header_offset + 26)
    name_size, extra_size = struct.unpack("<HH", file.read(4))
    file.seek(name_size + extra_size, 1)
    packed = file.read(entry.compress_size)
    yield from unpacked_of([packed])


def _at_most(size_max: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces, and raise ``UnreadableJson`` if they have more than ``size_max`` bytes."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > size_max:
            raise UnreadableJson(
                f"it unpacks to more than {size_max:,} bytes, the limit for its packed size; if it"
                " is sound, convert the log with: inspect log convert --to json"
            )
        yield piece


class _Agents:
    """The agents of a sample, each with its calls of models. An agent that a tool called has the id
    of a span, and the agent of the sample has an empty id. ``begun_by`` maps a called agent to the
    id of the call.
    """

    def __init__(self, sample: Fields) -> None:
        self._pool = dicts_in(sample, "events_data", "messages")
        self._above = dict[str, str]()
        self.begun_by = dict[str, str]()
        self._replies = defaultdict[str, list[Fields]](list)
        events = dicts_in(sample, "events")
        for event in events:
            if event.get("event") == "span_begin":
                self._above[text_or_empty(event, "id")] = text_or_empty(event, "parent_id")
            elif agent := text_or_empty(event, "agent_span_id"):
                self.begun_by[agent] = text_or_empty(event, "id")
        for event in events:
            if dict_or_empty(event, "output"):
                self._replies[self._agent_at(text_or_empty(event, "span_id"))].append(event)
        self.begun_by = {agent: self.begun_by[agent] for agent in self._replies if agent}

    def _agent_at(self, span: str) -> str:
        """Return the agent in whose span a span is."""
        passed = set[str]()
        while span and span not in self.begun_by and span not in passed:
            passed.add(span)
            span = self._above.get(span, "")
        return span if span in self.begun_by else ""

    def caller_of(self, agent: str) -> str:
        """Return the agent whose call began an agent."""
        return self._agent_at(self._above.get(agent, ""))

    def messages(self, agent: str) -> list[Any]:
        """Return the last prompt of an agent, and the reply to it."""
        reply = self._replies[agent][-1]
        prompt = dicts_in(reply, "input")
        places = reply.get("input_refs")
        if type(places) is list:
            for place in places:
                match place:
                    case [int(start), int(stop)]:
                        prompt += self._pool[start:stop]
        return [
            *prompt,
            *(choice.get("message") for choice in dicts_in(reply, "output", "choices")),
        ]

    def usage(self, agent: str) -> Fields:
        """Return the field ``own_usage``: the calls and the usage of each model of an agent. The
        field is empty if the agent called no model, because Inspect's cache had all its replies.
        Return no field if the log has no calls of models, so that nothing is known of the agent.
        """
        if not self._replies:
            return {}
        usage = defaultdict[str, Counter[str]](Counter)
        for reply in self._replies.get(agent, ()):
            counts = dict_or_empty(reply, "output", "usage")
            # a reply from Inspect's cache has usage too, but no model was called
            if counts and reply.get("cache") != "read":
                numbers = {
                    name: count for name, count in counts.items() if type(count) in (int, float)
                }
                usage[text_or_empty(reply, "model")].update({"calls": 1, **numbers})
        return {"own_usage": {model: dict(counts) for model, counts in usage.items()}}


def _histories_of_sample(
    log: Any, sample: Any, problem: str | None, place: str
) -> Iterator[Contained]:
    """Yield the history of a sample, and the histories of the agents that its tools called. ``log``
    are the fields of the log, and ``problem`` is why the sample cannot be read.
    """
    about = dict_or_empty(log, "eval")
    sample = dict_or_empty(sample)
    run = first_of(about, "eval_id", "run_id")
    name = f"{sample['id']}_epoch_{sample.get('epoch', 1)}" if "id" in sample else None
    full_name = f"{run}/{name}" if type(run) is str and name else name
    messages = sample.get("messages", [])
    texts = dict_or_empty(sample, "attachments")
    agents = _Agents(sample)
    end = {**omit(sample, *_NOT_KEPT), **agents.usage("")}
    records = Placed(partial(_records, messages, end, texts, problem, place))
    yield Contained(full_name, records)
    if full_name:
        for agent, call in agents.begun_by.items():
            caller = agents.caller_of(agent)
            link = {"parent": f"{full_name}/{caller}".rstrip("/"), "parent_call": call}
            end = {"id": agent, "epoch": sample.get("epoch", 1), **agents.usage(agent)}
            records = Placed(partial(_records, agents.messages(agent), end, texts, None, place))
            yield Contained(f"{full_name}/{agent}", records, link=link)


def _records(
    messages: Any, end: Fields, attachments: Fields, problem: str | None, place: str
) -> Iterator[Located]:
    """Yield messages with the texts of attachments in place of references, and then ``end``."""
    instead = {f"{begin}{key}": text for key, text in attachments.items() for begin in _REFERENCES}
    for message in messages if type(messages) is list else [messages]:
        yield at(place, replace_texts(message, instead))
    yield at(place, end, problem)


def _accepts(record: Any) -> bool:
    return type(record) is dict and (record.get("role") in _ROLES or "epoch" in record)


def _matches(record: Any) -> bool:
    """Return whether a record is certainly a message or the end of a sample of Inspect."""
    if not _accepts(record):
        return False
    calls = record.get("tool_calls")
    source = record.get("source")
    if "role" not in record:
        return "id" in record and "target" in record
    is_call = type(calls) is list and any(
        type(call) is dict and type(call.get("function")) is str for call in calls
    )
    is_result = record["role"] == "tool" and type(record.get("function")) is str
    return "content" in record and (
        is_call or is_result or source in ("input", "generate", "operator")
    )


# -- records to events -----------------------------------------------------------------------------


class _Decoder(FollowingDecoder):
    """Tags each shown event with whether it stays in the View after a summary. System prompts, the
    input, and all events up to the first message of the user stay.
    """

    has_own_ids = True
    _asked = False
    """Whether a message of the user has come."""

    def read(self, collected: RecordEvents, record: Fields) -> None:
        role = record.get("role")
        content = record.get("content")
        collected.tag = role == "system" or record.get("source") == "input" or not self._asked
        self._asked = self._asked or role == "user"
        for block in content if type(content) is list else [content]:
            _read_block(collected, block)
        match role:
            case None:
                _read_sample(collected, record)
            case "system":
                collected.add(SystemMessage, content=_text(collected))
            case "tool":
                result = content if type(content) is str else tuple(collected.parts)
                error_message = within(record, "error", "message")
                if type(error_message) is str:
                    result = error_message
                failed = bool(record.get("error"))
                collected.answer(
                    record.get("tool_call_id"), result, tool=record.get("function"), is_error=failed
                )
            case "user" if type(record.get("metadata")) is dict and "summary" in record["metadata"]:
                collected.condense(bool, _text(collected))
            case "assistant":
                for call in dicts_in(record, "tool_calls"):
                    collected.call(call.get("function"), call.get("arguments"), call.get("id"))
                collected.say("agent")
            case _:
                collected.say("user", as_text=type(content) is str)
        collected.close(text_or_empty(role) or "sample", {"content": content})


def _text(collected: RecordEvents) -> str:
    """Return the collected texts."""
    return "\n\n".join(texts_of(tuple(collected.parts)))


def _read_block(collected: RecordEvents, block: Any) -> None:
    """Collect a part of a message for its next event."""
    if kind_of(block) == "reasoning":
        text = text_or_empty(block, "reasoning")
        redacted = text if block.get("redacted") is True else None
        collected.thinking.append(thinking_of(text, block.get("signature"), redacted))
    else:
        collected.parts += shown_blocks(block)


def _read_sample(collected: RecordEvents, sample: Fields) -> None:
    """Add an annotation for each model of a sample, with its usage."""
    # an empty own_usage is known too: only agents that tools called spent what model_usage counts
    spent = first_of(sample, "own_usage", "model_usage")
    for model, usage in dict_or_empty(spent).items():
        counts = dict_or_empty(usage)
        collected.tell(
            model,
            counts.get("total_cost") or None,
            counts,
            prompt_tokens=("input_tokens", "input_tokens_cache_write", "input_tokens_cache_read"),
            cached_tokens="input_tokens_cache_read",
            cache_write_tokens="input_tokens_cache_write",
            completion_tokens="output_tokens",
            reasoning_tokens="reasoning_tokens",
            total_tokens="total_tokens",
        )
        named = [model, *map(sample.get, ("uuid", "id", "epoch", "completed_at"))]
        collected.meta |= {"reply": repr(named), "calls": counts.get("calls", 0)}
        collected.add(Annotation, name="sample", data={"model": model, "usage": usage})


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="a message of Inspect with a role",
    time=lambda record: read_time(within(record, "completed_at")),
    decoder=_Decoder,
    files=_Logs(),
    source_id=member("id"),
)
