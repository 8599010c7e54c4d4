"""The public names of ``foldlog``, and the modules that they are imported from when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_HOMES: Mapping[str, tuple[str, ...]] = {
    "foldlog.histories": ("Histories", "open"),
    "foldlog.history": ("History",),
    "foldlog.replies": ("from_openai",),
    "foldlog.projections": ("Difference", "NoSuchEvent", "NoSuchVersion", "View", "Why"),
    "foldlog.condensers": (
        *("LLM", "Condensation", "InvalidCondenser", "LLMConfig", "ModelCallFailed", "NoCondensationAvailable"),
        *("is_context_window_error", "request_condensation_tool"),
    ),
    "foldlog.eventstore": (
        *("ANY_VERSION", "Action", "Annotation", "CannotRedact", "CondensationAction", "CondensationRequest"),
        *("CondensationSummary", "Erased", "Redaction"),
        *("ConversationErased", "ConversationNotFound", "CorruptEvent", "Event", "EventStoreError", "HistoryDiverged"),
        *("IdempotencyConflict", "InvalidArgument", "InvalidEvent", "InvalidOption", "KeyRing", "KeyUnavailable"),
        *("Message", "Observation", "Recorded", "Retraction", "StoreUnavailable", "StoreUnusable", "SystemMessage"),
        *("DELETED", "UnknownEventType", "VersionConflict"),
    ),
}

NAMES: Mapping[str, str] = {name: home for home, names in _HOMES.items() for name in names}
"""The modules that public names are imported from."""


MODULES = ("aio", "condensers", "eventstore", "formats", "projections")
"""Public modules: ``foldlog.aio`` imports one when it is first used."""


def object_named(name: str) -> Any:
    """Return what ``foldlog.NAME`` is. Raises ``AttributeError`` for a name that is not public, with a similar one."""
    if name in MODULES:
        return importlib.import_module(f"foldlog.{name}")
    if name not in NAMES:
        from difflib import get_close_matches

        similar = get_close_matches(name, NAMES, 1) if not name.startswith("_") else []
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        raise AttributeError(f"module 'foldlog' has no attribute {name!r}{hint}", name=name)
    return getattr(importlib.import_module(NAMES[name]), name)
