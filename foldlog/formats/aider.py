"""The chat history of aider, ``.aider.chat.history.md``. Every run of aider in a folder adds a
session to this Markdown file.

    # aider chat started at 2026-03-01 10:00:00     the first line of a session, with the local time
    #### add a button                               a line of the user, with two spaces at its end
    > Tokens: 2.1k sent, 120 received.              a line of aider: its version, questions, tokens,
                                                    edits
    I will add it.                                  any other line: text of the model

The file has no records, so foldlog makes a record for each block: ``{"aider": "start" | "user" |
"tool" | "assistant", "text"}``. ``raw`` has the original text of a block that aider would write
differently. Joined in order, the blocks are the whole file.

    start, tool     Annotation. If the text says that the history was cleared, the event is a
                    condensation of all shown events
    user            Message. A command to aider is an Annotation, except a command that sends a text
                    to the model (``/ask``)
    assistant       Message

A line of the model's text may also begin with ``####`` or ``>``. But aider ends its own lines and
the user's lines with two spaces. In each session, foldlog looks at the first line that begins with
``####`` or ``>``. If this line ends with two spaces, foldlog expects two spaces after every line of
aider and of the user. A later line without the two spaces belongs to the model's text if it follows
a blank line, and to aider's text if it follows a line of aider.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from foldlog.eventstore import Message
from foldlog.formats.files.found_sources import NotAHistory
from foldlog.formats.files.readers import Placed
from foldlog.formats.format import Contained, FileReader, Format, Options
from foldlog.formats.json_text import RECORD_SIZE_MAX, TOO_LONG
from foldlog.formats.record import Fields, Located, RecordReader, read_time, usage_meta
from foldlog.formats.record_events import FollowingDecoder, RecordEvents

NAME = "aider"

_START = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \r]*\n?")
_MARKS = {"user": "#### ", "tool": "> "}
_BREAK = "  "
"""Two spaces end every line of aider and of the user, because two spaces break a line in
Markdown.
"""
_TITLE = "# aider chat started at "
"""The beginning of the first line of a session."""
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WITH_BLANK = ("start", "assistant")
"""The kinds of blocks to which the blank line after them belongs."""
_KINDS = ("start", "user", "tool", "assistant")

_SENT = re.compile(r"/(?:ask|code|architect|context|help)\s+(.+)", re.DOTALL)
"""Commands whose text goes to a model."""
_CLEAR = re.compile(r"/(?:clear|reset)\s*$")
_CLEARED = ("All chat history cleared.", "All files dropped and chat history cleared.")
_BLANK = "<blank>"
"""The text that aider writes for an empty prompt. aider does not send an empty prompt."""

_MODEL = re.compile(r"(?:Main model|Model|Models): (\S+)")
_COUNT = r"(\d{1,9}(?:\.\d)?)(k?)"
_TOKENS = re.compile(
    rf"Tokens: {_COUNT} sent(?:, {_COUNT} cache write)?(?:, {_COUNT} cache hit)?, {_COUNT}"
    r" received\.(.*)"
)
_COST = re.compile(r"Cost: \$(\d{1,9}(?:\.\d{1,9})?) (?:message|send)")


# -- the file --------------------------------------------------------------------------------------


_BESIDE = (
    ".aider.chat.history.md",
    ".aider.input.history",
    ".aider.conf.yml",
    ".aider.llm.history",
)
"""The names of the files that aider writes. The chats are in ``.aider.chat.history.md``."""
_NO_CHAT = (
    "holds no chat with a model; aider writes its chats into .aider.chat.history.md, each after"
    " a line that begins with '# aider chat started at'"
)


class _Files(FileReader):
    """Reads each session of a file as a history. The name of a history consists of the folder and
    the time of the session. Sessions that sent nothing to a model are left out.
    """

    def holds(self, path: Path, begin: bytes) -> bool:
        lines = begin.lstrip().splitlines(keepends=True)
        is_named = path.name in _BESIDE and not path.is_dir()
        return is_named or (bool(lines) and _START.fullmatch(lines[0]) is not None)

    def histories(self, path: Path) -> Iterator[Contained]:
        folder = path.absolute().parent.name
        says_something = False
        for line, start, end, time in _sessions(path):
            session = Placed(partial(_located_blocks, path, line, start, end))
            if _says_something(session):
                says_something = True
                yield Contained(f"{folder}/aider-{time.replace(' ', 'T')}", session)
        if not says_something:
            raise NotAHistory(path, _NO_CHAT, foreign=True)


def _sessions(path: Path) -> Iterator[tuple[int, int, int, str]]:
    """For each session, yield the number of its first line, the offsets of its beginning and end,
    and its time.
    """
    begun: tuple[int, int, str] | None = None
    with path.open("rb") as file:
        offset = 0
        is_after_blank = True
        offset_before = 0
        for number, line in enumerate(file):
            if is_after_blank and (match := _START.fullmatch(line)) is not None:
                time = match[1].decode()
                if begun is None:
                    begun = 1, 0, time
                else:
                    # The session includes the blank line before its first line.
                    first_line, start, begun_at = begun
                    yield first_line, start, offset_before, begun_at
                    begun = number, offset_before, time
            is_after_blank = not line.strip()
            offset_before = offset
            offset += len(line)
    if begun is not None:
        first_line, start, begun_at = begun
        yield first_line, start, offset, begun_at


def _located_blocks(path: Path, line: int, start: int, end: int) -> Iterator[Located]:
    """Yield the records of a session, which is between two offsets and begins in ``line``."""
    with path.open("rb") as file:
        file.seek(start)
        text = file.read(end - start).decode(errors="surrogateescape")
    for kind, block in _blocks(text):
        problem = None if len(block) <= RECORD_SIZE_MAX else TOO_LONG
        try:
            block.encode()
        except UnicodeEncodeError:
            problem = "not UTF-8"
        record = None if problem else _record_of_block(kind, block)
        yield Located(line, 0, record, problem, str(path))
        line += block.count("\n")


def _says_something(session: RecordReader) -> bool:
    """Return whether a session has a message, or a block that cannot be read."""
    decoder = FORMAT.reader(Options())
    return any(
        block.problem is not None or isinstance(decoder.events(block.value)[0], Message)
        for block in session
    )


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each block of a session, in order. When a session grows, all
    blocks except the last stay unchanged.

    The blank line that ends a model's text, or follows the first line of the session, belongs to
    the block before it. Any other blank line belongs to the block after it.
    """
    kind = "start"
    block = ""
    blank = ""
    breaks: bool | None = None
    goes_on = False  # whether the last line of aider ends without the two spaces
    for line in _LINE.findall(text):
        if not line.strip():
            blank += line
            continue
        body = line.rstrip("\r\n")
        marked = next((kind for kind, mark in _MARKS.items() if body.startswith(mark)), None)
        ended = body.endswith(_BREAK)
        if breaks is None and marked is not None:
            breaks = ended
        if not block:
            block = blank + line
            blank = ""
            continue
        if marked is not None and (ended or not breaks):
            line_kind = marked
        elif breaks and (goes_on or (kind == "tool" and not blank)):
            line_kind = "tool"
        elif marked == "tool" and kind == "user" and not blank:
            line_kind = "tool"  # a model's text begins after a blank line
        else:
            line_kind = "assistant"
        continued = goes_on
        goes_on = line_kind == "tool" and bool(breaks) and not ended
        if line_kind == kind and (kind == "assistant" or continued or not blank):
            block += blank + line
            blank = ""
            continue
        if kind in _WITH_BLANK and blank:
            first = _LINE.findall(blank)[0]
            block += first
            blank = blank[len(first) :]
        yield kind, block
        kind = line_kind
        block = blank + line
        blank = ""
    yield kind, block + blank


