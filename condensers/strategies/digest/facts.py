"""This module finds facts about calls and their results, from the events alone and without a model.

The module recognizes a tool by its arguments, because every runtime names its tools differently. A
command is a text under ``command``, ``cmd`` or ``code``. A file is named under ``path`` or a
similar key. A call that contains new text for a file counts as a change of the file. A patch can be
under any key, and the patch itself names its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog._base.values import named_in, texts_in
from foldlog.condensers.prompts.rendering import clip_line, readable
from foldlog.condensers.strategies.digest.commands import (
    bare,
    first_line,
    kinds_of_check,
    only_reads,
)
from foldlog.condensers.strategies.user_words import (
    EXIT_CODE,
    error_line,
    exit_code_in,
    last_line,
    unwrap,
)
from foldlog.eventstore import NOT_RECORDED, Observation
from foldlog.projections import words_of


class Section(StrEnum):
    """The sections of a digest, in their order."""

    REFUSED = "Refused by the user"
    ASKED = "Asked by the user"
    TASKS = "Tasks"
    BUILT = "Built so far"
    REPORTED = "Reported by the agent"
    CHANGED = "Files changed"
    ERRORS = "Errors without a later success"
    RAN = "Commands run"
    CALLED = "Other calls"
    SAID = "Said by the agent"
    READ = "Read, searched and printed"
    EARLIER = "Earlier summary"
    RARE = "Lines with rare words"
    NAMES = "Lines with names"


class FileChange(NamedTuple):
    """A change of a file. ``line`` is the first line of the new text."""

    path: str
    deed: str
    line: str = ""


class Deed(NamedTuple):
    """What the call with the id ``event_id`` does."""

    section: Section
    text: str
    changes: tuple[FileChange, ...] = ()
    command: str = ""
    event_id: int = NOT_RECORDED


class CallOutcome(NamedTuple):
    """How a call ended. ``error`` is the line that names the error, and is empty without an error.

    ``last`` is the last significant line of the output. ``commit`` is git's line about a commit.
    ``is_proven`` is false if the call still runs and its output comes later.
    """

    failed: bool = False
    exit_code: int | None = None
    error: str = ""
    last: str = ""
    commit: str = ""
    is_proven: bool = True


_PATHS = ("path", "file_path", "filename", "file", "target_file", "notebook_path")
_COMMANDS = ("command", "cmd", "code", "script")
_NEW_TEXTS = (
    "new_str",
    "new_string",
    "file_text",
    "content",
    "contents",
    "new_source",
    "edits",
    "diff",
)
_OLD_TEXTS = ("old_str", "old_string")
_CHANGING = frozenset(
    {"write", "edit", "create", "insert", "str_replace", "undo_edit", "multiedit", "delete"}
)
_TASK_LISTS = ("task_list", "todos", "tasks", "plan")
_TASK_KEYS = frozenset({"taskId", "activeForm"})
"""These arguments occur only in calls that create or change a single task."""
_TASK_MADE = re.compile(r"Task #(\d+) created successfully: (.+)")
_WORDS = ("thought", "message", "final_thought")
_ASIDES = frozenset({"security_risk", "summary", "timeout", "is_input", "thought"})
_ERROR = re.compile(
    r"\A\s*(?:ERROR|Error):"
    r"|^(?:Your changes have NOT been applied|(?:ERROR:? )?No replacement was performed).*$",
    re.MULTILINE,
)
"""Matches the results of failed tools. Only results without an exit code are searched."""

_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: *(.+?) *$", re.MULTILINE)
_MOVED = re.compile(r"^\*\*\* Move to: *(.+?) *$", re.MULTILINE)
_PATCH = "*** Begin Patch"
_ADDED = re.compile(r"^\+(?!\+\+ )(.*)$", re.MULTILINE)
_REMOVED = re.compile(r"^-(?!-- )(.*)$", re.MULTILINE)
_DEEDS = {"Add": "created", "Update": "edited", "Delete": "deleted"}
_COMMIT = re.compile(r"^\[([^\s\]]+) (?:\(root-commit\) )?([0-9a-f]{6,})\] (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"\s*(?://|#(?!#)|/?\*|<!--)")
"""Matches a comment. Code describes a change better than a comment, so comments are skipped."""
_RUNNING = re.compile(
    r"(?:running in background with ID:|backgrounded by user with ID:|running with session ID) \w"
    r"|<status>running</status>"
)
_HEADER_MAX = 200
"""The first ``_HEADER_MAX`` characters of a result show how a process ended."""
_RAN_MAX = 200
_LINE_MAX = 90


def deed_of(tool: str, arguments: JsonMap) -> Deed | None:
    """Return what a call does, or None for a message or a change of tasks, which have sections of
    their own.
    """
    if (
        (arguments and arguments.keys() <= {*_WORDS, *_ASIDES})
        or task_list(arguments) is not None
        or arguments.keys() & _TASK_KEYS
    ):
        return None
    patches = (text for text in texts_in(arguments, len(_PATCH)) if _PATCH in text)
    if changes := tuple(change for text in patches for change in _patch_changes(text)):
        return Deed(Section.CHANGED, ", ".join(change.path for change in changes), changes)
    path = one_line(_first_text(arguments, _PATHS))
    if path:
        verbs = {tool.lower(), str(arguments.get("command", "")).lower()}
        texts = [text for name, text in named_in(arguments) if name in _NEW_TEXTS]
        if verbs & _CHANGING or texts:
            return Deed(Section.CHANGED, path, (_edit(path, verbs, texts, arguments),))
        return Deed(Section.READ, path)
    command = _first_text(arguments, _COMMANDS)
    if command:
        text = f"`{_command(command).replace('`', chr(39))}`"
        return Deed(
            Section.READ if only_reads(bare(command)) else Section.RAN, text, command=command
        )
    shown = {key: value for key, value in arguments.items() if key not in _ASIDES}
    return Deed(
        Section.READ if "pattern" in arguments else Section.CALLED,
        one_line(f"{tool} {readable(shown)}"),
    )


def _edit(path: str, verbs: set[str], texts: list[str], arguments: JsonMap) -> FileChange:
    """Return the change of a file by a call. ``verbs`` are its tool and its command, and ``texts``
    the new texts.
    """
    old = "\n".join(text for name, text in named_in(arguments) if name in _OLD_TEXTS)
    if verbs & {"write", "create"}:
        deed = "written"
    elif "delete" in verbs:
        deed = "deleted"
    else:
        deed = "edited"
    return FileChange(path, deed, _first_new_line(old, "\n".join(texts), path))


def _first_new_line(old: str, new: str, path: str) -> str:
    """Return the first line that is only in ``new``, or an empty text. Comments are skipped if
    there is code.
    """
    kept = set(map(str.strip, old.splitlines()))
    lines = [line for line in new.splitlines() if line.strip() not in kept]
    code = [line for line in lines if path.endswith(".md") or not _COMMENT.match(line)]
    return clip_line(first_line("\n".join([*code, *lines])), _LINE_MAX)


def _patch_changes(text: str) -> Iterator[FileChange]:
    """Yield the changes of files in a patch."""
    if "\n" not in text:
        text = text.replace("\\n", "\n")
    headings = [*_PATCHED.finditer(text)]
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    for heading, end in zip(headings, ends, strict=False):
        part = text[heading.end() : end]
        old, new = ("\n".join(lines.findall(part)) for lines in (_REMOVED, _ADDED))
        moved = _MOVED.search(part)
        deed = f"moved to {moved[1]}" if moved else _DEEDS[heading[1]]
        yield FileChange(heading[2], deed, _first_new_line(old, new, heading[2]))


def outcome_of(observation: Observation, command: str = "") -> CallOutcome:
    """Return how a call ended. ``command`` is the command that the call ran, if it ran one."""
    text, code = unwrap(words_of(observation.content))
    text = text.removeprefix(command)  # Some terminals echo the command.
    if _RUNNING.search(text[:_HEADER_MAX]):
        return CallOutcome(is_proven=False)
    exit_code = _exit_code(observation.extras, text) if code is None else code
    refusal = _ERROR.search(text) if exit_code is None else None
    failed = (
        observation.is_error
        or bool(observation.extras.get("error"))
        or exit_code not in (None, 0)
        or refusal is not None
    )
    cause = error_line(text[refusal.start() :] if refusal else text) if failed else ""
    error = one_line(cause)
    is_check = bool(kinds_of_check(command))
    commit = _COMMIT.search(text)
    return CallOutcome(
        failed=failed,
        exit_code=exit_code,
        error=error,
        last=error or last_line(text, is_check),
        commit=f"{commit[3]} ({commit[2]} on {commit[1]})" if commit else "",
    )


def _exit_code(extras: JsonMap, text: str) -> int | None:
    """Return the exit code in the fields or in the text of a result, or None if it is unknown."""
    code = exit_code_in(extras)
    if not isinstance(code, int):
        match = EXIT_CODE.search(text[:_HEADER_MAX]) or EXIT_CODE.search(text[-400:])
        code = int(match[1]) if match else None
    return None if code == -1 else code  # OpenHands writes -1 if it does not know the code.


def words_in_call(arguments: JsonMap) -> Iterator[str]:
    """Yield the texts of a call that only says something."""
    if arguments and arguments.keys() <= {*_WORDS, *_ASIDES}:
        yield from (arguments[key] for key in _WORDS if isinstance(arguments.get(key), str))


def task_list(arguments: JsonMap) -> dict[str, str] | None:
    """Return the tasks in a call with their statuses, or None if the call has no list of tasks."""
    tasks = next(
        (arguments[key] for key in _TASK_LISTS if isinstance(arguments.get(key), list)), None
    )
    if tasks is None:
        return None
    statuses: dict[str, str] = {}
    for task in tasks:
        if isinstance(task, dict):
            title = task.get("title") or task.get("content") or task.get("step") or readable(task)
            name = one_line(f"{task['id']}: {title}" if task.get("id") else str(title))
            statuses[name] = one_line(str(task.get("status", "open")))
    return statuses


def task_made(text: str) -> str:
    """Return the name of the task that a result says was created, or an empty text."""
    match = _TASK_MADE.match(text)
    return one_line(f"{match[1]}: {match[2]}") if match else ""


def _first_text(arguments: JsonMap, keys: Iterable[str]) -> str:
    """Return the first text under one of ``keys``. A list of words is joined."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _command(text: str) -> str:
    """Return a command on one line, without an embedded document."""
    lines = bare(text).splitlines()
    heredoc = next((place for place, line in enumerate(lines) if "<<" in line), len(lines))
    left_out = len(lines) - heredoc - 1
    shown = one_line(" ".join(lines[: heredoc + 1]), _RAN_MAX)
    return shown + (f" … ({left_out} lines)" if left_out > 0 else "")


def one_line(text: str, length_max: int = 300) -> str:
    return clip_line(" ".join(text.split()), length_max)
