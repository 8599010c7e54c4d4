"""What servers refuse: the rules of three forms of messages, written from their documentation and
their error messages.

Each function returns what is wrong with a list of messages; nothing for a list that the server
accepts. They share no code with the product: a rule that both had wrong would not show.

OpenAI's rules are in the API reference (Create chat completion) and in the schema of its client
package; Anthropic's rules are in the Messages API reference. A rule that is in none of them quotes
the server's message.
"""

import base64
import json
import re

IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_ANSWERS = ("search_tool_result", "fetch_tool_result", "execution_tool_result", "mcp_tool_result")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def openai_problems(messages):
    """Return what a server of OpenAI's chat completions refuses."""
    return list(_chat(messages, litellm=False))


def reasoning_problems(messages):
    """Return what a server refuses that also takes the reasoning of the model in OpenAI's chat
    completions.
    """
    return list(_chat(messages, litellm=False, reasoning=True))


def litellm_problems(messages):
    """Return what litellm refuses for some provider, or passes on to a provider that refuses it.

    Beside OpenAI's form it takes thinking blocks and images in tool messages. It leaves the order
    of roles as it is.
    """
    return list(_chat(messages, litellm=True))


def _chat(messages, *, litellm, reasoning=False):
    if not _is_json(messages):
        yield "not JSON that can be encoded as UTF-8"
        return
    waiting = []
    call_ids = set()
    spoken = False
    for place, message in enumerate(messages):
        role = message.get("role")
        at = f"messages[{place}] ({role})"
        allowed = {
            "system": {"role", "content"},
            "user": {"role", "content"},
            "assistant": {"role", "content", "tool_calls"}
            | ({"thinking_blocks"} if litellm else set())
            | ({"reasoning_content"} if reasoning else set()),
            "tool": {"role", "content", "tool_call_id"},
        }
        if role not in allowed:
            yield f"{at}: unknown role"
            continue
        if unknown := message.keys() - allowed[role]:
            yield f"{at}: unknown keys {sorted(unknown)}"  # "Extra inputs are not permitted"
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                # "must be a response to a preceding message with"
                yield f"{at}: answers no call of the message before"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            # "must be followed by tool messages"
            yield f"{at}: comes before the results of {waiting}"
            waiting = []
        if litellm and not spoken and role == "assistant":
            # Anthropic: 'first message must use the "user" role'; Bedrock and Gemini too
            yield f"{at}: comes first"
        spoken = spoken or role != "system"
        if role == "assistant" and "tool_calls" in message:
            yield from _calls(at, message["tool_calls"], call_ids, litellm=litellm)
            waiting = [call.get("id") for call in message["tool_calls"]]
            if message.get("content") is not None:
                yield from _content(at, role, message["content"], litellm=litellm)
        else:
            yield from _content(at, role, message.get("content"), litellm=litellm)
        yield from _thinking(at, message.get("thinking_blocks", []))
        if not isinstance(message.get("reasoning_content", "hm"), str):
            yield f"{at}: reasoning that is no text"
    if waiting:
        yield f"the results of {waiting} are missing"
    if litellm:
        marks = sum(
            "cache_control" in part
            for message in messages
            for part in message["content"] or ()
            if isinstance(part, dict)
        )
        if marks > 4:
            # "A maximum of 4 blocks with cache_control may be provided"
            yield f"{marks} marks for the cache"


def _calls(at, calls, call_ids, *, litellm):
    if not calls:
        yield f"{at}: empty tool_calls"  # "[] is too short - 'messages.1.tool_calls'"
    for call in calls:
        if call.keys() != {"id", "type", "function"} or call["type"] != "function":
            yield f"{at}: a call of another form"
        elif not isinstance(call["id"], str) or not call["id"] or call["id"] in call_ids:
            yield f"{at}: the call id {call['id']!r} is empty, or stands twice"
        elif not litellm and len(call["id"]) > 40:
            # "string too long. Expected a string with maximum length 40"
            yield f"{at}: the call id is too long"
        elif not _NAME.fullmatch(call["function"].get("name", "")):
            # "string does not match pattern"
            yield f"{at}: the name {call['function'].get('name')!r}"
        elif not isinstance(_loaded(call["function"].get("arguments")), dict):
            # litellm and vLLM: they are parsed before they are sent on
            yield f"{at}: arguments are no JSON object"
        call_ids.add(call.get("id"))


