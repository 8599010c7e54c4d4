"""The errors of the store, and what a caller does about each error.

    EventStoreError
    ├── VersionConflict        another writer appended first: read, decide, append again
    │   └── DocumentsChanged   another writer changed the document first: read it and try again
    ├── IdempotencyConflict    the key was used for other events: use a new key
    ├── HistoryDiverged        an imported history differs from the stored history: import it under
    │                          another id
    ├── ConversationNotFound   the store has no such conversation: check the id
    ├── ConversationErased     the conversation was erased on purpose, and only a tombstone is left
    ├── ConversationHasForks   forks need the events: erase the forks too, or detach them
    ├── StreamNotFound         the stream was deleted, or never existed: read the events
    ├── StreamConflict         another writer closed the stream, or appended to it: stop writing it
    ├── EventsNotMade          an imported conversation has records without events: open the store
    │                          with foldlog.open
    ├── InvalidEvent           the event breaks a rule, and nothing was written: correct the event
    ├── InvalidArgument        a number or a moment is out of range: pass a number in the range
    │   └── InvalidOption      an option or an address, such as a URL, is wrong: correct it
    ├── TooManyBytes           a View has more bytes than the caller allows: condense it, or read
    │                          the events by pages
    ├── CannotRedact           the event cannot be redacted, or a copy would bring redacted content
    │                          back: do what the message names
    ├── UnknownEventType       a newer version wrote an event that this version cannot fold: upgrade
    ├── CorruptEvent           stored bytes cannot be read: verify, then copy the undamaged events
    ├── StoreUnavailable       the database cannot be opened, read or written now: wait, or repair
    │                          what the message names
    └── StoreRefused           not a store, replaced, closed or read-only: waiting does not help
        ├── StoreDamaged       the database is damaged: verify, then restore a backup, or copy the
        │                      undamaged events
        └── KeyUnavailable     a conversation is encrypted, and its key is missing: pass the key

Each class of errors asks for a different reaction of the caller. A caller never gets the error of a
database driver. The driver's error is the ``__cause__`` of the store's error.

See docs/internals/decisions/0090-errors-that-pass.md.
"""

from __future__ import annotations

import json
from typing import Any, Literal

UnavailableKind = Literal[
    "full", "disk", "denied", "missing", "moved", "busy", "read", "away", "taken"
]
"""Why a store is unavailable:

- ``full``: the disk has no space
- ``disk``: reading, writing or syncing failed
- ``denied``: the user lacks permission, or the file system is read-only
- ``missing``: the file or its folder does not exist
- ``moved``: the open file was removed or renamed, or has a second name
- ``busy``: other writers hold the lock, or all connections are in use
- ``read``: a running read transaction still needs the bytes that should be removed
- ``away``: the server cannot be reached, or its settings could lose acknowledged events
- ``taken``: another writer used the version or the position first
"""

RefusedKind = Literal[
    "closed",
    "nested",
    "read_only",
    "refused",
    "replaced",
    "foreign",
    "schema",
    "damaged",
    "key",
    "archive",
]
"""Why a store is unusable:

- ``closed``: the store was closed
- ``nested``: this thread is inside a write to the store
- ``read_only``: the store was opened for reading only
- ``refused``: the database refuses a statement, or a limit of the database is reached
- ``replaced``: another file took the place of the store's file or log
- ``foreign``: the file or the database is not a store
- ``schema``: another version of foldlog made the store
- ``damaged``: the database is damaged, as ``StoreDamaged`` describes
- ``key``: a key is missing, as ``KeyUnavailable`` describes
- ``archive``: the object of an archived conversation is missing or was changed
"""


class EventStoreError(Exception):
    """The base of all errors of foldlog. If ``unfinished`` is true, a part of the work was done.
    The message names the finished part of the work. Every error can be copied and pickled with its
    attributes and notes.
    """

    unfinished = False

    def __str__(self) -> str:
        # A message may quote a text with a lone surrogate, which a terminal cannot print.
        return super().__str__().encode(errors="backslashreplace").decode()

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args), vars(self)


def _made_again(kind: type[EventStoreError], args: tuple[object, ...]) -> EventStoreError:
    """Rebuild an error from its message when the error is unpickled."""
    return kind.__new__(kind, *args)


class VersionConflict(EventStoreError):
    """Another writer appended first. Read the new events, decide again what to append, then append.
    If ``expected`` is 0, the id of the new conversation is taken: use another id. If ``expected``
    equals ``actual``, an event was redacted, or the conversation was begun again.
    """

    def __init__(self, conversation: str, expected: int, actual: int) -> None:
        if expected == actual:
            problem = (
                "is still at version {actual}, but an event was redacted, or the conversation was"
                " begun again, since it was read; read it again, then append"
            )
        elif expected == 0:
            problem = (
                "already exists, at version {actual}; use another id for a new conversation, or"
                " read this one and append to it"
            )
        else:
            problem = (
                "is at version {actual}, but the append expected version {expected}; read the new"
                " events, then append again"
            )
        super().__init__(
            f"conversation {conversation!r} " + problem.format(actual=actual, expected=expected)
        )
        self.conversation = conversation
        self.expected: int | None = expected
        self.actual = actual

    @property
    def is_redaction(self) -> bool:
        """Whether the version is the expected version. An event was redacted since the caller read
        it, or an erased conversation was begun again.
        """
        return self.expected == self.actual


