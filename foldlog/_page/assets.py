"""Put the sources in ``app/`` together: one script, one style, one page.

The script's modules import one another by name, for people and for tools that read them. A browser gets them one after
the other in one file: an exported name is the same in all of them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib.resources import files

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(?P<name>[\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def _source(name: str) -> str:
    return files(__package__).joinpath("app", name).read_text("utf-8")


@cache
def modules() -> tuple[str, ...]:
    """Return the names of the script's modules, each after those that it imports."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        for found in _IMPORT.finditer(_source(name)):
            if found["name"] not in order:
                visit(found["name"])
        order[name] = None

    visit("main.js")
    return tuple(order)


@cache
def script() -> str:
    """Return the whole script."""
    parts = [_EXPORT.sub("", _IMPORT.sub("", _source(name))) for name in modules()]
    return '"use strict";\n{\n' + "\n".join(parts) + "}\n"


@cache
def style() -> str:
    """Return the style sheet."""
    return _source("page.css")


def content_hash(text: str) -> str:
    """Return the source expression of a Content-Security-Policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page(*, title: str, head: str, script: str, fallback: str, data: str) -> str:
    """Return the page. ``title`` is a text; the others are markup."""
    values = {"title": escape(title), "head": head, "script": script, "fallback": fallback, "data": data}
    return _PLACE.sub(lambda found: values[found[1]], _source("page.html"))