def _content(at, role, content, *, litellm):
    if isinstance(content, str):
        if not content.strip():
            # Mistral: "must have either content or"; Bedrock: "content field is empty"
            yield f"{at}: says nothing"
        return
    if not isinstance(content, list) or not content:
        yield f"{at}: content is neither a text nor a list of parts"
        return
    for part in content:
        kind = part.get("type")
        if kind == "text":
            if not _says(part.get("text")):
                yield f"{at}: an empty text"  # "text content blocks must be non-empty"
            if not litellm and part.keys() != {"type", "text"}:
                # "Unknown parameter: 'messages[0].content[0].cache_control'"
                yield f"{at}: unknown keys in a text"
        elif role in ("system", "assistant") or (
            role == "tool" and not (litellm and kind == "image_url")
        ):
            # "Invalid value: 'image_url'. Supported values are: 'text'"
            yield f"{at}: a part of type {kind!r}"
        elif kind == "image_url":
            if not isinstance(part.get("image_url"), dict) or not isinstance(
                part["image_url"].get("url"), str
            ):
                yield f"{at}: an image without an address"
            elif not litellm and not _is_image(part["image_url"]["url"]):
                yield f"{at}: an image of another type"  # "You uploaded an unsupported image"
        elif kind == "file":
            held = part.get("file")
            if not isinstance(held, dict) or not (litellm or _is_file_of_openai(held)):
                # "Missing required parameter", "Expected a PDF"
                yield f"{at}: a file of another form"
            elif (
                not held.keys() <= {"filename", "file_data", "file_id"}
                or len(held.keys() - {"filename"}) != 1
            ):
                yield f"{at}: a file with {sorted(held)}"
        elif not litellm and kind != "input_audio":
            yield f"{at}: a part of type {kind!r}"


def _thinking(at, blocks):
    for block in blocks:
        match block:
            case {"type": "thinking", "thinking": str(), "signature": str(signature)}:
                is_whole = len(block) == 3 and signature
            case {"type": "redacted_thinking", "data": data}:
                is_whole = len(block) == 2 and data
            case _:
                is_whole = False
        if not is_whole:
            # "messages.1.content.0.thinking.signature: Field required"
            yield f"{at}: thinking without its signature"


def anthropic_problems(messages):
    """Return what a server of Anthropic's messages refuses."""
    return list(_anthropic(messages))


def _anthropic(messages):
    if not _is_json(messages):
        yield "not JSON that can be encoded as UTF-8"
        return
    used = set()
    waiting = []
    marks = 0
    for place, message in enumerate(messages):
        role = message.get("role")
        content = message.get("content")
        at = f"messages.{place} ({role})"
        if message.keys() != {"role", "content"}:
            yield f"{at}: has {sorted(message)}"
        if role != ("assistant" if place % 2 else "user"):
            # 'first message must use the "user" role', "roles must alternate"
            yield f"{at}: out of turn"
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list) or not content:
            yield f"{at}: no content"
            continue
        marks += sum("cache_control" in block for block in content)
        answered = [
            block.get("tool_use_id") for block in content if block.get("type") == "tool_result"
        ]
        if sorted(answered) != sorted(
            waiting
        ):  # "tool_use ids were found without tool_result blocks immediately after"
            yield f"{at}: has results of {answered}, and the message before calls {waiting}"
        if answered and any(
            block.get("type") != "tool_result" for block in content[: len(answered)]
        ):
            yield f"{at}: results come after something else"
        for block in content:
            yield from _block(at, role, block, used)
        thinks = [str(block.get("type")).endswith("thinking") for block in content]
        # "content.0.type: Expected `thinking` …, but found `text`"
        if any(thinks) and not thinks[0]:
            yield f"{at}: thinking after something else"
        searches = [
            block["id"]
            for block in content
            if block.get("type") in ("server_tool_use", "mcp_tool_use")
        ]
        if searches != [
            block["tool_use_id"] for block in content if str(block.get("type")).endswith(_ANSWERS)
        ]:
            # "`web_search` tool use … was found without a corresponding"
            yield f"{at}: searches without results"
        waiting = [block["id"] for block in content if block.get("type") == "tool_use"]
    if waiting:
        yield f"the results of {waiting} are missing"
    if marks > 4:
        yield f"{marks} marks for the cache"
    match messages[-1:]:
        case [{"role": "assistant", "content": [*_, {"text": text}]}] if text != text.rstrip():
            # "final assistant content cannot end with trailing whitespace"
            yield "ends in white space"


