"""This module adds forgotten events to a digest, event by event. A digest is the same whether its
events are added at once or in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import islice
from posixpath import basename, isabs
from typing import NamedTuple

import msgspec

from foldlog._base.values import texts_in
from foldlog.condensers.prompts.rendering import arguments_of, clip_line, readable
from foldlog.condensers.selection import ids_named
from foldlog.condensers.strategies.digest.commands import (
    FileChange,
    covers,
    first_line,
    forget_commands,
    is_within,
    kinds_of_check,
    only_changes,
    post_by,
    staged_by,
    text_of_edit,
)
from foldlog.condensers.strategies.digest.facts import (
    CallOutcome,
    Deed,
    Section,
    deed_of,
    listing_of,
    one_line,
    outcome_of,
    task_list,
    task_made,
    words_in_call,
    words_in_refusal,
)
from foldlog.condensers.strategies.digest.names import definitions_in, is_file, names_in
from foldlog.condensers.strategies.user_words import (
    ERROR,
    answers_in,
    command_in,
    denial_in,
    edges_of,
    gist_of_output,
    git_status_in,
    is_cancelled,
    is_frame,
    is_plan_mode,
    of_user,
    orders_in,
    question_in,
    unwrap,
    without_lines,
    without_pasted,
    without_trace,
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

TITLE = "# Digest of "
AGENT_SAID = "the agent said"
REFUSED = "refused by the user: "
PLAN_MODE = "plan mode: write and edit nothing but the plan until the user approves it"
STATUS = "last git status"
_SAID_MAX = 3_000
_SHOWN_MAX = 160
_SUMMARY_MAX = 20_000
_STATUS_MAX = 1_000
_ENDING_MAX = 120
_DONE = ("completed", "done")
_PUSHED = " -> "
"""A part of git's line about a pushed branch."""
_THEN_CHANGED = "before the newest change"
_QUEUED = " (written while the agent worked)"
_PLANS = "/plans/"
_ANSWER_MAX = 30
"""A user's message of at most ``_ANSWER_MAX`` characters is shown with the question that it
answers. An agent's message of at most ``_ANSWER_MAX`` characters does not count as a report.
"""
_CALLS_AFTER_ERROR = 30
"""An error stays open for ``_CALLS_AFTER_ERROR`` further calls, because later the agent works on
something else.
"""
_OPENING = 60
"""Some runtimes show an example task first. The environment's first message is an example if the
user's request begins with the same ``_OPENING`` characters.
"""
OF_EXAMPLE = "in the example before the task"
_IN_ALL = 0.75
"""A line is in nearly all results if the share ``_IN_ALL`` of the results, and at least
``_IN_ALL_LEAST`` results, contain the line.
"""
_IN_ALL_LEAST = 4
_NAMES_MAX = 2_000
"""How many names are remembered. A digest of the default length has no room for more than this
number of names.
"""


class DigestLine(NamedTuple):
    """A line of a digest, and the id of its event. ``is_of_work`` is true if a later change of a
    file may make the line untrue. ``brief`` is a shorter text, for use if ``text`` is too long.
    """

    text: str
    event_id: int
    is_of_work: bool = False
    brief: str = ""


class ChangedFile(NamedTuple):
    """A file that the agent changed. ``deeds`` maps each kind of change to the number of such
    changes, with the kind of the newest change last.
    """

    deeds: Mapping[str, int]
    line: str
    event_id: int
    is_applied: bool = False
    committed_by: int | None = None


class NamePlace(NamedTuple):
    """The newest line with a name, and the id of its event. ``read`` names the file in which the
    name was read, or the command that showed the file. ``is_used`` is true if the user or the agent
    wrote the name.
    """

    line: str
    event_id: int
    is_used: bool
    read: str = ""


class OpenError(NamedTuple):
    """An error that no later call repaired. ``subject`` is the command or the file that failed.
    ``calls`` is the number of calls before the error.
    """

    text: str
    event_id: int
    subject: str
    calls: int


class _Pending(NamedTuple):
    deed: Deed
    event_id: int
    said: DigestLine | None = None


