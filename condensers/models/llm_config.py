"""The settings of a model in a configuration. The settings are in a table ``[llm]``, ``[llm.NAME]``
or ``llm_config``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._base.telemetry import tell
from foldlog.condensers.config_tables import StrictTable, configuration_error, name_of_kind
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models.deadline import STEP_S

if TYPE_CHECKING:
    Key = SecretStr | str
else:
    Key = SecretStr  # An ``LLMConfig`` stores a ``SecretStr``. Its constructor also accepts a text.

SET_BY_FOLDLOG = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "_skip_mcp_handler",
        "api_key",
        "base_url",
        "api_version",
        "temperature",
        "max_tokens",
        "timeout",
        "num_retries",
        "stream",
        "caching",
    }
)
"""The arguments of ``litellm.completion`` that foldlog always sets itself or computes from other
keys.
"""

RENAMED = {
    "timeout": "timeout_s",
    "num_retries": "retries",
    "retry_min_wait": "retry_wait_s",
    "custom_tokenizer": "tokenizer",
    "native_tool_calling": "function_calling",
    "ollama_base_url": "base_url",
}
"""Other names for the keys of the table ``[llm]``. The names come from litellm and from the tables
of OpenHands V0 and V1.
"""
PASSED_ON = frozenset(
    {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "aws_region_name",
        "aws_profile_name",
        "aws_role_name",
        "aws_session_name",
        "aws_bedrock_runtime_endpoint",
        "custom_llm_provider",
        "drop_params",
        "extra_headers",
        "input_cost_per_token",
        "output_cost_per_token",
        "reasoning_effort",
        "safety_settings",
        "seed",
        "top_k",
        "top_p",
    }
)
"""The keys that become arguments of ``litellm.completion`` without a change."""
MAPS: dict[str, str | None] = {"completion_kwargs": None, "litellm_extra_body": "extra_body"}
"""The keys of ``[llm]`` that contain a map. The map ``litellm_extra_body`` becomes the argument
``extra_body`` of ``litellm.completion``. Each entry of ``completion_kwargs`` becomes an argument.
"""
WITHOUT_EFFECT = frozenset(
    {
        "caching_prompt",
        "correct_num",
        "disable_stop_word",
        "disable_vision",
        "for_routing",
        "log_completions",
        "log_completions_folder",
        "max_message_chars",
        "modify_params",
        "openrouter_app_name",
        "openrouter_site_url",
        "retry_max_wait",
        "retry_multiplier",
        "api_mode",
        "capability_overrides",
        "enable_encrypted_reasoning",
        "extended_thinking_budget",
        "force_string_serializer",
        "inline_image_urls",
        "is_subscription",
        "model_canonical_name",
        "prompt_cache_retention",
        "reasoning_summary",
        "stream",
        "stream_idle_timeout",
        "usage_id",
    }
)
"""The keys for OpenHands' own client, which change neither the model nor the request."""


def _find_named_model(value: Any, info: ValidationInfo) -> Any:
    """Return the configuration of a model that a TOML file names, and any other value unchanged.
    Raises ``InvalidCondenser`` for an unknown name, and for a fallback with fallbacks.
    """
    # The context of the validation contains the models of a TOML file.
    is_name = value is not None and not isinstance(value, Mapping | LLMConfig)
    models = info.context if isinstance(info.context, Models) else Models({})
    table = dict((models.table(value) if is_name else value) or ())
    if info.field_name == "fallbacks" and table.get("fallbacks"):
        name = value if is_name else table.get("model")
        raise InvalidCondenser(
            f"the fallback {name!r} has fallbacks of its own, which are never asked;"
            " list these fallbacks here instead"
        )
    return models.named(value) if is_name else value


