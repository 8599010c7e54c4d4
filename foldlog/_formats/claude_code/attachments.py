"""Attachments: context that Claude Code gives its model besides the messages. Since 2026 a line has its exact words.

rendered         the words that the model was shown: environment, skills, dates, changed files
prompt_snapshot  the system prompt and the tools, when they are new
"""

from __future__ import annotations

from typing import Any

from foldlog._formats.blocks import content_of, said
from foldlog._formats.told import parts_in
from foldlog.eventstore import Content

_TOOL = ("name", "description", "schema")


def words_of(record: dict[str, Any]) -> Content:
    """Return the words of an attachment that the model was shown; empty if the line has none."""
    rendered = record.get("rendered")
    if record.get("type") != "attachment" or type(rendered) is not list:
        return ""
    contents = [each.get("content") for each in rendered if type(each) is dict]
    return said([part for content in contents for part in parts_in(content_of(content))])


def prompt_of(record: dict[str, Any]) -> tuple[str, tuple[dict[str, Any], ...]] | None:
    """Return the system prompt and the tools of a snapshot, in OpenAI's shape; None for any other line, or if both are
    empty.
    """
    attachment = record.get("attachment")
    if record.get("type") != "attachment" or type(attachment) is not dict:
        return None
    prompt, tools = attachment.get("systemPrompt"), attachment.get("tools")
    if attachment.get("type") != "prompt_snapshot" or type(prompt) is not list:
        return None
    text = "\n".join(part for part in prompt if type(part) is str)
    shaped = tuple(_shaped(tool) for tool in tools) if type(tools) is list and all(map(_is_tool, tools)) else ()
    return (text, shaped) if text.strip() or shaped else None


def _is_tool(tool: Any) -> bool:
    return type(tool) is dict and tuple(tool) == _TOOL


def _shaped(tool: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["schema"]}
    return {"type": "function", "function": function}
