"""Statements with mutants behind switches. ``tests.mutants`` copies this module as
``foldlog/_sql_switch.py`` into its copy of the project, beside a file with the changed queries.

A statement is chosen when it is looked up, so that each mutant writes down the tests that run the
statement, and no other tests.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S", str, bytes)
Named = Callable[[str, tuple[tuple[str, str], ...]], Mapping[str, str]]
"""The function that returns the statements of a text. It gets the SQL of some parts too."""

TEXTS = "_sql_mutants.json"
"""Maps the number of each mutant to a dialect and the changed text of its queries."""
_only: ContextVar[int | None] = ContextVar("_only", default=None)


class Switched(dict[str, S]):
    """Statements by their names. ``changes`` has the mutants of each name."""

    def __init__(
        self, plain: Mapping[str, S], changes: Mapping[str, Sequence[tuple[int, S]]]
    ) -> None:
        super().__init__(plain)
        self._changes = changes

    def __getitem__(self, name: str) -> S:
        from foldlog._switch import is_on

        for mutant, changed in self._changes.get(name, ()):
            if is_on(mutant):
                return changed
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


@cache
def _texts() -> Mapping[int, tuple[str, str]]:
    texts = json.loads(Path(__file__).with_name(TEXTS).read_text())
    return {int(number): (dialect, text) for number, (dialect, text) in texts.items()}


@contextmanager
def _only_changed_by(mutant: int) -> Iterator[None]:
    """Within this context, ``statements`` returns only the statements that a mutant changes."""
    token = _only.set(mutant)
    try:
        yield
    finally:
        _only.reset(token)


def switch_statements(
    statements: Callable[..., Mapping[str, str]], named: Named
) -> Callable[..., Mapping[str, str]]:
    """Return ``statements`` of ``eventstore.recorders.statements`` with switches."""

    def switched(dialect: str, instead: Mapping[str, str] = {}) -> Mapping[str, str]:
        plain = statements(dialect, instead)
        only = _only.get()
        changes: dict[str, list[tuple[int, str]]] = {}
        for mutant, (of_dialect, text) in _texts().items():
            if of_dialect == dialect and only in (None, mutant):
                for name, changed in named(text, tuple(instead.items())).items():
                    if changed != plain[name]:
                        changes.setdefault(name, []).append((mutant, changed))
        if only is not None:
            return {name: changed for name, [(_, changed)] in changes.items()}
        return Switched(plain, changes)

    @cache
    def cached(dialect: str, instead: tuple[tuple[str, str], ...], only: object) -> Any:
        return switched(dialect, dict(instead))

    return lambda dialect, instead={}: cached(dialect, tuple(instead.items()), _only.get())


def switch_statements_here(
    statements_here: Callable[[Any], Mapping[str, bytes]],
) -> Callable[[Any], Mapping[str, bytes]]:
    """Return ``PostgresRecorder._statements_here``, which writes the schema into each statement,
    with switches.
    """

    def switched(recorder: Any) -> Mapping[str, bytes]:
        changes: dict[str, list[tuple[int, bytes]]] = {}
        for mutant, (dialect, _) in _texts().items():
            if dialect == "postgresql":
                with _only_changed_by(mutant):
                    for name, changed in statements_here(recorder).items():
                        changes.setdefault(name, []).append((mutant, changed))
        return Switched(statements_here(recorder), changes)

    return switched
