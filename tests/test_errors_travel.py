"""Every exception of foldlog can be copied and pickled, so that a process pool, a task queue or a test
runner can pass it on.
"""

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator

import pytest

import foldlog
from tests.adapters_list import ADAPTERS

COPIES = [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy]
VALUES = {
    "str": "c1",
    "int": 7,
    "int | None": None,
    "bool": True,
    "tuple[str, ...]": ("f1", "f2"),
    "Content": [{"type": "text", "text": "no room"}],
}


def exceptions() -> Iterator[type[Exception]]:
    """Yield every exception class of every module that needs no SDK. Imports these modules."""
    with_sdk = tuple(adapter.module for adapter in ADAPTERS)
    modules = [module.name for module in pkgutil.walk_packages(foldlog.__path__, "foldlog.")]
    for name in modules:
        if not name.endswith("__main__") and not name.startswith(with_sdk):
            importlib.import_module(name)
    waiting = [Exception]
    while waiting:
        subclasses = waiting.pop().__subclasses__()
        waiting += subclasses
        yield from (kind for kind in subclasses if kind.__module__.startswith("foldlog."))


def new_error(kind: type[Exception]) -> Exception:
    """Make an error of this class with values of the types that its constructor takes."""
    if inspect.isbuiltin(kind.__init__) or not hasattr(kind.__init__, "__code__"):
        return kind("what happened")
    values = {}
    for parameter in list(inspect.signature(kind).parameters.values()):
        if parameter.default is parameter.empty:
            values[parameter.name] = VALUES.get(parameter.annotation)
    return kind(**values)


@pytest.mark.parametrize("copy_error", COPIES, ids=["pickle", "copy", "deepcopy"])
def test_exception_is_the_same_after_a_journey(copy_error: Callable[[Exception], Exception]):
    classes = set(exceptions())
    assert len(classes) > 30
    for kind in classes:
        error = new_error(kind)
        error.add_note("it was meant for c1")
        error.more = {"n": 1}  # type: ignore[attr-defined]
        again = copy_error(error)
        assert type(again) is kind
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error)), kind