class DocumentsChanged(VersionConflict):
    """Another writer changed a document first. Read the newest values and make the change again.
    ``expected`` is None, because no version was expected.
    """

    def __init__(self, conversation: str, name: str, actual: int) -> None:
        EventStoreError.__init__(
            self,
            f"conversation {conversation!r}: these changes are based on an old value of document"
            f" {name!r}; read the newest values and make the changes again",
        )
        self.conversation = conversation
        self.name = name
        self.expected = None
        self.actual = actual


class IdempotencyConflict(EventStoreError):
    """The idempotency key was used before for other events. Nothing was written: use a new key for
    new events.
    """

    def __init__(self, conversation: str, key: str, first_id: int) -> None:
        super().__init__(
            f"conversation {conversation!r} already has other events under idempotency key {key!r} "
            f"(from event {first_id} on); use a new key for new events"
        )
        self.conversation = conversation
        self.key = key
        self.first_id = first_id


class HistoryDiverged(EventStoreError):
    """A history differs from the history that was imported earlier under the same id. Nothing was
    written: import the new history under another id.
    """

    def __init__(
        self, conversation: str, event_id: int, version: int, *, redacted: bool = False
    ) -> None:
        if not redacted:
            problem = (
                f"differs from event {event_id} on: it is another conversation, or two copies"
                " of one store read the same source separately; copy the other history to a"
                " separate store"
            )
        else:
            problem = (
                f"has the content of event {event_id}, which was redacted in this store; the store"
                " refuses that content"
            )
        super().__init__(
            f"conversation {conversation!r} has {count(version, 'event')}, and the other"
            f" history {problem}"
        )
        self.conversation = conversation
        self.event_id = event_id
        self.version = version


class ConversationNotFound(EventStoreError):
    """The store has no conversation with the requested id. A conversation that does not exist has
    version 0, but reading its events raises ``ConversationNotFound``.
    """

    def __init__(self, conversation: str) -> None:
        super().__init__(
            f"this store has no conversation {conversation!r}; list the conversations to see"
            " their ids"
        )
        self.conversation = conversation


class ConversationErased(EventStoreError):
    """The conversation was erased on purpose. The store keeps only a tombstone of the conversation.
    ``Histories.create`` with ``replace_erased`` begins a new conversation with the id of an erased
    conversation. ``problem`` is the message without the remedy.
    """

    def __init__(
        self, conversation: str, erased_at: str, reason: str, *, is_replaced: bool = False
    ) -> None:
        when = f"{erased_at} ({reason or 'no reason given'})"
        self.problem = f"conversation {conversation!r} was erased at {when}; its events are gone"
        other = (
            f"a new conversation has this id now: to use it, get histories[{conversation!r}] again"
        )
        if is_replaced:
            remedy = other
        else:
            remedy = (
                "use another id, or begin a new conversation with this id (replace_erased=True)"
            )
        super().__init__(f"{self.problem}; {remedy}")
        self.conversation = conversation
        self.erased_at = erased_at
        self.reason = reason


class ConversationHasForks(EventStoreError):
    """Forks still need events of the conversation. Nothing was erased: erase the forks too, or
    detach the forks first. ``problem`` is the message without the remedy.
    """

    def __init__(self, conversation: str, forks: tuple[str, ...]) -> None:
        names = ", ".join(map(repr, forks[:10])) + (", …" if len(forks) > 10 else "")
        if len(forks) == 1:
            which = "a fork that needs"
        else:
            which = f"{len(forks)} forks that need"
        self.problem = (
            f"conversation {conversation!r} has {which} its events ({names}); nothing was erased"
        )
        remedy = (
            "erase the forks too (with_forks=True), or first copy the shared events into them"
            " (detach_forks=True)"
        )
        super().__init__(f"{self.problem}; {remedy}")
        self.conversation = conversation
        self.forks = forks


class StreamNotFound(EventStoreError):
    """The conversation has no such stream. A closed stream is deleted after a while; if it became a
    reply, the events of the reply have its content.
    """

    def __init__(self, conversation: str, stream: str) -> None:
        super().__init__(
            f"conversation {conversation!r} has no stream {stream}; if it was closed, it has been"
            " deleted, so read the events of the conversation"
        )
        self.conversation = conversation


class StreamConflict(EventStoreError):
    """A stream is not as its writer left it: it is open, closed, or another writer appended to it.
    Nothing was written. ``stream`` is the stream as it is.
    """

    def __init__(self, conversation: str, name: str, problem: str, stream: Any) -> None:
        super().__init__(
            f"conversation {conversation!r}: stream {name!r} {problem}; nothing was written"
        )
        self.conversation = conversation
        self.stream = stream


