"""Make this program a newer version of itself."""

from __future__ import annotations

import pytest

from foldlog.eventstore.recorders.sqlite import checking, schema
from foldlog.eventstore.recorders.statements import migrations


def become_newer(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Add a migration, the script, until ``monkeypatch.undo``."""
    scripts = {**migrations("sqlite"), schema.NEWEST + 1: script}
    for module in (schema, checking):
        monkeypatch.setattr(module, "migrations", lambda _dialect: scripts)
    monkeypatch.setattr(schema, "NEWEST", schema.NEWEST + 1)
