"""Find the model calls that the events of a rollout report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import Annotation, Event, SystemMessage
from foldlog.eventstore.usage import usage_of
from foldlog.formats.event_fields import id_of_source
from foldlog.formats.json_text import json_of
from foldlog.formats.model_calls import (
    UNNAMED,
    CallsReader,
    ModelCall,
    at_total,
    call_of_event,
    model_named,
    tokens_of,
)
from foldlog.formats.record import Fields, dict_or_empty, text_or_none

USAGE_RECORD = "token_usage_record"
_COUNT_END = 2**63


class Totals(Struct):
    """Makes the id of a call from the total of all tokens up to this call. Copies of a log have
    equal totals, so copies of a call get equal ids. ``tokens`` is the last total. A total rises
    with each call, unless Codex begins to count again. ``falls`` is the number of times that Codex
    began to count again.
    """

    tokens: float = -1
    falls: int = 0

    def named(self, call: ModelCall, total: JsonMap, ancestor: str | None) -> ModelCall:
        """Return a call with its id. ``total`` is the total with the call."""
        tokens = tokens_of(total)
        if tokens <= self.tokens:
            self.falls += 1
        self.tokens = tokens
        if ancestor:
            return call._replace(reply=f"{ancestor} {tokens} {self.falls}")
        return at_total(call, total)


def kept_total(total: Fields) -> Fields:
    """Return a total in a form that any state can hold, and that is equal for equal totals. A total
    of which a value is no whole number of 64 bits becomes its JSON text. No release of Codex writes
    such a total.
    """
    if all(type(count) is int and abs(count) < _COUNT_END for count in total.values()):
        return total
    return {"text": json_of(total).decode()}


class CodexCalls(CallsReader):
    """Reads the calls of models, each with an id that is equal in all copies of the call.

    ``token_count`` has the usage of the last call, and the total of all calls. ``turn_context``
    names the model. Codex copies calls in two ways. An edited log repeats calls together with their
    totals. A forked log begins with its own ``session_meta``, followed by copies of all lines of
    the parent log with new times, including the ``session_meta`` of the parent. A copied call
    therefore has the same total in both logs, and its id is made from this total. ``ancestor`` is
    the id of the parent log, or of this log if it has no parent. Newer releases write the thread of
    each call before its count: threads that begin with copies of one log count for themselves.
    """

    model: Any = UNNAMED
    last_total: Fields = field(default_factory=dict)
    ancestor: Any = None
    totals: Totals = field(default_factory=Totals)

    def calls(self, events: Iterable[Event]) -> Iterator[ModelCall]:
        for event in events:
            if isinstance(event, SystemMessage):
                self.model = event.meta.get("model", self.model)
            is_session = getattr(event, "name", "") == "session_meta"
            if is_session or event.meta.get("instructions") == "base":
                self.ancestor = (
                    text_or_none(getattr(event, "data", None), "forked_from_id")
                    or text_or_none(id_of_source(event))
                    or self.ancestor
                )
            if not isinstance(event, Annotation) or not isinstance(event.data, dict):
                continue
            if event.name == USAGE_RECORD:
                self.ancestor = text_or_none(event.data, "thread_id") or self.ancestor
            if event.name == "turn_context":
                self.model = model_named(event.data)
            info = event.data.get("info") if event.name == "token_count" else None
            last = info.get("last_token_usage") if isinstance(info, dict) else None
            total = dict_or_empty(info, "total_token_usage")
            # Codex often writes a count twice.
            if isinstance(last, dict) and (kept := kept_total(total)) != self.last_total:
                call = call_of_event(event, self.model, usage_of(last))
                yield self.totals.named(call, total, self.ancestor)
                self.last_total = kept
