"""Write the hooks and the server of foldlog into the settings of a program, and remove them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._programs.programs import Program, Target, place_at
from foldlog._whole_file import whole_file

_COMMAND = "foldlog"
_TABLE = re.compile(r"\n?^\[mcp_servers\.foldlog(?:\.[^\]\n]+)?\].*\n?(?:\n*(?![\[\n]).+\n?)*", re.MULTILINE)
"""Our table in a file of TOML, up to the next one. Codex writes its file again without any comment."""
_OURS = ("hooks", "mcpServers", "mcp")
"""The parts of a plugin that belong into settings; others, such as its name, are of the plugin."""


class Written(NamedTuple):
    """A file of settings as it is to be: ``text`` is None where it goes."""

    path: Path
    text: str | None


def settings_with(program: Program, command: str, store: str | None) -> Iterator[Written]:
    """Yield the settings of a program with our hooks and server, which run ``command``, for a store if it is not the
    default one. Raises ``ValueError`` for settings that cannot be read, and ``OSError``.
    """
    texts = {written.path: written.text for written in settings_without(program)}
    for target in program.targets:
        path = _path(target)
        texts[path] = _with(target, path, texts[path] if path in texts else _text(path), command, store)
    yield from map(Written, texts, texts.values())


def settings_without(program: Program) -> Iterator[Written]:
    """Yield the settings of a program that has ours, without them. Raises what ``settings_with`` raises."""
    texts: dict[Path, str | None] = {}
    for target in program.targets:
        path = _path(target)
        before = texts[path] if path in texts else _text(path)
        if before is None:
            continue
        after = None if target.how == "own" else _without(target, before)
        if after != before:
            texts[path] = None if after is not None and after.strip() in ("", "{}") else after
    yield from map(Written, texts, texts.values())


def is_set_up(program: Program) -> bool:
    """Return whether all settings of a program have our hooks and server."""
    return all((text := _text(_path(target))) is not None and _COMMAND in text for target in program.targets)


def write(written: Written) -> None:
    """Write a file of settings as it is to be. Its mode stays. Raises ``OSError``."""
    if written.text is None:
        written.path.unlink(missing_ok=True)
        return
    written.path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(written.path) as file:
        file.write(written.text.encode())


def _path(target: Target) -> Path:
    path = place_at(target.path)
    assert path is not None
    return path


def _text(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None


def _with(target: Target, path: Path, before: str | None, command: str, store: str | None) -> str:
    plugin = files("foldlog._programs").joinpath("plugins", target.plugin).read_text("utf-8")
    if target.how == "own":
        return _commanded(plugin, command, store)
    if target.how == "toml":
        block = _commanded(plugin, command, store).strip()
        return f"{(before or '').rstrip()}\n\n{block}\n".lstrip()
    settings = json.loads(before) if before else {}
    if not isinstance(settings, dict):
        raise ValueError(f"{path} holds no JSON object")  # noqa: TRY004 - as other contents that cannot be read
    ours = json.loads(_commanded(plugin, command, store))
    merged = _merged(settings, {name: ours[name] for name in _OURS if name in ours})
    return json.dumps(merged, indent=2, ensure_ascii=False) + "\n"


def _without(target: Target, before: str) -> str:
    if target.how == "toml":
        return _TABLE.sub("", before).lstrip()
    return json.dumps(_cleared(json.loads(before or "{}")), indent=2, ensure_ascii=False) + "\n"


def _commanded(text: str, command: str, store: str | None) -> str:
    """Return the text of a plugin with the command as it is run here. Its strings are JSON in each of the languages."""
    option = [] if store is None else ["--db", store]
    text = text.replace('"foldlog hook"', json.dumps(shlex.join([command, "hook", *option])))
    text = re.sub(r'"foldlog"(?!\s*:)', lambda found: json.dumps(command), text)
    return re.sub(r'"mcp"(?=\s*\])', lambda found: json.dumps(["mcp", *option])[1:-1], text)


def _merged(settings: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with ours in them: objects are joined, lists are put together."""
    merged = dict(settings)
    for name, value in ours.items():
        there = merged.get(name)
        if isinstance(there, dict) and isinstance(value, dict):
            merged[name] = _merged(there, value)
        elif isinstance(there, list) and isinstance(value, list):
            merged[name] = [*there, *value]
        else:
            merged[name] = value
    return merged


def _cleared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without our hooks and server, and without what is empty then."""
    cleared = dict(settings)
    for name in ("mcpServers", "mcp"):
        servers = cleared.get(name)
        if isinstance(servers, dict) and servers.pop("foldlog", None) is not None and not servers:
            del cleared[name]
    hooks = cleared.get("hooks")
    if isinstance(hooks, dict):
        kept = {event: _others(each) for event, each in hooks.items()}
        cleared["hooks"] = {event: each for event, each in kept.items() if each or not hooks[event]}
        if hooks and not cleared["hooks"]:
            del cleared["hooks"]
    return cleared


def _others(entries: Any) -> Any:
    """Return the entries of an event without our hooks; anything but a list is the user's."""
    if not isinstance(entries, list):
        return entries
    kept = []
    for entry in entries:
        commands = entry.get("hooks") if isinstance(entry, dict) else None
        others = [each for each in commands if not _is_ours(each)] if isinstance(commands, list) else []
        if others:
            kept.append({**entry, "hooks": others})
        elif not _is_ours(entry):
            kept.append(entry)
    return kept


def _is_ours(hook: Any) -> bool:
    return re.search(r"foldlog\S* hook\b", json.dumps(hook)) is not None
