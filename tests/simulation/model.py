"""A model of a store, written from the documentation: what a store must answer.

The model imports nothing of the product, and computes each answer in the slow and plain way. A
conversation is a list of events. The list of a fork begins with the very events of its parent.

An event is a dict with ``kind``, ``id``, ``at`` (when it was recorded), ``tag`` (identifies the
event, also in its copies), ``redacted`` (whether its content was erased) and the fields of its
kind. A redacted event also has ``was``: its origin before the redaction.
"""

import itertools
import re
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Event = dict[str, Any]
DELETED = "\0deleted"
NOTES = ("annotation", "unknown")
"""Kinds of events that do not end a loop, nor a wait for an answer, where a model does not see them."""
REDACTED = "[redacted]"

_tags = itertools.count()


def new_tag():
    """Return a number that identifies a new event or a new conversation."""
    return next(_tags)


class Refused(Exception):
    """The store must refuse this, with an error of this class."""


def refusal_of(call):
    """Return the name of the error with which the store must refuse a call; None if it must not."""
    try:
        call()
    except Refused as refused:
        return str(refused.args[0])
    return None


class Calls(NamedTuple):
    """The pairs of actions and observations."""

    answered: dict[int, int]
    """Maps an observation to the action that it answers."""
    orphans: set[int]
    """Observations that answer no action."""
    responses: dict[int, int]
    """Maps an action to the first action of its model response."""


@dataclass(eq=False)
class View:
    """A View at one version: its ids, whether a condensation is requested, and the items whose unit
    was removed in part.
    """

    items: tuple[int, ...] = ()
    """Ids of events and summaries, without ``v0_summary``."""
    requested: bool = False
    left_behind: frozenset[int] = frozenset()
    v0_forgotten: tuple[tuple[int, int], ...] = ()
    """Ranges of ids of a source, first and last, that condensations of OpenHands V0 have named."""
    v0_summary: tuple[int, int] | None = None
    """The position and the id of the summary of the last condensation of OpenHands V0."""
    calls: Calls | None = None

    @property
    def ids(self):
        ids = [*self.items]
        if self.v0_summary is not None:
            ids.insert(*self.v0_summary)
        return tuple(ids)


