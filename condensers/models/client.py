"""This module calls language models for condensers, and counts tokens for budgets. Only this module
imports litellm.

The import of litellm takes three seconds and 250 MB of memory, so litellm is imported at the first
call of a model, or at the first count that ``counting.py`` cannot make. This module turns some
features of litellm off: downloads of its price list and of tokenizers, loading of a ``.env`` file,
and output to stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._base.telemetry import span
from foldlog._base.values import named_in
from foldlog.condensers.errors import InvalidCondenser, ModelCallFailed, TokensUnknown
from foldlog.condensers.models.counting import count_at_most, count_prompt, encoding_of
from foldlog.condensers.models.deadline import abandoned_after, seconds_left, within_s
from foldlog.condensers.models.failures import (
    STUMBLES,
    asked_to_wait,
    chain_of,
    conceal_secrets,
    failure_of,
    is_connection_refused,
    may_pass,
    problem_of,
)
from foldlog.condensers.models.limits import lookup
from foldlog.condensers.models.llm_config import LLMConfig
from foldlog.condensers.models.replies import (
    check_reply,
    reply_of,
    report_on,
    request_for,
    sendable,
)
from foldlog.condensers.models.tokens import TokenCounter
from foldlog.condensers.reply import Reply
from foldlog.condensers.reports import Usage
from foldlog.eventstore.errors import install_command
from foldlog.projections import Dialect, View

_NOT_CALLED = {"metrics": {"attempts": 0}}
"""The metrics of a call that was never sent."""

_GRACE_S = 1.0
"""How many seconds a call may run longer than its timeout. The HTTP client usually reports the
timeout first, with a better message.
"""

_DOWNLOADED_TOKENIZERS = ("command-r", "llama-2", "llama-3", "replicate")
"""If the name of a model contains one of these texts, litellm would download the tokenizer of this
model.
"""

_TRANSLATED = frozenset(
    {
        "anthropic",
        "azure_ai",
        "bedrock",
        "databricks",
        "gemini",
        "litellm_proxy",
        "vertex_ai",
        "vertex_ai_beta",
        "bedrock_converse",
        "sagemaker",
        "sagemaker_chat",
        "vertex_ai-anthropic_models",
    }
)
"""Litellm, or its proxy, translates messages with thinking blocks for these providers."""


def dialect_of_model(model: str) -> Dialect:
    """Return ``litellm`` if litellm translates the messages of a model, and otherwise ``openai``.

    If litellm does not translate the messages, the server refuses fields that OpenAI's chat
    completions do not have. The dialect ``openai`` works for every model, but does not send the
    model's thinking back to the model.
    """
    provider, slash, _ = model.partition("/")
    if slash:
        return "litellm" if provider in _TRANSLATED else "openai"
    if any(maker in model for maker in ("claude", "gemini")):
        return "litellm"
    return "openai"


class LLM(TokenCounter):
    """A model for the texts of condensers and the token counts of budgets. Many threads may use a
    single ``LLM`` object.

    The constructor raises ``InvalidCondenser`` if litellm is not installed, or if ``api_key_env``
    names a variable that is not set.
    """

    def __init__(self, config: LLMConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
        if find_spec("litellm") is None:  # Raise this error before any work that needs litellm.
            raise InvalidCondenser(
                f"model: {config.model!r} needs litellm; install it with: {install_command('llm')}"
            )
        super().__init__(self._counted)
        self._bounds = TokenCounter(count_at_most)
        self.config = config
        self.model = config.model
        self.timeout_s = config.timeout_s
        self._key = config.key()
        self._sleep = sleep
        self._fallbacks = tuple(LLM(fallback, sleep=sleep) for fallback in config.fallbacks)

    def __repr__(self) -> str:
        return f"LLM({self.config!r})"

    # --- completions ---

    @property
    def supports_function_calling(self) -> bool:
        return self._supports(self.config.function_calling, "supports_function_calling")

    @property
    def supports_response_schema(self) -> bool:
        return self._supports(self.config.response_schema, "supports_response_schema")

    def _supports(self, setting: bool | None, feature: str) -> bool:
        if setting is not None:
            return setting
        is_known = (_entry(self.model) or {}).get(feature) is True
        return is_known or bool(getattr(_litellm(), feature)(self.model))

    def complete(
        self,
        messages: Sequence[JsonMap],
        *,
        tools: Sequence[JsonMap] = (),
        tool_choice: str | None = None,
        response_schema: JsonMap | None = None,
    ) -> Reply:
        """Ask this model, and then its fallbacks, for a usable reply to ``messages``. A truncated,
        filtered or empty reply is not usable. The model retries a failed call.

        ``usage``, ``cost``, ``latency_s`` and ``attempts`` of the reply are sums over all attempts.
        Raises ``ModelCallFailed``, with the failure of the first model, if no model gives a usable
        reply in time. If the wait before a retry is longer than the remaining time, the model does
        not retry. The remaining fallbacks share the remaining time.

        This method does not use the retries and fallbacks of litellm. Litellm accepts an unusable
        reply and does not return the cost of failed attempts.
        """
        _litellm()  # The import may take seconds, which must not count as the time of the step.
        request = request_for(messages, tools, tool_choice, response_schema)
        spent = Usage()
        failures = list[ModelCallFailed]()
        models = (self, *self._fallbacks)
        with (
            within_s(self.config.timeout_s),
            span("gen_ai.chat", model=self.model, messages=messages) as attributes,
        ):
            for index, llm in enumerate(models):
                try:
                    with within_s(seconds_left() / (len(models) - index)):
                        reply = llm._reply(request, spent)
                except ModelCallFailed as error:
                    failures.append(error)
                else:
                    attributes["reply"] = reply = replace(reply, **spent.metrics())
                    return reply
            first_failure = failures[0]
            details = {**first_failure.report, "model": self.model, "metrics": spent.metrics()}
            failure = ModelCallFailed(
                self.model, first_failure.failure, first_failure.problem, details
            )
            failure.partial = first_failure.partial
            raise failure from first_failure.__cause__

    def _reply(self, request: JsonMap, spent: Usage) -> Reply:
        """Ask this model, and again after a failure that may pass, as long as retries and time are
        left. Add the usage of all attempts to ``spent``. Raises ``ModelCallFailed``.
        """
        retry = 0
        while True:
            try:
                reply = self._attempt(request)
            except ModelCallFailed as error:
                spent.add(error.report["metrics"])
                wait_s = max(self.config.retry_wait_s * 2**retry, asked_to_wait(error))
                if retry == self.config.retries or not may_pass(error) or wait_s >= seconds_left():
                    raise
                self._sleep(wait_s)
                retry += 1
            else:
                spent.add(report_on(reply)["metrics"])
                return reply

    def _attempt(self, request: JsonMap) -> Reply:
        """Ask this model once. Raises ``ModelCallFailed`` for every failure, with a problem that
        shows no secret.
        """
        completion = _litellm().completion
        config = self.config
        self._refuse_too_long_prompt(request)
        started = time.perf_counter()
        limit_s = min(config.timeout_s, seconds_left())
        if limit_s <= 0:
            raise ModelCallFailed(
                self.model, "timeout", "no time is left for this call", _NOT_CALLED
            )
        conceal = partial(conceal_secrets, config=config, key=self._key)
        try:
            arguments = self._arguments(request, limit_s)
            response = abandoned_after(limit_s + _GRACE_S, lambda: completion(**arguments))
            reply = reply_of(
                response,
                config.model,
                time.perf_counter() - started,
                partial(conceal, in_error=False),
            )
        # litellm raises about fifty kinds of errors, and by mistake also others.
        except Exception as error:  # noqa: BLE001
            conceal = partial(conceal, in_error=True)
            problem = problem_of(conceal(str(error)))
            if is_connection_refused(error):
                address = urlsplit(config.base_url or "").netloc.rpartition("@")[2]
                problem = f"{problem} No server listens at {address or 'its address'}."
            shows_a_secret = any(conceal(str(link)) != str(link) for link in chain_of(error))
            cause = None if shows_a_secret else error
            failure = failure_of(error)
            # A reply that cannot be read was paid for, but its price is unknown.
            cost = None if failure == "bad_reply" else 0.0
            metrics = {"latency_s": time.perf_counter() - started, "cost": cost}
            raise ModelCallFailed(self.model, failure, problem, {"metrics": metrics}) from cause
        return check_reply(reply)

    def _refuse_too_long_prompt(self, request: JsonMap) -> None:
        """Raise ``ModelCallFailed`` if the prompt has more tokens than the model accepts. Some
        servers would silently read only a part of it.
        """
        limit = self.max_input_tokens
        try:
            if (
                limit is None
                or len(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace")) <= limit
            ):
                return  # A token is never shorter than a byte.
            tokens = self._count(request["messages"], request.get("tools", ()))
        except (TokensUnknown, *STUMBLES):  # The call itself reports the problem.
            return
        if tokens > limit:
            problem = f"the prompt has {tokens} tokens, and the model accepts at most {limit}"
            raise ModelCallFailed(self.model, "context_window", problem, _NOT_CALLED)

    def _arguments(self, request: JsonMap, limit_s: float) -> JsonObject:
        """Return the arguments of litellm's function ``completion``."""
        config = self.config
        return {
            "model": config.model,
            "api_key": self._key,
            "base_url": config.base_url,
            "api_version": config.api_version,
            "temperature": config.temperature,
            "max_tokens": config.max_output_tokens,
            "timeout": limit_s,
            "num_retries": 0,  # Retries by litellm would hide their cost.
            "stream": False,
            "caching": False,
            # Litellm rewrites messages in place for some servers, so it gets a copy.
            **sendable(request),
            **config.extra,
        }

    # --- limits and counts ---

    @property
    def dialect(self) -> Dialect:
        """The message format of the servers of this model and its fallbacks: see
        ``View.to_messages``.
        """
        own = self.config.dialect or dialect_of_model(self.model)
        if "openai" in (own, *(llm.dialect for llm in self._fallbacks)):
            return "openai"
        return own

    @property
    def max_input_tokens(self) -> int | None:
        """The limit of a prompt in the configuration, or else in litellm's table."""
        return self.config.max_input_tokens or _known_limit(self.model, "max_input_tokens")

    @property
    def max_output_tokens(self) -> int | None:
        """The limit of a reply in the configuration, or else in litellm's table."""
        return self.config.max_output_tokens or _known_limit(self.model, "max_output_tokens")

    @property
    def is_known(self) -> bool:
        """Whether litellm knows the model. For an unknown model, litellm counts tokens with a
        general tokenizer and has no token limits.
        """
        return _model_info(self.model) is not None

    @property
    def tokenizer(self) -> str:
        """The name of the model whose tokenizer counts the tokens. For an unknown model, litellm
        uses its general tokenizer.
        """
        return self.config.tokenizer or (
            self.model if self.is_known else "litellm's general tokenizer"
        )

    @cached_property
    def _counted_as(self) -> str:
        """The name of the model whose tokenizer litellm uses. Raises ``TokensUnknown`` if litellm
        would have to download the tokenizer.
        """
        name = self.config.tokenizer or _bare_name(self.model)
        if any(part in name.lower() for part in _DOWNLOADED_TOKENIZERS):
            raise TokensUnknown(
                f"the tokenizer of model {name!r} would have to be downloaded; set"
                " 'tokenizer' to the name of a model whose tokenizer needs no download"
            )
        return name

    def tokens_at_most(self, view: View) -> int | None:
        """Return a number of tokens that the prompt of a View does not exceed, or None if no such
        number can be found. Cheaper than ``token_sums``, which counts exactly.
        """
        try:
            return self._bounds.token_sums(view)[-1]
        except (TokensUnknown, *STUMBLES):
            return None

    @cached_property
    def _encoding(self) -> str | None:
        return encoding_of(self._counted_as)

    def _counted(self, messages: Sequence[JsonMap], tools: Sequence[Any]) -> int:
        """Return litellm's count of the tokens. Raises ``TokensUnknown`` if litellm cannot count
        them. Cost: litellm is imported only if tiktoken alone cannot count them.
        """
        name = self._counted_as
        if self._encoding is not None and not _counter_is_disabled():
            try:
                return count_prompt(self._encoding, messages, [_countable(tool) for tool in tools])
            except (TokensUnknown, *STUMBLES):
                pass  # Litellm counts it, or reports the problem.
        try:
            count = _litellm().token_counter(
                model=name,
                messages=list(messages),
                tools=[_countable(tool) for tool in tools],
                use_default_image_token_count=_shows_remote_images(messages),
            )
        except UnicodeEncodeError:
            return self._counted(sendable(messages), sendable(tools))
        except STUMBLES as error:
            raise TokensUnknown(
                f"litellm cannot count these messages for model {name!r}: {error}"
            ) from error
        if count <= 0:  # Litellm returns 0 if ``litellm.disable_token_counter`` is set.
            raise TokensUnknown(
                f"litellm counts {count} tokens for model {name!r}: litellm's token counter"
                " is disabled"
            )
        return int(count)


