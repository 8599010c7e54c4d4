"""Print words on a terminal, and documents for programs. No other module of the command writes to
stdout or stderr.

Text and markup have different types. Every function here escapes its texts, because a text may come
from a history, a model or a file. Only a style (``Span``) changes how a text looks. A text from a
history never becomes a style.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import complete_commands
from foldlog._base.json_types import JsonMap
from foldlog._reports.words.safe_text import (
    UNLIMITED as UNLIMITED,
    escape_cells as escape_cells,
    json_text,
    printable as printable,
    typed_id as typed_id,
    well_formed,
)

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    from foldlog._reports.answers.document import Document

Span = str | tuple[str, str]
"""A text, or a text with a style of rich. The text is escaped where it is printed. So the text
cannot control a terminal or begin a second line.
"""
_WIDTH = re.compile("[2-9][0-9]|[1-9][0-9]{2,3}")
"""A valid value of ``COLUMNS``. With ``COLUMNS=0``, rich would print nothing."""
_NARROW = re.compile("[ -~\xa0-\xac\xae-\u02ff\u0370-\u0482…]*")
"""Latin, Greek and Cyrillic text, in which each character takes one column."""

_as_json = False
"""Whether the command prints one JSON document."""
_found = False
"""Whether the command ends with the status of a finding."""
_unproved = False
"""Whether a check could not check everything."""
_unread: dict[str, None] = {}
"""The problems to print after the output, in order and without repetitions."""


class StdoutFailed(OSError):
    """Writing to stdout failed, for example because its disk is full."""


class _Stdout(io.FileIO):
    """Raises ``StdoutFailed``, because a plain ``OSError`` does not say that stdout failed."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # the reader of stdout has left
            raise
        except OSError as error:
            raise StdoutFailed(error.errno, error.strerror, "stdout") from error


def _check(stdout: Any) -> io.TextIOWrapper:
    raw: Any = _Stdout(stdout.fileno(), "w", closefd=False)
    if isinstance(stdout.buffer, io.BufferedWriter):
        buffer = io.BufferedWriter(raw)
    else:
        buffer = raw
    lines = stdout.line_buffering
    through = stdout.write_through
    return io.TextIOWrapper(buffer, stdout.encoding, line_buffering=lines, write_through=through)


