"""What a store must answer, as the documents say it: conversations are lists of dicts, and a fork's
list begins with the very dicts of its parent's. Nothing of the product is imported; every answer is
found the slow and plain way.

An event is a dict: ``kind``, ``id``, ``at`` (when it was recorded), ``tag`` (which event this is,
also in a copy), and the fields of its kind. ``redacted`` is set once its content was erased.
"""

import copy
import itertools
import re
from dataclasses import dataclass, field, replace
from typing import Any

Event = dict[str, Any]
Calls = tuple[dict[int, int], set[int], dict[int, int]]
"""The actions that answers belong to, the answers that belong to none, and the first actions of
their responses.
"""
DELETED = "\0deleted"
NOTES = ("annotation", "unknown")
"""Kinds of events that do not end a loop, nor a wait for an answer, where a model does not see them."""
REDACTED = "[redacted]"

_tags = itertools.count()


def new_tag():
    """Return what tells a new event, or a new conversation, from every other one."""
    return next(_tags)


class Refused(Exception):
    """The store must refuse this, with an error of this class."""


@dataclass(eq=False)
class Shown:
    """A View at one version: ids of its events and summaries, the request flag, and what was left
    behind.
    """

    items: tuple[int, ...] = ()
    requested: bool = False
    left: frozenset[int] = frozenset()
    buried: tuple[tuple[int, int], ...] = ()
    """Ids of a source, from first to last, that condensations of OpenHands V0 have named."""
    newest: tuple[int, int] | None = None
    """The place and the id of the summary of the last condensation of OpenHands V0."""
    calls: Calls | None = None

    @property
    def ids(self):
        ids = [*self.items]
        if self.newest is not None:
            ids.insert(*self.newest)
        return tuple(ids)


