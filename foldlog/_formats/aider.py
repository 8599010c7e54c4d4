"""aider's chat history, ``.aider.chat.history.md``: Markdown to which every run of aider in a
folder adds a session.

    # aider chat started at 2026-03-01 10:00:00     a session begins, at local time
    #### add a button                               what the user typed, each line with two spaces
                                                    at its end
    > Tokens: 2.1k sent, 120 received.              what aider said: its version, questions, tokens,
                                                    edits
    I will add it.                                  all else: what the model said

The file has no records, so foldlog makes them: ``{"aider": "start" | "user" | "tool" | "assistant",
"text"}`` for each block, with ``raw`` where aider writes such a text in another way. One after the
other they are the file again.

    start, tool     Annotation; one that says that the history was cleared is a condensation of all
                    that was shown
    user            Message; a command to aider is an Annotation, except for those that send what
                    follows (``/ask``)
    assistant       Message

The model's text may have lines that begin like those of aider and of the user. aider ends its own
with two spaces, so in a session whose first such line has them, a line without them belongs to what
is around it: to the model, whose text begins behind a blank line, or to what aider told in several
lines, up to the one that ends so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foldlog._formats.files.found_sources import NotAHistory
from foldlog._formats.format import Contained, FileReader, Format, Options
from foldlog._formats.json_text import RECORD_SIZE_MAX, TOO_LONG
from foldlog._formats.record import Located, read_time, usage_meta
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog.eventstore import Message

NAME = "aider"

_START = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \r]*\n?")
_MARKS = {"user": "#### ", "tool": "> "}
_BREAK = "  "
"""The end of a line of aider's and of the user's: in Markdown it breaks the line."""
_TITLE = "# aider chat started at "
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WITH_BLANK = ("start", "assistant")
_KINDS = ("start", "user", "tool", "assistant")

_SENT = re.compile(r"/(?:ask|code|architect|context|help)\s+(.+)", re.DOTALL)
"""Commands that send what follows to a model."""
_CLEAR = re.compile(r"/(?:clear|reset)\s*$")
_CLEARED = ("All chat history cleared.", "All files dropped and chat history cleared.")
_BLANK = "<blank>"
"""The words of aider for a prompt without text, which it does not send."""

_MODEL = re.compile(r"(?:Main model|Model|Models): (\S+)")
_COUNT = r"(\d{1,9}(?:\.\d)?)(k?)"
_TOKENS = re.compile(
    rf"Tokens: {_COUNT} sent(?:, {_COUNT} cache write)?(?:, {_COUNT} cache hit)?, {_COUNT}"
    r" received\.(.*)"
)
_COST = re.compile(r"Cost: \$(\d{1,9}(?:\.\d{1,9})?) (?:message|send)")


# -- the file
# --------------------------------------------------------------------------------------------------


_BESIDE = (
    ".aider.chat.history.md",
    ".aider.input.history",
    ".aider.conf.yml",
    ".aider.llm.history",
)
"""The files that aider writes into a project, or reads there: the first has its chats."""
_NO_CHAT = (
    "holds no chat with a model; aider writes its chats into .aider.chat.history.md, from '# aider"
    " chat started at' on"
)


class _Files(FileReader):
    """The sessions of a file: one history each, named by its folder and its time. A start of aider
    at which nothing is said to a model is left out: there are many.
    """

    def holds(self, path: Path, begin: bytes) -> bool:
        lines = begin.lstrip().splitlines(keepends=True)
        return path.name in _BESIDE or (bool(lines) and _START.fullmatch(lines[0]) is not None)

    def histories(self, path: Path) -> Iterator[Contained]:
        folder = path.absolute().parent.name
        says_something = False
        for line, start, end, time in _sessions(path):
            session = _Session(path, line, start, end)
            if session.says_something():
                says_something = True
                yield Contained(f"{folder}/aider-{time.replace(' ', 'T')}", session)
        if not says_something:
            raise NotAHistory(path, _NO_CHAT, repeats=True)


def _sessions(path: Path) -> Iterator[tuple[int, int, int, str]]:
    """Yield each session of a file: its first line, the beginning and the end of its bytes, and its
    time.
    """
    begun: tuple[int, int, str] | None = None
    with path.open("rb") as file:
        number = 0
        at = 0
        blank = True
        before = 0
        for line in file:
            if blank and (match := _START.fullmatch(line)) is not None:
                # with the blank line before it
                line_of, start = (1, 0) if begun is None else (number, before)
                if begun is not None:
                    yield begun[0], begun[1], start, begun[2]
                begun = line_of, start, match[1].decode()
            blank = not line.strip()
            number = number + 1
            before = at
            at = at + len(line)
    if begun is not None:
        yield begun[0], begun[1], at, begun[2]


class _Session:
    """The records of one session, which are these bytes of the file."""

    def __init__(self, path: Path, line: int, start: int, end: int) -> None:
        self._path = path
        self._line = line
        self._start = start
        self._end = end

    @property
    def size_bytes(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[Located]:
        with self._path.open("rb") as file:
            file.seek(self._start)
            text = file.read(self._end - self._start).decode(errors="surrogateescape")
        line = self._line
        for kind, block in _blocks(text):
            problem = None if len(block) <= RECORD_SIZE_MAX else TOO_LONG
            try:
                block.encode()
            except UnicodeEncodeError:
                problem = "not UTF-8"
            yield Located(
                line, 0, None if problem else _record(kind, block), problem, str(self._path)
            )
            line += block.count("\n")

    def says_something(self) -> bool:
        """Return whether a model was or will be told something, or a block cannot be read. Cost:
        the blocks before.
        """
        decoder = FORMAT.reader(Options())
        return any(
            block.problem is not None or isinstance(decoder.events(block.value)[0], Message)
            for block in self
        )


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a session with their kinds, in order. A session that grows keeps all of
    them but the last.

    The blank line that ends a model's text, or the first line, belongs to it; others to the block
    after them.
    """
    kind = "start"
    block = ""
    blank = ""
    breaks: bool | None = None
    goes_on = False  # a line of aider's that has no break
    for line in _LINE.findall(text):
        if not line.strip():
            blank += line
            continue
        body = line.rstrip("\r\n")
        marked = next((each for each, mark in _MARKS.items() if body.startswith(mark)), None)
        ended = body.endswith(_BREAK)
        breaks = ended if breaks is None and marked is not None else breaks
        if not block:
            block = blank + line
            blank = ""
            continue
        if marked is not None and (ended or not breaks):
            found = marked
        elif breaks and (goes_on or (kind == "tool" and not blank)):
            found = "tool"
        else:  # a model's text begins behind a blank line
            if marked == "tool" and kind == "user" and not blank:
                found = "tool"
            else:
                found = "assistant"
        continued = goes_on and found == "tool"
        goes_on = found == "tool" and bool(breaks) and not ended
        if found == kind and (kind == "assistant" or continued or not blank):
            block = block + blank + line
            blank = ""
            continue
        if kind in _WITH_BLANK and blank:
            first = _LINE.findall(blank)[0]
            block = block + first
            blank = blank[len(first) :]
        yield kind, block
        kind = found
        block = blank + line
        blank = ""
    yield kind, block + blank


