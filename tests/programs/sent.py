"""What a request to a model contains: its texts, calls, results and images, in their order."""

import json
from typing import Any

IMAGE = "image"


def atoms(messages: list[dict[str, Any]]) -> list[str]:
    """Return the atoms of messages of Anthropic or of items of OpenAI's Responses API."""
    return [atom for message in messages for atom in _atoms_of(message)]


def not_in_order(searched: list[str], request: list[str]) -> list[str]:
    """Return the atoms that a request does not contain after the atom before it. An atom may be a
    part of a text of the request, because programs join texts.
    """
    missing = []
    place = 0
    start = 0
    for atom in searched:
        for number in range(place, len(request)):
            at = request[number].find(atom, start if number == place else 0)
            if at >= 0:
                place = number
                start = at + len(atom)
                break
        else:
            missing.append(atom)
    return missing


def _atoms_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value.strip()] if value.strip() else []
    if isinstance(value, list):
        return [atom for item in value for atom in _atoms_of(item)]
    kind = value.get("type")
    if kind in ("tool_use", "function_call", "custom_tool_call"):
        return [f"call {value['name']} {_arguments(value)}"]
    if kind in ("tool_result",):
        return _atoms_of(value.get("content", ""))
    if kind in ("function_call_output", "custom_tool_call_output"):
        return _atoms_of(value["output"])
    if kind in ("image", "document"):
        return [f"{IMAGE} {str(value['source'].get('data') or value['source'].get('url'))[:80]}"]
    if kind == "input_image":
        return [f"{IMAGE} {value['image_url'].rpartition('base64,')[2][:80]}"]
    return _atoms_of(value.get("content", value.get("text", "")))


def _arguments(call: dict[str, Any]) -> str:
    value = call.get("input", call.get("arguments"))
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