def prepare(*, as_json: bool) -> None:
    """Prepare stdout and stderr. Characters that the terminal's encoding does not have are printed
    as escapes.

    With ``as_json``, a line on stderr is a JSON object. Log messages of foldlog's packages are
    printed as notes. An invalid ``COLUMNS`` is removed. A closed stdin is an empty one. Raises
    ``Refused`` if stdout is closed.
    """
    global _as_json, _found, _unproved
    _as_json = as_json
    _found = False
    _unproved = False
    _unread.clear()
    logging.getLogger("foldlog").addHandler(_NOTES)
    if not _WIDTH.fullmatch(os.environ.get("COLUMNS", "")):
        os.environ.pop("COLUMNS", None)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    if sys.stdout is None:
        raise Refused("stdout is closed; redirect it to a file, or to /dev/null to drop the output")
    if sys.stdout is sys.__stdout__:
        sys.stdout = _check(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _console() -> Console:
    """Return the console on stdout, as wide as ``columns`` says."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            """Raise the error, because rich itself would end the program here."""
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return Quiet(highlight=False, markup=False, emoji=False, width=columns())


def _is_plain() -> bool:
    """Return whether stdout shows no colours, so rich is not needed."""
    return not sys.stdout.isatty() and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys()


def columns() -> int:
    """Return the width of the terminal, or 80 if it does not say its width. In a pipe, return the
    value of ``COLUMNS``, or 120 by default.
    """
    if "COLUMNS" in os.environ:
        return int(os.environ["COLUMNS"])  # ``prepare`` has removed an invalid value
    default = 80 if has_edge() else 120
    try:
        return os.get_terminal_size(1).columns or default
    except OSError:  # stdout is no terminal
        return default


def _text(spans: Iterable[Span], *, one_line: bool = True) -> Text:
    """Return spans as a text of rich, escaped."""
    from rich.text import Text

    text = Text()
    for span in spans:
        shown, style = (span, "") if isinstance(span, str) else span
        text.append(printable(shown, one_line=one_line), style)
    return text


def print_json(*, as_json: bool) -> None:
    """Decide the form of the output as the option ``--json`` of the command says. Before the
    command is known, the words of the command line decide.
    """
    global _as_json
    _as_json = as_json


def prints_json() -> bool:
    """Return whether the command prints one JSON document on stdout."""
    return _as_json


def has_edge() -> bool:
    """Return whether lines are cut or wrapped at the width of stdout. Stdout has a width if it is a
    terminal, or if ``COLUMNS`` sets a width.
    """
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def say(*spans: Span) -> None:
    """Print one line for a person. Foldlog does not wrap the line, so ids and commands can be
    copied.
    """
    PrintedLines().write(*spans, is_cut=False)


def say_wrapped(*spans: Span) -> None:
    """Print one line for a person. On a terminal, the line is wrapped between words."""
    if has_edge():
        _console().print(_text(spans))
    else:
        say(*spans)


def say_beside(heading: Span, text: str) -> None:
    """Print a heading and a text in one line. On a terminal, the text is wrapped beside the
    heading.
    """
    if not has_edge():
        say(heading, text)
        return
    from rich.table import Table

    row = Table.grid()
    row.add_column(no_wrap=True)
    row.add_column(overflow="fold")  # a long path or command is not cut
    row.add_row(_text([heading]), _text([text]))
    _console().print(row)


def answer(document: Document, text: str | Sequence[str] | Callable[[], object]) -> None:
    """With ``--json``, print the document, and otherwise print ``text``. If ``text`` is a function,
    call it in the pager.
    """
    if _as_json:
        emit(document)
    elif callable(text):
        from foldlog._app.cli.pager import page_output

        with page_output():
            text()
    else:
        for line in (text,) if isinstance(text, str) else text:
            say(line)


def print_summary(text: str, columns: int) -> None:
    """Print a summary with its line breaks, indented."""
    print_indented(columns, ("\n".join(printable(text).splitlines()), "magenta"))


def print_indented(columns: int, *spans: Span) -> None:
    """Print text with its own line breaks, indented. The text is wrapped only on a terminal."""
    text = _text(spans, one_line=False)
    if has_edge():
        from rich.padding import Padding

        _console().print(Padding(text, (0, 0, 0, columns)))
        return
    for line in text.split(allow_blank=True):
        _console().print(" " * columns, line, sep="", soft_wrap=True)


def print_heading(text: str) -> None:
    """Print an empty line and a heading."""
    say()
    say_wrapped((text, "bold"))


def print_cells(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in one write, with tabs between the cells of a row."""
    sys.stdout.write("\n".join(map("\t".join, escape_cells(rows))) + "\n")


class PrintedLines:
    """Prints any number of lines for a person, and cuts them at the width of the terminal. Each
    line is written to stdout immediately.

    ``width`` is the number of columns of a line, or ``UNLIMITED`` if lines are not cut. This class
    does not use rich, because the layout of rich takes 0.1 ms for a line.
    """

    def __init__(self) -> None:
        self.width = columns() if has_edge() else UNLIMITED
        self._is_plain = _is_plain()

    def write(self, *spans: Span, is_cut: bool = True) -> None:
        """Print one line. With ``is_cut``, it ends at the width of the terminal."""
        parts = [(span, "") if isinstance(span, str) else span for span in spans]
        text = printable("".join([text for text, _ in parts]), one_line=True)
        if is_cut and self.width != UNLIMITED:
            text = cut(text, self.width)
        if not self._is_plain and any(style for _, style in parts):
            text = self._coloured(text, parts)
        sys.stdout.write(f"{text}\n")

    @cached_property
    def _console(self) -> Console:  # the import of rich takes as long as a short command
        return _console()

    def _coloured(self, text: str, parts: Sequence[tuple[str, str]]) -> str:
        """Return a printable text with the styles of the parts from which it was made."""
        from rich.console import COLOR_SYSTEMS
        from rich.style import Style

        name = self._console.color_system
        if name is None:
            return text
        shown = ""
        for part, style in parts:
            its = Style.parse(style)
            if self._console.no_color:
                its = its.without_color
            length = len(printable(part, one_line=True))
            shown += its.render(text[:length], color_system=COLOR_SYSTEMS[name])
            text = text[length:]
        return shown


def print_values(values: Mapping[str, str]) -> None:
    """Print a line for each name and its value."""
    lines = PrintedLines()
    for name, value in values.items():
        lines.write((f"{name}  ", "bold"), value)


def _is_narrow(text: str) -> bool:
    """Return whether each character of a text takes one column."""
    return text.isascii() or bool(_NARROW.fullmatch(text))


def count_columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if _is_narrow(text):  # the import of rich takes as long as a short command
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, room: int) -> str:
    """Return a text that takes at most ``room`` columns. A text that was cut ends with ``…``."""
    begin = text[: room + 1]
    if _is_narrow(begin):
        return text if len(begin) <= room else f"{text[: room - 1]}…"
    from rich.cells import set_cell_size

    if count_columns(text) <= room:
        return text
    return f"{set_cell_size(text, room - 1)}…"