@dataclass(eq=False)
class Conversation:
    name: str
    events: list[Event] = field(default_factory=list)
    own_from: int = 0
    parent: "Conversation | None" = None
    tag: int = field(default_factory=new_tag)
    keys: dict[str, tuple[Any, int, int]] = field(default_factory=dict)
    """Maps an idempotency key to the payload, the first event and the number of events that were
    appended under it.
    """
    erased_reason: str | None = None
    detached: bool = False
    ancestors: tuple[str, ...] = ()
    views: list[View] = field(default_factory=lambda: [View()])
    """The View at each version that was asked for, and at the versions before it."""

    version = property(lambda self: len(self.events))

    def tags(self):
        return [event["tag"] for event in self.events]

    def has_redacted(self, key):
        """Return whether an event that was appended under an idempotency key is redacted."""
        _, first, count = self.keys.get(key, (None, 0, 0))
        return any(event["redacted"] for event in self.events[first : first + count])

    def has_summary(self, item_id):
        """Return whether a condensation has made the summary that has this id."""
        event_id = summary_id(item_id)
        return event_id < self.version and self.events[event_id].get("summary") is not None

    def holder(self, event_id):
        """Return the conversation that stores an event: this one, or an ancestor."""
        conversation = self
        while event_id < conversation.own_from:
            assert conversation.parent is not None
            conversation = conversation.parent
        return conversation

    def view(self, version=None):
        """Return the View at a version. A later redaction does not change it."""
        if version is None:
            version = self.version
        while len(self.views) <= version:
            event = self.events[len(self.views) - 1]
            self.views.append(self._view_after(event, self.views[-1]))
        return self.views[version]

    def _view_after(self, event, before):
        match event["kind"]:
            case "condensation" if is_v0(event):
                after = self._without_v0(before, [*named_ids(event), (source_id(event),) * 2])
                if event["summary"] is not None:
                    after.v0_summary = event["summary_offset"], summary_id(event["id"])
                return after
            case "condensation":
                after = replace(before, items=before.ids, v0_summary=None, requested=False)
                after = self._without(after, {*forgotten(event)})
                if event["summary"] is not None:
                    items = [*after.items]
                    items.insert(event["summary_offset"], summary_id(event["id"]))
                    after.items = tuple(items)
                return after
            case "condensation_request":
                ranges = [(source_id(event),) * 2] if is_v0(event) else []
                return replace(self._without_v0(before, ranges), requested=True)
            case "retraction":
                former = self.views[min(event["version"], event["id"])]
                return replace(former, requested=before.requested or former.requested)
        if event["shown"] and not is_v0_forgotten(event, before.v0_forgotten):
            return replace(before, items=(*before.items, event["id"]), calls=None)
        return before

    def _without_v0(self, before, ranges):
        """Return the View without the events that have these ids in a source of OpenHands V0."""
        after = replace(before, v0_forgotten=(*before.v0_forgotten, *ranges), requested=False)
        removed = {
            item_id
            for item_id in after.items
            if is_v0_forgotten(self.item(item_id), after.v0_forgotten)
        }
        return self._without(after, removed)

    def _without(self, before, ids):
        """Return the View without these ids. What remains of their units is left behind."""
        removed = ids & set(before.items)
        left_behind = set(before.left_behind)
        for unit in self.units(before):
            if removed & unit:
                left_behind |= unit
        items = tuple(item_id for item_id in before.items if item_id not in removed)
        left_behind -= removed
        return replace(before, items=items, left_behind=frozenset(left_behind), calls=None)

    def item(self, item_id):
        """Return what a View shows under an id: an event, or the summary of a condensation."""
        if item_id >= 0:
            return self.events[item_id]
        content = self.events[summary_id(item_id)]["summary"]
        return {"kind": "condensation_summary", "id": item_id, "content": content}

    def calls(self, view):
        if view.calls is None:
            items = [self.item(item_id) for item_id in view.ids if item_id not in view.left_behind]
            view.calls = calls_of(items)
        return view.calls

    def open_calls(self, view):
        calls = self.calls(view)
        return [action for action in calls.responses if action not in calls.answered.values()]

    def batches(self, view):
        """Return the actions of each model response, with their answers."""
        answered, _, responses = self.calls(view)
        response_of = responses | {
            observation: responses[action] for observation, action in answered.items()
        }
        return [
            {item_id for item_id in response_of if response_of[item_id] == response}
            for response in dict.fromkeys(responses.values())
        ]

    def bonds(self, view):
        """Return each run of the agent's events that stay with the next one, with that one. Where
        the next one is missing, each event is a bond alone.
        """
        bonds = []
        run = []
        for item_id in view.ids:
            if item_id in view.left_behind:
                continue
            event = self.item(item_id)
            if event.get("source") != "agent":
                bonds += [{lone} for lone in run]
                run = []
            run.append(item_id)
            if not event.get("stays"):
                if len(run) > 1:
                    bonds.append(set(run))
                run = []
        return bonds + [{lone} for lone in run]

    def loops(self, view):
        """Return the tool loops. A loop begins with thinking, and has the actions and answers after
        it, and the words of the agent that come with an action in one reply.
        """
        orphans = self.calls(view).orphans
        bonds = {max(bond): bond for bond in self.bonds(view) if len(bond) > 1}
        loops = []
        is_open = False
        words = []
        reply = None
        for item_id in view.ids:
            event = self.item(item_id)
            is_unseen = event["kind"] in NOTES and event["origin"] is not None
            if item_id in view.left_behind or item_id in orphans:
                continue
            if is_unseen and item_id not in bonds:
                continue
            if item_id in bonds or (event["kind"] == "action" and event["thinking"]):
                loops.append(set(bonds.get(item_id, ())))
                is_open = True
                words = []
            elif is_agent_message(event) and (not words or reply_of(event) == reply):
                words.append(item_id)
                reply = reply_of(event)
                continue
            elif event["kind"] not in ("action", "observation") or (
                words and reply_of(event) != reply
            ):
                is_open = False
            if is_open:
                loops[-1] |= {item_id, *words}
            words = []
        return loops

    def units(self, view):
        return self.batches(view) + self.loops(view) + self.bonds(view)

    def sendable_ids(self, view):
        """Return the ids of a View that can be sent to a model."""
        position = {item_id: index for index, item_id in enumerate(view.ids)}
        unanswered = set(self.open_calls(view))
        batches = self.batches(view)
        loops = self.loops(view)
        bonds = self.bonds(view)
        dropped = set(view.left_behind) | self.calls(view).orphans
        dropped.update(*(bond for bond in bonds if len(bond) == 1))
        count = -1
        while len(dropped) != count:
            count = len(dropped)
            for unit in batches + bonds:
                if unit & (unanswered | dropped):
                    dropped |= unit
            if len(dropped) != count:
                continue
            for loop in loops:
                last = max((position[item_id] for item_id in loop - dropped), default=-1)
                if any(position[item_id] < last for item_id in loop & dropped):
                    dropped |= loop
        return [item_id for item_id in view.ids if item_id not in dropped]

    def cut_points(self, view):
        """Return the indices at which a View may be cut without taking a call from its answer."""
        position = {item_id: index for index, item_id in enumerate(view.ids)}
        unanswered = set(self.open_calls(view))
        inside = set()
        for batch in self.batches(view):
            if not batch & unanswered:
                inside |= self._inside(batch, position)
                continue
            notes = {item_id for item_id in view.ids if self.item(item_id)["kind"] in NOTES}
            aside = notes | self.calls(view).orphans | set(view.left_behind)
            first = min(position[item_id] for item_id in batch)
            if set(view.ids[first:]) - aside <= batch:
                inside |= set(range(first + 1, len(view.ids) + 1))
        for unit in self.loops(view) + self.bonds(view):
            inside |= self._inside(unit, position)
            if unit == {view.ids[-1]} and self.item(view.ids[-1]).get("stays"):
                inside.add(len(view.ids))
        return [index for index in range(len(view.ids) + 1) if index not in inside]

    @staticmethod
    def _inside(unit, position):
        """Return the indices that lie between the first and the last item of a unit."""
        positions = [position[item_id] for item_id in unit]
        return set(range(min(positions) + 1, max(positions) + 1))

    def documents(self, version=None):
        values = {}
        for event in self.events[:version]:
            if event["kind"] == "document_changes":
                values |= event["values"]
        return {name: value for name, value in sorted(values.items()) if value != DELETED}

    def quotes(self, event_id):
        """Return the condensations whose summaries certainly quote an event or its summary, and
        the condensations whose summaries may quote it.
        """
        own = {event_id, summary_id(event_id)}
        certain = set()
        possible = set()
        for event in self.events:
            if event["kind"] != "condensation" or event["summary"] is None:
                continue
            ids = set(forgotten(event))
            shown = set(self.view(event["id"]).ids)
            if ids & shown & (own | {summary_id(quote) for quote in certain}):
                certain.add(event["id"])
            if ids & (own | {summary_id(quote) for quote in possible}):
                possible.add(event["id"])
        return certain, possible


