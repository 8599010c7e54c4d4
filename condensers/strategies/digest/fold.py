"""This module adds forgotten events to a digest, event by event. A digest is the same whether its
events are added at once or in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import sqrt
from typing import NamedTuple

from foldlog._base.values import texts_in
from foldlog.condensers.prompts.rendering import arguments_of, clip_line
from foldlog.condensers.selection import ids_named
from foldlog.condensers.strategies.digest.commands import (
    covers,
    forget_commands,
    kinds_of_check,
    sends,
)
from foldlog.condensers.strategies.digest.facts import (
    CallOutcome,
    Deed,
    Section,
    deed_of,
    one_line,
    outcome_of,
    task_list,
    task_made,
    words_in_call,
)
from foldlog.condensers.strategies.digest.names import is_file, names_in, words_in
from foldlog.condensers.strategies.digest.order import in_order_of_calls
from foldlog.condensers.strategies.digest.rare import WordCounts
from foldlog.condensers.strategies.user_words import (
    SENTENCE_END,
    answers_in,
    is_frame,
    of_user,
    question_in,
    unwrap,
    without_pasted,
)
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
    summary_id,
)
from foldlog.projections import words_of
from foldlog.projections.refusals import words_in_refusal

TITLE = "# Digest of "
BETWEEN = "\n\n"
"""What is between a model's summary and the digest below it."""
_SAID_MAX = 3_000
_SHOWN_MAX = 160
_SUMMARY_MAX = 20_000
_ENDING_MAX = 120
_DONE = ("completed", "done")
_QUEUED = " (written while the agent worked)"
_ANSWER_MAX = 30
"""A user's message of at most ``_ANSWER_MAX`` characters is shown with the question that it
answers. An agent's message of at most ``_ANSWER_MAX`` characters does not count as a report.
"""
_ERRORS_MAX = 10
"""How many open errors are remembered. Each later success is compared with all of them."""
_NAMES_MAX = 2_000
"""How many names are remembered. A digest of the default length has no room for more than this
number of names.
"""


class DigestLine(NamedTuple):
    """A line of a digest, and the id of its event. ``is_of_work`` is true if a later change of a
    file may make the line untrue. ``ranked`` has the places of the sentences of a text that the
    user or the agent wrote, in the order in which a cut line keeps them.
    """

    text: str
    event_id: int
    is_of_work: bool = False
    ranked: tuple[int, ...] = ()


class ChangedFile(NamedTuple):
    """A file that the agent changed. ``deeds`` maps each kind of change to the number of such
    changes, with the kind of the newest change last.
    """

    deeds: Mapping[str, int]
    line: str
    event_id: int


class NamePlace(NamedTuple):
    """The newest line with a name, and the id of its event. ``is_used`` is true if the user or the
    agent wrote the name.
    """

    line: str
    event_id: int
    is_used: bool


