"""Each package has the names, errors and signatures that it promises."""

import importlib
import inspect
import pkgutil
import pydoc
import re
import types

import pytest

import foldlog
import foldlog.condensers
import foldlog.eventstore
import foldlog.projections
from tests.adapters_list import ADAPTERS
from tests.test_errors_travel import exceptions

PACKAGES = ["foldlog.eventstore", "foldlog.projections", "foldlog.condensers", "foldlog"]


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_every_public_name(package):
    module = importlib.import_module(package)
    promised = set(module.__all__)
    assert len(promised) == len(module.__all__), "a name stands twice in __all__"
    assert {name for name in promised if not hasattr(module, name)} == set()
    reachable = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name not in ("annotations", "TYPE_CHECKING")
    }
    assert reachable - {"open"} <= promised


@pytest.mark.parametrize("package", PACKAGES[:-1])
def test_no_module_hides_a_public_name(package):
    module = importlib.import_module(package)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert modules.intersection(module.__all__) == set()


def test_help_begins_with_every_name():
    # the rest is each class with its methods
    page = pydoc.plain(pydoc.render_doc(foldlog)).splitlines()[:80]
    assert [
        name
        for name in foldlog.__all__
        if not any(name in line for line in page) and name != "ANY_VERSION"
    ] == []


def test_names_in_signatures_can_be_imported():
    faces = (
        foldlog.open,
        foldlog.from_openai,
        foldlog.Histories,
        foldlog.History,
        foldlog.Maintenance,
    )
    missing = set()
    for face in faces:
        members = (
            [value for name, value in inspect.getmembers_static(face) if name[0] != "_"]
            if inspect.isclass(face)
            else [face]
        )
        for member in (getattr(member, "func", member) for member in members):
            words = [
                *map(str, getattr(member, "__annotations__", {}).values()),
                *_raised(inspect.getdoc(member) or ""),
            ]
            missing |= set(re.findall(r"\b[A-Z]\w+", " ".join(words))) - _public()
    outside_names = [
        "AbstractContextManager",
        "Any",
        "Callable",
        "Iterable",
        "Iterator",
        "Literal",
        "Mapping",
        "None",
        "PathLike",
        "Sequence",
        "T",
        "TimeoutError",
        "TypeError",
        "ValueError",
    ]
    assert missing - set(outside_names) == {"Appended"}, "a union that no caller needs to name"
    assert len(foldlog.__all__) <= 50


def test_dir_shows_what_is_public():
    packages = {
        "aio",
        "condensers",
        "errors",
        "eventstore",
        "formats",
        "maintenance",
        "projections",
        "types",
    }
    assert set(dir(foldlog)) == {*foldlog.__all__, *packages, "open", "__version__"}


def _public():
    """Return the names of foldlog and of the modules where errors, results and types live."""
    modules = (foldlog.errors, foldlog.maintenance, foldlog.types)
    return {
        *foldlog.__all__,
        *(name for module in modules for name in vars(module) if not name.startswith("_")),
    }


def _raised(docstring):
    """Return the names that the paragraphs with "Raises" quote, and the names that they list."""
    parts = [part for part in docstring.split("\n\n") if "Raises" in part]
    quoted = [name for part in parts for name in re.findall(r"``(\w+)``", part)]
    listed = [line for part in parts for line in re.findall(r"^ {4}(\w+(?:, \w+)*): ", part, re.M)]
    return [*quoted, *(name for line in listed for name in line.split(", "))]


def test_foldlog_errors_has_every_error():
    for package in (foldlog.eventstore, foldlog.projections, foldlog.condensers):
        errors = {
            name
            for name, value in vars(package).items()
            if inspect.isclass(value) and issubclass(value, foldlog.EventStoreError)
        }
        assert errors - set(vars(foldlog.errors)) == set()


def test_every_error_is_an_event_store_error():
    """Left out are errors that one module raises for another, and ``TypeError`` for a wrong program."""
    internal = {
        "Undecodable",
        "NotAsWritten",
        "UnreadableJson",
        "UnreadableRevision",
        "Refused",
    }
    internal |= {"DamagedBlock", "OperationUnfinished", "NotIndexed", "StdoutFailed", "NeedsAll"}
    internal |= {"StateIncomplete", "EarlierChanged", "CallsTakenBack", "CheckIsAsync"}
    # each adapter wants its SDK, and so does what it is made with
    adapters = tuple(adapter.module for adapter in ADAPTERS)
    others = {
        error.__name__
        for error in exceptions()
        if not issubclass(error, foldlog.EventStoreError)
        and not error.__module__.startswith(adapters)
    }
    assert {name for name in others if not name.startswith("_")} == internal


def test_docstrings_describe_every_field():
    # a sentence says what the results of types hold
    values = [getattr(foldlog, name) for name in foldlog.__all__]
    values += [foldlog.eventstore.Ingested]
    missing = [
        f"{value.__name__}.{field}"
        for value in values
        if inspect.isclass(value)
        for field in getattr(value, "__struct_fields__", None)
        or getattr(value, "__dataclass_fields__", None)
        or getattr(value, "_fields", ())
        if f"``{field}``" not in (value.__doc__ or "")
    ]
    assert missing == []
    assert [
        name for name, field in foldlog.LLMConfig.model_fields.items() if not field.description
    ] == []


def test_condensers_have_their_names_before_they_are_loaded():
    assert set(foldlog.condensers.__all__) <= set(dir(foldlog.condensers))