def _progress() -> Progress:
    """Return the progress bars of the command, on stderr."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class TimeLeft(TimeRemainingColumn):
        """Shows nothing while the time is unknown."""

        def render(self, task: Task) -> Text:
            if task.total is None or task.time_remaining is None:
                return Text("")
            return super().render(task)

    class Description(ProgressColumn):
        """Escapes the description."""

        def render(self, task: Task) -> Text:
            return _text([task.description])

    class Count(ProgressColumn):
        """Shows what is done, with its unit."""

        def render(self, task: Task) -> Text:
            unit = task.fields.get("unit", "")
            of = "" if task.total is None else f" of {task.total:,.0f}"
            return _text([f"{task.completed:,.0f}{of} {unit}" if unit else ""])

    return Progress(
        SpinnerColumn(),
        Description(),
        BarColumn(),
        Count(),
        TimeElapsedColumn(),
        TimeLeft(),
        console=Console(stderr=True),
        transient=True,
        # Otherwise rich would write lines of a redirected stdout to stderr.
        redirect_stdout=sys.stdout.isatty(),
    )


def _show_nothing(**progress: object) -> None:
    pass


@contextmanager
def working(what: str, unit: str = "", total: float | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal.

    The yielded function updates the bar: it takes ``advance``, ``completed``, ``total``, ``unit``
    and ``description``. Lines on stdout appear above the bar.
    """
    if not sys.stderr.isatty():  # the import of rich takes as long as a short command
        yield _show_nothing
        return
    with _progress() as bars:
        yield partial(bars.update, bars.add_task(what, unit=unit, total=total))


