"""This module counts the tokens of prompts as litellm does, without importing litellm.

The import of litellm takes seconds and 250 MB of memory, and tiktoken takes a third of that.
Litellm counts with tiktoken for OpenAI's and many other models. This module counts for OpenAI's
models that tiktoken knows, if the prompt contains only text. ``tests/condensers/test_tokens.py``
compares the counts with litellm's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog.condensers.errors import TokensUnknown
from foldlog.condensers.models.limits import litellms_entry

_MESSAGE_TOKENS = 3
_NAME_TOKENS = 1
_REPLY_TOKENS = 3
_TOOLS_TOKENS = 9
_TOOLS_BESIDE_SYSTEM_TOKENS = -4
"""The tokens that litellm adds to the tokens of the texts."""

_CHUNK = 1024
"""How many characters are encoded at once. The chunks change the count a little."""
_CHARACTERS_MAX = 4_000_000
"""Litellm estimates the tokens of a text with more than ``_CHARACTERS_MAX`` characters."""
_OLDEST_LITELLM = (1, 106)
"""Older versions of litellm count in other ways."""
_CHANGES_COUNTS = (
    "TIKTOKEN_ENCODE_CHUNK_SIZE_CHARS",
    "TOKEN_COUNTER_MAX_EXACT_CHARS",
    "CUSTOM_TIKTOKEN_CACHE_DIR",
)
"""The environment variables that change how litellm counts."""

_FILES = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
"""The files of tiktoken's encodings in litellm's package. Without them, tiktoken would download the
encodings.
"""

_COUNTED_APART = ("ft:", "gpt-3.5-turbo-0301")
"""Litellm counts for these models by other rules."""

_BYTES_A_SIGN = 12
"""The most bytes that a character outside of ASCII has after a tokenizer normalized it, about."""


def encoding_of(name: str) -> str | None:
    """Return the name of tiktoken's encoding with which litellm counts for the model ``name``. The
    name has no provider.

    Returns None for models that tiktoken does not know. For these models, versions of litellm
    differ in the tokenizer that they use.
    """
    if litellms_entry(name).get("litellm_provider") != "openai" or name.startswith(_COUNTED_APART):
        return None
    import tiktoken

    try:
        encoding = tiktoken.encoding_name_for_model(name)
    except KeyError:
        return None
    return encoding if _folder_of_encodings(encoding) else None


@cache
def _folder_of_encodings(encoding: str) -> Path | None:
    """Return the folder in which litellm keeps the file of an encoding, or None if this module
    cannot count like litellm.
    """
    package = find_spec("litellm")
    if package is None or package.origin is None or encoding not in _FILES:
        return None
    if any(name in os.environ for name in _CHANGES_COUNTS):
        return None
    if tuple(map(int, version("litellm").split(".")[:2])) < _OLDEST_LITELLM:
        return None
    folder = Path(package.origin).parent / "litellm_core_utils" / "tokenizers"
    return folder if (folder / _FILES[encoding]).exists() else None


_loading = threading.Lock()


@cache
def _encoder(encoding: str) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text. It raises ``TokensUnknown`` for a text
    that is too long. Cost: the file of the encoding is read once.
    """
    import tiktoken

    variable = "TIKTOKEN_CACHE_DIR"
    with _loading:
        former = os.environ.get(variable)
        os.environ[variable] = str(_folder_of_encodings(encoding))
        try:
            loaded = tiktoken.get_encoding(encoding)
        finally:
            if former is None:
                del os.environ[variable]
            else:
                os.environ[variable] = former

    def count(text: str) -> int:
        if len(text) > _CHARACTERS_MAX:
            raise TokensUnknown(f"a text has {len(text):,} characters")
        chunks = (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))
        return sum(len(loaded.encode(chunk, disallowed_special=())) for chunk in chunks)

    return count


def count_prompt(encoding: str, messages: Sequence[JsonMap], tools: Sequence[Any]) -> int:
    """Return litellm's count of a prompt. Raises ``TokensUnknown`` for parts that are no text: see
    ``_count_message``. Raises other errors if a message or a tool is malformed.
    """
    count = _encoder(encoding)
    return sum(_count_message(message, count) for message in messages) + _count_frame(
        messages, tools, count
    )