def summary_id(event_id):
    """Return the id that the summary of a condensation has in Views; from that id, the id of the
    condensation.
    """
    return -(event_id + 2)


def calls_of(events):
    """Find the action that each observation answers, and the response that each action is of."""
    calls = Calls({}, set(), {})
    unanswered = []
    newest = None  # the first action of the newest response, which the next action may belong to
    answered_names = []  # the call ids of that response that have answers
    for event in events:
        if event["kind"] == "action":
            if (
                newest is None
                or event["response_id"] != newest["response_id"]
                or event["call_id"] in answered_names
            ):
                newest = None if event["response_id"] is None else event
                answered_names = []
            calls.responses[event["id"]] = event["id"] if newest is None else newest["id"]
            unanswered.append(event)
        elif event["kind"] == "observation":
            action = _answered_action(event, unanswered, calls.responses)
            if action is None:
                calls.orphans.add(event["id"])
                continue
            unanswered.remove(action)
            calls.answered[event["id"]] = action["id"]
            is_of_newest = newest is not None and calls.responses[action["id"]] == newest["id"]
            if is_of_newest and action["call_id"] is not None:
                answered_names.append(action["call_id"])
        elif event["kind"] == "condensation_summary" and newest is not None:
            waiting = {calls.responses[action["id"]] for action in unanswered}
            if newest["id"] not in waiting:
                newest = None
    return calls


