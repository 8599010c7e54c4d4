"""Go on with a history in another program: write a session of the program, and fork the history
under the id of the session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from foldlog._base.json_types import JsonObject
from foldlog._history.log import HistoryLog
from foldlog._imports.session_forks import NewSession, begin_continuation
from foldlog._reports.words.safe_text import shell_word
from foldlog.eventstore import (
    CondensationRequest,
    ConversationErased,
    ConversationNotFound,
    Event,
    EventStoreError,
    InvalidArgument,
    VersionConflict,
)
from foldlog.eventstore.files.whole_file import give_name
from foldlog.eventstore.log.row import from_microseconds
from foldlog.formats.detection import may_be_of
from foldlog.formats.event_fields import HANDED_OVER
from foldlog.formats.files.source_reading import state_of
from foldlog.formats.native_sessions import session_of
from foldlog.formats.native_sessions.going_over import (
    choose,
    programs_of,
    with_marked_summaries,
)
from foldlog.formats.native_sessions.session import NativeSession, SessionRecord
from foldlog.formats.registry import format_named
from foldlog.projections import View

_TRIES: Final = 5
"""How often a hand-over is tried if another writer appends at the same time."""
_TOKENS_MAX: Final = 1_000_000
"""No model of the programs reads more, and a program cannot compact what its model cannot read."""
_TITLE_MAX: Final = 200


class Continuation(NamedTuple):
    """A session in which another program goes on with a history.

    ``session``   the id of the session, and of the fork in the store
    ``path``      the session file
    ``command``   the shell command that resumes the session
    ``left_out``  how often content was left out, by its kind
    ``version``   the version of the history at which the fork begins
    ``records``   the number of records in the session file
    ``tokens``    about how many tokens the messages have
    ``warnings``  what the user should know, such as that the file is not encrypted
    """

    session: str
    path: Path
    command: str
    left_out: dict[str, int]
    version: int
    records: int
    tokens: int
    warnings: tuple[str, ...] = ()


def continue_in(
    history: HistoryLog,
    program: str,
    at: int | None = None,
    cwd: str | os.PathLike[str] | None = None,
    *,
    condense: bool = False,
) -> Continuation:
    """See ``History.continue_in``."""
    writer = session_of(program)
    folder = _folder(history, cwd)
    tries = 0
    while True:
        view = history.view() if at is None else history.at(at)
        session = writer(folder, from_microseconds(history._store.database.now()))
        first = _condensation(history, view) if condense else ()
        try:
            return _write(history, view, first, session)
        except VersionConflict as conflict:
            tries += 1
            if conflict.conversation == session.session or tries == _TRIES:
                raise


def _condensation(history: HistoryLog, view: View) -> tuple[Event, ...]:
    """Return the events that condense ``view``: a request, and the condensation."""
    handler = history._histories._handler
    handler.check_handles_requests()
    reason = "the conversation goes on in another program"
    request = CondensationRequest(id=view.version, reason=reason)
    condensed, _ = handler.preview(view.then([request]))
    if isinstance(condensed, View):
        raise InvalidArgument(
            f"the condenser did not condense conversation {history.id!r} at version"
            f" {view.version}; hand it over without a condenser, or choose another one"
        )
    return request, replace(condensed.action, id=view.version + 1)


def _write(
    history: HistoryLog, view: View, first: Sequence[Event], session: NativeSession
) -> Continuation:
    """Write the session. The fork begins at ``view``, with the events ``first``."""
    going_over = choose(view.then(first), session.label)
    left_out = going_over.left_out
    if going_over.is_empty:
        raise InvalidArgument(
            f"conversation {history.id!r} has nothing to hand over: the View at version"
            f" {view.version} shows no message and no call; choose another version"
        )
    _check_release(session)
    handed_over = with_marked_summaries(going_over.view)
    written = session.records(handed_over, _title(history), left_out)
    tokens = session.tokens
    if tokens > _TOKENS_MAX:
        raise InvalidArgument(
            f"the View of conversation {history.id!r} at version {view.version} has about"
            f" {tokens:,} tokens, and no model of {session.label} reads more than {_TOKENS_MAX:,};"
            " condense it on the way (--view-of CONDENSER, or condense=True)"
        )
    path = session.path()
    note: JsonObject = {
        "conversation": history.id,
        "version": view.version,
        "format": session.format,
        "file": str(path),
        "records": len(written),
        "programs": programs_of(view),
    }
    *others, last = going_over.events
    events = [*first, *others, replace(last, meta={**last.meta, HANDED_OVER: note})]
    lines = [record.line() for record in written]

    def is_begun() -> bool:
        try:
            history._store.conversation(session.session)
        except (ConversationNotFound, ConversationErased):
            return False
        except EventStoreError:
            return True  # nobody knows, and a program may need the file
        return True

    with _new_file(path, lines, is_begun) as written_file:
        new = NewSession(
            session.session,
            session.format,
            path,
            str(session.cwd),
            lines,
            _ids_of(written, handed_over.events),
            state_of(written_file),
        )
        begin_continuation(history._store, history.id, view.seen, new, events)
    return Continuation(
        session.session,
        path,
        _command(session),
        left_out,
        view.version,
        len(lines),
        tokens,
        tuple(_warnings(history, session, tokens)),
    )


def _folder(history: HistoryLog, cwd: str | os.PathLike[str] | None) -> Path:
    """Return the folder in which the program is to work: by default the folder of the history."""
    recorded = history.attributes().get("cwd") if cwd is None else None
    chosen = cwd if cwd is not None else recorded
    folder = Path(os.path.abspath(chosen)) if isinstance(chosen, str | os.PathLike) else Path.cwd()
    if any(0xD800 <= ord(letter) <= 0xDFFF for letter in str(folder)):
        raise InvalidArgument(
            f"the name of the folder {os.fsencode(folder)!r} is not UTF-8, so no session can name"
            " it; rename it, or name another folder in which the program is to work (--cwd DIR)"
        )
    if not folder.is_dir():
        whose = f"in which conversation {history.id!r} worked " if recorded else ""
        raise InvalidArgument(
            f"the folder {folder} {whose}does not exist on this machine; name the folder in which"
            " the program is to work (--cwd DIR)"
        )
    return folder


def _check_release(session: NativeSession) -> None:
    """Refuse to write a session if the program's newest session has a form that foldlog does not
    know, because the program may not read the known form any more.
    """
    with _named_file(session.path(), "read", "readable"):
        newest = session.newest()
    if newest is None:
        return
    if not may_be_of(newest, format_named(session.format)):
        raise InvalidArgument(
            f"the newest session of {session.label}, {newest}, is not in the form that foldlog"
            f" writes (tested with {session.label} {session.release}); update foldlog, or export"
            " the history ('foldlog export ID --format openai-chat')"
        )


def _title(history: HistoryLog) -> str:
    """Return the title of a history on one line, or an empty text."""
    title = history.attributes().get("title")
    if not isinstance(title, str):
        return ""
    return "".join(filter(str.isprintable, " ".join(title.split())))[:_TITLE_MAX]


def _ids_of(written: Sequence[SessionRecord], events: Sequence[Event]) -> list[list[int]]:
    """Return for each record the ids of its events. An event that no message contains, such as a
    blank text, belongs to the record of the next event.
    """
    owners = dict[int, int]()
    for number, record in enumerate(written):
        for position in record.positions:
            owners.setdefault(position, number)
    ids: list[list[int]] = [[] for _ in written]
    owner = max(owners.values())
    by_position = list[int]()
    for position in reversed(range(len(events))):
        owner = owners.get(position, owner)
        by_position.append(owner)
    for event, number in zip(events, reversed(by_position), strict=True):
        ids[number].append(event.id)
    return ids


@contextmanager
def _new_file(path: Path, lines: Sequence[bytes], is_begun: Callable[[], bool]) -> Iterator[Path]:
    """Write a file that only its user may read. It has its name after the block, so that no import
    and no program finds a session whose fork is not in the store. If the block raises an error, and
    the fork was not begun, the file is deleted.
    """
    unnamed = path.with_name(f".{path.name}.new")
    try:
        with _named_file(path, "written", "writable"):
            for folder in reversed(path.parents):
                folder.mkdir(mode=0o700, exist_ok=True)
            file = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(file, "wb") as opened:
                opened.writelines(line + b"\n" for line in lines)
                opened.flush()
                os.fsync(opened.fileno())
        yield unnamed
    except BaseException:
        if is_begun():  # the program may go on with what is in the store
            give_name(unnamed, path)
        raise
    else:
        give_name(unnamed, path)
    finally:
        with suppress(OSError):
            unnamed.unlink()


@contextmanager
def _named_file(path: Path, done: str, able: str) -> Iterator[None]:
    """Name the file or folder, and what to do, in an error of the file system."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            error.errno,
            f"{error.filename or path} cannot be {done}: {error.strerror}; nothing was handed over."
            f" Make its folder {able}, or name the folder of the program"
            " (CLAUDE_CONFIG_DIR or CODEX_HOME)",
        ) from error


def _command(session: NativeSession) -> str:
    """Return the shell command that resumes the session in its folder."""
    import shlex  # compiles a pattern that other uses of a history do not need

    resume = shlex.join(session.resume)
    if os.path.realpath(session.cwd) == os.path.realpath(os.curdir):
        return resume
    return f"cd {shell_word(str(session.cwd))} && {resume}"


def _warnings(history: HistoryLog, session: NativeSession, tokens: int) -> Iterator[str]:
    """Yield what the user should know before a session continues the history."""
    if history._store.database.settings.keys is not None:
        yield (
            "this store is encrypted, and the session file is not: it contains the texts of the"
            f" View, and {session.label} sends them to its model"
        )
    if session.small_window is not None and tokens > session.small_window:
        yield (
            f"the session has about {tokens:,} tokens, and {session.label} does not compact it"
            f" first for a model whose window has {session.small_window:,}: choose a model with a"
            " larger window, or condense it on the way (--view-of CONDENSER, or condense=True)"
        )