def _record_of_block(kind: str, raw: str) -> Fields:
    """Return the record of a block. It has the original text only if aider would write another."""
    plain = raw.replace("\r\n", "\n")
    text = plain.strip("\n")
    if kind == "start":
        text = text.strip().removeprefix(_TITLE)
    elif kind in _MARKS:
        mark = _MARKS[kind]
        lines = (
            line.removeprefix(mark if line.startswith(mark) else mark.rstrip())
            for line in text.split("\n")
        )
        text = "\n".join(line.removesuffix(_BREAK) for line in lines)
    record = {"aider": kind, "text": text}
    for candidate in (record, {**record, "ends": "\r\n"}):  # "\r\n" ends a line on Windows
        if _markdown(candidate) == raw:
            return candidate
    return {**record, "raw": raw}


def _markdown(record: Fields) -> str:
    """Return the text that aider would write for a record."""
    raw = record.get("raw")
    kind = record["aider"]
    text = record["text"]
    ends = record.get("ends")
    if type(raw) is str:
        return raw
    match kind:
        case "start":
            written = f"\n{_TITLE}{text}\n\n"
        case "assistant":
            written = f"\n{text}\n\n"
        case _:
            lines = (f"{_MARKS[kind]}{line}" for line in text.split("\n"))
            written = "".join(
                f"{line.rstrip() if kind == 'tool' else line}{_BREAK}\n" for line in lines
            )
            if kind == "user":
                written = f"\n{written}"
    return written.replace("\n", ends) if type(ends) is str else written


