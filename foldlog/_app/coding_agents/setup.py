"""Write foldlog's hooks and MCP server into the settings of a program, and remove them.

A record stores what setup wrote, so that setup removes nothing else. The user may have a server or
a file with the same name.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from stat import S_IMODE
from typing import Any, NamedTuple

from foldlog._app.coding_agents.programs import Program, settings_at, settings_in, text_at
from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore.files.whole_file import whole_file

_RECORD = "setup.json"
"""The record's file. The record maps the path of a settings file to foldlog's part of this file. If
setup was interrupted, it has a list: the parts of which the file may have one.
"""
_SECTIONS = ("hooks", "mcpServers", "mcp_servers")
"""Setup writes only these sections of a plugin's file into settings."""
_WHOLE_FILE = ""
"""In the record, this name in the list ``made`` says that setup created the settings file."""


class Written(NamedTuple):
    """A settings file and its new text. If ``text`` is None, the file is removed. ``ours`` is
    foldlog's part of the file.
    """

    path: Path
    text: str | None
    ours: Any = None


def settings_with(
    program: Program, command: Sequence[str], options: Sequence[str], record: JsonMap
) -> Iterator[Written]:
    """Yield the settings of a program with foldlog's hooks and server. The hooks and the server run
    ``command`` with ``options``.

    Raises ``ValueError`` if settings cannot be read, or if the user has values under foldlog's
    names. Raises ``OSError``.
    """
    texts_without_ours = {
        written.path: written.text for written in settings_without(program, record)
    }
    for target in program.targets:
        path = settings_at(target.path)
        text = texts_without_ours[path] if path in texts_without_ours else text_at(path)
        plugin_file = files("foldlog._app.coding_agents").joinpath("plugins", target.plugin)
        plugin = _with_command(plugin_file.read_text("utf-8"), command, options)
        if target.is_ours:
            if text not in (None, plugin):
                raise ValueError(f"{path} exists, and was not written by setup")
            yield Written(path, plugin, plugin)
            continue
        settings = settings_in(path, text)
        ours = settings_in(Path(target.plugin), plugin)
        values = {section: ours[section] for section in _SECTIONS if section in ours}
        new_names = [_WHOLE_FILE] if text is None else []
        new_names += _insert(settings, values, path)
        yield Written(path, _text_of(path, settings), {"made": new_names, "values": values})


def settings_without(program: Program, record: JsonMap) -> Iterator[Written]:
    """Yield the settings files of a program without foldlog's parts. Raises the errors of
    ``settings_with``.
    """
    for target in program.targets:
        path = settings_at(target.path)
        parts = _recorded_parts(record, path)
        text = text_at(path)
        if not parts or text is None:
            continue
        if target.is_ours:
            if text in parts:
                yield Written(path, None)
            continue
        settings = settings_in(path, text)
        made = {name for part in parts for name in part["made"]}
        removed = [_remove_ours(settings, part["values"], made) for part in parts]
        if any(removed):
            is_to_delete = not settings and _WHOLE_FILE in made
            yield Written(path, None if is_to_delete else _text_of(path, settings))


def read_record(folder: Path) -> JsonObject:
    """Return what setup wrote so far, by the paths of settings files."""
    return dict(settings_in(folder / _RECORD, text_at(folder / _RECORD)))


def write(written: Written, folder: Path) -> None:
    """Write a settings file, and store foldlog's part in the record. The mode of the settings file
    does not change, and a link to the file stays a link. Raises ``OSError``.
    """
    record = read_record(folder)
    path = written.path.resolve()
    if written.ours is not None:
        # After a crash, the file has the new part, an earlier part or none.
        parts = [written.ours, *_recorded_parts(record, written.path)]
        _write(folder / _RECORD, json.dumps({**record, str(written.path): parts}))
    if written.text is None:
        _remove(path)
    else:
        _write(path, written.text)
    _write(folder / _RECORD, json.dumps({**record, str(written.path): written.ours}))


