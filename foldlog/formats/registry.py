"""Which formats there are."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from foldlog.formats.format import Format

__all__ = ["FORMATS", "UnknownFormat", "format_named"]

_MODULES = (
    "openhands_v0",
    "openhands_v1",
    "openai_chat",
    "claude_code",
    "codex",
    "swe_agent",
)
"""The files and folders beside this one that hold a format each, as ``FORMAT``. To add a format, add its folder and its
name here. A record belongs to the first format that matches it; no record should match two.
"""


def _load(module: str) -> Format:
    format = import_module(f"foldlog.formats.{module}").FORMAT
    if not isinstance(format, Format):
        raise TypeError(f"foldlog.formats.{module}.FORMAT is a {type(format).__name__}; make it a Format")
    return format


FORMATS: Mapping[str, Format] = {format.name: format for format in map(_load, _MODULES)}
"""The formats that can be imported and exported, by their names."""


class UnknownFormat(ValueError):
    """There is no such format: choose one of ``FORMATS``."""

    def __init__(self, format: str) -> None:
        super().__init__(f"{format!r} is not a format; choose one of {', '.join(FORMATS)}")
        self.format = format


def format_named(name: str) -> Format:
    """Return the format with this name. Raises ``UnknownFormat``."""
    if name not in FORMATS:
        raise UnknownFormat(name)
    return FORMATS[name]