class LLMConfig(StrictTable):
    """The settings of a model, such as its name, address, limits and timeouts. The API key is never
    part of a repr, an error or an event.
    """

    model: str = Field(
        min_length=1, description="the model's name as litellm knows it, such as openai/gpt-4o-mini"
    )
    api_key: Key | None = Field(
        default=None,
        min_length=1,
        description="the key; by default from api_key_env, or from the variable that litellm reads",
    )
    api_key_env: str | None = Field(
        default=None, min_length=1, description="name of the environment variable that has the key"
    )
    base_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        repr=False,  # An address may contain a password.
        description="the address of a proxy or of your own server",
    )
    api_version: str | None = Field(
        default=None, description="the API version, for servers such as Azure's"
    )
    max_input_tokens: int | None = Field(
        default=None, ge=1, description="input limit; by default litellm's entry for the model"
    )
    max_output_tokens: int | None = Field(
        default=None, ge=1, description="limit of each reply; by default the model's"
    )
    temperature: float | None = Field(
        default=None, ge=0, description="temperature; by default the server's"
    )
    timeout_s: float = Field(
        default=STEP_S,
        gt=0,
        description="seconds for all calls of one step, including retries, waits and fallbacks",
    )
    retries: int = Field(default=2, ge=0, description="number of attempts after the first")
    retry_wait_s: float = Field(
        default=1.0,
        ge=0,
        description="seconds before the first retry; each further retry waits twice as long",
    )
    fallbacks: tuple[Annotated[LLMConfig, BeforeValidator(_find_named_model)], ...] = Field(
        default=(), description="models to try, in order, if this model gives no usable reply"
    )
    function_calling: bool | None = Field(
        default=None,
        description="whether a request can force a call of a tool; by default litellm's entry",
    )
    response_schema: bool | None = Field(
        default=None,
        description="whether a request can set a schema for the reply; by default litellm's entry",
    )
    tokenizer: str | None = Field(
        default=None, min_length=1, description="another model, whose tokenizer counts the tokens"
    )
    dialect: Literal["openai", "openai-reasoning", "litellm"] | None = Field(
        default=None,
        description=(
            "format of the agent's messages, such as openai, or openai-reasoning for a server that"
            " requires the model's thinking; by default derived from the model's name"
        ),
    )
    extra: JsonObject = Field(
        default_factory=dict,
        repr=False,
        description=(
            "further arguments of litellm.completion, passed on unchanged; an argument that another"
            " key sets is refused"
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _rename_keys(cls, table: Any) -> Any:
        """Unknown keys stay in the table, because pydantic refuses them with a better message."""
        if not isinstance(table, Mapping):
            return table
        if ignored := sorted(
            key for key in WITHOUT_EFFECT & table.keys() if table[key] is not None
        ):
            tell("foldlog.model.keys_ignored", model=table.get("model"), keys=", ".join(ignored))
        ours: JsonObject = {}
        extra: JsonObject = {}
        for key, value in table.items():
            if key == "api_key" and isinstance(value, str) and value.strip("*") == "" != value:
                raise ValueError(
                    "api_key is masked, as in printed JSON; give the key itself, or api_key_env"
                )
            if value is None or key in WITHOUT_EFFECT or (key, value) == ("auth_type", "api_key"):
                continue
            if key in PASSED_ON:
                extra[key] = value.get_secret_value() if isinstance(value, SecretStr) else value
            elif key in MAPS:
                if not isinstance(value, Mapping):
                    raise ValueError(f"{key} should be a table, not {name_of_kind(value)}")
                argument = MAPS[key]
                extra |= value if argument is None or not value else {argument: value}
            else:
                name: Any = RENAMED.get(key, key)
                former = ours.setdefault(name, value)
                if former is not value and former != value:
                    raise ValueError(
                        f"two keys set {name} to different values, and one of them is {key};"
                        " leave one value out"
                    )
        if extra and isinstance(ours.setdefault("extra", {}), Mapping):
            ours["extra"] = {**extra, **ours["extra"]}
        return ours

    @field_validator("extra")
    @classmethod
    def _is_not_ours(cls, extra: JsonObject) -> JsonObject:
        if ours := sorted(SET_BY_FOLDLOG & extra.keys()):
            raise ValueError(
                f"foldlog itself sets {', '.join(ours)} in each call; use the keys of the model's"
                " table"
            )
        return extra

    def key(self) -> str | None:
        """Return the API key to send. If this method returns None, litellm looks for a key in the
        environment.

        Raises ``InvalidCondenser`` if ``api_key_env`` names a variable that is not set.
        """
        if isinstance(self.api_key, SecretStr):
            return self.api_key.get_secret_value()
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:
            raise InvalidCondenser(
                f"api_key_env: the environment variable {self.api_key_env} is not set; set it to"
                f" the key of the model {self.model!r}"
            )
        return key


Model = Annotated[LLMConfig, BeforeValidator(_find_named_model)]
"""The type of a field that contains a model. In a TOML file, the field may also contain the name of
a model's table.
"""


@dataclass(frozen=True, slots=True)
class Models:
    """The tables ``[llm]`` and ``[llm.NAME]`` of a TOML file. The fields ``llm_config`` and
    ``fallbacks`` may contain the names of tables ``[llm.NAME]``.
    """

    tables: Mapping[str, JsonMap]

    @classmethod
    def of(cls, section: JsonMap) -> Models:
        """Read the tables ``[llm]`` and ``[llm.NAME]``. A table ``[llm.NAME]`` inherits the keys
        that it does not set, except ``fallbacks``. A table with its own API key inherits no API
        key.
        """
        fields = {*LLMConfig.model_fields, *MAPS, *PASSED_ON, *WITHOUT_EFFECT}
        api_keys = {"api_key", "api_key_env"}
        named = {
            key: value
            for key, value in section.items()
            if isinstance(value, Mapping) and key not in fields
        }
        base = {key: value for key, value in section.items() if key not in named}
        tables = {"llm": base} if base else {}
        for name, table in named.items():
            not_inherited = {
                "fallbacks",
                *(RENAMED.get(key, key) for key in table),
                *(api_keys if api_keys & table.keys() else ()),
            }
            tables[name] = {
                **{key: base[key] for key in base if RENAMED.get(key, key) not in not_inherited},
                **table,
            }
        return cls(tables)

    def named(self, name: Any) -> LLMConfig:
        try:
            return LLMConfig.model_validate(self.table(name), context=self)
        except ValidationError as error:
            raise configuration_error(error, "llm" if name == "llm" else f"llm.{name}") from error

    def table(self, name: Any) -> JsonMap:
        """Return the table of a model. Raises ``InvalidCondenser`` if ``name`` is not the name of
        one.
        """
        listed = (
            ", ".join(map(repr, self.tables)) or "none, because only a TOML file has tables [llm]"
        )
        if not isinstance(name, str):
            raise InvalidCondenser(
                "should be a table with a 'model', or the name of such a table, not"
                f" {name_of_kind(name)}; the models are {listed}"
            )
        if name not in self.tables:
            raise InvalidCondenser(f"unknown model {name!r}; the models are {listed}")
        return self.tables[name]
