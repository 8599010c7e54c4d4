"""Parse the URL of a store."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from foldlog.eventstore.arguments import check_path
from foldlog.eventstore.errors import InvalidOption

MEMORY = "memory:"
_EXAMPLES = (
    "history.db or ./history (files), sqlite:///history.db (relative), sqlite:////srv/history.db"
    " (absolute), postgresql://user@host/database, memory:"
)
_SQLITE_OPTIONS = {
    "mode": ("rwc", "rw", "ro"),
    "durability": ("full", "relaxed"),
    "plain": ("allowed",),
    "patience_s": None,
}
_POSTGRESQL_OPTIONS = _SQLITE_OPTIONS | {
    "pooler": ("none", "transaction", "prepared"),
    "schema": None,
    "connections_max": None,
    "stores": ("2", "4", "8", "16", "32", "64"),
    "moved": None,
    "part": None,
}
_NUMBERS = ("connections_max", "patience_s")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|:")
_SQLITE_MEMORY = ":memory:"
_ONLY_OPTIONS = re.compile(rf"(?:(?:^|&)(?:{'|'.join(_SQLITE_OPTIONS)})=\w*)+")
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")


class Location(NamedTuple):
    """A parsed URL. For ``sqlite``, ``path`` is a file. For ``postgresql``, ``path`` is the URL
    without foldlog's options.
    """

    scheme: str
    path: str
    options: dict[str, str]


def as_url(place: str | os.PathLike[str]) -> str:
    """Return the URL of the store at ``place``, which is a URL or the path of a file.

    A text that is not a URL is a path if it contains a dot or a slash. A bare word is refused,
    because it is more often a mistake than a path. Raises ``TypeError`` if ``place`` is neither a
    text nor a path. Raises ``InvalidOption`` for a path with the options of a URL.
    """
    if not isinstance(place, str | os.PathLike):
        raise TypeError(f"a store is named by a URL or by the path of a file, not by {place!r}")
    path = os.fspath(place)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    check_path(without_password(path))
    if isinstance(place, str) and (_SCHEME.match(path) or not {".", "/"} & set(path)):
        return path  # ``parse_url`` reports what is wrong with it
    name, _, query = path.rpartition("?")
    if isinstance(place, str) and name and _ONLY_OPTIONS.fullmatch(query):
        raise InvalidOption(
            f"a path cannot have options; use this URL: sqlite:///{quote(os.fsencode(name))}?{query}"
        )
    return f"sqlite:///{quote(os.fsencode(path))}"


def parse_url(url: str) -> Location:
    """Return where a store is, and its options. Raises ``InvalidOption`` if the text is not the URL
    of a store, or if an option is unknown.
    """
    if url == MEMORY:
        return Location("memory", "", {})
    address, _, query = url.partition("?")
    scheme, _, rest = address.partition(":")
    if scheme in ("postgresql", "postgres"):
        # libpq checks all other options, and an option may contain a password.
        options, others = _options("the URL", query, _POSTGRESQL_OPTIONS)
        return Location(
            "postgresql", f"{address}?{'&'.join(others)}" if others else address, options
        )
    if scheme != "sqlite":
        raise InvalidOption(
            f"{without_password(url)!r} is not the URL of a store; use one of: {_EXAMPLES}"
        )
    path = unquote(rest.removeprefix("///"), errors=sys.getfilesystemencodeerrors())
    if not rest.startswith("///") or not path or "\0" in path:
        raise InvalidOption(
            f"{url!r} names no SQLite file; write three slashes and a path: {_EXAMPLES}"
        )
    if path == _SQLITE_MEMORY:
        raise InvalidOption(
            f"{url!r} names a file called {path!r}; use {MEMORY!r} for a store in memory, which"
            f" ends with the process, or './{path}' for this file"
        )
    options, others = _options(repr(url), query, _SQLITE_OPTIONS)
    if others:
        unknown = others[0].partition("=")[0]
        option_names = ", ".join(sorted(_SQLITE_OPTIONS))
        raise InvalidOption(
            f"{url!r} has an unknown option {unknown!r}; the options are {option_names}"
        )
    return Location("sqlite", path, options)


def absolute_hint(path: str) -> str:
    """Return a remedy if the folder of a relative path is missing, but would exist with a slash
    before the path. Otherwise, return an empty text.
    """
    folder, name = os.path.split(os.path.relpath(path))
    if (
        not folder
        or folder.startswith("..")
        or os.path.isdir(folder)
        or not os.path.isdir(f"/{folder}")
    ):
        return ""
    return (
        f"; for the absolute path write /{folder}/{name}, or the URL"
        f" sqlite:////{quote(os.fsencode(folder))}/{quote(os.fsencode(name))}"
    )


def without_password(url: str) -> str:
    """Return a URL whose password, if it has one, is replaced by ``***``."""
    if "@" not in url and "password=" not in url:  # compiling the patterns takes half a millisecond
        return url
    url = re.sub(r"^([\w+.-]+://[^:/?#@]*):.*@(?=[^@]*$)", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", url)


def _options(
    url: str, query: str, ours: Mapping[str, Sequence[str] | None]
) -> tuple[dict[str, str], Sequence[str]]:
    """Check foldlog's options in the query part of a URL. Return foldlog's options, and the
    remaining parts of the query. ``ours`` maps each option to its allowed values, or to None: then
    an option in ``_NUMBERS`` may have a whole number, and any other option any text.
    """
    options: dict[str, str] = {}
    others = []
    for part in filter(None, query.split("&")):
        key, _, quoted = part.partition("=")
        if key not in ours:
            others.append(part)
            continue
        value = unquote(quoted)
        allowed = ours[key]
        if key in options:
            raise InvalidOption(f"{url} sets {key} twice; leave one of the two out")
        if allowed is not None and value not in allowed:
            raise InvalidOption(f"{url} sets {key} to {value!r}; it can be {', '.join(allowed)}")
        if key in _NUMBERS and not _NUMBER.fullmatch(value):
            raise InvalidOption(
                f"{url} sets {key} to {value!r}; use a whole number from 1 to 999999"
            )
        options[key] = value
    return options, others
