"""The keys that OpenHands' tables of models have and ours do not: V0's ``[llm]``, and ``llm`` in V1's dumps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from foldlog._observed import tell

RENAMED = {
    "retry_min_wait": "retry_wait_s",
    "custom_tokenizer": "tokenizer",
    "native_tool_calling": "function_calling",
    "ollama_base_url": "base_url",
}
PASSED_ON = frozenset(
    (
        *("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region_name", "aws_profile_name"),
        *("aws_role_name", "aws_session_name", "aws_bedrock_runtime_endpoint", "custom_llm_provider", "drop_params"),
        *("extra_headers", "input_cost_per_token", "output_cost_per_token", "reasoning_effort", "safety_settings"),
        *("seed", "top_k", "top_p"),
    )
)
"""Arguments of litellm.completion."""
MAPS: dict[str, str | None] = {"completion_kwargs": None, "litellm_extra_body": "extra_body"}
"""Maps of further arguments of litellm.completion, and the one argument that a map is."""
WITHOUT_EFFECT = frozenset(
    (
        *("caching_prompt", "correct_num", "disable_stop_word", "disable_vision", "for_routing"),
        *("log_completions", "log_completions_folder", "max_message_chars", "modify_params", "openrouter_app_name"),
        *("openrouter_site_url", "retry_max_wait", "retry_multiplier"),  # above: V0's too; below: V1's alone
        *("api_mode", "capability_overrides", "enable_encrypted_reasoning", "extended_thinking_budget"),
        *("force_string_serializer", "inline_image_urls", "is_subscription", "model_canonical_name"),
        *("prompt_cache_retention", "reasoning_summary", "stream", "stream_idle_timeout", "usage_id"),
    )
)
"""Keys of habits of OpenHands' own client, which say nothing of which model is asked what."""


def in_our_words(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a model with our keys. Unknown keys stay, to be refused. Keys without a value go; so do keys
    without an effect, with a message.
    """
    if ignored := sorted(key for key in WITHOUT_EFFECT & table.keys() if table[key] is not None):
        tell("foldlog.model.keys_ignored", model=table.get("model"), keys=", ".join(ignored))
    ours: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in table.items():
        if key == "api_key" and isinstance(value, str) and value.strip("*") == "" != value:
            raise ValueError("api_key is masked, as printed JSON has it; give the key itself, or api_key_env")
        if value is None or key in WITHOUT_EFFECT or (key, value) == ("auth_type", "api_key"):
            continue
        if key in PASSED_ON:
            extra[key] = value.get_secret_value() if isinstance(value, SecretStr) else value
        elif key in MAPS:
            whole = MAPS[key]
            extra |= value if whole is None or not value else {whole: value}
        else:
            ours.setdefault(RENAMED.get(key, key), value)
    if extra:
        ours["extra"] = {**extra, **ours.get("extra", {})}
    return ours
