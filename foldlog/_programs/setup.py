"""Write the hooks and the server of foldlog into the settings of a program, and remove them.

What was written is recorded, so that nothing else is removed: a server or a file of the user may
have our names.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from stat import S_IMODE
from typing import Any, NamedTuple

from foldlog._programs.programs import Program, settings_at, settings_in, text_at
from foldlog._whole_file import whole_file

_RECORD = "setup.json"
"""The file that says what setup wrote: by the path of each file, what of it is ours."""
_SECTIONS = ("hooks", "mcpServers", "mcp_servers")
"""The parts of a plugin that belong into settings; others, such as its name, are of the plugin."""


class Written(NamedTuple):
    """A file of settings as it is to be: ``text`` is None where it goes. ``ours`` is what of it is
    ours then.
    """

    path: Path
    text: str | None
    ours: Any = None


def settings_with(
    program: Program, command: Sequence[str], options: Sequence[str], record: Mapping[str, Any]
) -> Iterator[Written]:
    """Yield the settings of a program with our hooks and server, which run ``command`` with
    ``options``. Raises ``ValueError`` for settings that cannot be read, or where
    something of the user has the place of ours, and ``OSError``.
    """
    before = {written.path: written.text for written in settings_without(program, record)}
    for target in program.targets:
        path = settings_at(target.path)
        text = before[path] if path in before else text_at(path)
        plugin = files("foldlog._programs").joinpath("plugins", target.plugin).read_text("utf-8")
        plugin = _commanded(plugin, command, options)
        if target.is_ours:
            if text not in (None, plugin):
                raise ValueError(f"{path} is there already, and setup did not write it")
            yield Written(path, plugin, plugin)
            continue
        settings = settings_in(path, text)
        ours = settings_in(Path(target.plugin), plugin)
        values = {section: ours[section] for section in _SECTIONS if section in ours}
        made = [""] if text is None else []
        made += _put(settings, values, path)
        yield Written(path, _dumped(path, settings), {"made": made, "values": values})


def settings_without(program: Program, record: Mapping[str, Any]) -> Iterator[Written]:
    """Yield the settings of a program that have ours, without them. Raises what ``settings_with``
    raises.
    """
    for target in program.targets:
        path = settings_at(target.path)
        ours = record.get(str(path))
        text = text_at(path)
        if ours is None or text is None:
            continue
        if target.is_ours:
            if text == ours:
                yield Written(path, None)
            continue
        settings = settings_in(path, text)
        if _take(settings, ours["values"], ours["made"]):
            is_empty = not settings and "" in ours["made"]
            yield Written(path, None if is_empty else _dumped(path, settings))


def recorded(folder: Path) -> dict[str, Any]:
    """Return what setup wrote, from its file in the folder of foldlog."""
    return dict(settings_in(folder / _RECORD, text_at(folder / _RECORD)))


def write(written: Written, folder: Path) -> None:
    """Write a file of settings as it is to be, and what is ours into the record in a folder. The
    mode of the file and links to it stay. Raises ``OSError``.
    """
    record = json.dumps({**recorded(folder), str(written.path): written.ours})
    path = written.path.resolve()
    if written.text is not None and written.ours is not None:  # a kill leaves a record of too much
        _write(folder / _RECORD, record)
        _write(path, written.text)
        return
    if written.text is None:
        _remove(path)
    else:
        _write(path, written.text)
    _write(folder / _RECORD, record)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode if path.exists() else 0o600
    with whole_file(path) as file:
        file.write(text.encode())
    path.chmod(S_IMODE(mode))


def _remove(path: Path) -> None:
    path.unlink()
    for folder in (path.parent, path.parent.parent):
        if "foldlog" in (folder.name, folder.parent.name):
            with suppress(OSError):  # it holds something else
                folder.rmdir()


def _dumped(path: Path, settings: Mapping[str, Any]) -> str:
    if path.suffix == ".toml":
        import tomlkit

        text: str = tomlkit.dumps(settings)
        return text
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _commanded(text: str, command: Sequence[str], options: Sequence[str]) -> str:
    """Return the text of a plugin with the command as it is run here. Its strings are JSON in each
    language.
    """
    program = json.dumps(command[0])
    arguments = json.dumps([*command[1:], "mcp", *options])
    text = text.replace('"foldlog hook"', json.dumps(shlex.join([*command, "hook", *options])))
    text = re.sub(r'(command"? *[:=] *)"foldlog"', lambda found: found[1] + program, text)
    return re.sub(r'\[\s*"mcp"\s*\]', lambda found: arguments, text)


def _put(settings: MutableMapping[str, Any], ours: Mapping[str, Any], path: Path) -> list[str]:
    """Put our values into the sections of settings. Return which sections, and which names in them,
    are new.
    """
    made = []
    for section, values in ours.items():
        if section not in settings:
            made.append(section)
            settings[section] = {}
        there = settings[section]
        for name, value in values.items():
            if not isinstance(there, dict):
                raise ValueError(f"{path}: {section} holds no object")  # noqa: TRY004 - as other odd settings
            if name not in there:
                made.append(f"{section}.{name}")
                there[name] = value
            elif isinstance(value, list) and isinstance(there[name], list):
                there[name] = [*there[name], *value]
            else:
                raise ValueError(
                    f"{path}: {section}.{name} is there already, and setup did not write it"
                )
    return made


def _take(settings: MutableMapping[str, Any], ours: Mapping[str, Any], made: Sequence[str]) -> bool:
    """Take our values out of settings, and what setup made if it is empty then. Return whether some
    were there.
    """
    found = False
    for section, values in ours.items():
        there = settings.get(section)
        if not isinstance(there, dict):
            continue
        for name, value in values.items():
            before = there.get(name)
            left = _less(before, value)
            if left == before:
                continue
            found = True
            if left or (left is not None and f"{section}.{name}" not in made):
                there[name] = left
            else:
                del there[name]
        if section in made and not there:
            del settings[section]
    return found


def _less(there: Any, ours: Any) -> Any:
    """Return what is left of a value without ours; None where it is ours. Of the hooks of an event
    it is a list.
    """
    if not isinstance(there, list) or not isinstance(ours, list):
        return None if there == ours else there
    hooks = [hook for group in ours for hook in group["hooks"]]
    left = []
    for group in there:
        others = group.get("hooks") if isinstance(group, dict) else None
        if isinstance(others, list) and any(hook in hooks for hook in others):
            others = [hook for hook in others if hook not in hooks]
            group = {**group, "hooks": others}
        if others or others is None or group in there:
            left.append(group)
    return left
