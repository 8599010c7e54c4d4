"""A value of a wrong type is refused by an error that names the argument, in every public method of both faces."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import foldlog
import foldlog.aio
from foldlog import Action, EventStoreError, Message
from foldlog.aio import AsyncHistories, AsyncHistory

WRONG = {"int": 5, "None": None, "dict": {"a": 1}, "bytes": b"c1", "list": ["c1"]}
TAKEN = {
    "int": {"int", "ExpectedVersion"},
    "None": {"None"},
    "dict": {"Mapping", "dict", "Iterable"},
    "bytes": {"bytes"},
    "list": {"Iterable", "Sequence", "list", "Content"},
}
"""The words of an annotation that take a value of this kind."""
NOT_ALWAYS_CALLED = ("changed", "findings", "notes")
GIVEN: dict[str, Any] = {
    "path": Path(foldlog.__file__).parent / "sample" / "tidewatch.jsonl",
    "url": "memory:",
    "conversation": "c2",
    "words": "word",
    "source_id": "s1",
    "format": "openai-chat",
    "reason": "asked to",
    "events": Message(source="user", content="more"),
    "records": [{"role": "user", "content": "hi"}],
    "name": "notes",
    "reply": {"role": "assistant", "content": "yes"},
    "call_id": "call-1",
    "content": "done",
    "event": 0,
    "event_id": 0,
    "version": 1,
    "at": 1,
    "before": 0,
    "after": 1,
    "count": 1,
}
"""A right value for each argument without a default."""


def _methods(face: type, of: type) -> Iterator[tuple[str, Callable[..., Any], inspect.Signature]]:
    """Yield the public methods of a face. Those of the async face have the arguments of the sync one."""
    for name, member in inspect.getmembers(face):
        if callable(member) and (name == "__getitem__" or not name.startswith("_")):
            yield f"{face.__name__}.{name}", member, inspect.signature(getattr(of, name, member))


METHODS = [
    ("open", foldlog.open, inspect.signature(foldlog.open)),
    ("aio.open", foldlog.aio.open, inspect.signature(foldlog.aio.open)),
    *_methods(foldlog.Histories, foldlog.Histories),
    *_methods(foldlog.History, foldlog.History),
    *_methods(AsyncHistories, foldlog.Histories),
    *_methods(AsyncHistory, foldlog.History),
]


def _refuses(parameter: inspect.Parameter, kind: str) -> bool:
    words = set(re.findall(r"\w+", str(parameter.annotation)))
    taken_by_any = {"Any", "object", "bool"} | ({"float"} if kind == "int" else set())
    return parameter.name not in ("self", *NOT_ALWAYS_CALLED) and not words & (TAKEN[kind] | taken_by_any)


CASES = {
    name: (method, signature, wrong)
    for name, method, signature in METHODS
    if (
        wrong := [(each.name, kind) for each in signature.parameters.values() for kind in WRONG if _refuses(each, kind)]
    )
}


async def _called(method: Callable[..., Any], signature: inspect.Signature, argument: str, value: object) -> object:
    """Call a method with a wrong value in a store with one conversation, and read all that it gives."""
    given = {
        name: GIVEN[name]
        for name, parameter in signature.parameters.items()
        if name != "self" and parameter.default is inspect.Parameter.empty and parameter.kind != parameter.VAR_KEYWORD
    }
    given[argument] = value
    if "forever" in signature.parameters:
        given["forever"] = False
    async with foldlog.aio.open("memory:") as histories:
        history = histories["c1"]
        await history.append([Message(source="user", content="a word"), Action(tool="run", call_id="call-1")])
        faces = {"Histories": histories.sync, "AsyncHistories": histories, "History": history.sync}
        face = faces.get(method.__qualname__.split(".")[0], history)
        outcome = method(**given) if "self" not in signature.parameters else method(face, **given)
        if isinstance(outcome, Awaitable):
            outcome = await outcome
        if isinstance(outcome, AsyncIterator):
            return [item async for item in outcome]
        return list(outcome) if isinstance(outcome, Iterator) else outcome


@pytest.mark.parametrize("method, signature, wrong", CASES.values(), ids=CASES)
def test_a_value_of_a_wrong_type_is_named(method: Any, signature: inspect.Signature, wrong: list[tuple[str, str]]):
    for argument, kind in wrong:
        with pytest.raises((TypeError, EventStoreError)) as raised:
            asyncio.run(_called(method, signature, argument, WRONG[kind]))
        named = argument.removesuffix("s").replace("_", "[_ ]")
        assert re.search(named, str(raised.value), re.IGNORECASE), (argument, kind, raised.value)