def _answered_action(observation, unanswered, responses):
    """Return the first action of the newest response that an observation can be the answer of."""
    call_id = observation["call_id"]
    cause = observation["cause"]
    if call_id is None and cause is None:
        return None
    candidates = [
        action
        for action in unanswered
        if cause in (None, action["id"]) and call_id in (None, action["call_id"])
    ]
    return next(
        (
            action
            for action in candidates
            if responses[action["id"]] == responses[candidates[-1]["id"]]
        ),
        None,
    )


def is_agent_message(event):
    return event["kind"] == "message" and event["source"] == "agent"


def reply_of(event):
    """Return the reply that an event is of; for each other event another value."""
    return event.get("response_id") or event.get("meta", {}).get("reply") or event["id"]


def in_message_order(events):
    """Return events in the order of their messages: the words and calls of one reply together, up
    to another reply.
    """
    responses = calls_of(events).responses
    groups = []
    reply = []
    response = None
    for event in events:
        if event["kind"] != "action" and not is_agent_message(event):
            groups.append([event])
            continue
        own = responses.get(event["id"])
        if None not in (own, response):
            is_same_reply = own == response
        else:
            is_same_reply = bool(reply) and reply_of(event) == reply_of(reply[-1])
        if not is_same_reply:
            reply = []
            response = None
            groups.append(reply)
        reply.append(event)
        if own is not None:
            response = own
    return [event for group in groups for event in group]


def is_v0(event):
    return event.get("origin") is not None and event["origin"][0] == "openhands-v0"


def is_of_log(event):
    return event["origin"] is not None and event["origin"][0] == "claude-code"


def source_id(event):
    number = event["origin"][1]
    return -1 if number is None else int(number)


def is_v0_forgotten(event, ranges):
    return is_v0(event) and any(first <= source_id(event) <= last for first, last in ranges)


def named_ids(event):
    """Return the ranges of ids, first and last, that a condensation names."""
    if event["forgotten_event_ids"] is not None:
        return [(event_id, event_id) for event_id in event["forgotten_event_ids"]]
    return [(event["forgotten_events_start_id"], event["forgotten_events_end_id"])]


def forgotten(event):
    """Return the ids that a condensation forgets."""
    if event["forgotten_event_ids"] is not None:
        return event["forgotten_event_ids"]
    return range(event["forgotten_events_start_id"], event["forgotten_events_end_id"] + 1)


def is_declined(event):
    """Return whether an event is a condensation that changes nothing."""
    return (
        event["kind"] == "condensation" and event["summary"] is None and not list(forgotten(event))
    )


