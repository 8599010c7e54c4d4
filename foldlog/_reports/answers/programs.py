"""Answers of ``foldlog doctor`` and ``foldlog secrets``."""

from __future__ import annotations

from foldlog._reports.answers.document import Document, OfConversation


class ProgramDocument(Document):
    """A coding agent that ``foldlog doctor`` finds. ``not_here`` are the transcripts that are new
    or have changed since their last import. ``soon`` is the number of transcripts that the program
    deletes within a week. ``days_kept`` is the number of days after which the program deletes a
    transcript, or null if it deletes none. ``is_set_up`` says whether ``foldlog setup`` has written
    the hooks. ``problem`` is the reason why the settings of the
    program cannot be read.
    """

    program: str
    format: str
    problem: str | None
    is_set_up: bool
    hook_event: str | None
    hook_fired_at: str | None
    transcripts: int
    not_here: tuple[str, ...]
    days_kept: float | None
    soon: int


class DoctorDocument(Document):
    """The output of ``foldlog doctor``: the coding agents with settings on this machine."""

    programs: tuple[ProgramDocument, ...]


class SecretDocument(OfConversation):
    """An event that contains secrets, and the kinds of these secrets."""

    event: int
    kinds: tuple[str, ...]


class SecretsDocument(Document):
    """The output of ``foldlog secrets``. ``unread`` are the problems of conversations that could
    not be read.
    """

    secrets: tuple[SecretDocument, ...]
    unread: tuple[str, ...]
