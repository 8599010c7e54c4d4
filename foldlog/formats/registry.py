"""The formats: foldlog's own formats, formats that a program registers, and formats of installed
packages.

A package adds a ``Format`` object with an entry point in the group ``foldlog.formats``:

    [project.entry-points."foldlog.formats"]
    my-agent = "my_package.history:FORMAT"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Final

from foldlog.eventstore import EventStoreError, InvalidArgument
from foldlog.eventstore.arguments import check_text
from foldlog.formats.format import Format, UnusableFormat

GROUP = "foldlog.formats"
AUTO = "auto"
"""The name to use if the format should be detected from the records."""

OURS: Final = (
    "openhands-v0",
    "openhands-v1",
    "openai-responses",
    "langchain",
    "pi",
    "atif",
    "inspect-eval",
    "anthropic-messages",
    "openai-chat",
    "claude-code",
    "codex",
    "swe-agent",
    "opencode",
    "gemini-cli",
    "qwen-code",
    "cursor",
    "copilot-cli",
    "pydantic-ai",
    "google-adk",
    "agent-framework",
    "strands",
    "aider",
    "chatgpt",
    "claude-ai",
    "otlp-genai",
)
"""foldlog's formats that can be detected. A format is the object ``FORMAT`` in a file or folder
with the format's name, with ``_`` for ``-``: see ``_load``. To add a format, add its file or
folder, and add its name to this tuple. A record belongs to the first format that matches. No record
should match two formats.
"""
_ADAPTER_FORMATS: Final = (
    "agent-framework",
    "google-adk",
    "langchain",
    "llama-index",
    "pydantic-ai",
    "strands",
)
"""foldlog's formats for records that an adapter writes. The files of adapters' formats are next to
the adapters. ``llama-index`` is not in ``OURS``, because its records are read only if the user
names the format.
"""
REGISTERED: dict[str, Format] = {}
"""Maps a name to a format that the program registered. After the installed packages are loaded,
``REGISTERED`` also has their formats.
"""


@cache
def _load(name: str) -> Format:
    """Import one of foldlog's formats. Most processes need only one or two of them."""
    is_of_adapter = name in _ADAPTER_FORMATS
    package = "foldlog.adapters._records" if is_of_adapter else "foldlog.formats"
    format: Format = import_module(f"{package}.{name.replace('-', '_')}").FORMAT
    return format


_refused: list[str] | None = None
"""The reasons why formats of installed packages cannot be used. The value is None until the
packages are loaded.
"""


_PROGRAM_FORMATS = {
    **dict.fromkeys(("cline", "roo", "roo-code"), "anthropic-messages"),
    "claude": "claude-code",
}
"""Maps the name of a program to its format. A user may name a program instead of its format."""


class UnknownFormat(EventStoreError, ValueError):
    """The format is unknown. Choose one of ``FORMATS``."""

    def __init__(self, format: str, choices: Iterable[str] | None = None) -> None:
        hint = ""
        if format.lower() in _PROGRAM_FORMATS:
            hint = f"; its histories are {_PROGRAM_FORMATS[format.lower()]}"
        names = ", ".join(formats() if choices is None else choices)
        super().__init__(f"{format!r:.60} is not a format{hint}; choose one of {names}")
        self.format = format


def register(format: Format) -> Format:
    """Register your own format in this process, and return the format. A second registration of the
    same object changes nothing.

    The name of the format must never change, because ``origin.format`` of every imported event
    stores the name. Raises ``InvalidArgument`` if another format has the name, or if the name is
    not valid for ``--format``. Raises ``UnusableFormat`` if the object is not a ``Format``.
    """
    return _add("the registered format", format)


def _add(place: str, format: object) -> Format:
    """Add a format to ``REGISTERED``, and return it. ``place`` names it in errors."""
    if not isinstance(format, Format):
        raise UnusableFormat(f"{place} is a {type(format).__name__}; make it a Format")
    name = check_text("the name of a format", format.name)
    if name in ("", AUTO) or name.startswith("-") or " " in name or not name.isprintable():
        raise InvalidArgument(
            f"{place} has the name {name!r}; use a name without white space that does not begin"
            f" with '-' and is not {AUTO!r}"
        )
    holder = _load(name) if _is_ours(name) else REGISTERED.setdefault(name, format)
    if holder is not format:
        raise InvalidArgument(
            f"{place}: another format has the name {name!r}; register this format under a different"
            " name"
        )
    return format


def _is_ours(name: str) -> bool:
    """Return whether one of foldlog's formats has this name."""
    return name in OURS or name in _ADAPTER_FORMATS


def formats() -> Mapping[str, Format]:
    """Return all formats by their names: foldlog's formats, then formats of installed packages. The
    first call loads the installed packages.

    Every call raises ``UnusableFormat`` if a format of a package cannot be registered.
    """
    if refused := _load_packages():
        raise UnusableFormat(refused[0])
    return {name: _load(name) for name in OURS} | REGISTERED


def each_format() -> Iterator[Format]:
    """Yield all formats. Installed packages come last, and are loaded only when needed."""
    yield from map(_load, OURS)
    yield from [*formats().values()][len(OURS) :]


def _load_packages() -> list[str]:
    """Add the formats of installed packages. Return a message for each format that was refused."""
    global _refused
    if _refused is None:
        from importlib.metadata import entry_points  # most processes read only foldlog's formats

        _refused = []
        for entry_point in entry_points(group=GROUP):
            place = f"the entry point {entry_point.name!r} of {GROUP} ({entry_point.value})"
            try:
                _add(place, entry_point.load())
            except (UnusableFormat, InvalidArgument) as error:
                _refused.append(str(error))
            except Exception as error:  # noqa: BLE001 - whatever the code of a package raises
                _refused.append(
                    f"{place} cannot be loaded: {error}; correct or uninstall the package that"
                    " brings it"
                )
    return _refused


def format_named(name: str) -> Format:
    """Return the format with this name. Raises ``UnknownFormat`` for an unknown name."""
    if _is_ours(check_text("format", name)):
        return _load(name)
    if name not in REGISTERED:
        _load_packages()
    match = REGISTERED.get(name)
    if match is None:
        raise UnknownFormat(name)
    return match
