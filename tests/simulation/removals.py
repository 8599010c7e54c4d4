"""The steps that redact an event or erase a conversation."""

from foldlog.eventstore import Redaction
from tests.simulation import model
from tests.simulation.checks import check_equal, erasure_of, made_words
from tests.simulation.model import refusal_of
from tests.simulation.runner import STOPPED, Runner
from tests.simulation.world import Finding


class RemovalSteps(Runner):
    def redact(self, rng, process):
        site = process.site
        name = self.draw_name(rng, site, forked=True)
        conversation = site.model.living.get(name)
        if conversation is None or any(map(model.is_of_log, conversation.events)):
            return  # the model does not know which logs repeat a record
        event_id = rng.randrange(conversation.version + (rng.random() < 0.05))
        if conversation.own_from < conversation.version and rng.random() < 0.8:
            event_id = rng.randrange(conversation.own_from, conversation.version)
        with_summaries = rng.random() < 0.5
        self.trace(f"  {name} {event_id} {with_summaries=}")
        redaction = _Redaction(self, site, conversation, event_id, with_summaries)
        history = process.histories[name]
        receipt, error = self.call_product(
            process,
            lambda: history.redact(
                event_id, reason="asked", by="sim", with_summaries=with_summaries
            ),
            redaction.update_model,
        )
        redaction.check(receipt, error)
        return name

    def erase(self, rng, process):
        site = process.site
        name = self.draw_name(rng, site, living=rng.random() < 0.9, forked=True)
        forks = rng.choice(("", "with_forks", "detach_forks"))
        if name.startswith("log") and site is not self.world.sites[0]:
            return  # the copy then refuses the forks, too, which the model does not know
        self.trace(f"  {name} {forks}")
        erasure = _Erasure(site, name, forks)
        options = {forks: True} if forks else {}
        row, error = self.call_product(
            process,
            lambda: process.histories.erase(name, reason="asked", **options),
            erasure.update_model,
        )
        erasure.check(row, error, interleaved=self.interleaved)
        return name


class _Redaction:
    """A redaction: the events that it may erase, must erase, and has erased by now."""

    def __init__(self, steps, site, conversation, event_id, with_summaries):
        self.steps = steps
        self.site = site
        self.conversation = conversation
        self.event_id = event_id
        self.with_summaries = with_summaries
        self.refusals = set()
        """The errors that are right, at one of the moments between which the redaction ran."""
        self.redacted = {}
        """The ids that were redacted in each conversation."""
        self.required = {}
        """The ids that must be redacted in each conversation."""
        self.quotes = set()
        """The condensations that the receipt must name."""
        if self._refusal() is None:
            self._find_required()

    def _refusal(self):
        name = self.conversation.name
        return refusal_of(lambda: self.site.model.check_redactable(name, self.event_id))

    def _sharing(self):
        """Return the living conversations that have the event."""
        if self.event_id >= self.conversation.version:
            return []
        event = self.conversation.events[self.event_id]
        return [
            relative
            for relative in self.site.model.living.values()
            if relative.version > self.event_id and relative.events[self.event_id] is event
        ]

    def _find_required(self):
        for relative in self._sharing():
            quotes, _ = relative.quotes(self.event_id)
            ids = set(quotes) if self.with_summaries else set()
            if relative is self.conversation:
                self.quotes = quotes
                ids.add(self.event_id)
            self.required[relative] = {
                id_
                for id_ in ids
                if id_ >= relative.own_from and not relative.events[id_]["redacted"]
            }

    def update_model(self):
        """Copy the receipts into the model: they say which events were redacted."""
        self.refusals.add(self._refusal())
        sharing = self._sharing()
        if any(self._has_later_changes(relative) for relative in sharing):
            self.refusals.add("CannotRedact")
        for relative in sharing:
            for row in list(self.site.processes[0].store.log(relative.name, relative.version)):
                if not isinstance(row.event, Redaction):
                    raise Finding("redact", f"{relative.name}: {row.event}")
                ids = row.event.event_ids
                self.redacted.setdefault(relative, set()).update(ids)
                words = made_words([relative.events[event_id] for event_id in ids])
                self.site.erased_words.update(words)
                at = self.site.world.microseconds(row.recorded_at)
                self.site.model.redact(relative.name, ids, at, row.event.by, row.event.reason)

    def _has_later_changes(self, conversation):
        """Return whether a later change of a document may be stored as a difference from this
        event.
        """
        first, *later = [
            event["kind"] == "document_changes" for event in conversation.events[self.event_id :]
        ]
        return first and any(later)

    def check(self, receipt, error):
        name = self.conversation.name
        if error not in STOPPED and error not in self.refusals:
            raise Finding("redact: error", f"{name}: {error}, expected {self.refusals}")
        for relative, ids in self.redacted.items():
            _, possible = relative.quotes(self.event_id)
            allowed = set(possible) if self.with_summaries else set()
            if relative is self.conversation:
                allowed.add(self.event_id)
            if not ids <= allowed:
                raise Finding("redacted", f"{relative.name}: {ids}, at most {allowed}")
        if error is None and not self.steps.interleaved:
            self._check_complete(receipt)
        if (
            error is None
            and self.site.model.living.get(name) is self.conversation
            and not self.conversation.events[self.event_id]["redacted"]
        ):
            raise Finding("redacted", f"{name}: event {self.event_id} was not")

    def _check_complete(self, receipt):
        """Check that everything was redacted that must be, and what the receipt names as quotes."""
        for relative, required in self.required.items():
            redacted = self.redacted.get(relative, set())
            if not required <= redacted:
                raise Finding("redacted", f"{relative.name}: {redacted}, at least {required}")
        name = self.conversation.name
        own = {self.event_id}
        quotes = {quote.event_id for quote in receipt.quotes if quote.conversation == name}
        _, possible = self.conversation.quotes(self.event_id)
        if not self.quotes - own <= quotes <= possible | own:
            raise Finding(
                "quotes",
                f"{name} {self.event_id}: {quotes}, at least {self.quotes}, at most {possible}",
            )