@dataclass(eq=False)
class Conversation:
    name: str
    events: list[Event] = field(default_factory=list)
    own_from: int = 0
    parent: "Conversation | None" = None
    tag: int = field(default_factory=lambda: next(_tags))
    keys: dict[str, tuple[Any, int, int]] = field(default_factory=dict)
    erased: str | None = None
    detached: bool = False
    origins: tuple[str, ...] = ()
    states: list[Shown] = field(default_factory=lambda: [Shown()])

    version = property(lambda self: len(self.events))

    def tags(self):
        return [event["tag"] for event in self.events]

    def hides(self, key):
        """Return whether an event that was appended under an idempotency key is redacted."""
        _, first, count = self.keys.get(key, (None, 0, 0))
        return any(event["redacted"] for event in self.events[first : first + count])

    def holder(self, event_id):
        """Return the conversation that stores an event of this one."""
        found = self
        while event_id < found.own_from:
            assert found.parent is not None
            found = found.parent
        return found

    def shown(self, version=None):
        """Return the View at a version. The states up to it are kept: redactions do not change
        them.
        """
        version = self.version if version is None else version
        while len(self.states) <= version:
            self.states.append(self._after(self.states[-1], self.events[len(self.states) - 1]))
        return self.states[version]

    def _after(self, before, event):
        match event["kind"]:
            case "condensation" if is_v0(event):
                after = self._buried(before, [*named_ids(event), (source_id(event),) * 2])
                if event["summary"] is not None:
                    after.newest = event["summary_offset"], -(event["id"] + 2)
                return after
            case "condensation":
                after = replace(before, items=before.ids, newest=None, requested=False)
                after = self._without(after, {*forgotten(event)})
                if event["summary"] is not None:
                    items = [*after.items]
                    items.insert(event["summary_offset"], -(event["id"] + 2))
                    after.items = tuple(items)
                return after
            case "condensation_request":
                own = [(source_id(event),) * 2] if is_v0(event) else []
                return replace(self._buried(before, own), requested=True)
            case "retraction":
                again = self.states[min(event["version"], event["id"])]
                return replace(again, requested=before.requested or again.requested)
        if event["shown"] and not is_buried(event, before.buried):
            return replace(before, items=(*before.items, event["id"]), calls=None)
        return before

    def _buried(self, before, named):
        """Return the View without the events that have these ids in a source of OpenHands V0."""
        after = replace(before, buried=(*before.buried, *named), requested=False)
        gone = {each for each in after.items if is_buried(self.item(each), after.buried)}
        return self._without(after, gone)

    def _without(self, before, gone):
        gone &= set(before.items)
        left = set(before.left)
        for unit in self.units(before):
            if gone & unit:
                left |= unit
        items = tuple(each for each in before.items if each not in gone)
        return replace(before, items=items, left=frozenset(left - gone), calls=None)

    def item(self, item_id):
        """Return what a View shows under an id: an event, or the summary of a condensation."""
        if item_id >= 0:
            return self.events[item_id]
        made_by = self.events[-(item_id + 2)]
        return {"kind": "condensation_summary", "id": item_id, "content": made_by["summary"]}

    def calls(self, view):
        view.calls = view.calls or calls_of(
            [self.item(each) for each in view.ids if each not in view.left]
        )
        return view.calls

    def open_calls(self, view):
        answered, _, responses = self.calls(view)
        return [each for each in responses if each not in answered.values()]

    def batches(self, view):
        """Return the actions of each model response, with their answers."""
        answered, _, responses = self.calls(view)
        of = responses | {answer: responses[action] for answer, action in answered.items()}
        return [
            {each for each in of if of[each] == response}
            for response in dict.fromkeys(responses.values())
        ]

    def bonds(self, view):
        """Return the events that stay with the next, with this one; each alone where the agent's
        next is missing.
        """
        bonds = []
        run = []
        for each in view.ids:
            if each in view.left:
                continue
            event = self.item(each)
            if event.get("source") != "agent":
                bonds += [{one} for one in run]
                run = []
            run.append(each)
            if not event.get("stays"):
                bonds += [set(run)] if len(run) > 1 else []
                run = []
        return bonds + [{one} for one in run]

    def loops(self, view):
        """Return the tool loops: from thinking through actions, answers, and words with an action
        of their reply.
        """
        _, orphans, _ = self.calls(view)
        bonds = {max(bond): bond for bond in self.bonds(view) if len(bond) > 1}
        loops = []
        running = False
        words = []
        reply = None
        for each in view.ids:
            event = self.item(each)
            is_unseen = event["kind"] in NOTES and event["origin"] is not None
            if each in view.left or each in orphans or (is_unseen and each not in bonds):
                continue
            if each in bonds or (event["kind"] == "action" and event["thinking"]):
                loops.append(set(bonds.get(each, ())))
                running, words = True, []
            elif (
                event["kind"] == "message"
                and event.get("source") == "agent"
                and (not words or reply_of(event) == reply)
            ):
                words, reply = [*words, each], reply_of(event)
                continue
            elif event["kind"] not in ("action", "observation") or (
                words and reply_of(event) != reply
            ):
                running = False
            if running:
                loops[-1] |= {each, *words}
            words = []
        return loops

    def units(self, view):
        return self.batches(view) + self.loops(view) + self.bonds(view)

    def fit(self, view):
        """Return the ids of a View that can be sent to a model."""
        _, orphans, _ = self.calls(view)
        place = {each: index for index, each in enumerate(view.ids)}
        unanswered = set(self.open_calls(view))
        batches, loops, bonds = self.batches(view), self.loops(view), self.bonds(view)
        dropped = (
            set(view.left) | orphans | {one for bond in bonds if len(bond) == 1 for one in bond}
        )
        before = -1
        while len(dropped) != before:
            before = len(dropped)
            for part in batches + bonds:
                if part & (unanswered | dropped):
                    dropped |= part
            for loop in loops if len(dropped) == before else ():
                kept = loop - dropped
                if kept and any(
                    place[each] < max(place[one] for one in kept) for each in loop & dropped
                ):
                    dropped |= loop
        return [each for each in view.ids if each not in dropped]

    def cut_points(self, view):
        """Return the indices at which a View may be cut without taking a call from its answer."""
        _, orphans, _ = self.calls(view)
        place = {each: index for index, each in enumerate(view.ids)}
        unanswered = set(self.open_calls(view))
        out = set()
        for batch in self.batches(view):
            places = sorted(place[each] for each in batch)
            if not batch & unanswered:
                out |= set(range(places[0] + 1, places[-1] + 1))
                continue
            notes = {each for each in view.ids if self.item(each)["kind"] in NOTES}
            aside = notes | orphans | set(view.left)
            after = {each for each in view.ids[places[0] :] if each not in aside}
            if after <= batch:
                out |= set(range(places[0] + 1, len(view.ids) + 1))
        for unit in self.loops(view) + self.bonds(view):
            places = sorted(place[each] for each in unit)
            is_last = unit == {view.ids[-1]} and self.item(view.ids[-1]).get("stays")
            out |= set(range(places[0] + 1, len(view.ids) + 1 if is_last else places[-1] + 1))
        return [index for index in range(len(view.ids) + 1) if index not in out]

    def documents(self, version=None):
        values = {}
        for event in self.events[:version]:
            if event["kind"] == "document_changes":
                for name, value in event["values"].items():
                    if value == DELETED:
                        values.pop(name, None)
                    else:
                        values[name] = value
        return dict(sorted(values.items()))

    def quotes(self, event_id):
        """Return the condensations whose summaries stand for an event or its summary, and those
        that may be said to.
        """
        own = {event_id, -(event_id + 2)}
        surely = set()
        perhaps = set()
        for event in self.events:
            if event["kind"] != "condensation" or event["summary"] is None:
                continue
            gone = set(forgotten(event))
            shown = set(self.shown(event["id"]).ids)
            if gone & shown & (own | {-(each + 2) for each in surely}):
                surely.add(event["id"])
            if gone & (own | {-(each + 2) for each in perhaps}):
                perhaps.add(event["id"])
        return surely, perhaps


