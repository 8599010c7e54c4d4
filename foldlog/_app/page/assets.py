"""Join the sources in ``app/`` into one script, one style sheet and one page.

The modules of the script import one another by name, so that people and tools can follow the
imports. A browser gets all modules in one file without imports, so a name at the top of a module
must be unique in the script, also if the module does not export it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib.resources import files

MODULES = (
    "dom",
    "titles",
    "texts",
    "history",
    "marks",
    "markdown",
    "sources",
    "strip",
    "chart",
    "transcript",
    "notes",
    "why",
    "knew",
    "runs",
    "agents",
    "compare",
    "opening",
    "main",
)
"""The modules of the script. A module comes after the modules that it imports."""

_MODULE_WORDS = re.compile(
    r'^import \{[^}]*\} from "\./[\w-]+\.js";\n|^export (?=\w)', re.MULTILINE
)
"""What a module has, and a script must not have: imports, and the word ``export``."""
_PLACE = re.compile(r"\{\{(\w+)\}\}")
"""A place for a value in ``page.html``."""


def _source(name: str) -> str:
    """Return a file of ``app/``."""
    return files(__package__).joinpath("app", name).read_text("utf-8")


@cache
def script() -> str:
    """Return all modules as one script. The braces keep its names out of the page's own."""
    modules = "\n".join(_MODULE_WORDS.sub("", _source(f"{name}.js")) for name in MODULES)
    return f'"use strict";\n{{\n{modules}}}\n'


@cache
def style() -> str:
    """Return the style sheet."""
    return _source("page.css")


def content_hash(text: str) -> str:
    """Return the hash of a script or style. A browser accepts the text if the
    Content-Security-Policy contains the hash.
    """
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page(*, title: str, head: str, script: str, fallback: str, data: str) -> str:
    """Return the page. ``title`` is a text; ``head``, ``script``, ``fallback`` and ``data`` are
    markup.
    """
    values = {
        "title": escape(title),
        "head": head,
        "script": script,
        "fallback": fallback,
        "data": data,
    }
    return _PLACE.sub(lambda found: values[found[1]], _source("page.html"))
