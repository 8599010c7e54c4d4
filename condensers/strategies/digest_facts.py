"""Facts about events, taken from the events alone: deterministic, without a model.

A tool is recognized by its arguments, because every runtime names its tools differently. A command is a text under
``command``, ``cmd`` or ``code``. A file is named under ``path`` or a similar key, and counts as changed if the call
gives it new text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any, NamedTuple

from foldlog.condensers.prompts.rendering import arguments_of, clipped, readable
from foldlog.condensers.strategies.digest_words import (
    EXIT_CODE,
    command_in,
    error_line,
    exit_code_in,
    gist_of_output,
    names_in,
    of_user,
    only_reads,
    orders_in,
    question_in,
    said_in_rejection,
    unwrapped,
)
from foldlog.eventstore import Action, Annotation, Event, Message, Observation
from foldlog.projections import words_of


class Section(StrEnum):
    """The section of a digest that a fact belongs to, with its heading; sections appear in this order."""

    ORDERS = "Standing orders"
    ASKED = "Asked by the user"
    TASKS = "Tasks"
    CHANGED = "Files changed"
    ERRORS = "Errors still open"
    RAN = "Commands run"
    CALLED = "Other calls"
    SAID = "Said by the agent"
    READ = "Read and searched"
    SHOWN = "Shown by the environment"
    USED = "Names used"
    MET = "Names in results"


class Fact(NamedTuple):
    """One line of a digest. A later fact of the same section and subject replaces it; a text of None removes it.

    Subject and text are single lines. In the section ``TASKS`` an empty subject removes every task. ``event_id`` is the
    event that says it: of a call that succeeded, its observation, except of a change, whose call says what it wrote.
    """

    section: Section
    subject: str
    text: str | None
    event_id: int = -1

    @property
    def line(self) -> str | None:
        """The text with the id in brackets, by which the event can be read again; None if the text is."""
        return self.text if self.text is None or self.event_id < 0 else f"{self.text} [{self.event_id}]"


_PATHS = ("path", "file_path", "filename", "file", "target_file", "notebook_path")
_COMMANDS = ("command", "cmd", "code", "script")
_DIRECTORIES = ("workdir", "cwd", "working_directory", "directory")
_CONTENTS = ("old_str", "new_str", "old_string", "new_string", "file_text", "content", "contents", "edits", "diff")
_CHANGING = frozenset({"write", "edit", "create", "insert", "str_replace", "undo_edit", "multiedit", "delete"})
_TASK_LISTS = ("task_list", "todos", "tasks", "plan")
_WORDS = ("thought", "message", "final_thought")
_ASIDES = frozenset({"security_risk", "summary", "timeout", "is_input", "thought"})

_EXIT_UNKNOWN = -1
_ENDED = " → "
"""Separates a command or call from its outcome."""

_ID = re.compile(r" \[\d+\]\Z")

_SHELL = re.compile(r"\A(?:\S*/)?(?:ba|z)?sh -l?c ")
_DOCUMENT = re.compile(r"<<|\Aedit \d+:\d+")
"""The line of a command after which a text follows that is not a command."""

_SAID_MAX, _ORDER_MAX, _RAN_MAX, _SHOWN_MAX = 3_000, 300, 200, 160
_ANSWERED = ("agent", "environment")
"""The sources of a command in the agent's words and of the answer to it."""
_ANSWER_MAX = 30
"""A user's message of at most this number of characters is shown with the question that it answers."""


def facts(events: Sequence[Event], said: str = "") -> Iterator[Fact]:
    """Yield the facts of ``events``, in order. ``said`` are the agent's last words before. Cost: the events, once."""
    deeds: dict[object, Fact | None] = {}
    done: set[Fact] = set()
    for event in _with_calls(events):
        for fact in (*_facts_of(event, deeds, done), *_names_of(event)):
            if fact.section is Section.SAID:
                said = fact.subject
            elif fact.section is Section.ASKED and len(fact.subject) <= _ANSWER_MAX and (question := question_in(said)):
                answer = f"{fact.subject} (the agent had asked: {question})"
                fact = fact._replace(subject=answer, text=answer)
            yield fact._replace(event_id=event.id)


