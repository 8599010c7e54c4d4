"""A summary without a model: a digest of the facts in the events, deterministic and bounded.

A digest is a text of headings and lines that a model reads. The next digest parses it: facts of an earlier digest are
carried over one by one, and the least important facts are left out first if they do not fit.

    # Digest of 57 events
    ## Asked by the user
    - fix the date parser; no new dependencies [1]
    ## Commands run
    - (3 earlier left out)
    - `pytest -q` → exit 1 [56]
    ## Names used
    - src/dates.py parse_week [56]

A line ends with the id of the event that says it, so that the event can be read again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from foldlog.condensers.base import AgentModel, Overrun, Reason, Requirement, setting
from foldlog.condensers.models.estimate import ESTIMATE, counting
from foldlog.condensers.prompts.rendering import clipped, truncated
from foldlog.condensers.strategies.digest_facts import Section, facts, subject_of, without_id
from foldlog.condensers.strategies.summarizing import SummarizingCondenser, Summary
from foldlog.eventstore import CondensationSummary, Event, summary_of
from foldlog.projections import View, begins_reply

_LENGTH_MIN, _LENGTH_LEAST = 500, 300
"""The least ``max_length`` that a user may set; the length of the shortest digests, first for the newest request."""

_TOKENS = 32_000
"""How many tokens a View may have besides its head where no limit of any kind is known: few models take less."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DigestCondenser(SummarizingCondenser):
    """Summarizes without a model, from the events themselves: orders, requests, files, commands, errors, names."""

    type = "digest"

    max_size: int | None = setting(
        None,
        "a View with more events is condensed, to a third of this number; by default no number: only tokens count, up "
        f"to the limit, or to {_TOKENS:,} besides the head if none is known",
        ge=2,
    )
    max_length: int = setting(11_000, "how many characters a digest has at most", ge=_LENGTH_MIN)

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        return Summary(Digest.of(events).text(self.max_length))

    def shorter(self, text: str) -> str | None:
        if (digest := Digest.parse(text)) is None or len(text) <= _LENGTH_LEAST:
            return None
        return digest.text(max(_LENGTH_LEAST, len(text) * 2 // 3))

    def condensation_requirement(self, view: View, agent_llm: AgentModel | None = None) -> Requirement | None:
        """Return how much a condensation is needed now. Nothing fails for want of one that no known limit asks for."""
        required = super().condensation_requirement(view, agent_llm)
        if view.unhandled_condensation_request or super().limits(counting(agent_llm))[1] is not None:
            return required
        return required and Requirement.SOFT

    def overrun(self, view: View, agent_llm: AgentModel | None) -> Overrun | None:
        if self.max_size is not None or super().limits(counting(agent_llm))[1] is not None:
            return super().overrun(view, counting(agent_llm))
        sums = ESTIMATE.token_sums(view)
        limit = _TOKENS + 2 * sums[min(self._head(view), len(view))]  # so half of them are left for the tail
        seen = any(map(begins_reply, view.events))  # before the agent's first reply no event has been shown to it
        return Overrun(sums, limit, ESTIMATE) if sums[-1] > limit and seen else None

    def limits(self, agent_llm: AgentModel | None) -> tuple[int | None, int | None]:
        """Return the most events and tokens of a View that is not condensed; these besides the head if unknown."""
        known = super().limits(counting(agent_llm))[1]
        return self.max_size, _TOKENS if known is None and self.max_size is None else known

    def _tails(self, view: View, due: Set[Reason]) -> list[int]:
        """Return two thirds of the tails beside a summary of a few lines: a digest tells more, and takes more room."""
        return [tail - max(0, tail) // 3 for tail in super()._tails(view, due)]


def default_condenser(
    *, max_size: int | None = None, keep_first: int = 1, max_tokens: int | None = None
) -> DigestCondenser:
    """Return the digest of a user who chooses no condenser: it works offline, costs nothing and is deterministic. It
    condenses by size, by tokens and on request. See ``docs/decisions/0050-defaults-of-condensers.md``.
    """
    return DigestCondenser(max_size=max_size, keep_first=keep_first, max_tokens=max_tokens)


@dataclass(frozen=True, slots=True)
class Digest:
    """The facts of ``count`` events. ``lines`` holds the lines of each section by subject, oldest first. ``left_out``
    holds the number of omitted lines of each section. ``earlier`` holds the texts of summaries that are not digests,
    oldest first, without blank lines.
    """

    count: int
    lines: Mapping[Section, Mapping[str, str]]
    left_out: Mapping[Section, int] = field(default_factory=dict)
    earlier: Sequence[str] = ()

    @classmethod
    def of(cls, events: Iterable[Event]) -> Digest:
        """Return the digest of ``events``. Earlier digests among them are parsed and merged. Cost: the events, once."""
        given = tuple(events)
        summaries = [event for event in given if isinstance(event, CondensationSummary)]
        plain = [event for event in given if not isinstance(event, CondensationSummary)]
        count, earlier = len(plain), list[str]()
        lines: dict[Section, dict[str, str]] = {section: {} for section in Section}
        left_out = dict.fromkeys(Section, 0)
        for summary in sorted(summaries, key=lambda it: summary_of(it.id) if it.id < 0 else it.id):
            if (before := cls.parse(summary.content)) is None:
                earlier += filter(None, ["\n".join(filter(str.strip, summary.content.splitlines()))])
                continue
            count += before.count
            earlier += before.earlier
            for section in Section:
                lines[section] |= before.lines[section]
                left_out[section] += before.left_out[section]
        recorded = {section: frozenset(lines[section]) for section in (Section.CHANGED, Section.READ)}
        for fact in facts(plain, without_id(next(reversed(lines[Section.SAID].values()), ""))[0]):
            section, subject, line = fact.section, fact.subject, fact.line
            if line is None and subject in recorded.get(section, ()):
                continue  # a failure now does not undo a success that an earlier digest recorded
            if section is Section.TASKS and not subject:
                lines[section].clear()
            if section is Section.MET and subject in lines[Section.USED]:
                section = Section.USED
            elif section is Section.USED:
                lines[Section.MET].pop(subject, None)
            lines[section].pop(subject, None)
            if line is not None:
                lines[section][subject] = line
        lines[Section.ASKED] = dict(sorted(lines[Section.ASKED].items(), key=lambda asked: _id(asked[1])))
        calls = sorted(_id(line) for section in _CALLS for line in lines[section].values())
        for subject, line in tuple(lines[Section.ERRORS].items()):
            if len(calls) - bisect_left(calls, _id(line) + 1) >= _CALLS_AFTER_ERROR:
                del lines[Section.ERRORS][subject]
        return cls(count, lines, left_out, earlier)

    @classmethod
    def parse(cls, text: str) -> Digest | None:
        """Return the digest that ``text`` was written from, or None if ``text`` is not a digest."""
        title, *rest = text.splitlines() or [""]
        if (titled := _TITLE.fullmatch(title)) is None:
            return None
        lines: dict[Section, dict[str, str]] = {section: {} for section in Section}
        left_out, earlier = dict.fromkeys(Section, 0), list[str]()
        section: Section | None = None
        for line in filter(None, rest):
            if line.startswith("## "):
                section = _SECTIONS.get(line[3:])
            elif line.startswith("> "):
                earlier.append(line[2:])
            elif section is None or not line.startswith("- "):
                return None
            elif omitted := _LEFT_OUT.fullmatch(line):
                left_out[section] += int(omitted[1])
            elif section in _NAMES:
                names, event_id = without_id(line[2:])
                lines[section] |= {name: name + event_id for name in names.split()}
            else:
                lines[section][subject_of(section, line[2:])] = line[2:]
        return cls(int(titled[1]), lines, left_out, "\n".join(earlier).split("\n\n") if earlier else ())

    def text(self, max_length: int) -> str:
        """Return the digest in at most ``max_length`` characters.

        Earlier summaries have their share. Of the rest every section gets its share, requests at least the room for the
        newest; then up to twice its share, then the remaining room, the most important section first, and the requests
        last. Within a section the newest lines stay. The newest request and the agent's last words stay whole, or their
        beginning and end as far as there is room. The first request and order stay too, and the beginnings of others.
        """
        title = f"# Digest of {self.count} events"
        room = left = max_length - len(title)
        texts = dict.fromkeys(_SHARES, "")
        texts[_EARLIER] = self._section(_EARLIER, int(_SHARES[_EARLIER] * room))
        room = left = room - len(texts[_EARLIER])
        for times, asked_times in _ROUNDS:
            for section, share in _SHARES.items():
                most = int(share * room * (asked_times if section is Section.ASKED else times))
                most, before = max(most, _LENGTH_LEAST * (section is Section.ASKED)), texts[section]
                texts[section] = max(before, self._section(section, min(len(before) + left, most)), key=len)
                left -= len(texts[section]) - len(before)
        return title + "".join(texts[section] for section in (*Section, _EARLIER))

    def _section(self, section: Section | str, room: int) -> str:
        """Return one section with its heading in at most ``room`` characters; empty if nothing fits."""
        if not isinstance(section, Section):
            return _quoted(self.earlier, room)
        lines, left_out = list(self.lines[section].values()), self.left_out[section]
        if section in _NAMES:
            return _named(section, lines, room)
        if not lines:
            return ""
        *older, newest = lines
        lengths = _LENGTHS.get(section, ())
        for length in lengths:
            lines = [*(_clipped(line, length) for line in older), newest]
            if len(listed := _listed(section, lines, left_out)) <= room:
                return listed
        first = lines[: min(len(older), section in _FIRST_STAYS)]

        def without(dropped: int) -> str:
            return _listed(section, [*first, *lines[len(first) + dropped :]], left_out + dropped)

        if len(without(0)) <= room:
            return without(0)
        # The first line to go may be shorter than the note on it; each further one makes the section shorter.
        most = len(lines) - len(first)
        dropped = bisect_left(range(most), -room, lo=1, key=lambda dropped: -len(without(dropped)))
        if dropped < most:
            return without(dropped)
        for kept in ([*first, newest], [newest]):
            listed = _listed(section, kept, left_out + len(lines) - len(kept))
            over = len(listed) - room
            if over <= 0:
                return listed
            if lengths and len(newest) - over >= lengths[-1]:
                text, event_id = without_id(newest)
                shortened = truncated(text, len(text) - over).replace("\n", " ") + event_id
                return _listed(section, [*kept[:-1], shortened], left_out + len(lines) - len(kept))
        return ""


def left_out(events: Iterable[Event], text: str) -> set[int]:
    """Return the ids of the events of which the digest ``text`` leaves out a line that ``events`` gave. It is empty if
    ``text`` is not a digest. Cost: the events, once.
    """
    if (digest := Digest.parse(text)) is None:
        return set()
    pairs = ((lines, digest.lines[of]) for of, lines in Digest.of(events).lines.items() if of not in _NAMES)
    return {each for given, kept in pairs for each in {*map(_id, given.values())}.difference(map(_id, kept.values()))}


_EARLIER = "Earlier summary"
_EARLIER_LEAST = 120
"""The number of characters that are kept for each earlier summary but the newest."""
_BETWEEN = "\n> "

_SECTIONS = {section.value: section for section in Section}
_TITLE = re.compile(r"# Digest of (\d+) events")
_LEFT_OUT = re.compile(r"- \((\d+) earlier left out\)")

_SHARES: Mapping[Section | str, float] = {
    Section.ORDERS: 0.25,
    Section.TASKS: 0.08,
    Section.ASKED: 0.2,
    Section.ERRORS: 0.06,
    Section.CHANGED: 0.06,
    Section.USED: 0.2,
    Section.SAID: 0.1,
    Section.RAN: 0.06,
    _EARLIER: 0.33,
    Section.MET: 0.1,
    Section.CALLED: 0.03,
    Section.READ: 0.02,
    Section.SHOWN: 0.02,
}
"""The share of a digest that is reserved for a section, the most important section first."""

_ROUNDS = ((1, 1), (2, 1.6), (1_000, 1.6), (1_000, 1_000))
"""How many times its share a section may have, and the section of requests: a long one takes only room that is left."""

_LENGTHS: Mapping[Section, Sequence[int]] = {
    Section.ORDERS: (300, 160),
    Section.ASKED: (2_000, 1_000, 500, 320, 240, 160),
    Section.SAID: (2_000, 1_000, 500, 300),
}
"""Lengths to which all lines but the newest are cut, in turn. If the shortest does not fit, lines are omitted."""

_FIRST_STAYS = frozenset((Section.ORDERS, Section.ASKED))
_NAMES = frozenset((Section.USED, Section.MET))

_CALLS = (Section.CHANGED, Section.RAN, Section.CALLED, Section.READ)
_CALLS_AFTER_ERROR = 30
"""An error is no longer open if this number of other calls came after it: the agent works on something else."""


def _id(line: str) -> int:
    event_id = without_id(line)[1]
    return int(event_id[2:-1]) if event_id else -1


def _listed(section: Section, lines: Sequence[str], left_out: int = 0) -> str:
    note = [f"({left_out} earlier left out)"] if left_out else []
    return "\n- ".join((f"\n\n## {section.value}", *note, *lines))


def _clipped(line: str, length: int) -> str:
    """Return the beginning of a line and its id, in at most ``length`` characters."""
    text, event_id = without_id(line)
    return clipped(text, length - len(event_id)) + event_id


def _named(section: Section, names: Sequence[str], room: int) -> str:
    """Return a section of names, the newest that fit, in one line for each event that has them last."""
    room -= len(_listed(section, ()))
    kept: dict[str, list[str]] = {}
    for name, event_id in map(without_id, reversed(names)):
        room -= len(name) + 1 + (0 if event_id in kept else len("\n-" + event_id))
        if room < 0:
            break
        kept.setdefault(event_id, []).append(name)
    lines = (" ".join(reversed(each)) + event_id for event_id, each in reversed(kept.items()))
    return _listed(section, tuple(lines)) if kept else ""


def _quoted(texts: Sequence[str], room: int) -> str:
    """Return earlier summaries in at most ``room`` characters: the newest whole if it fits beside the least of each
    older one, of the others the beginning and the end.
    """
    heading, quotes = f"\n\n## {_EARLIER}", list[str]()
    room -= len(heading) - len(_BETWEEN)  # before the first there is none
    for older in reversed(range(len(texts))):
        most = max(room // (older + 1), 0 if quotes else room - older * _EARLIER_LEAST)
        quotes.append(_quote(texts[older], most - len(_BETWEEN)))
        room -= len(quotes[-1]) + len(_BETWEEN)
    return heading + _BETWEEN.join(filter(None, reversed(quotes))) if any(quotes) else ""


def _quote(text: str, room: int) -> str:
    def cut(limit: int) -> str:
        return "".join(f"\n> {line}" for line in truncated(text, limit).splitlines() if line.strip())

    whole = cut(len(text))  # may be shorter than the text with a note on what little is left out
    limits = range(1, min(len(text), room) + 1)
    return whole if len(whole) <= room else cut(bisect_right(limits, room, key=lambda limit: len(cut(limit))))