def calls_of(events):
    waiting = []
    answered = {}
    orphans = set()
    responses = {}
    newest, done = None, []
    for event in events:
        if event["kind"] == "action":
            if (
                newest is None
                or event["response_id"] != newest["response_id"]
                or event["call_id"] in done
            ):
                newest, done = event if event["response_id"] is not None else None, []
            responses[event["id"]] = event["id"] if newest is None else newest["id"]
            waiting.append(event)
        elif event["kind"] == "observation":
            call, cause = event["call_id"], event["cause"]
            asked = [
                one
                for one in waiting
                if cause in (None, one["id"]) and call in (None, one["call_id"])
            ]
            last = [one for one in asked if responses[one["id"]] == responses[asked[-1]["id"]]]
            if (named := last[:1]) and (call, cause) != (None, None):
                waiting.remove(named[0])
                answered[event["id"]] = named[0]["id"]
                is_of_newest = newest is not None and responses[named[0]["id"]] == newest["id"]
                if is_of_newest and named[0]["call_id"] is not None:
                    done.append(named[0]["call_id"])
            else:
                orphans.add(event["id"])
        elif event["kind"] == "condensation_summary" and newest is not None:
            newest = (
                newest if any(responses[one["id"]] == newest["id"] for one in waiting) else None
            )
    return answered, orphans, responses


def reply_of(event):
    """Return the reply that an event is of; for each other event another value."""
    return event.get("response_id") or event.get("meta", {}).get("reply") or event["id"]


def as_sent(events):
    """Return events in the order of their messages: the words and calls of one reply together, up
    to another reply.
    """
    _, _, responses = calls_of(events)
    groups = []
    said = []
    response = None
    for event in events:
        if event["kind"] != "action" and (event["kind"] != "message" or event["source"] != "agent"):
            groups.append([event])
            continue
        own = responses.get(event["id"])
        known = None not in (own, response)
        if not said or (own != response if known else reply_of(event) != reply_of(said[-1])):
            said, response = [], None
            groups.append(said)
        said.append(event)
        response = response if own is None else own
    return [event for group in groups for event in group]