def _with_calls(events: Sequence[Event]) -> Iterator[Event]:
    """Yield ``events``, a command in the agent's words and the answer to it as an action and its observation."""
    call: Action | None = None
    for event, after in zip_longest(events, events[1:]):
        if call is not None and isinstance(event, Message):
            yield Observation(id=event.id, content=event.content, cause=call.id)
            call = None
        elif isinstance(event, Message) and isinstance(after, Message) and (event.source, after.source) == _ANSWERED:
            said, command = command_in(words_of(event.content))
            call = Action(id=event.id, tool="run", thought=said, arguments={"command": command}) if command else None
            yield call or event
        else:
            yield event


def _facts_of(event: Event, deeds: dict[object, Fact | None], done: set[Fact]) -> Iterator[Fact]:
    """Yield the facts of one event. ``deeds`` holds the calls so far, ``done`` those of them that succeeded once."""
    match event:
        case Message(source="user" | "environment"):
            words = of_user(words_of(event.content))
            if event.source == "user":
                yield from _asked(words.asked)
            else:
                yield from _note(Section.SHOWN, gist_of_output(words.asked), _SHOWN_MAX)
            for shown in words.shown:
                yield from _note(Section.SHOWN, shown, _SHOWN_MAX)
        case Message():
            yield from _note(Section.SAID, words_of(event.content))
        case Annotation(origin=None):
            yield from _note(Section.SHOWN, f"{event.name}: {readable(event.data)}", _SHOWN_MAX)
        case Action(source="user" | "environment", thought=""):
            pass  # no model was sent it
        case Action():
            if event.source == "agent":
                yield from _note(Section.SAID, words_of(event.thought))
            arguments = arguments_of(event)
            yield from _words(arguments)
            yield from _tasks(arguments)
            deed = deeds[event.id] = deeds[event.call_id or event.id] = _deed(event.tool, arguments)
            if deed is not None:
                yield deed
        case Observation():
            deed = deeds[event.cause] if event.cause in deeds else deeds.get(event.call_id)
            outcome = tuple(_outcome(event, deed))
            yield from outcome
            if event.is_error:
                yield from _asked(said_in_rejection(words_of(event.content)))
            if deed is not None and all(fact.section is not Section.ERRORS or not fact.text for fact in outcome):
                done.add(deed)
                if deed.section is not Section.CHANGED and all(fact.section is not deed.section for fact in outcome):
                    yield deed
            elif deed is not None and deed.section in (Section.CHANGED, Section.READ) and deed not in done:
                yield deed._replace(text=None)  # the read or change failed


def _asked(text: str) -> Iterator[Fact]:
    """Yield a request, and apart from it the sentences that hold until the user takes them back."""
    yield from _note(Section.ASKED, text, len(text))
    for order in orders_in(text):
        yield from _note(Section.ORDERS, order, _ORDER_MAX)


def _names_of(event: Event) -> Iterator[Fact]:
    """Yield the names in an event: of files, in code, of records."""
    match event:
        case Action():
            section, text = Section.USED, f"{words_of(event.thought)} {readable(event.arguments)}"
        case Message():
            section = Section.MET if event.source == "environment" else Section.USED
            text = words_of(event.content)
        case Observation():
            section, text = Section.MET, unwrapped(words_of(event.content))[0]
        case _:
            return
    for name in names_in(text):
        yield Fact(section, name, name)


def without_id(line: str) -> tuple[str, str]:
    """Return the text of a line, and the id in brackets at its end, with the space before it; empty if it has none."""
    found = _ID.search(line)
    return (line[: found.start()], found[0]) if found else (line, "")


def subject_of(section: Section, text: str) -> str:
    """Return the subject of the fact with this line, as ``facts`` sets it."""
    text = without_id(text)[0]
    match section:
        case Section.RAN | Section.READ | Section.ERRORS:
            return text.partition(_ENDED)[0]
        case Section.TASKS:
            return text.partition("] ")[2]
    return text


