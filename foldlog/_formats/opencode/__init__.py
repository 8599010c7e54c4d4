"""OpenCode: messages with their parts, from its storage folder, its database, or what ``opencode export`` writes.

The records of a session are those of an export, in the order in which OpenCode reads its messages:

    {"info": {"id", "sessionID", "role", …}, "parts": […]}    a message
    {"info": {"id", "projectID", "title", …}}                 the session, at the end because each change is in it

docs/IMPORTING.md says what the parts become, and the tables below which parts a model is told in other words. A message
without an event is an Annotation, and so is an answer that failed. The session is an Annotation with its title; one
that was reverted (``revert``) takes back the messages from there on. OpenCode writes parts and messages again, so a
session grows by retractions: see ``Format.rewritten``. ``files.py`` finds the sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from foldlog._formats.blocks import kind_of, part_of, said, said_in, thinking_of
from foldlog._formats.format import Format, Options, first_named
from foldlog._formats.opencode.files import SessionFiles, info_of, session_in
from foldlog._formats.pairs import PairsEncoder, arguments_of, said_before
from foldlog._formats.record import (
    dict_or_empty,
    dicts_in,
    joined_text,
    text_or_empty,
    text_or_none,
    time_at,
    usage_told,
    within,
)
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog._formats.told import call_id_of, data_in, file_at, milliseconds_of, parts_as, role_of, session_of
from foldlog.eventstore import Action, Content, Event, Message, Observation, Retraction

NAME = "opencode"

_Part = dict[str, Any]


def _accepts(record: Any) -> bool:
    if type(dict_or_empty(record).get("info")) is not dict:
        return False
    return type(record["parts"]) is list if "parts" in record else "sessionID" not in record["info"]


def _is_session(record: Any) -> bool:
    return "info" in dict_or_empty(record) and "parts" not in record


# -- records to events ------------------------------------------------------------------------------------------------

_WORDS: dict[str, str | None] = {
    **dict.fromkeys(("agent", "step-start", "step-finish", "snapshot", "patch", "retry", "reasoning", "tool")),
    "compaction": "What did we do so far?",
    "subtask": "The following tool was executed by the user",
}
"""What OpenCode tells its model in the place of a part; nothing of those that are read elsewhere, or not at all."""
_CLEARED = "[Old tool result content cleared]"
_INTERRUPTED = "[Tool execution was interrupted]"
_IN_WORDS = ("text/plain", "application/x-directory")
"""Types of files whose words are texts beside them."""
_USAGE = {
    "prompt_tokens": ("input", "read", "write"),
    "cached_tokens": ("read",),
    "cache_write_tokens": ("write",),
    "completion_tokens": ("output", "reasoning"),
    "reasoning_tokens": ("reasoning",),
}


class _Decoder(FollowingDecoder):
    """Records of one session to events. Of what is shown it knows the id of the message."""

    def __init__(self, records: Iterable[Any], options: Options) -> None:
        super().__init__(records, options)
        sessions = [None, *filter(_is_session, records)]
        self._parent = text_or_empty(within(sessions[-1], "info", "parentID"))
        """The session that started this one, which the last record tells."""
        self._begun: dict[str, int] = {}
        """The version before each message and part, by its id."""
        self._asked: dict[Any, _Part] = {}
        """The part that asks for a compaction, by the id of its message."""

    def read(self, read: RecordEvents, record: _Part) -> None:
        info, parts = record["info"], dicts_in(record.get("parts"))
        read.known = read.origin.id or ""
        if read.version == 0 and self._parent:
            read.meta["parent"] = f"{self.options.prefix}{self._parent}"
        role = info.get("role") or "message"
        if "parts" not in record:
            role = "session"
            self._read_session(read, info)
        elif read.known:
            self._begun[read.known] = self.next_id
        if role == "assistant":
            read.meta |= _usage(info, parts)
            if not self._condense(read, info, parts) and not _has_failed(info, parts):
                self._read_response(read, parts)
        elif role == "user":
            self._read_question(read, parts)
        read.close(str(role), None)

    def _read_session(self, read: RecordEvents, info: _Part) -> None:
        whole, part = (text_or_empty(within(info, "revert", key)) for key in ("messageID", "partID"))
        begun = self._begun.get(part, self._begun.get(whole))
        if begun is not None:
            read.add(Retraction, version=begun)
        title = text_or_empty(info.get("title"))
        read.meta |= {"title": title} if title.strip() else {}

    def _read_question(self, read: RecordEvents, parts: list[_Part]) -> None:
        self._asked.update((read.known, part) for part in parts if part.get("type") == "compaction")
        told = [part for part in parts if part.get("type") != "file" or part.get("mime") not in _IN_WORDS]
        if content := said([each for part in told for each in _shown(part)]):
            texts = [part for part in told if part.get("type") == "text"]
            is_told = bool(texts) and all(part.get("synthetic") is True for part in texts)
            read.add(Message, content=content, source="environment" if is_told else "user")

    def _condense(self, read: RecordEvents, info: _Part, parts: list[_Part]) -> bool:
        """Add the condensation that a summary is, if OpenCode goes on from it."""
        parent = text_or_empty(info.get("parentID"))
        asked = self._asked.get(parent) if parent else None
        done = info.get("summary") is True and info.get("finish") and not info.get("error")
        summary = "\n".join(text_or_empty(part["text"]) for part in parts if kind_of(part) == "text" and part_of(part))
        if not done or asked is None or not summary:
            return False
        names = [*dict.fromkeys(known for _, known in self.shown.all()), parent]
        end, tail = names.index(parent), asked.get("tail_start_id")
        kept = names[names.index(tail) : end] if tail in names else []
        reason = "tokens" if asked.get("auto") is True else "request"
        read.condense(kept.__contains__, summary, {"reason": reason}, offset=0)
        return True

    def _read_response(self, read: RecordEvents, parts: list[_Part]) -> None:
        """Add the events of a model's steps: of each what it says, its calls, and their results. Thinking that nothing
        follows is that of the next step.
        """
        called: list[tuple[Action, _Part]] = []
        name, steps, begun = read.response, 0, read.version
        for part in (*parts, {"type": "step-start"}):
            kind, told = part.get("type"), _shown(part)
            if kind == "step-start" or (called and (told or kind in ("text", "reasoning"))):
                for call, state in called:
                    read.answer(call, **_result(state))
                if not called:
                    read.say("agent", as_text=True)
                steps += bool(called)
                read.response = f"{name}/{steps}" if steps else name
                called = []
            begun = begun if called else read.version
            if type(part.get("id")) is str:
                self._begun[part["id"]] = begun
            read.parts += told
            if kind == "reasoning":
                read.thinking.append(_thinking(part))
            elif kind == "tool":
                state = dict_or_empty(part.get("state"))
                called.append((read.call(part.get("tool"), state.get("input"), part.get("callID")), state))


def _has_failed(info: _Part, parts: list[_Part]) -> bool:
    """Return whether OpenCode leaves an answer out: it failed, or was aborted before it said anything."""
    if within(info, "error", "name") == "MessageAbortedError":
        return all(part.get("type") in ("step-start", "reasoning") for part in parts)
    return bool(info.get("error"))


def _shown(part: _Part) -> list[_Part]:
    """Return the parts of a content that a part says: one, or none."""
    kind, url = kind_of(part) or "", part.get("url")
    if kind == "file" and type(url) is str:
        return [file_at(url, text_or_empty(part.get("mime")), text_or_empty(part.get("filename")))]
    return said_in(None if kind == "text" and part.get("ignored") is True else _WORDS.get(kind, part))


def _result(state: _Part) -> _Part:
    """Return what a model is told of a call, and whether that is an error."""
    status, told = state.get("status"), within(state, "metadata", "output")
    if status == "completed" and within(state, "time", "compacted"):
        return {"content": _CLEARED}
    if status == "completed":
        files = [each for part in dicts_in(state.get("attachments")) for each in _shown(part)]
        output = text_or_empty(state.get("output"))
        return {"content": ({"type": "text", "text": output}, *files) if files else output}
    if status == "error" and type(told) is str and within(state, "metadata", "interrupted") is True:
        return {"content": told}
    if status == "error":
        return {"content": text_or_empty(state.get("error")), "is_error": True}
    return {"content": _INTERRUPTED, "is_error": True}


def _thinking(part: _Part) -> _Part:
    """Return a reasoning as the block that its provider takes back."""
    text = text_or_empty(part.get("text"))
    anthropic, openai = (dict_or_empty(within(part, "metadata", name)) for name in ("anthropic", "openai"))
    if type(anthropic.get("redactedData")) is str:
        return {"type": "redacted_thinking", "data": anthropic["redactedData"]}
    if type(anthropic.get("signature")) is str or type(openai.get("itemId")) is not str:
        return thinking_of(text, anthropic.get("signature"))
    summary = [{"type": "summary_text", "text": text}] if text else []
    encrypted = openai.get("reasoningEncryptedContent")
    item = {"type": "reasoning", "id": openai["itemId"], "summary": summary}
    return {**item, "encrypted_content": encrypted} if type(encrypted) is str else item


def _usage(info: _Part, parts: list[_Part]) -> _Part:
    """Return the usage of a response: that of its steps, also by itself, or if none tells it that of the message."""
    steps = [part["tokens"] for part in parts if part.get("type") == "step-finish" and type(part.get("tokens")) is dict]
    flat = [{**each, **dict_or_empty(each.get("cache"))} for each in steps or dicts_in([info.get("tokens")])]
    told = [used["usage"] for each in flat if (used := usage_told(each, _USAGE))]
    counts = {name: sum(each.get(name, 0) for each in told) for name in _USAGE}
    usage = usage_told(counts, model=info.get("modelID"), reply=info.get("id"), cost=info.get("cost"))
    return {**usage, "steps": told} if usage and len(told) > 1 else usage


# -- events to records ------------------------------------------------------------------------------------------------

_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
_BY_USER = {"agent": "build", "model": {"providerID": "", "modelID": ""}}
_BY_AGENT = {"modelID": "", "providerID": "", "mode": "build", "agent": "build"}
_RUN = {"path": {"cwd": "", "root": ""}, "cost": 0, "tokens": _NO_TOKENS}


class _Encoder(PairsEncoder):
    """Events of one history to messages."""

    _session = _last = ""

    def follow(self, events: Sequence[Event], record: Any) -> None:
        info = info_of(record)
        if type(info.get("sessionID")) is str:
            self._session, self._last = info["sessionID"], info.get("id", "")

    def written(self, events: Sequence[Any]) -> list[_Part]:
        return [self._message(event, _texts(event.content)) for event in events]

    def called(self, calls: Sequence[Action], results: Sequence[Observation | None]) -> list[_Part]:
        thought = said_before(calls)
        return [self._message(calls[0], [*(_texts(thought) if thought else ()), *map(_tool, calls, results)])]

    def _message(self, event: Event, parts: list[_Part]) -> _Part:
        session = self._session = self._session or f"ses_{session_of(event)}"
        name, by_agent = f"msg_{event.id:012}", role_of(event) == "assistant"
        info: _Part = {"id": name, "sessionID": session, "role": "assistant" if by_agent else "user"}
        info["time"] = {"created": milliseconds_of(event)}
        info |= {"parentID": self._last or name, **_BY_AGENT, **_RUN} if by_agent else _BY_USER
        self._last = name
        ids: _Part = {"sessionID": session, "messageID": name}
        ids |= {} if by_agent or event.source == "user" else {"synthetic": True}  # there is no role of a system
        numbered = [{"id": f"prt_{event.id:012}_{place}", **ids, **part} for place, part in enumerate(parts)]
        return {"info": info, "parts": numbered}


def _tool(call: Action, result: Observation | None) -> _Part:
    state: _Part = {"status": "pending", "input": arguments_of(call), "raw": ""}
    if result is not None:
        text = joined_text(result.content)
        told = {"error": text} if result.is_error else {"output": text, "title": "", "metadata": {}}
        time = {"start": milliseconds_of(call), "end": milliseconds_of(result)}
        status = "error" if result.is_error else "completed"
        state = {"status": status, "input": state["input"], **told, "time": time}
    return {"type": "tool", "callID": call_id_of(call), "tool": call.tool, "state": state}


def _texts(content: Content) -> list[_Part]:
    return parts_as(content, lambda text: {"type": "text", "text": text}, _file)


def _file(url: str, name: str) -> _Part:
    named = {"filename": name} if name else {}
    return {"type": "file", "mime": data_in(url)[0] or "image/png", "url": url, **named}


def _document(records: Iterable[Any]) -> _Part:
    """Return the document of a session, as ``opencode export`` writes it."""
    each = list(records)
    own = next((name for record in each if type(name := info_of(record).get("sessionID")) is str), "")
    named = {"slug": own, "title": "", "version": "", "projectID": "", "directory": ""}
    session: _Part = {"info": {"id": own, **named, "time": {"created": 0, "updated": 0}}}
    messages = [record for record in each if not _is_session(record)]
    return {**[session, *filter(_is_session, each)][-1], "messages": messages}


def _matches(record: Any) -> bool:
    """Return whether a record is a message that names its session, or a session that names its project."""
    info = info_of(record)
    if _is_session(record):
        return type(info.get("id")) is str and type(info.get("projectID")) is str
    is_message = bool(info) and type(record["parts"]) is list and info.get("role") in ("user", "assistant")
    return is_message and type(info.get("sessionID")) is str


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="a message of OpenCode with an object under 'info' and an array under 'parts'",
    time=lambda record: (time_at(within(record, "info", "time", "created"), 1000), None),
    decoder=_Decoder,
    encoder=_Encoder,
    conversation=first_named(session_in),
    files=SessionFiles(),
    rewritten=True,
    kept_in=("$XDG_DATA_HOME/opencode", "~/.local/share/opencode"),
    document=_document,
    source_id=lambda record: text_or_none(within(record, "info", "id")) or None,
    changed_at=lambda record: time_at(within(record, "info", "time", "updated"), 1000),
)