def is_v0(event):
    return event.get("origin") is not None and event["origin"][0] == "openhands-v0"


def source_id(event):
    number = event["origin"][1]
    return -1 if number is None else int(number)


def is_buried(event, buried):
    return is_v0(event) and any(first <= source_id(event) <= last for first, last in buried)


def named_ids(event):
    """Return the ids of its source that a condensation names, from first to last."""
    if event["forgotten_event_ids"] is not None:
        return [(each, each) for each in event["forgotten_event_ids"]]
    return [(event["forgotten_events_start_id"], event["forgotten_events_end_id"])]


def forgotten(event):
    if event["forgotten_event_ids"] is not None:
        ids = event["forgotten_event_ids"]
        return ids
    return range(event["forgotten_events_start_id"], event["forgotten_events_end_id"] + 1)


def without_content(event):
    """Return what stays of a redacted event."""
    stays = {
        key: event[key] for key in ("kind", "id", "at", "tag", "cause", "source", "shown", "stays")
    }
    meta_that_stays = ("reply", "model", "usage", "cost")
    stays |= {"meta": {key: event["meta"][key] for key in event["meta"] if key in meta_that_stays}}
    stays |= {"redacted": True, "origin": None}
    if event["origin"] is not None:
        source, number = event["origin"]
        stays["origin"] = (source, None if " " in str(number) else number)  # free text goes
    match event["kind"]:
        case "message":
            stays |= {"content": REDACTED}
        case "action":
            stays |= {key: event[key] for key in ("tool", "call_id", "response_id")}
            stays |= {"thought": event["thought"] and REDACTED, "arguments": {"redacted": REDACTED}}
            stays |= {"thinking": event["thinking"] and REDACTED}
        case "observation":
            stays |= {"content": REDACTED} | {
                key: event[key] for key in ("tool", "call_id", "is_error")
            }
        case "annotation":
            stays |= {"name": event["name"], "data": None}
            # a report of the digest, which calls no model: its name stays
            if event["name"] == "condenser_meta":
                stays["data"] = [{"condenser": report["condenser"]} for report in event["data"]]
        case "condensation":
            stays |= {key: value for key, value in event.items() if key.startswith("forgotten_")}
            stays |= {
                "summary": event["summary"] and REDACTED,
                "summary_offset": event["summary_offset"],
            }
        case "condensation_request":
            stays |= {"reason": event["reason"] and REDACTED}
        case "retraction":
            stays |= {"version": event["version"], "reason": event["reason"] and REDACTED}
        case "document_changes":
            blank = {name: {} if name == "attributes" else REDACTED for name in event["values"]}
            stays["values"] = {
                name: DELETED if value == DELETED else blank[name]
                for name, value in event["values"].items()
            }
    return stays