def _note(section: Section, text: str, length_max: int = _SAID_MAX) -> Iterator[Fact]:
    line = _line(text, length_max)
    if line:
        yield Fact(section, line, line)


def _words(arguments: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield the text of a call that only says something."""
    if arguments and arguments.keys() <= {*_WORDS, *_ASIDES}:
        for key in _WORDS:
            if isinstance(arguments.get(key), str):
                yield from _note(Section.SAID, arguments[key])


def _tasks(arguments: Mapping[str, Any]) -> Iterator[Fact]:
    tasks = next((arguments[key] for key in _TASK_LISTS if isinstance(arguments.get(key), list)), ())
    if tasks:
        yield Fact(Section.TASKS, "", None)
    for task in tasks:
        if isinstance(task, dict):
            title = task.get("title") or task.get("content") or task.get("step") or readable(task)
            name = _line(f"{task['id']}: {title}" if task.get("id") else str(title))
            yield Fact(Section.TASKS, name, f"[{_line(str(task.get('status', 'open')))}] {name}")


def _deed(tool: str, arguments: Mapping[str, Any]) -> Fact | None:
    """Return the fact of a call, or None for a call that only says something or keeps tasks."""
    if arguments.keys() <= {*_WORDS, *_ASIDES} or any(isinstance(arguments.get(key), list) for key in _TASK_LISTS):
        return None
    path = _line(_first_text(arguments, _PATHS))
    if path:
        verbs = {tool.lower(), str(arguments.get("command", "")).lower()}
        changes = verbs & _CHANGING or any(arguments.get(key) for key in _CONTENTS)
        return Fact(Section.CHANGED if changes else Section.READ, path, path)
    command = _command(_first_text(arguments, _COMMANDS))
    if command:
        directory = _line(_first_text(arguments, _DIRECTORIES))
        said = f"`{command.replace('`', chr(39))}`" + (f" in {directory}" if directory else "")
        return Fact(Section.READ if only_reads(command) else Section.RAN, said, said)
    given = {key: value for key, value in arguments.items() if key not in _ASIDES}
    call = _line(f"{tool} {readable(given)}")
    return Fact(Section.CALLED, call, call)


def _outcome(observation: Observation, deed: Fact | None) -> Iterator[Fact]:
    """Yield how a call ended. An error stays open until the same call succeeds."""
    text, told = unwrapped(words_of(observation.content))
    exit_code = _exit_code(observation.extras, text) if told is None else told
    failed = observation.is_error or bool(observation.extras.get("error")) or exit_code not in (None, 0)
    subject = deed.subject if deed else _line(observation.tool)
    if deed and exit_code is not None and (deed.section is Section.RAN or (exit_code and deed.section is Section.READ)):
        yield Fact(deed.section, subject, f"{subject}{_ENDED}exit {exit_code}")
    said = _line(error_line(text))
    if failed and said:  # a failure without output, such as a search that finds nothing, is not an error
        yield Fact(Section.ERRORS, subject, f"{subject}{_ENDED}{said}")
    elif deed:
        yield Fact(Section.ERRORS, subject, None)


def _exit_code(extras: Mapping[str, Any], text: str) -> int | None:
    """Return the command's exit code, or None if it is unknown."""
    code = exit_code_in(extras)
    if not isinstance(code, int):
        said = EXIT_CODE.search(text[-400:])
        code = int(said[1]) if said else None
    return None if code == _EXIT_UNKNOWN else code


def _first_text(arguments: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the first of these arguments that is a text or a list of words; empty if there is none."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _command(text: str) -> str:
    """Return a command as one line, without the lines of a here-document."""
    lines = _SHELL.sub("", text.strip()).splitlines()
    heredoc = next((place for place, line in enumerate(lines) if _DOCUMENT.search(line)), len(lines))
    left_out = len(lines) - heredoc - 1
    return _line(" ".join(lines[: heredoc + 1]), _RAN_MAX) + (f" … ({left_out} lines)" if left_out > 0 else "")


def _line(text: str, length_max: int = 300) -> str:
    """Return a text as one line, cut to ``length_max`` characters."""
    return clipped(" ".join(text.split()), length_max)
