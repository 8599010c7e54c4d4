"""Give the failure of a model call one of a few names.

litellm raises about fifty kinds of errors. They are told apart by name and status, so litellm is not imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from condensers.errors import Failure
from condensers.models.requests import is_context_window_error
from condensers.prompts.rendering import clipped

PASSING: frozenset[Failure] = frozenset({"timeout", "rate_limited", "unavailable", "bad_reply"})
"""Failures after which a retry may succeed. A refusal, a bad key and a prompt that is too long are not among them."""

STUMBLES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that litellm raises by mistake for a reply or a message that is not a chat completion."""

RETRY_WAIT_MAX_S = 60.0
"""The longest wait between two attempts, even if a server asks for more."""

PROBLEM_LENGTH_MAX = 500

_REFUSALS = {"ContentPolicyViolationError", "RejectedRequestError"}
_NO_KEY = re.compile(r"missing (credentials|\w+ api key)", re.IGNORECASE)
"""The words of litellm for a missing key; for some servers it raises a server error with them."""

_HTTP_CLIENTS = {"aiohttp", "httpcore", "httpx"}


def failure_of(error: BaseException) -> Failure:
    """Return the failure that this error of litellm stands for."""
    names = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status_code", None)
    if is_context_window_error(error):
        return "context_window"
    if names & _REFUSALS:
        return "refused"
    if names & {"Timeout", "TimeoutError"} or status in {408, 504}:
        return "timeout"
    if status == 429:
        return "rate_limited"
    if _NO_KEY.search(str(error)):
        return "rejected"
    if isinstance(error, STUMBLES):
        return "bad_reply"
    if isinstance(error, ImportError) or (isinstance(status, int) and status < 500):
        return "rejected"  # an import error: the package of a cloud's client is missing
    # litellm calls a malformed reply a server error too; behind a real one stands an error of its HTTP client.
    came_over_http = any(type(link).__module__.split(".")[0] in _HTTP_CLIENTS for link in chain_of(error))
    return "unavailable" if came_over_http else "bad_reply"


def is_connection_refused(error: BaseException | None) -> bool:
    """Return whether no server listens at the address. There is no retry: the next step may find one."""
    return any(isinstance(link, ConnectionRefusedError) for link in chain_of(error))


def problem_of(text: str) -> str:
    """Return an error's text as a line of at most ``PROBLEM_LENGTH_MAX`` characters. Of a traceback that litellm puts
    into its errors only the last line stays, and of a page that a server sends only the beginning.
    """
    said, _, traceback = text.partition("Traceback (most recent call last):")
    last_line = "".join(traceback.strip().splitlines()[-1:])
    return clipped(" ".join([*said.split(), *last_line.split()]), PROBLEM_LENGTH_MAX)


def asked_to_wait(error: BaseException | None) -> float:
    """Return for how many seconds the server asked to wait, at most ``RETRY_WAIT_MAX_S``; 0 if it did not ask."""
    for link in chain_of(error):
        headers = getattr(getattr(link, "response", None), "headers", None) or {}
        try:
            return min(float(headers["retry-after"]), RETRY_WAIT_MAX_S)
        except (KeyError, ValueError):  # not asked, or asked with a date
            continue
    return 0.0


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that caused it, each once: an error that is raised again may be its own cause."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