_BLOCKS = {
    "text": ("user assistant", "text", ""),
    "image": ("user", "source", ""),
    "document": ("user", "source", "title context citations"),
    "search_result": ("user", "source title content", "citations"),
    "container_upload": ("user", "file_id", ""),
    "tool_result": ("user", "tool_use_id", "content is_error"),
    "tool_use": ("assistant", "id name input", ""),
    "mcp_tool_use": ("assistant", "id name input server_name", ""),
    "mcp_tool_result": ("assistant", "tool_use_id content is_error", ""),
    "server_tool_use": ("assistant", "id name input", "caller"),
    "web_search_tool_result": ("assistant", "tool_use_id content", ""),
    "thinking": ("assistant", "thinking signature", ""),
    "redacted_thinking": ("assistant", "data", ""),
}
"""Each block of Anthropic's messages: the roles that may send it, the fields that it must have, and
other fields that it may have.
"""


def _block(at, role, block, used):
    kind = block.get("type")
    roles, required, optional = _BLOCKS.get(kind, ("", "", ""))
    fields = block.keys() - {"type", "cache_control"}
    if role not in roles.split() or not _are_fields(fields, required, optional):
        # "mcp_tool_use.server_name: Field required", "Extra inputs are not permitted"
        yield f"{at}: a block of type {kind!r} with {sorted(fields)}"
        return
    match kind:
        case "text":
            if not _says(block["text"]):
                # "text content blocks must contain non-whitespace text"
                yield f"{at}: an empty text"
        case "image":
            if not _is_source_of_an_image(block["source"]):
                # "Input should be 'image/jpeg', 'image/png', …", "Only HTTPS URLs are supported"
                yield f"{at}: an image of another type, or from nowhere"
        case "document":
            if not _is_source_of_a_document(block["source"]):
                # "Input should be 'application/pdf'"
                yield f"{at}: a document from {block['source']}"
        case "search_result":
            if None in (block["source"], block["title"], *map(_text_of, block["content"])):
                yield f"{at}: a result of a search of one's own"  # "Field required"
        case "tool_use":
            if not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]) or block["id"] in used:
                # "String should match pattern", "ids must be unique"
                yield f"{at}: the call id {block['id']!r}"
            if not _NAME.fullmatch(block["name"]) or not isinstance(block["input"], dict):
                yield f"{at}: the call of {block['name']!r}"
            used.add(block["id"])
        case "tool_result":
            yield from _result(at, role, block, used)
        case "server_tool_use":
            if not block["id"].startswith("srvtoolu_"):
                # "String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
                yield f"{at}: a call of a server's tool"
        case "web_search_tool_result":
            if not isinstance(block["content"], list | dict):
                yield f"{at}: a result of a search"
        case "thinking" | "redacted_thinking":
            yield from _thinking(at, [block])


def _result(at, role, block, used):
    content = block.get("content", [])
    inner = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kinds = {block.get("type") for block in inner}
    if not kinds <= {"text", "image", "document", "search_result"}:
        yield f"{at}: {kinds} in a result"
    for each in inner:
        yield from _block(at, role, each, used)
    if block.get("is_error") and not kinds <= {"text"}:
        # 'all content must be type "text" if "is_error" is true'
        yield f"{at}: an error without a text alone"


def _are_fields(fields, required, optional=""):
    needed = set(required.split())
    return needed <= fields <= needed.union(optional.split())


def _says(text):
    return isinstance(text, str) and bool(text.strip())


def _text_of(part):
    return part.get("text")


def _is_source_of_an_image(source):
    match source:
        case {"type": "base64", "media_type": media_type, "data": _}:
            return len(source) == 3 and media_type in IMAGES
        case {"type": "url", "url": str(url)}:
            return len(source) == 2 and url.startswith(("https://", "http://"))
    return False


def _is_source_of_a_document(source):
    match source:
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)}:
            return len(source) == 3 and bool(data)
        case {"type": "text", "media_type": "text/plain", "data": str(data)}:
            return len(source) == 3 and bool(data.strip())
        case {"type": "url", "url": str(url)}:
            return len(source) == 2 and url.startswith(("https://", "http://"))
        case {"type": "file", "file_id": str(name)}:
            return len(source) == 2 and name.startswith("file_")
    return False


def _is_file_of_openai(held):
    if "file_id" in held:
        return held.keys() == {"file_id"} and isinstance(held["file_id"], str)
    data = held.get("file_data")
    return (
        bool(held.get("filename"))
        and isinstance(data, str)
        and data.startswith("data:application/pdf;base64,")
    )