# -- records to events -----------------------------------------------------------------------------


def _accepts(record: Any) -> bool:
    return (
        type(record) is dict and record.get("aider") in _KINDS and type(record.get("text")) is str
    )


class _Decoder(FollowingDecoder):
    """Reads the blocks of a session."""

    has_own_ids = True
    repeated = ("text",)
    """Aider's own commands are not sent to its model."""

    _model: str | None = None
    """The model that aider named last."""

    def read(self, collected: RecordEvents, record: Fields) -> None:
        kind = record["aider"]
        text = record["text"]
        if kind == "user":
            is_cleared = _CLEAR.match(text) is not None
        else:
            is_cleared = any(line in _CLEARED for line in text.split("\n"))
        match kind:
            case "assistant":
                collected.add(Message, source="agent", content=text)
            case "user" | "tool" if is_cleared and self.shown.all():
                collected.condense(lambda known: False, metadata={"reason": "request"})
            case "user" if not is_cleared:
                sent = _SENT.match(text)
                if sent is not None or not text.startswith(("/", "!", _BLANK)):
                    collected.add(Message, source="user", content=text if sent is None else sent[1])
                collected.close("command", text)
            case "tool" if not is_cleared:
                if (model := _MODEL.search(text)) is not None:
                    self._model = model[1]
                collected.meta = _usage_in(text, self._model)
        # since 2025 aider writes twice that a chat was cleared, so the second text adds no event
        collected.close(kind, text)


def _number_at(match: re.Match[str], group: int) -> int:
    """Read the number of tokens in a group of a match, such as 2100 for ``2.1k``. The next group
    has the ``k``.
    """
    if not match[group]:
        return 0
    thousands = 1_000 if match[group + 1] else 1
    return round(float(match[group]) * thousands)


def _usage_in(text: str, model: str | None) -> Fields:
    """Return the usage in a line of aider. aider has rounded the tokens and the cost."""
    match = _TOKENS.search(text)
    if match is None:
        return {}
    sent = _number_at(match, 1)
    stored = _number_at(match, 3)
    cached = _number_at(match, 5)
    received = _number_at(match, 7)
    # The tokens that were sent may or may not include the cached ones.
    counts = {
        "prompt_tokens": sent if cached <= sent else sent + cached,
        "completion_tokens": received,
    }
    if cached:
        counts["cached_tokens"] = cached
    if stored:
        counts["cache_write_tokens"] = stored
    cost = _COST.search(text, match.start())
    return usage_meta(counts, model=model, cost=None if cost is None else cost[1])


FORMAT = Format(
    name=NAME,
    matches=_accepts,
    accepts=_accepts,
    expected="a block of a chat, {'aider': 'user', 'text': '…'}",
    time=lambda record: read_time(record["text"] if record["aider"] == "start" else None),
    decoder=_Decoder,
    files=_Files(),
    note="aider does not record the files that it sent, nor its own summaries of a long chat",
    marks_errors=False,
)