def count_at_most(messages: Sequence[JsonMap], tools: Sequence[Any]) -> int:
    """Return a number that ``count_prompt`` exceeds with no encoding. Cost: a pass over the texts,
    without a tokenizer. Raises ``TokensUnknown`` where ``count_prompt`` does.
    """
    return sum(_count_message(message, _bytes_at_most) for message in messages) + _count_frame(
        messages, tools, _bytes_at_most
    )


def _bytes_at_most(text: str) -> int:
    # A token is never shorter than a byte.
    if text.isascii():
        return len(text)
    ascii_count = len(text.encode("ascii", "ignore"))
    return ascii_count + (len(text) - ascii_count) * _BYTES_A_SIGN


def _count_message(message: JsonMap, count: Callable[[str], int]) -> int:
    """Return the tokens of a message, counted as litellm counts them: a field that is no text, such
    as thinking blocks or audio, counts nothing. Raises ``TokensUnknown`` for a part of the content
    that is no text, a ``function_call`` and ``search_results``.
    """
    tokens = _MESSAGE_TOKENS
    for key, value in message.items():
        if isinstance(value, str):
            tokens += count(value) + (_NAME_TOKENS if key == "name" else 0)
        elif key == "tool_calls" and value is not None:
            tokens += sum(count(str(call["function"].get("arguments", ""))) for call in value)
        elif key == "content" and value is not None:
            tokens += sum(count(_text_of(part)) for part in value)
        elif key in ("function_call", "search_results") and value is not None:
            raise TokensUnknown(f"a message has {key}")
    return tokens


def _text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    if part["type"] != "text":
        raise TokensUnknown(f"a message has a part of type {part['type']!r}")
    return str(part.get("text", ""))


def _count_frame(
    messages: Sequence[JsonMap], tools: Sequence[Any], count: Callable[[str], int]
) -> int:
    """Return the tokens of a prompt that belong to no message: those of the tools, and those of the
    beginning of the reply.
    """
    if not tools:
        return _REPLY_TOKENS
    declarations = "".join(map(_declaration, tools))
    text = f"namespace functions {{\n\n{declarations}}} // namespace functions"
    tokens = _REPLY_TOKENS + _TOOLS_TOKENS + count(text)
    if any(message.get("role") == "system" for message in messages):
        return tokens + _TOOLS_BESIDE_SYSTEM_TOKENS
    return tokens


def _declaration(tool: JsonMap) -> str:
    """Return a tool as litellm counts it: as the declaration of a function in TypeScript."""
    function = tool.get("function")
    if not isinstance(function, Mapping) or not function.get("name"):
        raise TokensUnknown("a tool is not in OpenAI's format")
    parameters = function.get("parameters") or {}
    lines = [f"// {function['description']}"] if function.get("description") else []
    if parameters.get("properties"):
        start = f"type {function['name']} = (_: {{"
        lines += [start, "\n".join(_fields(parameters, "")), "}) => any;"]
    else:
        lines.append(f"type {function['name']} = () => any;")
    return "\n".join(lines) + "\n\n"


def _fields(schema: JsonMap, indent: str) -> Iterator[str]:
    required = schema.get("required") or ()
    for name, field in (schema.get("properties") or {}).items():
        if field.get("description"):
            yield f"{indent}// {field['description']}"
        optional = "" if name in required else "?"
        yield f"{indent}{name}{optional}: {_type(field, indent)},"


def _type(field: JsonMap, indent: str) -> str:
    """Return the type of a parameter, in the language in which OpenAI's models are shown their
    tools.
    """
    match field.get("type"):
        case "string" | "integer" | "number" if "enum" in field:
            return " | ".join(f'"{value}"' for value in field["enum"])
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array":
            return f"{_type(field['items'], indent)}[]"
        case "object":
            fields = "\n".join(_fields(field, indent + "  "))
            return f"{{\n{fields}\n}}"
    return "any"