def _is_json(value):
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _loaded(text):
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _is_image(url):
    if url.startswith(("https://", "http://")):
        return True
    match = re.fullmatch(r"data:([^;]+);base64,(.+)", url, re.DOTALL)
    if match is None or match[1] not in IMAGES:
        return False
    try:
        base64.b64decode(match[2], validate=False)
    except ValueError:
        return False
    return True


_ITEMS = {
    "system": ("role content", ""),
    "assistant": ("role content", ""),
    "user": ("role content", ""),
    "function_call": ("type call_id name arguments", ""),
    "custom_tool_call": ("type call_id name input", ""),
    "function_call_output": ("type call_id output", ""),
    "custom_tool_call_output": ("type call_id output", ""),
    "reasoning": ("type id summary", "content encrypted_content"),
}
"""Each item of OpenAI's Responses API: the fields that it must have, and that it may have."""


def responses_problems(items):
    """Return what a server of OpenAI's Responses API refuses as ``input``."""
    return list(_responses(items))


def _responses(items):
    if not _is_json(items):
        yield "not JSON that can be encoded as UTF-8"
        return
    waiting = {}
    used = set()
    for place, item in enumerate(items):
        kind = item.get("type", item.get("role"))
        at = f"input[{place}] ({kind})"
        if kind not in _ITEMS or not _are_fields(item.keys(), *_ITEMS[kind]):
            # "Missing required parameter: 'input[0].summary'"
            yield f"{at}: has {sorted(item)}"
            continue
        match kind:
            case "system" | "assistant":
                if not _says(item["content"]):
                    yield f"{at}: says nothing"
            case "user":
                yield from _input_parts(at, item["content"])
                if waiting:
                    # "No tool output found for function call"
                    yield f"{at}: comes before the results of {[*waiting]}"
            case "function_call" | "custom_tool_call":
                call_id = item["call_id"]
                if not 0 < len(call_id) <= 64 or call_id in used:
                    yield f"{at}: the call id {call_id!r}"  # "string too long", "Duplicate"
                if not _is_call(item):
                    yield f"{at}: the call of {item['name']!r}"
                used.add(call_id)
                waiting[call_id] = kind
            case "function_call_output" | "custom_tool_call_output":
                if waiting.pop(item["call_id"], None) != kind.removesuffix("_output"):
                    # "No tool call found for function call output"
                    yield f"{at}: answers no call of this kind"
                if not isinstance(item["output"], str):
                    yield from _input_parts(at, item["output"])
                elif not _says(item["output"]):
                    yield f"{at}: says nothing"
            case "reasoning":
                if not isinstance(item["id"], str) or not isinstance(item["summary"], list):
                    yield f"{at}: no id or no summary"
                following = [item.get("type", item.get("role")) for item in items[place + 1 :]]
                if not {"reasoning", "function_call", "custom_tool_call", "assistant"}.intersection(
                    following[:1]
                ):
                    # "provided without its required following item"
                    yield f"{at}: nothing follows it"
    if waiting:
        yield f"the results of {[*waiting]} are missing"


def _is_call(item):
    if item["type"] == "custom_tool_call":
        return isinstance(item["input"], str)
    return _NAME.fullmatch(item["name"]) and isinstance(_loaded(item["arguments"]), dict)


def _input_parts(at, parts):
    if not isinstance(parts, list) or not parts:
        yield f"{at}: says nothing"
        return
    for part in parts:
        yield from _input_part(at, part)


def _input_part(at, part):
    match part:
        case {"type": "input_text", "text": str(text)}:
            if part.keys() != {"type", "text"} or not text.strip():
                yield f"{at}: an empty text"
        case {"type": "input_image", "image_url": str(url), "detail": "auto" | "low" | "high"}:
            if len(part) != 3 or not _is_image(url):
                yield f"{at}: an image of another type"
        case {"type": "input_file"}:
            if part.keys() not in (
                {"type", "filename", "file_data"},
                {"type", "file_url"},
                {"type", "file_id"},
            ):
                yield f"{at}: a file with {sorted(part)}"
        case _:
            yield f"{at}: a part {part}"


PROBLEMS = {
    "openai": openai_problems,
    "openai-reasoning": reasoning_problems,
    "litellm": litellm_problems,
    "anthropic": anthropic_problems,
    "anthropic-cached": anthropic_problems,
    "responses": responses_problems,
}
