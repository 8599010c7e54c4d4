"""The steps before a call of the agent's model: they return the View to send, and append the
condensations that are due or that somebody requests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from foldlog._base.telemetry import span
from foldlog._history.log import HistoryLog
from foldlog.eventstore import (
    CondensationAction,
    CondensationRequest,
    ConversationNotFound,
    InvalidArgument,
    Recorded,
)
from foldlog.eventstore.arguments import check_text
from foldlog.projections import View

if TYPE_CHECKING:
    from foldlog.condensers import AgentModel, Condensation


class HistoryCondensing(HistoryLog):
    """The part of a ``History`` that condenses its View."""

    def prepare(self, llm: AgentModel | None = None, *, wait_s: float | None = None) -> View:
        """Take steps until a View can be sent, and return this View. A step appends a condensation
        if a condensation is due.

        ``llm`` is the model to which the View is sent. The default is ``agent_llm`` of the store.
        With any condenser, the View fits into the limit of ``llm``, and the messages of the View
        have the dialect of ``llm``. ``wait_s`` is how many seconds the calls of the condenser's own
        model may take together, for a limit shorter than its ``timeout_s`` (60 s). After this time,
        the condenser's model has failed, and a digest replaces its summary. If a requested
        condensation is impossible, the request is declined in the log, and the View is returned. If
        the agent requests a condensation again before its next turn, the prompt is assumed to be
        too long, and ``NoCondensationAvailable`` is raised. Raises the errors of ``step``, mainly
        ``NoCondensationAvailable`` if a condensation is required and impossible. Cost: the method
        reads the View, and the condenser may call a model.
        """
        from foldlog.condensers import NoCondensationAvailable

        with span("foldlog.prepare", conversation=self.id) as attributes, _waiting(wait_s):
            while True:
                try:
                    prepared = self.step(llm)
                except NoCondensationAvailable as error:
                    if not error.may_go_on:
                        raise
                else:
                    if isinstance(prepared, View):
                        attributes["view"] = prepared
                        return prepared

    def step(
        self, llm: AgentModel | None = None, *, wait_s: float | None = None
    ) -> View | Condensation:
        """Return the View to send to the agent's model, or a condensation that was due and is
        already appended. After a condensation, call ``step`` again.

        Many threads may step while other threads append. Raises the errors of
        ``foldlog.condensers.CondenseHandler.handle``, mainly ``NoCondensationAvailable`` if a
        condensation is required and impossible. ``llm`` is the model to which the View is sent, and
        ``wait_s`` limits the time of the condenser's model: see ``prepare``. Cost: the method reads
        the View, and the condenser may call a model.
        """
        try:
            with _waiting(wait_s):
                handler = self._histories._handler.reading(self._store, self._views)
                if llm is not None:
                    handler = handler.with_agent(llm)
                prepared = handler.handle(self.id, self._fence)
        except ConversationNotFound:
            prepared = View.from_events(())
        self._asked_at = self._shown_at = prepared.version if isinstance(prepared, View) else None
        if llm is None or not isinstance(prepared, View):
            return prepared
        return replace(prepared, dialect=getattr(llm, "dialect", "litellm"))

    def request_condensation(
        self, reason: str = "", *, idempotency_key: str | None = None
    ) -> Recorded:
        """Request a condensation. The attribute ``unhandled_condensation_request`` of the View is
        true until the next condensation. A call that is repeated with its ``idempotency_key``
        appends nothing more.
        """
        request = CondensationRequest(reason=check_text("reason", reason))
        (recorded,) = self.append(request, idempotency_key=idempotency_key)
        return recorded

    def condense(
        self, reason: str = "", *, idempotency_key: str | None = None
    ) -> View | Condensation:
        """Request a condensation, and take the step that fulfils the request. A call that is
        repeated with its ``idempotency_key`` condenses once, and then returns the View, or raises
        ``NoCondensationAvailable`` again.

        Raises ``InvalidCondenser`` (a ``ValueError``) if the condenser does not handle requests,
        and ``NoCondensationAvailable`` if the history is empty. In both cases, nothing is appended.
        Also raises the errors of ``step``.
        """
        self._histories._handler.check_handles_requests()
        if self.version() == 0:
            from foldlog.condensers import NoCondensationAvailable

            raise NoCondensationAvailable(
                f"conversation {self.id!r} has no events to condense; append its events first"
            )
        request = self.request_condensation(reason, idempotency_key=idempotency_key)
        if idempotency_key is not None:
            view = self.view()
            if not view.unhandled_condensation_request:
                self._raise_again(request.id)
                return view
        return self.step()

    def _raise_again(self, request_id: int) -> None:
        """Raise the error with which the condensation was declined that the event ``request_id``
        requested. Raise nothing if it was made.
        """
        for event in self.events(request_id + 1):
            if isinstance(event, CondensationAction):
                if event.metadata.get("outcome") == "declined":
                    from foldlog.condensers import NoCondensationAvailable

                    error = NoCondensationAvailable(str(event.metadata.get("reason")))
                    error.may_go_on = True  # the declined condensation closed the request
                    raise error
                return


def _waiting(wait_s: float | None) -> AbstractContextManager[None]:
    """Limit how long the condenser's model may take in a block: see ``prepare``."""
    from foldlog.condensers.models.deadline import within_s

    if wait_s is None:
        return nullcontext()
    if type(wait_s) not in (int, float) or not wait_s > 0:
        raise InvalidArgument(f"wait_s must be a number of seconds above 0, not {wait_s!r:.60}")
    return within_s(wait_s)