def without_content(event):
    """Return an event as its redaction leaves it."""
    names = ("kind", "id", "at", "tag", "cause", "source", "shown", "stays")
    rest = {name: event[name] for name in names} | {"redacted": True, "origin": None}
    meta_names = ("reply", "model", "usage", "cost")
    rest["meta"] = {name: event["meta"][name] for name in event["meta"] if name in meta_names}
    if event["origin"] is not None:
        source, number = event["origin"]
        # a redaction erases an id that is free text
        rest["origin"] = (source, None if " " in str(number) else number)
    kind = event["kind"]
    rest |= {name: event[name] for name in _STAYING.get(kind, ())}
    rest |= {name: event[name] and REDACTED for name in _TEXTS.get(kind, ())}
    match kind:
        case "action":
            rest["arguments"] = {"redacted": REDACTED}
        case "annotation":
            rest["data"] = None
            # a redaction keeps the names of the condensers in a report of the digest
            if event["name"] == "condenser_meta":
                rest["data"] = [{"condenser": report["condenser"]} for report in event["data"]]
        case "document_changes":
            rest["values"] = {
                name: _redacted_document(name, value) for name, value in event["values"].items()
            }
    return rest


_STAYING = {
    "action": ("tool", "call_id", "response_id"),
    "observation": ("tool", "call_id", "is_error"),
    "annotation": ("name",),
    "condensation": (
        "forgotten_event_ids",
        "forgotten_events_start_id",
        "forgotten_events_end_id",
        "summary_offset",
    ),
    "retraction": ("version",),
}
"""The fields of each kind of event that its redaction leaves as they are."""
_TEXTS = {
    "message": ("content",),
    "action": ("thought", "thinking"),
    "observation": ("content",),
    "condensation": ("summary",),
    "condensation_request": ("reason",),
    "retraction": ("reason",),
}
"""The texts in place of which a redaction puts its mark."""


def _redacted_document(name, value):
    if value == DELETED:
        return DELETED
    return {} if name == "attributes" else REDACTED


