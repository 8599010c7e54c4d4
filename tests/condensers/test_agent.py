"""Which errors of a model's server say that the prompt is too long."""

import pytest

from foldlog.condensers import ModelCallFailed, is_context_window_error


@pytest.mark.parametrize(
    "text",
    [
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in"
            " 9001 tokens."
        ),
        (
            "litellm.BadRequestError: ContextWindowExceededError: prompt is too long: 210000 tokens"
            " > 200000 maximum"
        ),
        "Please reduce the length of the messages or completion.",
        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "Input is too long for requested model.",
        "the request exceeds the available context size, try increasing it",
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.",
        "413 Request Entity Too Large",
        "prompt token count of 130000 exceeds the limit of 128000",
        "Input length 5000 exceeds maximum allowed token size 4096",
    ],
)
def test_errors_about_a_long_prompt_are_recognized(text):
    assert is_context_window_error(RuntimeError(text))


def test_other_errors_are_not_recognized():
    for text in ("Incorrect API key provided", "rate limit: too many requests", "no model", ""):
        assert not is_context_window_error(RuntimeError(text))


def test_errors_of_litellm_and_foldlog_are_recognized():
    litellm_error = type("ContextWindowExceededError", (Exception,), {})
    assert is_context_window_error(litellm_error("?"))
    assert is_context_window_error(ModelCallFailed("m", "context_window", "?"))
    openais_error = type("BadRequestError", (Exception,), {"code": "context_length_exceeded"})
    assert is_context_window_error(openais_error("?"))
    assert not is_context_window_error(ModelCallFailed("m", "rejected", "maximum context length"))