@dataclass(slots=True)
class Digest:
    """``lines`` maps each section to its lines by subject, with the oldest line first.

    A call is noted with its result, because the result shows what the call did. Some commands
    return a result before their output comes. For such a command, ``late`` maps its first line to
    the call, because a terminal repeats this line before the output. Once the output has come, the
    line maps to None.
    """

    count: int = 0
    newest: int = -1
    calls: int = 0
    lines: dict[Section, dict[str, DigestLine]] = field(
        default_factory=lambda: {section: {} for section in Section}
    )
    files: dict[str, ChangedFile] = field(default_factory=dict)
    staged: tuple[str, ...] = ()
    checks: dict[str, DigestLine] = field(default_factory=dict)
    errors: dict[str, OpenError] = field(default_factory=dict)
    names: dict[str, NamePlace] = field(default_factory=dict)
    results: dict[tuple[str, str], int] = field(default_factory=dict)
    """Maps a program and a line to the number of the program's results that have the line near
    their beginning or end. Results with an error are not counted. An empty program stands for all
    programs, and an empty line for all results.
    """
    opening: str = ""
    """The beginning of the environment's first message, or empty if a call came first. An example
    task begins like the user's request: see ``_OPENING``.
    """
    ran_program: bool = False
    tasks: dict[str, str] = field(default_factory=dict)
    edits: dict[int, int] = field(default_factory=dict)
    """Maps an edit (a hash of the file, the old text and the new text) to the id of its call."""
    late: dict[str, _Pending | None] = field(default_factory=dict)
    reported: bool = False
    """Whether the agent has reported its work. A later text of the agent may correct this report.
    """
    said: DigestLine | None = None
    _pending: dict[object, _Pending] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Digest:
        return cls().plus(events)

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
            results=self.results.copy(),
            edits=self.edits.copy(),
            late=self.late.copy(),
            # A call and its result are always forgotten together, so no call is pending.
            _pending={},
        )
        for event in events:
            digest._take(event)
        forget_commands()
        return digest

    def _take(self, event: Event) -> None:
        if isinstance(event, CondensationAction):
            self._take_condensation(event)
            return
        if isinstance(event, Annotation) and event.name == "queue-operation":
            self._take_queued_request(event)
        if not event.shown:
            return
        self.count += 1
        self.newest = event.id
        match event:
            case CondensationSummary():
                self._quote(event.id, event.content)
            case Message(source="user"):
                self._take_request(event)
            case Message(source="environment"):
                self._take_answer(event)
            case Message():
                self._say(words_of(event.content), event.id)
            case Annotation(origin=None):
                self._add_line(
                    Section.SHOWN, f"{event.name}: {readable(event.data)}", event.id, _SHOWN_MAX
                )
            case Action(source="user" | "environment", thought=""):
                return  # This event was not sent to a model.
            case Action():
                self._take_call(event)
            case Observation():
                self._take_result(event)
        self._remember_names(event)

    # --- messages ---

    def _take_condensation(self, event: CondensationAction) -> None:
        # The digest quotes the summaries of other condensers. If this condensation replaces quoted
        # summaries, its own summary is quoted instead of them.
        if event.summary is None or event.summary.startswith(TITLE):
            return
        quoted = self.lines[Section.EARLIER]
        ids = ids_named(event, [summary_id(line.event_id) for line in quoted.values()])
        self.lines[Section.EARLIER] = {
            subject: line
            for subject, line in quoted.items()
            if summary_id(line.event_id) not in ids
        }
        intervals = event.forgotten.intervals
        if intervals:
            about = f"(up to event {intervals[-1][1]}; what was open then may be done) "
        else:
            about = ""
        self._quote(event.id, event.summary, about)

    def _quote(self, event_id: int, text: str, about: str = "") -> None:
        if not text.startswith(TITLE):
            line = about + " / ".join(filter(str.strip, text.splitlines()))
            self._add_line(Section.EARLIER, line, event_id, _SUMMARY_MAX)

    def _take_queued_request(self, event: Annotation) -> None:
        # The user wrote this request while the agent worked. Claude Code puts such a request into a
        # result, or sends it later.
        if isinstance(event.data, dict):
            text = event.data.get("content")
        else:
            text = None
        request = one_line(of_user(text).asked) if isinstance(text, str) else ""
        if request:
            self._put(Section.ASKED, request, DigestLine(request + _QUEUED, event.id))

    def _take_request(self, event: Message) -> None:
        text = words_of(event.content)
        self._note_plan_mode(text, event.id)
        words = of_user(text)
        if self.opening and words.asked.startswith(self.opening):
            self._forget_example()
        self._note_request(words.asked, event.id)
        self._note_report(denial_in(words.asked), event.id)
        for shown in words.shown:
            self._add_line(Section.SHOWN, shown, event.id, _SHOWN_MAX)

    def _take_answer(self, event: Message) -> None:
        # If the agent's last text ended with a command, the message is the result of this command.
        text, command = command_in(self.said.text) if self.said else ("", "")
        if self.said and command:
            self.said = self.said._replace(text=text)
            call_id = self.said.event_id
            self._take_deed(deed_of("run", {"command": command}), call_id, call_id)
            self._take_result(Observation(id=event.id, content=event.content, cause=call_id))
            return
        words = of_user(words_of(event.content))
        if not self.calls and not self.opening and len(words.asked) >= _OPENING:
            self.opening = words.asked[:_OPENING]
        for shown in (gist_of_output(words.asked), *words.shown):
            self._add_line(Section.SHOWN, shown, event.id, _SHOWN_MAX)

    def _forget_example(self) -> None:
        # The names of files in the example stay.
        self.files = {
            path: file._replace(deeds={OF_EXAMPLE: 1}, line="", is_applied=False)
            for path, file in self.files.items()
        }
        self.lines = {section: {} for section in Section}
        self.errors = {}
        self.names = {}
        self.said = None
        self.opening = ""

    def _note_plan_mode(self, text: str, event_id: int) -> None:
        match is_plan_mode(text):
            case True:
                self._add_line(Section.ORDERS, PLAN_MODE, event_id)
            case False:
                self.lines[Section.ORDERS].pop(PLAN_MODE, None)

    def _note_request(self, text: str, event_id: int, before: str = "") -> None:
        request = one_line(without_pasted(text), len(text) + 100)
        if len(request) <= _ANSWER_MAX and self.said and (question := question_in(self.said.text)):
            request = (
                f"{request} (the agent had asked: {one_line(question)} [{self.said.event_id}])"
            )
        first = self.lines[Section.ASKED].get(request)
        if first and not first.text.endswith(_QUEUED):
            again = " (asked again)"
        else:
            again = ""
        if request:
            self._put(Section.ASKED, request, DigestLine(before + request + again, event_id))
        for order in orders_in(text):
            self._add_line(Section.ORDERS, order, event_id)

    def _say(self, text: str, event_id: int) -> None:
        if text.strip():
            self._keep_last_text(Section.SAID)
            self.said = DigestLine(text, event_id)

    def _keep_last_text(
        self, section: Section, before: str = "", length_max: int = _SAID_MAX
    ) -> None:
        if self.said and (words := one_line(before + self.said.text, length_max)):
            self._put(
                section, words, DigestLine(words, self.said.event_id, section is Section.REPORTED)
            )
        self.said = None

    def _note_report(self, denial: str, event_id: int) -> None:
        if self.said and self.calls and len(self.said.text) > _ANSWER_MAX:
            answered = f" (the user answered in [{event_id}])" if denial else ""
            self._keep_last_text(Section.REPORTED, f"{AGENT_SAID}{answered}: ")
            self.lines[Section.REPORTED].pop(_THEN_CHANGED, None)
            self.reported = True

    def _add_line(self, section: Section, text: str, event_id: int, length_max: int = 300) -> None:
        if line := one_line(text, length_max):
            self._put(section, line, DigestLine(line, event_id))

    def _put(self, section: Section, subject: str, line: DigestLine) -> None:
        lines = self.lines[section]
        lines.pop(subject, None)
        lines[subject] = line

    # --- calls ---

    def _take_call(self, event: Action) -> None:
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

    def _take_deed(self, deed: Deed | None, event_id: int, call_id: object) -> None:
        if deed is None:
            return
        pending = _Pending(deed, event_id, self.said)
        self._keep_last_text(Section.SAID)
        self.calls += 1
        self.errors = {name: error for name, error in self.errors.items() if self._is_recent(error)}
        self._pending[event_id] = self._pending[call_id or event_id] = pending

    def _is_recent(self, error: OpenError) -> bool:
        return self.calls - error.calls < _CALLS_AFTER_ERROR

    def _take_result(self, event: Observation) -> None:
        call = event.cause if event.cause in self._pending else event.call_id
        pending = self._pending.get(call)
        reason = words_in_refusal(event)
        if reason is not None:
            self._note_refusal(
                _refusal_of(pending.deed) if pending else REFUSED + event.tool, reason, event.id
            )
            return
        text = words_of(event.content)
        if answers := answers_in(text):
            self._note_request(answers, event.id)
            return
        if pending and is_cancelled(text):
            self._note_cancelled(pending.deed, event.id)
            return
        self._note_plan_mode(text, event.id)
        command = pending.deed.command if pending else ""
        event = self._without_earlier_output(event, command)
        text = words_of(event.content)
        program = _program_of(pending)
        outcome = outcome_of(
            event, command, lambda line: self._is_in_nearly_all(program, line), _is_edit(pending)
        )
        if not outcome.failed:
            self._count_lines(program, unwrap(text)[0])
        if task := task_made(text):
            self._take_tasks({**self.tasks, task: "pending"}, event.id)
        if pending is None:
            if outcome.error:
                self._open(one_line(event.tool), "", outcome, event.id)
            return
        deed = pending.deed
        self._note_call(deed, outcome, event.id)
        self._change_files(pending, outcome)
        if outcome.error:
            if deed.section is not Section.READ:  # A failed read or search is not an open error.
                self._open(deed.text, deed.command, outcome, event.id)
        elif outcome.is_proven:  # A search that finds nothing also counts as proven.
            self._close_errors(deed)
            self._note_finished_steps(deed, outcome, event.id)
            if deed.command and (status := git_status_in(text)):
                line = DigestLine(
                    f"{STATUS}: {one_line(deed.text, 80)} → {one_line(status, _STATUS_MAX)}",
                    event.id,
                )
                self._put(Section.BUILT, STATUS, line)
        else:
            late = pending._replace(deed=deed._replace(changes=()))
            self.late[first_line(deed.command)] = late
            self._note_finished_steps(deed, outcome, event.id)

    def _count_lines(self, program: str, text: str) -> None:
        for line in ("", *sorted(edges_of(text))):
            for place in dict.fromkeys((("", line), (program, line))):
                self.results[place] = self.results.pop(place, 0) + 1
        for place in list(islice(self.results, max(0, len(self.results) - _NAMES_MAX))):
            del self.results[place]

    def _is_in_nearly_all(self, program: str, line: str) -> bool:
        # A line in nearly all results comes from a wrapper, or is a permanent error of the shell or
        # the tool.
        for some in ("", program):
            count = self.results.get((some, line))
            if count is not None:
                total = self.results.get((some, ""), 0)
                if total and count >= max(_IN_ALL_LEAST, _IN_ALL * total):
                    return True
        return False

    def _without_earlier_output(self, event: Observation, command: str) -> Observation:
        # A terminal shows the output of an earlier command before it repeats ``command``. The
        # output of an earlier command is noted as the result of that command.
        text = words_of(event.content).lstrip()
        repeated = first_line(command)
        before, _, after = text.partition(repeated) if repeated else (text, "", "")
        late = [line for line in self.late if before.startswith(line)]
        for line in late:
            call = self.late[line]
            self.late[line] = None
            if call:
                self._pending[call.event_id] = call
                self._take_result(Observation(id=event.id, content=before, cause=call.event_id))
        if late:
            return msgspec.structs.replace(event, content=repeated + after)
        return event

    def _note_refusal(self, refused: str, words: str, event_id: int) -> None:
        if words:
            self._note_request(words, event_id, f"{refused}; the user said: ")
        else:
            self._add_line(Section.ORDERS, refused, event_id)

    def _note_cancelled(self, deed: Deed, event_id: int) -> None:
        if deed.section in (Section.RAN, Section.CALLED):
            line = DigestLine(f"{deed.text} → not run: a call beside it failed", event_id)
            self._put(deed.section, deed.text, line)

    def _note_call(self, deed: Deed, outcome: CallOutcome, event_id: int) -> None:
        # A call that changes a file is noted with the file instead.
        section = deed.section
        text = deed.text
        self.lines[section].pop(text, None)
        if not outcome.failed:
            self.lines[Section.ORDERS].pop(_refusal_of(deed), None)
        if section is Section.CHANGED or (outcome.error and section is Section.READ):
            return
        is_edit = bool(text_of_edit(deed.command))
        is_silent = outcome.is_proven and not outcome.failed and not outcome.last
        if (is_edit and outcome.changes) or (
            deed.changes and is_silent and only_changes(deed.command)
        ):
            return
        if section in (Section.RAN, Section.CALLED) or outcome.exit_code:
            ended = _describe_outcome(outcome)
        else:
            ended = f": {outcome.listing}" if outcome.listing and not deed.is_view else ""
        kinds = kinds_of_check(deed.command) if section is Section.RAN else set()
        self._put(section, text, DigestLine(text + ended, event_id, bool(kinds)))
        is_program = section is Section.RAN and not is_edit
        if is_program and outcome.is_proven and not deed.changes:
            self.ran_program = True
        for kind in kinds:
            self.checks[kind] = DigestLine(one_line(text, 80) + ended, event_id)

    def _change_files(self, call: _Pending, outcome: CallOutcome) -> None:
        # An edit that failed changed nothing. A command that failed may have changed files before
        # its failure.
        if outcome.error and call.deed.section is Section.CHANGED:
            return
        if self.reported and call.said and call.deed.section is Section.CHANGED:
            words = one_line(f"{AGENT_SAID} {_THEN_CHANGED}: {call.said.text}", _SAID_MAX)
            self._put(Section.REPORTED, _THEN_CHANGED, DigestLine(words, call.said.event_id))
        how = " by a command that failed" if outcome.failed else ""
        for change in (*call.deed.changes, *outcome.changes):
            deleted = [
                path
                for path in self.files
                if change.deed == "deleted" and is_within(path, change.path)
            ]
            for path in dict.fromkeys((*deleted, self._known_path(change.path))):
                before = self.files.pop(path, ChangedFile({}, "", call.event_id))
                deed = change.deed + how
                others = {name: times for name, times in before.deeds.items() if name != deed}
                deeds = {**others, deed: before.deeds.get(deed, 0) + 1}
                line = self._describe_change(change, call.event_id)
                self.files[path] = ChangedFile(deeds, line, call.event_id, outcome.is_applied)
                if _PLANS not in path:
                    # Such a change shows that plan mode has ended.
                    self.lines[Section.ORDERS].pop(PLAN_MODE, None)

    def _known_path(self, path: str) -> str:
        if path in self.files or isabs(path) or "/" not in path:
            return path
        matches = [whole for whole in self.files if whole.endswith(f"/{path}")]
        return matches[0] if len(matches) == 1 else path

    def _describe_change(self, change: FileChange, event_id: int) -> str:
        if not change.old and not change.new:
            return change.line
        taken_back = self.edits.get(hash((change.path, change.new, change.old)))
        self.edits[hash((change.path, change.old, change.new))] = event_id
        if taken_back is None:
            return change.line
        return f"takes back [{taken_back}]"

    def _open(self, text: str, command: str, outcome: CallOutcome, event_id: int) -> None:
        subject = command or text
        self.errors.pop(subject, None)
        self.errors[subject] = OpenError(f"{text} → {outcome.error}", event_id, subject, self.calls)

    def _close_errors(self, deed: Deed) -> None:
        # An edit of the open file also closes the errors of earlier edits of this file.
        changed = {change.path for change in deed.changes}
        new = [
            basename(change.path)
            for change in deed.changes
            if change.deed in ("written", "deleted")
        ]

        def is_cured(error: OpenError) -> bool:
            if error.subject in (deed.command, deed.text) or error.subject in changed:
                return True
            if error.text.startswith("`") and any(
                fnmatchcase(error.subject, f"*{name}*") for name in new
            ):
                return True
            if text_of_edit(deed.command) and text_of_edit(error.subject):
                return True
            return bool(deed.command) and covers(deed.command, error.subject)

        self.errors = {name: error for name, error in self.errors.items() if not is_cured(error)}

    def _note_finished_steps(self, deed: Deed, outcome: CallOutcome, event_id: int) -> None:
        # A server may have refused a request of ``curl``, so only a link in its output shows that
        # it was sent.
        self.staged += tuple(staged_by(deed.command))
        if outcome.commit:
            self._commit_files(event_id)
            self.lines[Section.BUILT].pop(STATUS, None)
            self._add_line(Section.BUILT, f"committed: {outcome.commit}", event_id)
        post = post_by(deed.command)
        is_known = outcome.exit_code == 0 or _PUSHED in outcome.last
        is_sent = outcome.link or (
            is_known and not post.startswith("curl") and not ERROR.search(outcome.last)
        )
        if post and is_sent:  # A command that ran twice is two steps, such as two comments.
            self.lines[Section.RAN].pop(deed.text, None)
            self.lines[Section.BUILT].pop(post, None)
            sent = post.partition(" http")[0] if outcome.link else post
            self._put(
                Section.BUILT,
                f"sent: {event_id}",
                DigestLine(f"sent: `{sent}`{_describe_outcome(outcome)}", event_id),
            )
        elif post and not outcome.last:
            line = f"not confirmed as sent: `{post}`{_describe_outcome(outcome)}"
            self._put(Section.BUILT, post, DigestLine(line, event_id))

    def _commit_files(self, event_id: int) -> None:
        for path, file in self.files.items():
            if file.committed_by is None and any(_is_staged(path, word) for word in self.staged):
                self.files[path] = file._replace(committed_by=event_id)
        self.staged = ()

    # --- names ---

    def _remember_names(self, event: Event) -> None:
        match event:
            case Action():
                for text in (words_of(event.thought), *texts_in(arguments_of(event))):
                    self._remember(names_in(text), event.id)
            case Message(source="environment"):
                text = without_trace(words_of(event.content))
                self._remember(names_in(text), event.id, is_used=False)
            case Message():
                self._remember(names_in(words_of(event.content)), event.id)
            case Observation():
                self._remember_names_in_result(event)
        for name in list(islice(self.names, max(0, len(self.names) - _NAMES_MAX))):
            del self.names[name]

    def _remember_names_in_result(self, event: Observation) -> None:
        pending = self._pending.get(event.cause) or self._pending.get(event.call_id)
        program = _program_of(pending)
        text = without_lines(
            without_trace(unwrap(words_of(event.content))[0]),
            lambda line: is_frame(line) or self._is_in_nearly_all(program, line),
        )
        is_read = pending is not None and pending.deed.section is Section.READ
        listing = ""
        read = ""
        if pending and pending.deed.section is not Section.CHANGED:
            read = one_line(pending.deed.text, 100)
            if not pending.deed.is_view:
                count = len(text.splitlines())
                listing = listing_of(text) if count > 1 else ""
                read += f" ({count} lines)" if count > 1 and not listing else ""

        def is_wanted(name: str) -> bool:
            return is_read or name in self.names or is_file(name)

        names = ((name, listing or line) for name, line in names_in(text, is_wanted))
        self._remember(names, event.id, read, is_used=False)
        if is_read:
            last_statement = " ".join([*self.lines[Section.SAID]][-1:])
            self._remember(definitions_in(text, last_statement), event.id, read)

    def _remember(
        self,
        names: Iterable[tuple[str, str]],
        event_id: int,
        read: str = "",
        *,
        is_used: bool = True,
    ) -> None:
        for name, line in names:
            before = self.names.pop(name, None)
            is_known = before is not None and before.is_used
            self.names[name] = NamePlace(line, event_id, is_used or is_known, read)


def _is_staged(path: str, word: str) -> bool:
    return word == "." or f"/{word.strip('/')}/" in f"/{path}/"


def _program_of(pending: _Pending | None) -> str:
    return "".join(pending.deed.command.split()[:1]) if pending else ""


def _is_edit(pending: _Pending | None) -> bool:
    return pending is not None and (
        pending.deed.section is Section.CHANGED or bool(text_of_edit(pending.deed.command))
    )


def _refusal_of(deed: Deed) -> str:
    change = "a change of " if deed.section is Section.CHANGED else ""
    return f"{REFUSED}{change}{one_line(deed.text, _SHOWN_MAX)}"


def _describe_outcome(outcome: CallOutcome) -> str:
    if not outcome.is_proven:
        return " → output not shown"
    code = "failed" if outcome.failed else ""
    if outcome.exit_code is not None:
        code = f"exit {outcome.exit_code}"
    last = outcome.link or outcome.listing or clip_line(outcome.last or "no output", _ENDING_MAX)
    return f" → {code}: {last}" if code else f" → {last}"
