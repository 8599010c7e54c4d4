"""Stores that attacks, or lawful work, change one after another."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from foldlog._app.cli.verify_findings import Checks
from foldlog._reports.records.compared_imports import verify_with_records
from foldlog._reports.search import index
from foldlog.errors import EventStoreError
from foldlog.eventstore import open_store
from foldlog.eventstore.proof.signed_note import StoreCheckpoint
from tests.attacks.made_store import KEYS
from tests.attacks.operators import Operator, PostgresOperator, SQLiteOperator
from tests.attacks.shown import Shown, shown


@dataclass
class Arena:
    """A store that attacks change, one after another."""

    note: StoreCheckpoint
    folder: Path
    url: str

    def operator(self) -> Operator:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def judge(self, **options: Any) -> list[str]:
        """Return what ``verify --against NOTE --views`` finds."""
        checks = Checks()
        try:
            with open_store(self.url, **options) as store:
                compared = verify_with_records(store, self.note)
                verdicts = checks.count(compared, lambda **_: None)
                for _ in checks.with_views(store, verdicts, repair=False):
                    pass
        except EventStoreError as error:
            return [str(error)]
        return [f"{name}: {text}" for name, text in (*checks.findings, *checks.not_checked)]

    def judge_without_key(self) -> list[str]:
        """Return the findings without the key, but not what could not be checked."""
        return self.judge_without_views()

    def judge_without_views(self, **options: Any) -> list[str]:
        """Return the findings of ``verify --against NOTE``, but not what could not be checked."""
        checks = Checks()
        with open_store(self.url, **options) as store:
            compared = verify_with_records(store, self.note)
            for _ in checks.count(compared, lambda **_: None):
                pass
        return [f"{name}: {text}" for name, text in checks.findings]

    def shown(self) -> Shown:
        try:
            with open_store(self.url, keys=KEYS) as store:
                return shown(store, self.url, self.folder / "keys.txt")
        except EventStoreError as error:
            return {("store", ""): f"refused: {error}"}


class SQLiteArena(Arena):
    @property
    def path(self) -> Path:
        return self.folder / "store.db"

    def operator(self) -> Operator:
        return SQLiteOperator(self.path)

    def restore(self) -> None:
        for left in self.folder.glob("store.db*"):
            left.unlink()
        shutil.copy(self.folder / "made.db", self.path)


@dataclass
class PostgresArena(Arena):
    schema: str

    def operator(self) -> Operator:
        return PostgresOperator(self.url, self.schema)

    def restore(self) -> None:
        operator = PostgresOperator(self.url, self.schema)
        if operator.lacks_tables():  # lawful work has dropped the search index
            with open_store(self.url, keys=KEYS) as store:
                index.make(store)
        operator.restore()
        operator.close()


class Honest(NamedTuple):
    """A store before any attack."""

    found: list[str]
    """The findings of an auditor who has the key."""
    seen: Shown
    """What readers see."""
    without_key: list[str]
    """The findings of an auditor without the key."""
    bodies: set[str]
    """The bodies of the events."""