def _recorded_parts(record: JsonMap, path: Path) -> list[Any]:
    """Return the parts of a settings file that setup may have written."""
    parts = record.get(str(path))
    if isinstance(parts, list):
        return parts
    return [] if parts is None else [parts]


def _write(path: Path, text: str) -> None:
    """Write a file as a whole. A new file is for its owner alone; others keep their mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode if path.exists() else 0o600
    with whole_file(path) as file:
        file.write(text.encode())
    path.chmod(S_IMODE(mode))


def _remove(path: Path) -> None:
    """Remove a file of foldlog, and the folders of foldlog that are empty then."""
    path.unlink()
    for folder in (path.parent, path.parent.parent):
        if "foldlog" in (folder.name, folder.parent.name):
            with suppress(OSError):  # the folder is not empty
                folder.rmdir()


def _text_of(path: Path, settings: JsonMap) -> str:
    """Return settings as the text of their file."""
    if path.suffix == ".toml":
        import tomlkit

        text: str = tomlkit.dumps(settings)
        return text
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    if text.isascii() or _can_be_encoded(text):
        return text
    return json.dumps(settings, indent=2) + "\n"  # half of a character stays an escape


def _can_be_encoded(text: str) -> bool:
    """Return whether a text has no half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_command(text: str, command: Sequence[str], options: Sequence[str]) -> str:
    """Return the text of a plugin's file with the command that starts foldlog on this machine. All
    plugins write strings as in JSON.
    """
    program = json.dumps(command[0])
    arguments = json.dumps([*command[1:], "mcp", *options])
    text = text.replace('"foldlog hook"', json.dumps(shlex.join([*command, "hook", *options])))
    text = re.sub(r'(command"? *[:=] *)"foldlog"', lambda matched: matched[1] + program, text)
    return re.sub(r'\[\s*"mcp"\s*\]', lambda matched: arguments, text)


def _insert(settings: MutableMapping[str, Any], ours: JsonMap, path: Path) -> list[str]:
    """Insert foldlog's values into the sections of settings. Return the names of the new sections
    and of the new values.
    """
    new_names = []
    for section, values in ours.items():
        if section not in settings:
            new_names.append(section)
            settings[section] = {}
        present = settings[section]
        for name, value in values.items():
            if not isinstance(present, dict):
                # A ValueError, as for other odd settings.
                raise ValueError(f"{path}: {section} is not an object")  # noqa: TRY004
            if name not in present:
                new_names.append(f"{section}.{name}")
                present[name] = value
            elif isinstance(value, list) and isinstance(present[name], list):
                present[name] = [*present[name], *value]
            else:
                raise ValueError(f"{path}: {section}.{name} exists, and was not written by setup")
    return new_names


def _remove_ours(
    settings: MutableMapping[str, Any], ours: JsonMap, new_names: Collection[str]
) -> bool:
    """Remove foldlog's values from settings, and return whether values were removed. An empty
    section that setup itself made is removed too.
    """
    removed_any = False
    for section, values in ours.items():
        present = settings.get(section)
        if not isinstance(present, dict):
            continue
        for name, value in values.items():
            value_before = present.get(name)
            rest = _without_ours(value_before, value)
            if rest == value_before:
                continue
            removed_any = True
            if rest or (rest is not None and f"{section}.{name}" not in new_names):
                present[name] = rest
            else:
                del present[name]
        if section in new_names and not present:
            del settings[section]
    return removed_any


def _without_ours(value: Any, ours: Any) -> Any:
    """Return a value without foldlog's entries, or None if the whole value is foldlog's.

    In a list of hooks, a group that contains only foldlog's hooks is left out. A group without
    foldlog's hooks stays unchanged, even if it is empty.
    """
    if not isinstance(value, list) or not isinstance(ours, list):
        return None if value == ours else value
    our_hooks = [hook for group in ours for hook in group["hooks"]]
    groups = []
    for group in value:
        hooks = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(hooks, list) or not any(hook in our_hooks for hook in hooks):
            groups.append(group)
            continue
        hooks_left = [hook for hook in hooks if hook not in our_hooks]
        if hooks_left:
            groups.append({**group, "hooks": hooks_left})
    return groups
