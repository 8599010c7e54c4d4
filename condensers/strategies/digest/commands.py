"""This module parses shell commands. For each command, the module finds the changed files, whether
the command only reads, and whether a success of the command repairs an earlier error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from posixpath import basename, isabs, join
from typing import NamedTuple

_DOCUMENT = re.compile(
    r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n(.*?)(?:^\s*\2\s*$|\Z)", re.DOTALL | re.MULTILINE
)
_SHELL = re.compile(r"\A(?:\S*/)?(?:ba|z)?sh -l?c ")
_OPERATORS = "();<>|&\n"
_TOKEN = re.compile(
    rf"[{_OPERATORS}]+|(?:\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^\s'\"\\{_OPERATORS}])+|['\"\\]",
    re.DOTALL,
)
"""Matches operators, a word with its quoted parts and escaped characters, or a quotation mark that
is never closed.
"""
_ARITHMETIC = re.compile(r"\(\([^()\n;'\"]*\)\)")
"""Matches ``((x > 3))``, which compares and writes no file, like ``[[ $x > 3 ]]``."""
_CONTINUED = re.compile(r"\\\n")
_HOME = "~"
_ASSIGNED = re.compile(r"\w+=")
_PATH = re.compile(r"[~\w./\\:@+ *-]*[\w/*]")
"""Matches paths, but not variables or pieces of programs."""
_READ_MAX = 20_000
"""How many characters of a command are parsed. Here-documents do not count."""

_COMMANDS_MAX = 256
"""How many parsed commands stay in memory. A digest asks several questions about the same command.
"""

_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
"""Matches a quoted part of a word, or a character with a backslash before it."""
_HARMLESS = re.compile(r"2>\s*/dev/null|2>&1")
_NEXT_COMMAND = re.compile(r"&&|\|\||[;|\n]")
_READS = re.compile(
    r"(?:\w+=\S* )*(?:cd|cat|head|tail|sed"
    r" -n|grep|rg|ls|find|wc|nl|tree|pwd|file|stat|which|cut|sort|uniq|echo|open|goto|scroll_\w+"
    r"|search_\w+|find_file|git (?:log|status|show|diff|grep|blame|ls-files))(?:\s|\Z)"
)
_WRITES = re.compile(r">|\s-(?:delete|exec|execdir|ok|i)\b|\btee\b")
_CHECKS = re.compile(
    r"(?P<test>(?:\w+[_-])?(?:run|py|go|c|unit|php)?tests?(?:\.\w+)?|test[:-]\w+|test_\w+\.\w+"
    r"|\w+[._](?:test|spec)\.\w+|jest|vitest|mocha|rspec|tox|nox)"
    r"|(?P<lint>[\w-]*lint|lint[:-]\w+|tsc|mypy|vet|clippy|ruff|fmt|flake8|pyright|rubocop)"
    r"|(?P<build>build|build[:-]\w+|compile)"
    r"|(?P<check>check|check[:-]\w+|make|gradlew|verify)"
)
"""Matches a word of a command that checks the agent's work, and names the kind of the check. The
kind ``check`` counts only if no other kind is found.
"""
_CHECK_WORDS = 6
"""How many words of a command are compared with ``_CHECKS``."""
_NO_CHECK = re.compile(r"cd|echo|git|cat|ls|rm|mkdir|grep|rg|find|cp|mv|sed|which|touch|chmod")
_SENDS = re.compile(
    r"\b(?:(?:git|docker) push|(?:npm|cargo) publish|twine upload"
    r"|gh (?:pr|issue|release|gist) (?:create|comment|edit|merge|close|reopen|review)"
    r"|(?:curl|gh api)\b[^|]*?(?:-X|--request|--method)[ =]?(?:POST|PATCH|PUT|DELETE))\b"
)
_IN_PLACE = re.compile(r"-\w*i|--in-place")
_DEEDS = {"rm": "deleted", "touch": "created", "tee": "written"}
_SEARCHES = frozenset({"rg", "grep", "egrep", "ag"})
_EDIT = re.compile(r"\Aedit(?: \d+:\d+)?\n")
"""The first line of a SWE-agent command that edits the open file, at the lines that it names or at
the cursors. The lines after this first line are the new text of the file.
"""
_ANY = re.compile(r"(?:\.\*|\*|\.\.\.|[$^/\"'])+\Z|\A[\"'^]+")


class FileChange(NamedTuple):
    """A change of a file. ``line`` is the first line of the new text."""

    path: str
    deed: str
    line: str = ""


class _Simple(NamedTuple):
    """A simple command. ``depth`` is the number of subshells around it."""

    words: list[str]
    targets: list[str]
    depth: int = 0


def forget_commands() -> None:
    # A redacted command must not stay in memory until other commands replace it.
    _parsed_words.cache_clear()


def bare(command: str) -> str:
    return _SHELL.sub("", command.strip())


def only_reads(command: str) -> bool:
    unquoted = _HARMLESS.sub("", _QUOTED.sub("", command))
    return not _WRITES.search(unquoted) and all(
        _READS.match(part.strip()) for part in _NEXT_COMMAND.split(unquoted)
    )


def kinds_of_check(command: str) -> set[str]:
    kinds = {kind for simple in _parse(bare(command)) for kind in _kinds(simple)}
    return kinds - {"check"} or kinds


def searches(command: str) -> bool:
    """Return whether a command ends with a search. A search exits with 1 if it finds nothing."""
    words = _parse(bare(command))[-1].words
    return words[:2] == ["git", "grep"] or basename("".join(words[:1])) in _SEARCHES


def sends(command: str) -> bool:
    """Return whether a command sends something that a second run would send again."""
    return bool(_SENDS.search(_DOCUMENT.sub(" ", bare(command))))


def text_of_edit(command: str) -> str:
    return command.partition("\n")[2] if _EDIT.match(command) else ""


def _kinds(simple: _Simple) -> set[str]:
    words = [basename(word) for word in simple.words[:_CHECK_WORDS]]
    if not words or _NO_CHECK.fullmatch(words[0]):
        return set()
    return {str(match.lastgroup) for word in words if (match := _CHECKS.fullmatch(word))}


def covers(wide: str, narrow: str) -> bool:
    """Return whether a success of the command ``wide`` shows that an error of the command
    ``narrow`` is repaired. This is true if the commands are equal, or if ``wide`` checks at least
    the same files.
    """
    return wide == narrow or any(
        bool(some)
        and some[:1] == others[:1]
        and all(any(part.startswith(word) for part in others) for word in some)
        for some in _selections(wide)
        for others in _selections(narrow)
    )


def _selections(command: str) -> Iterator[list[str]]:
    for simple in _parse(bare(command)):
        words = [
            _ANY.sub("", word)
            for word in simple.words
            if not word.startswith("-") and " " not in word
        ]
        if words and _kinds(simple):
            yield words


def changes_by(command: str) -> Iterator[FileChange]:
    text = bare(command)
    documents = [match[3] for match in _DOCUMENT.finditer(text)]
    directories = [""]
    for simple in _parse(text):
        words = simple.words
        # A subshell begins in the directory of its shell, and takes its own directory with it.
        del directories[simple.depth + 1 :]
        while len(directories) <= simple.depth:
            directories.append(directories[-1])
        directory = directories[-1]
        if words[:1] == ["cd"]:
            directories[-1] = _path_in(directory, words[1] if len(words) > 1 else _HOME)
            continue
        written = first_line(documents[0]) if len(documents) == 1 else ""
        changes = [FileChange(target, "written", written) for target in simple.targets]
        for change in (*changes, *_file_changes(words)):
            path = _path_in(directory, change.path)
            if _PATH.fullmatch(path) and not path.startswith("/dev/"):
                yield change._replace(path=path)


def _path_in(directory: str, path: str) -> str:
    is_absolute = isabs(path) or path.startswith(_HOME) or path[1:2] == ":"
    return path if is_absolute else join(directory, path)


def is_within(path: str, deleted: str) -> bool:
    # ``deleted`` may be a path, a pattern of paths, or a directory.
    target = PurePosixPath(path)
    pattern = PurePosixPath(deleted)
    return pattern in target.parents or (
        len(target.parts) == len(pattern.parts) and target.match(deleted)
    )


def _file_changes(words: list[str]) -> Iterator[FileChange]:
    if words[:1] == ["git"]:
        words = words[1:] if words[1:2] and words[1] in ("mv", "rm") else []
    program = basename(words[0]) if words else ""
    options = [word for word in words[1:] if word.startswith("-")]
    files = [word for word in words[1:] if word and not word.startswith("-")]
    if program == "sed" and any(map(_IN_PLACE.match, options)):
        yield from (FileChange(path, "edited by sed", files[0][:80]) for path in files[1:])
    elif program in ("mv", "cp") and len(files) == 2:
        source, target = files
        if target.endswith("/"):
            target = target + basename(source)
        if program == "mv":
            yield FileChange(source, f"moved to {target}")
        yield FileChange(target, f"{'moved' if program == 'mv' else 'copied'} from {source}")
    elif program in _DEEDS:
        yield from (FileChange(path, _DEEDS[program]) for path in files)


def _parse(text: str) -> Sequence[_Simple]:
    if _EDIT.match(text):
        text = ""
    without_documents = _DOCUMENT.sub(
        lambda found: found[0].partition("\n")[0].replace("<<", "<") + "\n", text
    )
    in_one_line = _CONTINUED.sub(" ", without_documents[:_READ_MAX])
    return _parsed_words(_ARITHMETIC.sub("$", in_one_line))


@lru_cache(_COMMANDS_MAX)  # the documents in a command may be large, so they are not kept
def _parsed_words(text: str) -> Sequence[_Simple]:
    commands = [_Simple([], [])]
    is_target = is_source = False
    depth = 0
    before = ""
    end_before = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        words = commands[-1].words
        is_descriptor = before.isdecimal() and match.start() == end_before  # as in 2>/dev/null
        before, end_before = token, match.end()
        if "[[" in words and "]]" not in words and token != "]]":
            continue
        word = _QUOTED.sub(_unquote, token)
        if token[0] in _OPERATORS:
            if token[0] in "<>" and is_descriptor and words:
                words.pop()
            is_source = token.startswith((">&", "<")) and "(" not in token
            depth = max(0, depth + token.count("(") - token.count(")"))
            is_target = (
                ">" in token
                and words[-1:] not in (["-"], ["="])  # The signs -> and => are program code.
                and "&" not in token.replace("&>", "")
                and "(" not in token
            )
            if not is_target and not token.startswith((">&", "<")):
                commands.append(_Simple([], [], depth))
        elif token in ("'", '"', "\\"):
            break  # The quotation has no end: use the words before it.
        elif is_target:
            commands[-1].targets.append(word)
            is_target = False
        elif is_source:
            is_source = False
        elif words or not (_ASSIGNED.match(word) or word in ("sudo", "time", "env")):
            words.append(word)
    return commands


def _unquote(quoted: re.Match[str]) -> str:
    text = quoted[0]
    if text[0] != "\\":
        return text[1:-1]
    return text if text[1].isalnum() else text[1]  # A path of Windows keeps its backslashes.


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if sum(map(str.isalnum, line)) > 2), "")