class EventsNotMade(EventStoreError):
    """Some events of the conversation are archived, or not made from its source yet. Open the store
    with ``foldlog.open``, which restores or makes the events. ``unmade`` is the number of records
    without events, and ``archived`` the number of archived events. One of them is 0.
    """

    def __init__(self, conversation: str, unmade: int, archived: int) -> None:
        if archived:
            problem = "is archived; open the store with foldlog.open, which restores it"
        else:
            problem = (
                f"has {count(unmade, 'imported record')} without events; open the store with"
                " foldlog.open, which makes the events"
            )
        super().__init__(f"conversation {conversation!r} {problem} at the first use")
        self.conversation = conversation
        self.unmade = unmade
        self.archived = archived


class InvalidEvent(EventStoreError, ValueError):
    """An event of the append breaks a rule. Nothing was written. Correct the event, then append all
    events again.
    """


class InvalidArgument(EventStoreError, ValueError):
    """The value of an argument is not allowed, for example an empty id, a number of more than 64
    bits, or a moment outside of the years 1970 to 9999. Nothing was done. The message names the
    argument.
    """


class TooManyBytes(EventStoreError):
    """The events of a View have more bytes than the caller allows (``views_up_to``), or the calls
    with their results (``is_of_calls``).
    """

    def __init__(self, conversation: str, bytes_max: int, *, is_of_calls: bool = False) -> None:
        if is_of_calls:
            problem = (
                f"the calls of conversation {conversation!r} and their results have more than"
                f" {bytes_max:,} bytes; read the events by pages"
            )
        else:
            problem = (
                f"the View of conversation {conversation!r} has more than {bytes_max:,} bytes of"
                " events; condense it, take events back, or read the events by pages"
            )
        super().__init__(problem)
        self.conversation = conversation
        self.bytes_max = bytes_max


class CannotRedact(EventStoreError):
    """The content of a single event cannot be erased, or a copy would bring erased content back to
    its target. Nothing was erased or brought back, and the message names the remedy.
    """


class InvalidOption(InvalidArgument):
    """An option or an address, such as a URL, is wrong, or needs a package that is not installed.
    Nothing was opened or written, and the message names the allowed values.
    """


class UnknownEventType(EventStoreError):
    """The caller needs an event of a type that this version of foldlog does not know. Upgrade
    foldlog, or correct the program that appended an object that is not an event.
    """

    def __init__(self, kind: str, schema_version: int, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind
        self.schema_version = schema_version


class CorruptEvent(EventStoreError):
    """An event cannot be read, because its stored bytes are damaged. Run ``foldlog store verify``,
    then ``foldlog store copy --damaged``.

    To continue after the damaged event, a follower passes ``position`` to ``follow``.
    """

    def __init__(
        self, conversation: str, event_id: int, problem: str, position: int | None = None
    ) -> None:
        super().__init__(
            f"conversation {conversation!r}, event {event_id}: {problem}; run 'foldlog store"
            " verify', then 'foldlog store copy --damaged'"
        )
        self.conversation = conversation
        self.event_id = event_id
        self.problem = problem
        self.position = position


class StoreUnavailable(EventStoreError):
    """The database cannot be opened, read or written now: the disk or the server fails, or another
    process holds a lock. When the disk or the server works again, or the lock is free, the same
    call on the open store succeeds. Acknowledged events are safe. The message names the remedy, and
    ``kind`` is the reason (``UnavailableKind``).
    """

    def __init__(self, message: str, *, kind: UnavailableKind) -> None:
        super().__init__(message)
        self.kind = kind


class StoreRefused(EventStoreError):
    """The store cannot be used, and waiting does not help. For example, the file was replaced, a
    newer version made the store, or the store is closed. Acknowledged events are safe. The message
    names the remedy, and ``kind`` is the reason (``RefusedKind``).
    """

    def __init__(self, message: str, *, kind: RefusedKind) -> None:
        super().__init__(message)
        self.kind = kind


class StoreDamaged(StoreRefused):
    """The database is damaged, but its undamaged parts can be read. Run ``foldlog store verify``,
    then restore a backup, or copy the undamaged events with ``foldlog store copy --damaged``.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="damaged")


class KeyUnavailable(StoreRefused):
    """A key is missing or malformed. Nothing was read or written: pass the key that the message
    names.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="key")


def count(number: int, singular: str, many: str | None = None) -> str:
    """Return a number with its noun, such as ``1 event`` or ``1,204 events``."""
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation of foldlog.

    If foldlog was installed from a checkout or a wheel, the command contains the path of the
    checkout or the wheel.
    """
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        recorded = distribution("foldlog").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    source = json.loads(recorded or "{}")
    url = urlsplit(source.get("url", ""))
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    place = unquote(url.path) if url.scheme == "file" else "foldlog"
    return f"pip install {editable}{shlex.quote(f'{place}[{extra}]')}"