@dataclass(eq=False)
class Store:
    living: dict[str, Conversation] = field(default_factory=dict)
    tombs: dict[str, list[Conversation]] = field(default_factory=dict)
    """The erased conversations of each name, the oldest first."""

    def get(self, name):
        if name in self.living:
            return self.living[name]
        raise Refused("ConversationErased" if self.tombs.get(name) else "ConversationNotFound")

    def get_or_new(self, name):
        """Return a conversation, or one without events for a name that no conversation had."""
        return self.get(name) if self.version(name) else Conversation(name)

    def version(self, name):
        return self.get(name).version if name in self.living or self.tombs.get(name) else 0

    def names(self):
        erased = {name for name, tombs in self.tombs.items() if tombs}
        return sorted({*self.living, *erased}, key=str.encode)

    def forks(self, parent):
        return [fork for fork in self.living.values() if fork.parent is parent]

    def own_events(self):
        """Return the events that each conversation itself stores."""
        events = {
            name: conversation.events[conversation.own_from :]
            for name, conversation in self.living.items()
        }
        return {name: own for name, own in events.items() if own}

    def search(self, words, within=None):
        """Return the events that have all the words, each in the conversation that stores it."""
        hits = set()
        for conversation in self.living.values() if within is None else [self.get(within)]:
            for event in conversation.events:
                if set(words) <= set(words_of(searchable_text(event))):
                    hits.add((conversation.holder(event["id"]).name, event["id"]))
        return hits

    def recent(self, wanted):
        """Return the conversations with these attributes and the time of their last event, the
        newest first.
        """
        rows = []
        for name, conversation in self.living.items():
            attributes = conversation.documents().get("attributes", {})
            if all(_matches(attributes.get(key), value) for key, value in wanted.items()):
                rows.append((conversation.events[-1]["at"], name))
        return sorted(rows, key=lambda row: -row[0])

    def append(
        self,
        name,
        events,
        now,
        *,
        expected=None,
        key=None,
        documents=None,
        dedupe=False,
        handle=None,
    ):
        """Append as ``History.append`` does, and return the recorded events. ``handle`` is the tag
        of the conversation that the writer met first.
        """
        documents = documents or {}
        if any(type(value) is float and value == float("inf") for value in documents.values()):
            raise Refused("InvalidEvent")
        conversation = self.get_or_new(name)
        if handle is not None and handle != conversation.tag:
            raise Refused("ConversationErased")
        if not events and not documents:
            raise Refused("InvalidEvent")
        payload = [[dict(event) for event in events], dict(documents)]
        if key is not None and key in conversation.keys:
            stored_payload, first, count = conversation.keys[key]
            if stored_payload != payload:
                raise Refused("IdempotencyConflict")
            return conversation.events[first : first + count]
        if expected is not None and expected != conversation.version:
            raise Refused("VersionConflict")
        if dedupe:
            stored = {event.get("was", event["origin"]) for event in conversation.events} - {None}
            events = [event for event in events if event["origin"] not in stored]
        version = conversation.version
        new = [{**event, "id": event_id} for event_id, event in enumerate(events, version)]
        for event in new:
            self._check_event(conversation, event)
        present = conversation.documents()
        values = {
            document: value
            for document, value in documents.items()
            if typed(value) != typed(present.get(document, DELETED))
        }
        if values:
            new.append(document_changes(values) | {"id": version + len(new)})
        self._record(conversation, new, now)
        if new:
            self.living[name] = conversation
            if key is not None:
                conversation.keys[key] = (payload, version, len(new))
        return new

    @staticmethod
    def _record(conversation, events, now):
        """Append events with their ids, tags and time, which is never before the last event's."""
        at = max(now, conversation.events[-1]["at"] if conversation.events else 0)
        for event in events:
            event |= {"id": conversation.version, "at": at, "tag": new_tag()}
            conversation.events.append(event)

    @staticmethod
    def _check_event(conversation, event):
        if event["cause"] is not None and not 0 <= event["cause"] < event["id"]:
            raise Refused("InvalidEvent")
        if event["kind"] == "retraction" and not event["version"] < event["id"]:
            raise Refused("InvalidEvent")
        if event["kind"] != "condensation":
            return
        for item_id in forgotten(event):
            if item_id >= event["id"]:
                raise Refused("InvalidEvent")
            if item_id < -1 and not conversation.has_summary(item_id):
                raise Refused("InvalidEvent")

    def fork(self, name, at, new_name, *, replace_erased=False):
        conversation = self.get(name)
        if not 1 <= at <= conversation.version:
            raise Refused("InvalidArgument")
        self._check_free(new_name, replace_erased=replace_erased)
        holder = conversation.holder(at - 1)
        ancestors = (*holder.ancestors, holder.name)
        fork = Conversation(new_name, conversation.events[:at], at, holder, ancestors=ancestors)
        self.living[new_name] = fork
        return fork

    def create(self, name, attributes, now, *, replace_erased=False):
        self._check_free(name, replace_erased=replace_erased)
        event = document_changes({"attributes": dict(checked_attributes(attributes))})
        self.living[name] = Conversation(name)
        self._record(self.living[name], [event], now)

    def _check_free(self, name, *, replace_erased):
        if name in self.living:
            raise Refused("VersionConflict")
        if self.tombs.get(name) and not replace_erased:
            raise Refused("ConversationErased")

    def check_importable(self, name, source):
        """Refuse a history that differs from the conversation in an event that both have, or that
        would bring back an event that is redacted there. A shorter history is accepted.
        """
        conversation = self.get_or_new(name)
        for event, stored in zip(source, conversation.events, strict=False):
            again = event | {key: stored[key] for key in ("id", "at", "tag")}
            if stored["redacted"] or again != stored:
                raise Refused("HistoryDiverged")
        hidden = {event["was"] for event in conversation.events if event["redacted"]} - {None}
        if any(event["origin"] in hidden for event in source[conversation.version :]):
            raise Refused("HistoryDiverged")

    def ingest(self, name, source, now):
        """Import a history unchanged."""
        self.check_importable(name, source)
        conversation = self.get_or_new(name)
        self.living[name] = conversation
        new = [dict(event) for event in source[conversation.version :]]
        self._record(conversation, new, now)

    def redact(self, name, ids, now, by, reason):
        """Erase the content of events. The receipt is the next event."""
        conversation = self.get(name)
        for event_id in ids:
            event = conversation.events[event_id]
            rest = without_content(event) | {"was": event["origin"]}
            event.clear()
            event.update(rest)
        self._record(conversation, [redaction(ids, by, reason)], now)

    def check_redactable(self, name, event_id):
        conversation = self.get(name)
        if not conversation.own_from <= event_id < conversation.version:
            raise Refused("InvalidArgument")
        if conversation.events[event_id]["kind"] == "redaction":
            raise Refused("CannotRedact")

    def check_erasable(self, name, *, forks):
        if name not in self.living and self.tombs.get(name):
            return
        if self.forks(self.get(name)) and not forks:
            raise Refused("ConversationHasForks")

    def erase(self, conversation, reason):
        assert not self.forks(conversation)
        conversation.erased_reason = reason
        self.tombs.setdefault(conversation.name, []).append(self.living.pop(conversation.name))

    def detach(self, fork):
        """Give a fork a copy of the events that it shares. Its own forks then share the copy."""
        fork.events[: fork.own_from] = [dict(event) for event in fork.events[: fork.own_from]]
        fork.own_from = 0
        fork.parent = None
        fork.detached = True
        for descendant in self.descendants(fork):
            shared = descendant.parent.events[: descendant.own_from]
            descendant.events[: descendant.own_from] = shared

    def descendants(self, conversation):
        """Return the forks of a conversation, their forks and so on, each after its parent."""
        descendants = []
        for fork in self.forks(conversation):
            descendants += [fork, *self.descendants(fork)]
        return descendants

    def snapshot(self):
        """Return a copy of this store, in which forks share events with their parents as here."""
        events = {
            id(event): event
            for conversation in self.living.values()
            for event in conversation.events
        }
        copies = {key: dict(event) for key, event in events.items()}
        living = {
            name: replace(
                conversation,
                events=[copies[id(event)] for event in conversation.events],
                keys=dict(conversation.keys),
                views=[*conversation.views],
            )
            for name, conversation in self.living.items()
        }
        for conversation in living.values():
            if conversation.parent is not None:
                conversation.parent = living[conversation.parent.name]
        return Store(living, {name: [*tombs] for name, tombs in self.tombs.items()})

    def copy_from(self, source):
        """Copy every conversation of another store into this one; return the names of the
        conversations that cannot be copied.
        """
        return {name for name in source.names() if not self.copy(name, source)}

    def copy(self, name, source, until=None):
        """Copy one conversation, or its events before ``until`` without idempotency keys. Return
        whether it can be copied. A copy that is refused for its events has already brought the
        tombstones, and the redactions of the events that both stores have, as in foldlog.
        """
        theirs = source.living.get(name)
        ours = self.living.get(name)
        their_tombs = source.tombs.get(name, [])
        our_tombs = self.tombs.get(name, [])
        if ours is not None and (theirs is None or theirs.tag != ours.tag):
            return False
        pairs = zip(our_tombs, their_tombs, strict=False)
        if len(our_tombs) > len(their_tombs) or any(
            (our.tag, our.tags()) != (their.tag, their.tags()) for our, their in pairs
        ):
            return theirs is None and ours is None
        if ours is not None and len(our_tombs) != len(their_tombs):
            return False
        self.tombs[name] = [*our_tombs, *their_tombs[len(our_tombs) :]]
        if theirs is None:
            return True
        if ours is None:
            ours = Conversation(name, tag=theirs.tag, ancestors=theirs.ancestors)
        # a prefix of theirs: also false if ours is the longer one
        if ours.tags() != theirs.tags()[: ours.version]:
            return False
        for our_event, their_event in zip(ours.events, theirs.events, strict=False):
            if their_event["redacted"] and not our_event["redacted"]:
                our_event.clear()
                our_event.update(their_event)
        if self._redacted_alone(theirs, source, ours.version):
            return False
        self.living[name] = ours
        ours.events += [dict(event) for event in theirs.events[ours.version : until]]
        if until is None:
            ours.keys = dict(theirs.keys)
        return True

    def _redacted_alone(self, theirs: Conversation, source: "Store", first: int) -> bool:
        """Return whether this store has redacted, in a conversation of the family, an event from
        ``first`` on that the source still shows. The family of an event are the ancestors, and all
        forks of the conversation that stores the event.
        """
        relatives = [*theirs.ancestors]
        parents = [theirs.holder(first)]
        for parent in parents:
            forks = [fork for fork in source.forks(parent) if fork.own_from > first]
            relatives += [fork.name for fork in forks]
            parents += forks
        redacted = {
            event["tag"]
            for name in relatives
            if name in self.living
            for event in self.living[name].events
            if event["redacted"]
        }
        return any(
            event["tag"] in redacted for event in theirs.events[first:] if not event["redacted"]
        )


