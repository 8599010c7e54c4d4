"""This module classifies the failure of a model call, and removes secrets from the text of the
error.

Litellm raises about fifty kinds of errors. This module recognizes the errors of litellm by name and
status, without importing litellm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from foldlog._base.values import texts_in
from foldlog.condensers.errors import Failure, ModelCallFailed
from foldlog.condensers.prompts.rendering import clip_line

if TYPE_CHECKING:
    from foldlog.condensers.models.llm_config import LLMConfig

STUMBLES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors that litellm raises if a reply or a message is not in the format of a chat completion.
"""

_PASSING: frozenset[Failure] = frozenset({"timeout", "rate_limited", "unavailable", "bad_reply"})
"""The failures after which a retry may succeed. A retry never succeeds after a refusal, with a bad
key, or if the prompt is too long.
"""

_NO_KEY = re.compile(r"missing (credentials|\w+ api key)", re.IGNORECASE)
"""The text of litellm's error about a missing key. For some servers, litellm reports a missing key
as a server error.
"""

_REFUSED = {
    "ContentPolicyViolationError",
    "RejectedRequestError",
    "content_filter",
    "content_policy_violation",
}
"""The names of litellm's errors after which a model refused, and the codes of the servers' errors.
Newer versions of litellm raise a plain ``BadRequestError`` with the code.
"""

_HTTP_CLIENTS = {"aiohttp", "httpcore", "httpx"}

_TOO_LONG = re.compile(
    "context_?window_?exceeded|context[_ ]length[_ ]exceeded|context window exceed|exceeds the"
    " context window|exceed context limit|exceeds the available context size|maximum context"
    " length|maximum number of tokens|(prompt|input) is too long|input length and `max_tokens`"
    " exceed|reduce the length of the messages|too many tokens in the prompt|prompt token"
    " count|exceeds maximum allowed token|request[_ ]too[_ ]large|entity too large",
    re.IGNORECASE,
)


def is_context_window_error(error: BaseException) -> bool:
    """Return whether a model call failed because its prompt was too long, so that a condensation
    may help.

    The function knows ``ModelCallFailed``, the errors of litellm and OpenAI, and the error texts of
    servers. For a request that was rejected for another reason, the function returns False, because
    a condensation would not help.
    """
    if isinstance(error, ModelCallFailed):
        return error.failure == "context_window"
    if any(kind.__name__ == "ContextWindowExceededError" for kind in type(error).__mro__):
        return True
    if (
        getattr(error, "code", None) == "context_length_exceeded"
        or getattr(error, "status_code", None) == 413
    ):
        return True
    return _TOO_LONG.search(str(error)) is not None


def failure_of(error: BaseException) -> Failure:
    """Return the kind of a failed call. The checks go from the most special error to the most
    general one, because litellm reports many failures as errors of a more general class.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status_code", None)
    if is_context_window_error(error):
        return "context_window"
    if names & _REFUSED or getattr(error, "code", None) in _REFUSED:
        return "refused"
    if names & {"Timeout", "TimeoutError"} or status in {408, 504}:
        return "timeout"
    if status == 429:
        return "rate_limited"
    if _NO_KEY.search(str(error)):
        return "rejected"
    if isinstance(error, STUMBLES):
        return "bad_reply"
    is_package_missing = isinstance(error, ImportError)  # litellm imports a cloud's client late
    if is_package_missing or (isinstance(status, int) and status < 500):
        return "rejected"
    # Litellm raises a server error for a malformed reply, too. The cause of a real server error is
    # an error of the HTTP client.
    came_over_http = any(
        type(link).__module__.split(".")[0] in _HTTP_CLIENTS for link in chain_of(error)
    )
    return "unavailable" if came_over_http else "bad_reply"


def may_pass(error: ModelCallFailed) -> bool:
    # A retry cannot succeed after a reply that was cut off, or if no server listens at the address.
    cut_off = error.report.get("response", {}).get("finish_reason") == "length"
    return error.failure in _PASSING and not cut_off and not is_connection_refused(error)


def is_connection_refused(error: BaseException | None) -> bool:
    return any(isinstance(link, ConnectionRefusedError) for link in chain_of(error))


def asked_to_wait(error: BaseException | None) -> float:
    """Return how many seconds the server asked the client to wait, or 0 if it did not ask."""
    for link in chain_of(error):
        headers = getattr(getattr(link, "response", None), "headers", None) or {}
        try:
            return float(headers["retry-after"])
        except (KeyError, ValueError):  # The server did not ask to wait, or it gave a date.
            continue
    return 0.0


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    # An error that is raised again may be its own cause.
    visited = set[int]()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


# --- the words of an error ---

_PROBLEM_LENGTH_MAX = 500

_SECRET_LENGTH_MIN = 8
"""The minimum length of a secret. If shorter values were replaced, the text would lose common
words.
"""

_MAY_BE_A_KEY = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_IS_A_KEY = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
"""The names of environment variables that contain a key. Litellm may have sent any of these keys.
"""

_PASSWORD = re.compile(r"://[^/@\s]*:([^/@\s]+)@")


def problem_of(text: str) -> str:
    """Return the text of an error as one short line. If litellm put a traceback into the text, only
    the last line of the traceback stays. If a server returned a whole page, only the beginning of
    the page stays.
    """
    message, _, traceback = text.partition("Traceback (most recent call last):")
    last_line = "".join(traceback.strip().splitlines()[-1:])
    return clip_line(" ".join([*message.split(), *last_line.split()]), _PROBLEM_LENGTH_MAX)


def conceal_secrets(text: str, config: LLMConfig, key: str | None, *, in_error: bool) -> str:
    """Return a text with ``***`` in place of the secrets that a server may repeat. The secrets are
    the key that was sent, the password in the address, and the values of environment variables with
    names like ``…_KEY``.

    An error may repeat a whole request, so in an error ``***`` also replaces the texts in
    ``config.extra``, such as headers, and the value of each environment variable whose name
    contains ``key``, ``auth`` or a similar word. In a reply, these texts and values stay, because a
    reply must not lose any words.
    """
    names = _MAY_BE_A_KEY if in_error else _IS_A_KEY
    secrets = {
        key or "",
        *_PASSWORD.findall(config.base_url or ""),
        *(texts_in(config.extra) if in_error else ()),
    }
    secrets.update(value for name, value in os.environ.items() if names.search(name))
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SECRET_LENGTH_MIN:
            text = text.replace(secret, "***")
    return text