@dataclass(eq=False)
class Store:
    living: dict[str, Conversation] = field(default_factory=dict)
    tombs: dict[str, list[Conversation]] = field(default_factory=dict)

    def get(self, name):
        if name in self.living:
            return self.living[name]
        raise Refused("ConversationErased" if self.tombs.get(name) else "ConversationNotFound")

    def version(self, name):
        return self.get(name).version if name in self.living or self.tombs.get(name) else 0

    def names(self):
        return sorted(
            {*self.living, *(name for name, tombs in self.tombs.items() if tombs)}, key=str.encode
        )

    def forks(self, of):
        return [each for each in self.living.values() if of and each.parent is of]

    def followed(self):
        """Return what somebody holds who followed the store: each conversation's own events."""
        found = {name: each.events[each.own_from :] for name, each in self.living.items()}
        return {name: events for name, events in found.items() if events}

    def found(self, words, within=None):
        """Return the events that have all the words, each in the conversation that stores it."""
        hits = set()
        for each in self.living.values() if within is None else [self.get(within)]:
            for event in each.events:
                if all(word in words_of(says(event)) for word in words):
                    hits.add((each.holder(event["id"]).name, event["id"]))
        return hits

    def recent(self, wanted):
        """Return when each conversation with these attributes was last active, the last one
        first.
        """
        found = []
        for name, each in self.living.items():
            has = each.documents().get("attributes", {})
            if all(_has(has.get(key), value) for key, value in wanted.items()):
                found.append((each.events[-1]["at"], name))
        return sorted(found, key=lambda one: -one[0])

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
        imported=False,
    ):
        """Append as ``History.append`` does, and return the recorded events. ``handle`` is the tag
        of the conversation that the writer met first.
        """
        if any(
            type(value) is float and value == float("inf") for value in (documents or {}).values()
        ):
            raise Refused("InvalidEvent")
        found = self.get(name) if self.version(name) else Conversation(name)
        if handle is not None and handle != found.tag:
            raise Refused("ConversationErased")
        if not events and not documents:
            raise Refused("InvalidEvent")
        payload = [[dict(event) for event in events], dict(documents or {})]
        if key is not None and key in found.keys:
            same, first, count = found.keys[key]
            if same != payload:
                raise Refused("IdempotencyConflict")
            return found.events[first : first + count]
        if expected is not None and expected != found.version:
            raise Refused("VersionConflict")
        if dedupe:
            has = {event.get("was", event["origin"]) for event in found.events}
            events = [
                event for event in events if event["origin"] is None or event["origin"] not in has
            ]
        new = [{**event, "id": found.version + index} for index, event in enumerate(events)]
        for event in new:
            self._check(found, event)
        values = {
            key: value
            for key, value in (documents or {}).items()
            if not _same(value, found.documents().get(key, DELETED))
        }
        if values:
            new.append(document_changes(values) | {"id": found.version + len(new)})
        at = max(now, found.events[-1]["at"] if found.events else 0)
        for event in new:
            event |= {"at": at, "tag": next(_tags)}
        if new:
            self.living[name] = found
            found.events += new
            if key is not None:
                found.keys[key] = (payload, new[0]["id"], len(new))
        return new

    @staticmethod
    def _check(found, event):
        if event["cause"] is not None and not 0 <= event["cause"] < event["id"]:
            raise Refused("InvalidEvent")
        if event["kind"] == "retraction" and not event["version"] < event["id"]:
            raise Refused("InvalidEvent")
        if event["kind"] == "condensation":
            ids = list(forgotten(event))
            if any(not 0 <= each < event["id"] for each in ids if each >= 0):
                raise Refused("InvalidEvent")
            for each in ids:
                if each < -1:
                    made_by = -(each + 2)
                    if made_by >= found.version or found.events[made_by].get("summary") is None:
                        raise Refused("InvalidEvent")

    def fork(self, name, at, new, *, replace=False):
        found = self.get(name)
        if not 1 <= at <= found.version:
            raise Refused("InvalidArgument")
        self._free(new, replace=replace)
        holder = found.holder(at - 1)
        origins = (*holder.origins, holder.name)
        made = Conversation(new, found.events[:at], at, holder, origins=origins)
        self.living[new] = made
        return made

    def create(self, name, attributes, now, *, replace=False):
        self._free(name, replace=replace)
        event = document_changes({"attributes": dict(checked(attributes))})
        self.living[name] = Conversation(name, [event | {"id": 0, "at": now, "tag": next(_tags)}])

    def _free(self, name, *, replace):
        if name in self.living:
            raise Refused("VersionConflict")
        if self.tombs.get(name) and not replace:
            raise Refused("ConversationErased")

    def places(self, name, source, form=""):
        """Return where the first events of a history to import are. By an import of a file
        receipts, changes of documents, requests and declined condensations between them are passed
        over. What was redacted stays out.
        """
        found = self.get(name) if self.version(name) else Conversation(name)
        places = [event["id"] for event in found.events if not is_of_others(event, form)]
        for there, event in zip(places, source, strict=False):
            stored = found.events[there]
            if stored["redacted"] and not form:
                raise Refused("HistoryDiverged")
            given = moved(event, places) | {key: stored[key] for key in ("id", "at", "tag")}
            given = without_content(given) | {"was": stored["was"]} if stored["redacted"] else given
            if given != stored:
                raise Refused("HistoryDiverged")
        hidden = {event["was"] for event in found.events if event["redacted"]} - {None}
        if any(event["origin"] in hidden for event in source[len(places) :]):
            raise Refused("HistoryDiverged")
        return places

    def ingest(self, name, source, now, form=""):
        """Import a history as it is."""
        places = self.places(name, source, form)
        found = self.living.setdefault(name, Conversation(name))
        at = max(now, found.events[-1]["at"] if found.events else 0)
        for event in source[len(places) :]:
            places.append(found.version)
            found.events.append(
                moved(event, places) | {"id": found.version, "at": at, "tag": next(_tags)}
            )

    def redact(self, name, ids, now, by, reason):
        """Erase the content of events. The receipt is the next event."""
        found = self.get(name)
        for each in ids:
            event = found.events[each]
            stays = without_content(event) | {"was": event["origin"]}
            event.clear()
            event.update(stays)
        at = max(now, found.events[-1]["at"])
        found.events.append(
            redaction(ids, by, reason) | {"id": found.version, "at": at, "tag": next(_tags)}
        )

    def check_redactable(self, name, event_id):
        found = self.get(name)
        if not found.own_from <= event_id < found.version:
            raise Refused("InvalidArgument")
        if found.events[event_id]["kind"] == "redaction":
            raise Refused("CannotRedact")

    def check_erasable(self, name, *, forks):
        if (
            self.forks(
                self.get(name) if self.living.get(name) or not self.tombs.get(name) else None
            )
            and not forks
        ):
            raise Refused("ConversationHasForks")

    def erase(self, found, reason):
        assert not self.forks(found)
        found.erased = reason
        self.tombs.setdefault(found.name, []).append(self.living.pop(found.name))

    def detach(self, fork):
        """Give a fork a copy of the events that it shares. Its own forks then share the copy."""
        fork.events[: fork.own_from] = [dict(event) for event in fork.events[: fork.own_from]]
        fork.own_from, fork.parent, fork.detached = 0, None, True
        below = self.forks(fork)
        for each in below:
            each.events[: each.own_from] = each.parent.events[: each.own_from]
            below += self.forks(each)

    def snapshot(self):
        """Return a store of its own, in which forks share with their parents what they share
        here.
        """
        living, events = {}, {}
        for name, each in self.living.items():
            events |= {id(event): dict(event) for event in each.events if id(event) not in events}
            living[name] = new = copy.copy(each)
            new.events, new.keys, new.states = (
                [events[id(e)] for e in each.events],
                dict(each.keys),
                [*each.states],
            )
        for each in living.values():
            each.parent = living[each.parent.name] if each.parent else None
        return Store(living, {name: [*tombs] for name, tombs in self.tombs.items()})

    def copy_from(self, source):
        """Copy every conversation of another store into this one; return the names of those that
        cannot be copied.
        """
        return {name for name in source.names() if not self.copy(name, source)}

    def copy(self, name, source, until=None):
        """Copy one; of a tail only what is before ``until``, which no keys are written for yet."""
        theirs, ours = source.living.get(name), self.living.get(name)
        their_tombs = source.tombs.get(name, [])
        our_tombs = self.tombs.get(name, [])
        if ours is not None and (theirs is None or theirs.tag != ours.tag):
            return False
        both = zip(our_tombs, their_tombs, strict=False)
        if len(our_tombs) > len(their_tombs) or any(
            (a.tag, a.tags()) != (b.tag, b.tags()) for a, b in both
        ):
            return theirs is None and ours is None
        if ours is not None and len(our_tombs) != len(their_tombs):
            return False
        self.tombs[name] = [*our_tombs, *their_tombs[len(our_tombs) :]]
        if theirs is None:
            return True
        if ours is None:
            ours = Conversation(name, tag=theirs.tag, origins=theirs.origins)
        elif ours.version > theirs.version:
            return False
        if ours.tags() != theirs.tags()[: ours.version]:
            return False
        for mine, other in zip(ours.events, theirs.events, strict=False):
            if other["redacted"] and not mine["redacted"]:
                mine.clear()
                mine.update(other)
        if self._hides(theirs, source, ours.version):
            return False
        self.living[name] = ours
        ours.events += [dict(event) for event in theirs.events[ours.version : until]]
        ours.keys = dict(theirs.keys) if until is None else ours.keys
        return True

    def _hides(self, theirs: Conversation, source: "Store", first: int) -> bool:
        """Whether a conversation of the family is here with an event that was redacted here alone.
        The family of an event are the ancestors, and all forks of the one that stores the event.
        """
        relatives, below = [*theirs.origins], [theirs.holder(first)]
        for each in below:
            forks = [fork for fork in source.forks(each) if fork.own_from > first]
            relatives += [fork.name for fork in forks]
            below += forks
        hidden = {
            event["tag"]
            for name in relatives
            if name in self.living
            for event in self.living[name].events
            if event["redacted"]
        }
        return any(
            event["tag"] in hidden for event in theirs.events[first:] if not event["redacted"]
        )


