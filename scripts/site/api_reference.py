"""Make the page of the Python interface from the docstrings of all public names, when the site is
built.
"""

from __future__ import annotations

import inspect
import re
import types
import typing

import foldlog
import foldlog.aio
import foldlog.condensers
import foldlog.errors
import foldlog.eventstore
import foldlog.formats
import foldlog.maintenance
import foldlog.projections
import foldlog.types

_HEAD = """\
# Python

This page is made from the docstrings. Begin with [foldlog](#foldlog). Each of the other packages,
such as `foldlog.eventstore`, also works alone. Names that begin with `_`, or that are not listed
here, may change.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    described: set[int] = set()
    packages: list[tuple[types.ModuleType, list[str]]] = [
        (foldlog, sorted(foldlog.__all__)),
        *((module, _names_of(module)) for module in (foldlog.errors, foldlog.types)),
        (foldlog.maintenance, sorted(foldlog.maintenance.__all__)),
        (foldlog.aio, sorted(foldlog.aio.__all__)),
        (foldlog.formats, sorted(foldlog.formats.__all__)),
        (foldlog.condensers, sorted(foldlog.condensers.__all__)),
        (foldlog.projections, sorted(foldlog.projections.__all__)),
        (foldlog.eventstore, sorted(foldlog.eventstore.__all__)),
    ]
    public = {id(getattr(package, name)) for package, names in packages for name in names}
    for package, names in packages:
        parts.append(f"\n## {package.__name__}\n")
        others = []
        for name in names:
            value = getattr(package, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                parts.append(f"\n### {package.__name__}.{name}\n\n`{_of(repr(value))}`\n")
            elif id(value) in described:
                others.append(f"`{name}`")
            else:
                described.add(id(value))
                parts.append(_described(package.__name__, name, value, public))
        if others:
            parts.append(f"\nAlso here, and described above: {', '.join(others)}.\n")
    return "".join(parts)


def _names_of(module: types.ModuleType) -> list[str]:
    return sorted(name for name in vars(module) if not name.startswith("_"))


def _described(package: str, name: str, value: typing.Any, public: set[int]) -> str:
    text = f"\n### {package}.{name}\n\n```text\n{name}{_signature(value)}\n```\n\n{_doc(value)}\n"
    if not inspect.isclass(value):
        return text
    for member, attribute in _members(value, public).items():
        if member.startswith("_"):
            continue
        function = (
            attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
        )
        if isinstance(function, property):
            text += f"\n**`{name}.{member}`**\n\n{_doc(function)}\n"
        elif inspect.isfunction(function):
            text += f"\n**`{name}.{member}{_signature(function)}`**\n\n{_doc(function)}\n"
    return text


def _members(value: type, public: set[int]) -> dict[str, typing.Any]:
    """Return what a class defines, and what it inherits from classes that this page does not
    describe: the methods of a history are divided among three of them.
    """
    members = dict(vars(value))
    for base in value.__mro__[1:]:
        if base.__module__.startswith("foldlog.") and id(base) not in public:
            members = {**vars(base), **members}
    return members


def _signature(value: typing.Any) -> str:
    try:
        return _of(str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(…)"


def _of(text: str) -> str:
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    if text.startswith("("):
        text = re.sub(r"'([A-Za-z_][\w\[\]., |]*)'", r"\1", text)
    return re.sub(r"\b(?:eventstore|projections|condensers|foldlog)(?:\.\w+)*\.(?=[A-Z])", "", text)


def _doc(value: typing.Any) -> str:
    """Return a docstring as Markdown, with ``name`` in single backticks. Indented lines stay
    unchanged.
    """
    text = (inspect.getdoc(value) or "").replace("``", "`")
    blocks = []
    for block in text.split("\n\n"):
        table = "  " in block.strip() and re.match(r"^(`[^`]+`|\S+)\s{2,}", block)
        blocks.append(f"```text\n{block}\n```" if table or block.startswith("    ") else block)
    return "\n\n".join(blocks)