def _known_limit(model: str, limit: str) -> int | None:
    value = (_model_info(model) or {}).get(limit)
    return value if isinstance(value, int) and value > 0 else None


def _entry(model: str) -> JsonMap | None:
    name_and_entry = lookup(model)
    return None if name_and_entry is None else name_and_entry[1]


def _model_info(model: str) -> JsonMap | None:
    """Return what litellm knows about a model, or None if litellm does not know it."""
    entry = _entry(model)
    if entry is not None:
        return entry or None
    litellm = _litellm()
    try:
        info: JsonMap = litellm.get_model_info(model)
    # For an unknown model, litellm may raise any error, even a plain ``Exception``.
    except Exception:  # noqa: BLE001
        return None
    return info


def _bare_name(model: str) -> str:
    """Return the name of a model without its provider, by which litellm finds a tokenizer."""
    name_and_entry = lookup(model)
    if name_and_entry is not None:
        return name_and_entry[0]
    try:
        return str(_litellm().get_llm_provider(model)[0])
    except _litellm().exceptions.BadRequestError:
        return model


def _countable(schema: Any) -> Any:
    # Litellm fails on an array without a type of items.
    if isinstance(schema, Mapping):
        countable = {key: _countable(value) for key, value in schema.items()}
        return {"items": {}, **countable} if countable.get("type") == "array" else countable
    if isinstance(schema, list | tuple):
        return [_countable(value) for value in schema]
    return schema


def _shows_remote_images(messages: Sequence[JsonMap]) -> bool:
    # Litellm would download such an image to measure it.
    addresses = (text for name, text in named_in(messages) if name in ("image_url", "url"))
    return any(address.startswith(("http://", "https://")) for address in addresses)


def _counter_is_disabled() -> bool:
    # A program that imported litellm may have disabled its counter.
    return bool(getattr(sys.modules.get("litellm"), "disable_token_counter", False))


@cache
def _litellm() -> Any:
    """Import litellm without its downloads, its ``.env`` file and its output to stdout."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # Without this setting, litellm downloads a list of headers if a reply must follow a schema.
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    # In its default mode DEV, the import of litellm loads the nearest .env file into the process.
    mode = os.environ.get("LITELLM_MODE")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    try:
        import litellm
    finally:
        if mode is None:
            os.environ.pop("LITELLM_MODE", None)
    # Litellm would print advice to stdout, which belongs to the program.
    litellm.suppress_debug_info = True
    return litellm