def searchable_text(event):
    """Return the text of an event that a search looks into."""
    if event["redacted"]:
        return ""
    match event["kind"]:
        case "message" | "observation":
            content = event["content"]
            return str(content if isinstance(content, str) else content[0])
        case "action":
            arguments = map(str, (event["arguments"] or {}).values())
            return " ".join([event["tool"], event["thought"], *arguments])
        case "condensation":
            return str(event["summary"] or "")
        case "annotation":
            return f"{event['name']} {event['data']}"
    return ""


words_of = re.compile(r"[^\W_]+").findall


def typed(value):
    """Return what is equal only for the same JSON: 1, 1.0 and true differ."""
    match value:
        case dict():
            return {name: typed(member) for name, member in value.items()}
        case list():
            return [typed(member) for member in value]
    return type(value), value


def checked_attributes(attributes):
    for value in attributes.values():
        is_texts = type(value) is list and all(isinstance(text, str) for text in value)
        if not is_texts and not isinstance(value, str | int | None):
            raise Refused("InvalidEvent")
    return attributes


def _matches(value, wanted):
    if isinstance(value, list):
        return set([wanted] if isinstance(wanted, str) else wanted) <= set(value)
    return typed(value) == typed(wanted)


def new_event(kind, source, *, shown, **fields):
    common = {
        "kind": kind,
        "source": source,
        "shown": shown,
        "cause": None,
        "origin": None,
        "meta": {},
        "stays": False,
    }
    return common | {"redacted": False} | fields


