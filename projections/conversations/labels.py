"""The names of the kinds of events, which are the same in output, filters and searches."""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.eventstore import Event, InvalidArgument, events
from foldlog.projections.refusals import words_in_refusal

KINDS = (
    "system",
    "message",
    "user",
    "agent",
    "environment",
    "action",
    "observation",
    "error",
    "refused",
    "annotation",
    "documents",
    "request",
    "condensation",
    "retraction",
    "redaction",
    "summary",
    "unknown",
)
"""The kinds that a filter accepts: the labels that ``label`` returns, and ``message`` for all
messages.
"""

WIDER = {
    "user": "message",
    "agent": "message",
    "environment": "message",
    "error": "observation",
    "refused": "observation",
}
"""Maps a label to the wider kind that includes it."""

_STORED = {
    "document_changes": "documents",
    "condensation_request": "request",
    "condensation_summary": "summary",
}
"""Maps the stored name of a kind to its shorter name."""
_LABELS = dict(zip(KINDS, KINDS, strict=True)) | _STORED


def label(event: Event) -> str:
    """Return the name of the kind of an event."""
    if type(event) is events.Message:
        return str(event.source)
    if type(event) is events.Observation:
        if words_in_refusal(event) is not None:
            return "refused"
        return "error" if event.is_error else "observation"
    if type(event) is events.CondensationAction and event.metadata.get("outcome") == "replaced":
        # A newer system prompt replaced an older one. The View was not condensed.
        return "system"
    return _LABELS.get(str(type(event).__struct_config__.tag), "unknown")


def kind_words(kinds: Iterable[str]) -> frozenset[str]:
    """Return the names of kinds, with stored names shortened. Raises ``InvalidArgument`` for an
    unknown name, and ``TypeError`` for a text in place of a list.
    """
    if isinstance(kinds, str | bytes) or not hasattr(kinds, "__iter__"):
        raise TypeError(f"kinds must be a list of words, such as ['user', 'agent'], not {kinds!r}")
    words = frozenset(_STORED.get(kind, kind) for kind in kinds)
    for word in sorted(words.difference(KINDS)):
        raise InvalidArgument(f"{word!r} is not a kind of event; use one of {', '.join(KINDS)}")
    return words


def labels_of(kinds: Iterable[str]) -> frozenset[str]:
    """Return the labels of kinds. The kind ``message`` has the labels ``user``, ``agent`` and
    ``environment``.
    """
    chosen = frozenset(kinds)
    return frozenset(word for word in KINDS if word in chosen or WIDER.get(word) in chosen) - {
        "message"
    }
