"""What a person may have meant who typed a command, an option or an argument that there is not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from foldlog._cli.hints import command
from foldlog._words.theirs import OURS

_NO_COMMAND = re.compile(r"No such command '(.*?)'")
_NO_OPTION = re.compile(r"No such option: (--?[\w-]+)|has no option '(--?[\w-]+)'")
_TOO_MANY = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)")
_MISSING = re.compile(r"Missing (?:option|argument) '(.*?)'")

_COMMANDS = {
    **{word: ours.command for word, ours in OURS.items()},
    **dict.fromkeys(("add", "load", "ingest", "init", "new", "create"), "import PATH"),
    **dict.fromkeys(("cat", "events", "history"), "log ID"),
    "rm": "erase ID --reason TEXT",
    **dict.fromkeys(("browse", "open", "ui", "web"), "serve"),
    **dict.fromkeys(("check", "fsck"), "verify"),
    **dict.fromkeys(("find", "grep"), "search WORDS"),
    **dict.fromkeys(("explain",), "why ID EVENT"),
    **dict.fromkeys(("repair", "recover"), "salvage"),
    "rebuild": "audit --repair",
    "status": "list --followers",
    **dict.fromkeys(("head", "heads"), "verify --print-heads"),
    "archive": "copy FROM TO",
    "dump": "export ID",
    "help": "--help",
    "tail": "log ID --tail N' or 'foldlog view ID --tail N",
    "version": "--version",
}
_A_CONDENSER = "--config FILE, a TOML file with one of the strategies that 'foldlog condensers' lists"
_OPTIONS = {
    "": {"-V": "--version", "-v": "--version"},
    "audit": {"--output": "--to FILE", "-o": "--to FILE"},
    "compare": {"--condenser": _A_CONDENSER, "--output": "--html FILE", "-o": "--html FILE"},
    "condense": {"--condenser": _A_CONDENSER},
    "copy": {"--db": "give the stores as two arguments, FROM and TO"},
    "export": {"--to": "--output FILE", "--out": "--output FILE"},
    "import": {"--id": "--conversation ID", "--name": "--conversation ID"},
    "log": {"--limit": "--tail N", "--at": "--stop V", "--last": "--tail N"},
    "report": {"--to": "--output FILE", "--html": "--output FILE"},
    "salvage": {"--db": "give the stores as two arguments, FROM and TO"},
    "search": {"--conversation": "--in ID", "--id": "--in ID"},
    "view": {"--version": "--at V", "-v": "--at V", "--limit": "--tail N", "--last": "--tail N"},
    "why": {"--at": "it tells of all versions; 'foldlog view ID --at V' shows the View of one"},
}


def meant(problem: str, name: str, arguments: Sequence[str]) -> str:
    """Return a problem with a command line, and what may have been meant. ``name`` is the command; empty if there is
    none of this name.
    """
    for pattern, likely in (
        (_NO_COMMAND, _command),
        (_NO_OPTION, _option),
        (_TOO_MANY, _argument),
        (_MISSING, _missing),
    ):
        found = pattern.search(problem)
        given = next(filter(None, found.groups()), "") if found else ""
        if found and (remedy := likely(given, name, arguments)):
            return f"{problem[: found.end()]}; {remedy}"  # without typer's own guess
    return problem


def _command(given: str, name: str, arguments: Sequence[str]) -> str:
    if given == "help" and name:
        return f"did you mean 'foldlog {name} --help'?"
    return f"did you mean 'foldlog {_COMMANDS[given]}'?" if given in _COMMANDS else ""


def _option(given: str, name: str, arguments: Sequence[str]) -> str:
    if given == "--db" and arguments[:1] and arguments[0].partition("=")[0] == "--db":
        return f"options follow the command: 'foldlog {name or 'list'} --db STORE'"
    if likely := _OPTIONS.get(name, {}).get(given, ""):
        return f"did you mean {likely}?" if likely.startswith("-") else likely
    long = next((word for word in arguments if word.startswith(given) and word[1:2] != "-" and len(word) > 2), "")
    return f"an id such as {long!r} comes last, after '--'" if long else ""


def _argument(given: str, name: str, arguments: Sequence[str]) -> str:
    words = list(arguments[list(arguments).index(name) + 1 :])
    if "--" in words:
        return "options come before '--'" if given.startswith("-") else ""
    store = next(filter(is_like_a_store, given.split(" ")), None)
    if store is not None and "--db" not in words:
        words.remove(store)
        return f"an option names the store: '{command(name, *words, '--db', store)}'"
    match name, _plain(words):
        case "fork", [parent, at, new, *_] if at.isdigit():
            return f"did you mean '{command(name, parent, new, '--at', at)}'?"
        case "view", [conversation, at, *_] if at.isdigit():
            return f"did you mean '{command(name, conversation, '--at', at)}'?"
        case "attributes", [conversation, pair, *_]:
            return f"did you mean '{command(name, conversation, '--set', pair if '=' in pair else f'{pair}=VALUE')}'?"
        case "report" | "export", [conversation, file, *_]:
            return f"did you mean '{command(name, conversation, '--output', file)}'?"
    return ""


def _missing(missing: str, name: str, arguments: Sequence[str]) -> str:
    words = list(arguments[list(arguments).index(name) + 1 :]) if name else []
    match name, missing, _plain(words):
        case "retract", "--to", [conversation, version, *_]:
            return f"did you mean '{command(name, conversation, '--to', version)}'?"
        case _, "EVENT", [event, *_] if event.isdigit():
            return f"the id of the conversation comes first: '{command(name, 'ID', event)}'"
        case "fork", "NEW", [conversation, *_]:
            return f"a fork needs an id of its own: '{command(name, conversation, f'{conversation}-2')}'"
    return ""


def _plain(words: Sequence[str]) -> list[str]:
    """Return the words before the first option."""
    return list(takewhile(lambda word: not word.startswith("-"), words))


def is_like_a_store(word: str) -> bool:
    return "://" in word or word.endswith((".db", ".sqlite", ".sqlite3"))