def message(content, source="user", **fields):
    return new_event("message", source, shown=True, content=content) | fields


def action(tool, arguments, call_id, response_id=None, **fields):
    event = new_event("action", "agent", shown=True, thought="", thinking="", tool=tool)
    event |= {"arguments": arguments, "call_id": call_id, "response_id": response_id}
    return event | fields


def observation(content, call_id, tool="", **fields):
    event = new_event("observation", "environment", shown=True, content=content, call_id=call_id)
    return event | {"tool": tool, "is_error": False} | fields


def annotation(name, data, **fields):
    return new_event("annotation", "environment", shown=False, name=name, data=data) | fields


def reasoning(text):
    """Return thinking that stays with what the agent says or does next."""
    return annotation("reasoning", thinking_part(text), source="agent", shown=True, stays=True)


def thinking_part(text):
    return {"type": "thinking", "thinking": text, "signature": "s"}


def request(reason):
    return new_event("condensation_request", "agent", shown=False, reason=reason)


def retraction(version, reason):
    return new_event("retraction", "user", shown=False, version=version, reason=reason)


def condensation(ids, span=(None, None), summary=None, offset=None):
    """Return a condensation that forgets these ids, or the ids from the first to the last of a
    span.
    """
    event = new_event("condensation", "agent", shown=False, summary=summary, summary_offset=offset)
    start, end = span
    return event | {
        "forgotten_event_ids": ids,
        "forgotten_events_start_id": start,
        "forgotten_events_end_id": end,
    }


def document_changes(values):
    return new_event("document_changes", "environment", shown=False, values=dict(values))


def redaction(ids, by, reason):
    return new_event("redaction", "user", shown=False, event_ids=tuple(ids), by=by, reason=reason)