def _record(kind: str, raw: str) -> dict[str, Any]:
    """Return the record of a block."""
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
    for each in (record, {**record, "ends": "\r\n"}):  # of Windows
        if _markdown(each) == raw:
            return each
    return {**record, "raw": raw}


def _markdown(record: dict[str, Any]) -> str:
    """Return what aider writes for a record."""
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
            written = f"\n{written}" if kind == "user" else written
    return written.replace("\n", ends) if type(ends) is str else written


# -- records to events
# ------------------------------------------------------------------------------------------------


def _accepts(record: Any) -> bool:
    return (
        type(record) is dict and record.get("aider") in _KINDS and type(record.get("text")) is str
    )


class _Decoder(FollowingDecoder):
    has_own_ids = True

    _model: str | None = None

    def read(self, read: RecordEvents, record: dict[str, Any]) -> None:
        kind = record["aider"]
        text = record["text"]
        is_cleared = (
            _CLEAR.match(text)
            if kind == "user"
            else any(line in _CLEARED for line in text.split("\n"))
        )
        match kind:
            case "assistant":
                read.add(Message, source="agent", content=text)
            case "user" | "tool" if is_cleared and self.shown.all():
                read.condense(lambda known: False, metadata={"reason": "request"})
            case "user" if not is_cleared:
                sent = _SENT.match(text)
                if sent is not None or not text.startswith(("/", "!", _BLANK)):
                    read.add(Message, source="user", content=text if sent is None else sent[1])
                read.close("command", text)
            case "tool" if not is_cleared:
                if (model := _MODEL.search(text)) is not None:
                    self._model = model[1]
                read.meta = _usage_in(text, self._model)
        read.close(kind, text)  # aider tells twice that a chat was cleared, since 2025


def _number_at(match: re.Match[str], group: int) -> int:
    """Return a number of tokens such as 1.2k; 0 if the text has none."""
    if not match[group]:
        return 0
    thousands = 1_000 if match[group + 1] else 1
    return round(float(match[group]) * thousands)


def _usage_in(text: str, model: str | None) -> dict[str, Any]:
    """Return the tokens and the cost of a reply as events have them: aider rounds them."""
    match = _TOKENS.search(text)
    if match is None:
        return {}
    sent, stored, cached, received = (_number_at(match, at) for at in (1, 3, 5, 7))
    counted = {
        "prompt_tokens": sent if cached <= sent else sent + cached,
        "completion_tokens": received,
    }
    cost = _COST.search(text, match.start())
    counted |= {
        name: n for name, n in (("cached_tokens", cached), ("cache_write_tokens", stored)) if n
    }
    return usage_meta(counted, model=model, cost=cost and cost[1])


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
