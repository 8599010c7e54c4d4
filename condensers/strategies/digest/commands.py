"""This module parses shell commands. For each command, the module finds whether it only reads, what
it checks, and whether a success of the command repairs an earlier error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from posixpath import basename

_DOCUMENT = re.compile(
    r"<<-?\s*(['\"]?)(\w+)\1([^\n]*\n).*?(?:^\s*\2\s*$|\Z)", re.DOTALL | re.MULTILINE
)
"""Matches a here-document with the rest of its command, which is the third group."""
_SHELL = re.compile(r"\A(?:\S*/)?(?:ba|z)?sh -l?c ")
_OPERATORS = "();<>|&\n"
_TOKEN = re.compile(
    rf"[{_OPERATORS}]+|(?:\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^\s'\"\\{_OPERATORS}])+", re.DOTALL
)
"""Matches operators, or a word with its quoted parts and escaped characters."""
_ASSIGNED = re.compile(r"\w+=|(?:sudo|time|env)\Z")
"""Matches a word before the name of the program."""
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
_ANY = re.compile(r"(?:\.\*|\*|\.\.\.|[$^/\"'])+\Z|\A[\"'^]+")


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
    """Return the kinds of checks that a command runs, such as tests. A check of no special kind
    counts only if there is no other.
    """
    kinds = {kind for words in _parse(bare(command)) for kind in _kinds(words)}
    return kinds - {"check"} or kinds


def sends(command: str) -> bool:
    """Return whether a command sends something that a second run would send again."""
    return bool(_SENDS.search(_DOCUMENT.sub(r"\3", bare(command))))


def _kinds(words: Sequence[str]) -> set[str]:
    """Return the kinds of checks that a simple command runs."""
    first = [basename(word) for word in words[:_CHECK_WORDS]]
    if not first or _NO_CHECK.fullmatch(first[0]):
        return set()
    return {str(match.lastgroup) for word in first if (match := _CHECKS.fullmatch(word))}


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
    """Yield the words of each check in a command, without options: the program and what it
    checks.
    """
    for words in _parse(bare(command)):
        # A number may be that of a redirection, as in 2>&1.
        selected = [
            _ANY.sub("", word)
            for word in words
            if not word.startswith("-") and " " not in word and not word.isdecimal()
        ]
        if selected and _kinds(words):
            yield selected


def _parse(text: str) -> Sequence[Sequence[str]]:
    """Return the words of each simple command, without redirections. There is at least one simple
    command, which may have no words.
    """
    without_documents = _DOCUMENT.sub(r"\3", text)[:_READ_MAX]
    return _parsed_words(without_documents.replace("\\\n", " "))


@lru_cache(_COMMANDS_MAX)  # the documents in a command may be large, so they are not kept
def _parsed_words(text: str) -> Sequence[Sequence[str]]:
    """Return the words of each simple command in a command line, without redirections."""
    commands: list[list[str]] = [[]]
    is_target = False
    for token in _TOKEN.findall(text):
        words = commands[-1]
        if token[0] in _OPERATORS:
            is_target = ("<" in token or ">" in token) and "(" not in token
            if words and not is_target:
                commands.append([])
        elif is_target:
            is_target = False
        elif words or not _ASSIGNED.match(token):
            words.append(_QUOTED.sub(_unquote, token))
    return [words for words in commands if words] or commands


def _unquote(quoted: re.Match[str]) -> str:
    text = quoted[0]
    return text[1:-1] if text[0] != "\\" else text[1]


def first_line(text: str) -> str:
    """Return the first line with more than two letters or digits, or an empty text."""
    return next((line.strip() for line in text.splitlines() if sum(map(str.isalnum, line)) > 2), "")
