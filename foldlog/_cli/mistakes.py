"""What a person may have meant who typed a command, an option or an argument that there is not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foldlog._words.theirs import OURS

_NO_COMMAND = re.compile(r"No such command '(.*?)'")
_NO_OPTION = re.compile(r"No such option: (--?[\w-]+)")
_TOO_MANY = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)")

_COMMANDS = {
    **{word: ours.command for word, ours in OURS.items()},
    **dict.fromkeys(("add", "load", "ingest", "init", "new", "create"), "import PATH"),
    **dict.fromkeys(("cat", "events", "history"), "log ID"),
    "rm": "erase ID --reason TEXT",
    **dict.fromkeys(("browse", "open", "ui", "web"), "serve"),
    **dict.fromkeys(("check", "fsck"), "verify"),
    **dict.fromkeys(("find", "grep"), "search WORDS"),
    **dict.fromkeys(("explain",), "why ID EVENT"),
    **dict.fromkeys(("repair", "recover", "salvage"), "copy --damaged"),
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
    "attributes": dict.fromkeys(("--remove", "--unset", "--delete"), "--set NAME="),
    "audit": {"--output": "--to FILE", "-o": "--to FILE"},
    "compare": {"--condenser": _A_CONDENSER, "--output": "--html FILE", "-o": "--html FILE"},
    "condense": {"--condenser": _A_CONDENSER},
    "copy": {"--db": "give the stores as two arguments, FROM and TO"},
    "export": {"--to": "--output FILE", "--out": "--output FILE"},
    "import": {"--id": "--conversation ID", "--name": "--conversation ID"},
    "log": {"--limit": "--tail N", "--at": "--stop V", "--last": "--tail N", "--from": "--start V", "--to": "--stop V"},
    "report": {"--to": "--output FILE", "--html": "--output FILE"},
    "search": {"--conversation": "--in ID", "--id": "--in ID"},
    "view": {"--version": "--at V", "-v": "--at V", "--limit": "--tail N", "--last": "--tail N"},
}


def meant(problem: str, name: str, arguments: Sequence[str]) -> str:
    """Return a problem with a command line, and what may have been meant. ``name`` is the command; empty if there is
    none of this name.
    """
    for pattern, likely in ((_NO_COMMAND, _command), (_NO_OPTION, _option), (_TOO_MANY, _argument)):
        if (found := pattern.search(problem)) and (remedy := likely(found[1], name, arguments)):
            return f"{problem[: found.end()]}; {remedy}"  # without typer's own guess
    return problem


def _command(given: str, name: str, arguments: Sequence[str]) -> str:
    if given == "help" and name:
        return f"did you mean 'foldlog {name} --help'?"
    return f"did you mean 'foldlog {_COMMANDS[given]}'?" if given in _COMMANDS else ""


def _option(given: str, name: str, arguments: Sequence[str]) -> str:
    if given == "--db" and arguments[0].partition("=")[0] == "--db":
        return f"options follow the command: 'foldlog {name or 'list'} --db STORE'"
    if likely := _OPTIONS.get(name, {}).get(given, ""):
        return f"did you mean {likely}?" if likely.startswith("-") else likely
    return "" if given.startswith("--") else "an id that begins with a dash comes last, after '--'"


def _argument(given: str, name: str, arguments: Sequence[str]) -> str:
    if given.startswith("-"):
        option = given.split(" ")[0]
        return "options come before '--'" if "--" in arguments else _option(option, name, arguments)
    if name == "compare":
        return "to compare two conversations: 'foldlog diff ID OTHER'"
    if name == "attributes" and "=" in given:
        return f"an option sets an attribute: --set {given}"
    store = next(filter(is_like_a_store, given.split(" ")), "")
    return f"an option names the store: --db {store}" if store and "--db" not in arguments else ""


def is_like_a_store(word: str) -> bool:
    return "://" in word or word.endswith((".db", ".sqlite", ".sqlite3"))