def says(event):
    """Return the words of an event that a search finds."""
    if event["redacted"]:
        return ""
    match event["kind"]:
        case "message" | "observation":
            return str(
                event["content"] if isinstance(event["content"], str) else event["content"][0]
            )
        case "action":
            return " ".join(
                [event["tool"], event["thought"], *map(str, (event["arguments"] or {}).values())]
            )
        case "condensation":
            return str(event["summary"] or "")
        case "annotation":
            return f"{event['name']} {event['data']}"
    return ""


words_of = re.compile(r"[^\W_]+").findall


def _same(one, other):
    return bool(typed(one) == typed(other))


def typed(value):
    """Return what is equal only for the same JSON: 1, 1.0 and true differ."""
    match value:
        case dict():
            return {name: typed(each) for name, each in value.items()}
        case list():
            return [typed(each) for each in value]
    return type(value), value


def checked(attributes):
    for value in attributes.values():
        texts = type(value) is list and all(isinstance(each, str) for each in value)
        if not texts and not isinstance(value, str | int | None):
            raise Refused("InvalidEvent")
    return attributes


def _has(value, wanted):
    if isinstance(value, list):
        return set([wanted] if isinstance(wanted, str) else wanted) <= set(value)
    return _same(value, wanted)


def moved(event, places):
    """Return an event of a source with the ids that it names as they are in the store."""
    event = dict(event)
    if event["cause"] is not None:
        event["cause"] = places[event["cause"]]
    if event["kind"] == "condensation" and event["forgotten_event_ids"] is not None:
        ids = event["forgotten_event_ids"]
        event["forgotten_event_ids"] = [
            places[e] if e >= 0 else -(places[-(e + 2)] + 2) for e in ids
        ]
    return event


def event_of(kind, source, *, shown, **fields):
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


OF_OTHERS = ("redaction", "document_changes")
"""Kinds of events of which no source knows."""


def is_of_others(event, form):
    """Return whether an import of a history of this form passes over an event."""
    is_asked = event["kind"] == "condensation_request" or (
        event["kind"] == "condensation" and event["summary"] is None and not list(forgotten(event))
    )
    return bool(form) and (event["kind"] in OF_OTHERS or (event["origin"] is None and is_asked))


def document_changes(values):
    return event_of("document_changes", "environment", shown=False, values=dict(values))


def redaction(ids, by, reason):
    return event_of("redaction", "user", shown=False, event_ids=tuple(ids), by=by, reason=reason)
