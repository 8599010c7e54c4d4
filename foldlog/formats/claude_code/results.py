"""Predict ``toolUseResult``, which gives a tool's result a second time, structured. Most of it repeats the call and the
text.

Only the difference to the prediction is kept, so a tool without a rule here only costs bytes.
"""

from __future__ import annotations

import re
from typing import Any

from foldlog.eventstore import Content
from foldlog.formats.claude_code.blocks import blocks_of

_REMINDER = "\n\n<system-reminder>"
"""The beginning of a text that is added to a result for the model."""
_LINE_NUMBER = re.compile(r"^ *(\d+)(?:→|\t)", re.MULTILINE)
_ERROR_TAGS = re.compile(r"</?tool_use_error>")


def structured(tool: str, arguments: Any, content: Content, *, is_error: bool) -> Any:
    """Predict the ``toolUseResult`` of a call of ``tool`` and its result. Cost: the length of the text."""
    asked = arguments if type(arguments) is dict else {}
    text = content if isinstance(content, str) else ""
    if is_error:
        return f"Error: {_ERROR_TAGS.sub('', text)}"
    match tool:
        case "Read":
            return {"type": "text", "file": _file(asked, text)}
        case "Bash":
            return {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        case "Edit":
            edit = {"oldString": asked.get("old_string"), "newString": asked.get("new_string")}
            all_of_them = asked.get("replace_all", False)
            return {"filePath": asked.get("file_path"), **edit, "userModified": False, "replaceAll": all_of_them}
        case "Write":
            file = {"filePath": asked.get("file_path"), "content": asked.get("content")}
            return {"type": "create", **file, "structuredPatch": [], "originalFile": None}
        case "TodoWrite":
            return {"oldTodos": [], "newTodos": asked.get("todos")}
        case "Grep":
            return _found(asked.get("output_mode", "files_with_matches"), text)
        case "Glob":
            names = text.split("\n")
            return {"filenames": names, "numFiles": len(names), "truncated": False}
        case "Task":
            answer = blocks_of(content)[:1]  # the second block says how to go on with the sub-agent
            return {"status": "completed", "prompt": asked.get("prompt"), "content": answer}
        case "WebFetch":
            return {"code": 200, "codeText": "OK", "result": text, "url": asked.get("url")}
    return text if isinstance(content, str) else blocks_of(content)


def _file(asked: dict[str, Any], text: str) -> dict[str, Any]:
    """Predict the result of reading a file: the text numbers its lines."""
    listing = text.partition(_REMINDER)[0]
    first = _LINE_NUMBER.match(listing)
    count = listing.count("\n") + 1
    start = int(first[1][:18]) if first else 1
    content = _LINE_NUMBER.sub("", listing)
    return {
        "filePath": asked.get("file_path"),
        "content": content,
        "numLines": count,
        "startLine": start,
        "totalLines": count,
    }


def _found(mode: Any, text: str) -> dict[str, Any]:
    if mode == "content":
        return {"mode": mode, "numFiles": 0, "filenames": [], "content": text, "numLines": text.count("\n") + 1}
    names = text.split("\n")[1:]  # the first line says how many there are
    return {"mode": mode, "filenames": names, "numFiles": len(names)}