def confirm(act: str, participle: str, shown: Iterable[str], question: str, of: str) -> None:
    """Show what a command is about to change. Unless the user agrees in a terminal, raise
    ``Refused``.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(
            f"{act} asks for confirmation, but there is no terminal; nothing was {participle}; add"
            f" --yes to {act} without a question"
        )
    for line in shown:
        sys.stderr.write(f"{printable(line, one_line=True)}\n")
    sys.stderr.write(f"{printable(question, one_line=True)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused(f"nothing was {participle}, and {of} is unchanged")


_ERROR_MAX = 500
"""The number of characters at the beginning and at the end of a long error that are printed."""


def complain(message: str) -> None:
    """Print an error as one line on stderr. The middle of a long error is left out."""
    is_long = len(message) > 2 * _ERROR_MAX
    _say("error", f"{message[:_ERROR_MAX]}…{message[-_ERROR_MAX:]}" if is_long else message)


def print_traceback(error: Exception) -> None:
    """Print where an error was raised on stderr, for a report of it."""
    sys.stderr.write(printable("".join(traceback.format_exception(error))))


def warn(*messages: str) -> None:
    """Print findings, each as one line on stderr. After a finding, the command ends with status
    1.
    """
    for message in messages:
        matched_nothing()
        _say("found", message)


def not_checked(*messages: str) -> None:
    """Print what a check could not check, each as one line on stderr. Without a finding, the
    command then ends with status 3.
    """
    global _unproved
    for message in messages:
        _unproved = True
        _say("not checked", message)


def left_something_unchecked() -> bool:
    """Return whether a check could not check everything."""
    return _unproved


def matched_nothing() -> None:
    """After a filter or a search without a match, end the command with status 1, as grep does."""
    global _found
    _found = True


def note(*messages: str) -> None:
    """Print notes about the result, each as one line on stderr."""
    for message in messages:
        _say("note", message)


class _Notes(logging.Handler):
    """Prints the log messages of foldlog's packages as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


_NOTES = _Notes(logging.WARNING)


@contextmanager
def without_notes_of(logger: str) -> Iterator[None]:
    """Print no log messages of a logger, because the command itself reports what they say."""
    logging.getLogger(logger).disabled = True
    try:
        yield
    finally:
        logging.getLogger(logger).disabled = False


def _say(level: str, message: str) -> None:
    """Print a message as one line on stderr. An error has no word before it."""
    text = printable(complete_commands(message), one_line=True)
    if _as_json:
        sys.stderr.write(f"{json_text({'level': level, 'message': text})}\n")
    elif level == "error":
        sys.stderr.write(f"foldlog: {text}\n")
    else:
        sys.stderr.write(f"foldlog: {level}: {text}\n")


def about(conversation: str, problem: str) -> str:
    """Return a problem that names its conversation."""
    named = f"conversation {conversation!r}"
    return problem if problem.startswith(named) else f"{named}: {problem}"


def unread(problem: str) -> None:
    """Remember a problem, and print it once after the output, as a finding."""
    _unread.setdefault(problem)


def print_problems() -> bool:
    """Print the remembered problems. Return whether a finding was printed."""
    warn(*_unread)
    return _found


def emit(document: Struct, *, exact: bool = False) -> None:
    """Print the one JSON document that ``--json`` promises. With ``exact``, print lone surrogates
    unchanged, so that a program that compares texts reads the same ones.
    """
    text = json_text(document, indent=2)
    sys.stdout.write(f"{text if exact else well_formed(text)}\n")


def emit_list(
    document: Document, tail: Callable[[], JsonMap] = dict, *, exact: bool = False
) -> None:
    """Write the JSON document of a command with one ``streamed`` field. The items of this field are
    written while they are read.

    After the last item, ``tail`` returns the other fields. If the first item cannot be read,
    nothing is written. With ``exact``, print lone surrogates unchanged, so that foldlog can read
    the document.
    """
    from msgspec import UNSET
    from msgspec.structs import asdict, replace

    fields = asdict(document)
    name = next(name for name, value in fields.items() if isinstance(value, Iterator))
    place = list(fields).index(name)
    ahead = fields[name]
    first = list(islice(ahead, 1))

    def write(text: str) -> None:
        sys.stdout.write(text if exact else well_formed(text))

    def field_text(name: str, value: Any) -> str:
        return f"{json_text(name)}: {json_text(value)}"

    write("{")
    for before, value in islice(fields.items(), place):
        if value is not UNSET:
            write(f"{field_text(before, value)}, ")
    write(f"{json_text(name)}: [")
    for number, item in enumerate(chain(first, ahead)):
        write(",\n" if number else "\n")
        write(json_text(item))
    write("\n]")
    for behind, value in islice(asdict(replace(document, **tail())).items(), place + 1, None):
        if value is not UNSET:
            write(f", {field_text(behind, value)}")
    write("}\n")