@dataclass(slots=True)
class Digest:
    """``lines`` maps each section to its lines by subject, with the oldest line first.

    A call is noted with its result, because the result shows what the call did. The results of
    parallel calls are noted in the order of their calls.
    """

    count: int = 0
    newest: int = -1
    has_calls: bool = False
    lines: dict[Section, dict[str, DigestLine]] = field(
        default_factory=lambda: {section: {} for section in Section}
    )
    files: dict[str, ChangedFile] = field(default_factory=dict)
    checks: dict[str, DigestLine] = field(default_factory=dict)
    errors: dict[str, DigestLine] = field(default_factory=dict)
    names: dict[str, NamePlace] = field(default_factory=dict)
    words: WordCounts = field(default_factory=WordCounts)
    tasks: dict[str, str] = field(default_factory=dict)
    said: DigestLine | None = None
    log_ids: dict[int, int] = field(default_factory=dict)
    """The ids in the log of the results that came in another order than their calls, by the ids
    that the lines have.
    """
    _pending: dict[object, Deed] = field(default_factory=dict)

    def plus(self, events: Iterable[Event]) -> Digest:
        """Return the digest with further events. Cost: the method copies the lines of the digest,
        and makes a pass over ``events``.
        """
        digest = replace(
            self,
            lines={section: lines.copy() for section, lines in self.lines.items()},
            files=self.files.copy(),
            checks=self.checks.copy(),
            errors=self.errors.copy(),
            names=self.names.copy(),
            words=self.words.copy(),
            log_ids=self.log_ids.copy(),
            # A call and its result are always forgotten together, so no call is pending.
            _pending={},
        )
        for event, log_id in in_order_of_calls(events):
            if event.id != log_id:
                digest.log_ids[event.id] = log_id
            digest._take(event)
        forget_commands()
        return digest

    def _take(self, event: Event) -> None:
        """Note the next event of the log."""
        if isinstance(event, CondensationAction):
            self._take_condensation(event)
            return
        if isinstance(event, Annotation) and event.name == "queue-operation":
            self._take_queued_request(event)
        if not event.shown:
            return
        self.count += 1
        self.newest = max(self.newest, self.log_ids.get(event.id, event.id))
        match event:
            case CondensationSummary():
                self._quote(event.id, event.content)
            case Message(source="user"):
                self._take_request(event)
            case Message(source="agent"):
                self._say(words_of(event.content), event.id)
            case Action(source="user" | "environment", thought=""):
                return  # This event was not sent to a model.
            case Action():
                self._take_call(event)
            case Observation():
                self._take_result(event)
        self._remember_names(event)

    # --- messages ---

    def _take_condensation(self, event: CondensationAction) -> None:
        """Quote the summary of another condenser. It takes the place of the quoted summaries that
        its condensation replaces.
        """
        if event.summary is None or event.summary.startswith(TITLE):
            return
        quoted = self.lines[Section.EARLIER]
        ids = ids_named(event, [summary_id(line.event_id) for line in quoted.values()])
        self.lines[Section.EARLIER] = {
            subject: line
            for subject, line in quoted.items()
            if summary_id(line.event_id) not in ids
        }
        self._quote(event.id, event.summary)

    def _quote(self, event_id: int, text: str) -> None:
        if not text.startswith(TITLE):
            line = " / ".join(filter(str.strip, without_digest(text).splitlines()))
            self._add_line(Section.EARLIER, line, event_id, _SUMMARY_MAX)

    def _take_queued_request(self, event: Annotation) -> None:
        """Note a request that the user wrote while the agent worked. Claude Code puts such a
        request into a result, or sends it later.
        """
        match event.data:
            case {"content": str(text)}:
                if request := one_line(of_user(text)):
                    self._put(Section.ASKED, request, DigestLine(request + _QUEUED, event.id))

    def without_shown_requests(self, shown: Iterable[Event]) -> Digest:
        """Return the digest without the waiting requests that are a text or a line of an event of
        ``shown``: the program has sent the request since, and the View shows it.
        """
        asked = self.lines[Section.ASKED]
        waiting = {request for request, line in asked.items() if line.text.endswith(_QUEUED)}
        if not waiting:
            return self
        texts = [
            words_of(event.content) for event in shown if isinstance(event, Message | Observation)
        ]
        lines = {one_line(line) for text in texts for line in (text, *text.splitlines())}
        unsent = {
            request: line for request, line in asked.items() if request not in waiting & lines
        }
        return replace(self, lines={**self.lines, Section.ASKED: unsent})

    def below(self, text: str) -> Digest:
        """Return the digest without what a summary above it says: ``text`` takes the place of
        earlier summaries, and its names and lines need not be said twice.
        """
        words = words_in(text)
        lines = {
            section: {subject: line for subject, line in lines.items() if line.text not in text}
            for section, lines in self.lines.items()
        }
        return replace(
            self,
            lines={**lines, Section.EARLIER: {}},
            names={name: stood for name, stood in self.names.items() if name not in words},
        )

    def _take_request(self, event: Message) -> None:
        """Note a request. The text before it, with which the agent ended its work, is a report: it
        is kept longer than what the agent says between its calls.
        """
        self._note_request(of_user(words_of(event.content)), event.id)
        if self.said and self.has_calls and len(self.said.text) > _ANSWER_MAX:
            self._keep_last_text(Section.REPORTED)

    def _note_request(self, text: str, event_id: int, before: str = "") -> None:
        """Note a request of the user. ``before`` is written before its text."""
        request = one_line(without_pasted(text), len(text) + 100)
        if not request:
            return  # Nothing is left of a command that the user ran in the program's shell.
        if len(request) <= _ANSWER_MAX and self.said and (question := question_in(self.said.text)):
            request = (
                f"{request} (the agent had asked [{self.said.event_id}]: {one_line(question)})"
            )
        line = DigestLine(before + request, event_id)
        self._put(Section.ASKED, request, self._ranked(line))

    def _say(self, text: str, event_id: int) -> None:
        if text.strip():
            self._keep_last_text(Section.SAID)
            self.said = DigestLine(text, event_id)

    def _keep_last_text(self, section: Section) -> None:
        if self.said and (words := one_line(self.said.text, _SAID_MAX)):
            line = DigestLine(words, self.said.event_id, section is Section.REPORTED)
            self._put(section, words, self._ranked(line))
        self.said = None

    def _ranked(self, line: DigestLine) -> DigestLine:
        """Return a line with the places of its sentences, the rarest first. Several short sentences
        say more than one long sentence of the same room.
        """
        # A prohibition is often short, in words that are not rare.
        sentences = SENTENCE_END.split(line.text)
        rarities = self.words.rarities(sentences)
        ranks = [
            rarity / sqrt(len(sentence) + 1)
            for sentence, rarity in zip(sentences, rarities, strict=True)
        ]
        places = sorted(range(len(ranks)), key=ranks.__getitem__, reverse=True)
        return line._replace(ranked=tuple(places))

    def _add_line(self, section: Section, text: str, event_id: int, length_max: int = 300) -> None:
        if line := one_line(text, length_max):
            self._put(section, line, DigestLine(line, event_id))

    def _put(self, section: Section, subject: str, line: DigestLine) -> None:
        lines = self.lines[section]
        lines.pop(subject, None)
        lines[subject] = line

    # --- calls ---

    def _take_call(self, event: Action) -> None:
        """Note a call: its texts, its tasks and what it does."""
        arguments = arguments_of(event)
        if event.source == "agent":
            self._say(words_of(event.thought), event.id)
        for text in words_in_call(arguments):
            self._say(text, event.id)
        if (tasks := task_list(arguments)) is not None:
            self._take_tasks(tasks, event.id)
        for name in self.tasks:
            if name.startswith(f"{arguments.get('taskId')}: ") and "status" in arguments:
                self._take_tasks({**self.tasks, name: str(arguments["status"])}, event.id)
        self._take_deed(deed_of(event.tool, arguments), event.id, event.call_id)

    def _take_tasks(self, tasks: dict[str, str], event_id: int) -> None:
        """Note the present tasks with their statuses, and those that are done now."""
        for name, status in tasks.items():
            if status not in _DONE:
                self.lines[Section.BUILT].pop(one_line(f"task done: {name}"), None)
            elif self.tasks.get(name, "") not in _DONE:
                self._add_line(Section.BUILT, f"task done: {name}", event_id)
        self.tasks = tasks
        self.lines[Section.TASKS] = {
            name: DigestLine(f"[{status}] {name}", event_id)
            for name, status in tasks.items()
            if status not in _DONE
        }

    def _take_deed(self, deed: Deed | None, event_id: int, call_id: str | None = None) -> None:
        """Note what a call does, until its result comes."""
        if deed is None:
            return
        self._keep_last_text(Section.SAID)
        self.has_calls = True
        deed = deed._replace(event_id=event_id)
        self._pending[event_id] = self._pending[call_id or event_id] = deed

    def _take_result(self, event: Observation) -> None:
        """Note the result of a call: a refusal, answers of the user, or how the call ended."""
        deed = self._deed_of(event)
        reason = words_in_refusal(event)
        if reason is not None:
            self._note_refusal(_describe_refused(deed) if deed else event.tool, reason, event.id)
            return
        text = words_of(event.content)
        if answers := answers_in(text):
            self._note_request(answers, event.id)
            return
        if task := task_made(text):
            self._take_tasks({**self.tasks, task: "pending"}, event.id)
        outcome = outcome_of(event, deed.command if deed else "")
        if deed is None:
            if outcome.error:
                self._open(one_line(event.tool), event.tool, outcome, event.id)
            return
        self._note_call(deed, outcome, event.id)
        if not outcome.error:
            self._note_finished_steps(deed, outcome, event.id)
        elif deed.section is not Section.READ:  # A failed read or search is not an open error.
            self._open(deed.text, deed.command or deed.text, outcome, event.id)

    def _deed_of(self, event: Observation) -> Deed | None:
        return self._pending.get(event.cause) or self._pending.get(event.call_id)

    def _note_refusal(self, refused: str, words: str, event_id: int) -> None:
        if words:
            self._note_request(words, event_id, f"refused by the user: {refused}; the user said: ")
        else:
            self._add_line(Section.REFUSED, refused, event_id)

    def _note_call(self, deed: Deed, outcome: CallOutcome, event_id: int) -> None:
        """Note a call that has ended, the files that it changed and the checks that it ran."""
        section = deed.section
        text = deed.text
        self.lines[section].pop(text, None)
        if not outcome.failed:
            self.lines[Section.REFUSED].pop(_describe_refused(deed), None)
        if not outcome.error:  # An edit that failed changed nothing.
            self._change_files(deed)
        if section is Section.CHANGED or (outcome.error and section is Section.READ):
            return
        if section in (Section.RAN, Section.CALLED) or outcome.exit_code:
            ended = _describe_outcome(outcome)
        else:
            ended = ""
        self._put(section, text, DigestLine(text + ended, event_id))
        for kind in kinds_of_check(deed.command) if section is Section.RAN else ():
            words = f"last {kind}: {one_line(text, 80)}{ended}"
            self.checks[kind] = DigestLine(words, event_id, is_of_work=True)

    def _change_files(self, deed: Deed) -> None:
        """Note the changes of files by a call."""
        for change in deed.changes:
            before = self.files.pop(change.path, ChangedFile({}, "", deed.event_id)).deeds
            others = {other: times for other, times in before.items() if other != change.deed}
            deeds = {**others, change.deed: before.get(change.deed, 0) + 1}
            self.files[change.path] = ChangedFile(deeds, change.line, deed.event_id)

    def _open(self, text: str, subject: str, outcome: CallOutcome, event_id: int) -> None:
        self.errors.pop(subject, None)
        self.errors[subject] = DigestLine(f"{text} → {outcome.error}", event_id)
        if len(self.errors) > _ERRORS_MAX:
            del self.errors[next(iter(self.errors))]

    def _note_finished_steps(self, deed: Deed, outcome: CallOutcome, event_id: int) -> None:
        """Note what a call has finished: repaired errors, a commit, and something that was sent."""
        if outcome.is_proven:
            repaired = {deed.command or deed.text, *(change.path for change in deed.changes)}
            self.errors = {
                subject: error
                for subject, error in self.errors.items()
                if subject not in repaired and not (deed.command and covers(deed.command, subject))
            }
        if outcome.commit:
            self._add_line(Section.BUILT, f"committed: {outcome.commit}", event_id)
        if sends(deed.command):
            # A command that ran twice is two steps, such as two comments.
            self.lines[Section.RAN].pop(deed.text, None)
            line = DigestLine(f"ran: {deed.text}{_describe_outcome(outcome)}", event_id)
            self._put(Section.BUILT, f"ran: {event_id}", line)

    # --- names ---

    def _remember_names(self, event: Event) -> None:
        """Remember the names in an event, such as those of files. Only the newest names stay."""
        match event:
            case Action():
                for text in (words_of(event.thought), *texts_in(arguments_of(event))):
                    self._remember(names_in(text), event.id)
            case Message(source="environment"):
                self._remember(names_in(words_of(event.content)), event.id, is_used=False)
            case Message():
                self._remember(names_in(of_user(words_of(event.content))), event.id)
            case Observation():
                self._remember_names_in_result(event)
        remembered: dict[str, NamePlace] | dict[str, DigestLine]
        for remembered in (self.names, self.lines[Section.RARE]):
            for subject in list(islice(remembered, max(0, len(remembered) - _NAMES_MAX))):
                del remembered[subject]

    def _remember_names_in_result(self, event: Observation) -> None:
        """Remember the names in a result that are read, known or names of files, and its passages
        with rare words.
        """
        deed = self._deed_of(event)
        lines = unwrap(words_of(event.content))[0].splitlines()
        text = "\n".join(line for line in lines if not is_frame(" ".join(line.split())))
        is_read = deed is not None and deed.section is Section.READ

        def is_wanted(name: str) -> bool:
            return is_read or name in self.names or is_file(name)

        self._remember(names_in(text, is_wanted), event.id, is_used=False)
        for passage in self.words.rare_passages(text):
            self._add_line(Section.RARE, passage, event.id)

    def _remember(
        self, names: Iterable[tuple[str, str]], event_id: int, *, is_used: bool = True
    ) -> None:
        for name, line in names:
            before = self.names.pop(name, None)
            is_known = before is not None and before.is_used
            self.names[name] = NamePlace(line, event_id, is_used or is_known)


def without_digest(summary: str) -> str:
    return summary.partition(f"{BETWEEN}{TITLE}")[0]


def _describe_refused(deed: Deed) -> str:
    change = "a change of " if deed.section is Section.CHANGED else ""
    return f"{change}{one_line(deed.text, _SHOWN_MAX)}"


def _describe_outcome(outcome: CallOutcome) -> str:
    if not outcome.is_proven:
        return " → output not shown"
    code = "failed" if outcome.failed else ""
    if outcome.exit_code is not None:
        code = f"exit {outcome.exit_code}"
    last = clip_line(outcome.last or "no output", _ENDING_MAX)
    return f" → {code}: {last}" if code else f" → {last}"