class _Erasure:
    """An erasure: the conversations that it must erase or detach, and has erased by now."""

    def __init__(self, site, name, forks):
        self.site = site
        self.name = name
        self.forks = forks
        self.conversation = site.model.living.get(name)
        self.doomed = self._family(self.conversation)
        self.words = _words(self.doomed)
        erased = self.doomed or site.model.tombs.get(name, [])[-1:]
        self.names = {(conversation.name, conversation.tag) for conversation in erased}
        self.refusals = {self._refusal()}
        """The errors that are right, at one of the moments between which the erasure ran."""

    def _family(self, conversation):
        """Return the descendants of a conversation, children before parents, and itself."""
        if conversation is None:
            return []
        return [*self.site.model.descendants(conversation)[::-1], conversation]

    def _refusal(self):
        forks = bool(self.forks)
        return refusal_of(lambda: self.site.model.check_erasable(self.name, forks=forks))

    def update_model(self):
        """Copy into the model what was erased or detached by now."""
        self.refusals.add(self._refusal())
        living = self.site.model.living
        present = self.conversation or living.get(self.name)
        # ``doomed`` also has forks that another process has detached since
        for relative in [*self._family(present), *self.doomed]:
            if living.get(relative.name) is not relative:
                continue
            row = self.site.processes[0].store.conversation(relative.name)
            is_chosen = relative is present or self.forks == "with_forks"
            if row.erased_at is not None and is_chosen:
                self.site.model.erase(relative, "asked")
            elif relative.parent is present and row.parent is None and self.forks == "detach_forks":
                self.site.model.detach(relative)

    def check(self, row, error, *, interleaved):
        site = self.site
        name = self.name
        living = self.site.model.living
        if any(living.get(relative.name) is not relative for relative in self.doomed):
            site.erased_words |= self.words - _words(living.values())
        if error in STOPPED:
            site.unfinished |= {
                (erased_name, tag)
                for erased_name, tag in self.names
                if any(tomb.tag == tag for tomb in site.model.tombs.get(erased_name, []))
            }
        elif error not in self.refusals:
            raise Finding("erase: error", f"{name}: {error}, expected {self.refusals}")
        elif error is None:
            site.unfinished -= self.names
            if self.conversation is not None and living.get(name) is self.conversation:
                raise Finding("erased", f"{name}: it was not")
            if not interleaved:
                tomb = site.model.tombs[name][-1]
                check_equal("tombstone", erasure_of(row), (tomb.version, "asked"), name)


def _words(conversations):
    return set(made_words([conversation.events for conversation in conversations]))
