"""The content of a message: a text, or a list of parts in OpenAI's shape. A part is a text, an
image, a file or something else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import Action, Annotation, Content, Event
from foldlog.eventstore.codec_json import describe_value

Part = dict[str, Any]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The media types that both OpenAI's and Anthropic's servers accept as images."""

PDF = "application/pdf"
_UNKNOWN = "application/octet-stream"
"""The media type of bytes of unknown kind."""
_TOO_DEEP = "(nested too deeply to be shown)"
_LEVELS_MAX = 100
"""Values that are nested deeper are not followed, because Python limits the recursion."""

_TEXTS = (
    "title",
    "filename",
    "input",
    "text",
    "refusal",
    "stdout",
    "stderr",
    "source",
    "data",
    "context",
    "content",
)
"""The fields of parts that contain texts, in the order in which a reader sees them."""
_TEXT_PARTS = ("text", "input_text", "output_text")
"""The types that a part with a text has at the several servers."""
_IMAGES = ("image", "image_url", "input_image")
"""The types that a part with an image has at the several servers."""
_FILES = ("file", "input_file", "document")
"""The types that a part with a file has at the several servers."""
MEDIA = (*_IMAGES, *_FILES, "input_audio", "video_url")
"""The types of all parts with an image, a file, a sound or a video."""
_BEGINNINGS = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", PDF),
)
"""The first bytes of a file, with its media type."""
_MOVED = {"image_url": ("an", "image"), "file": ("a", "file")}
"""The types of the parts that ``without_pictures`` moves, with their names and the articles."""


def sendable(text: str) -> str:
    """Return a text that UTF-8 can hold: a lone half of a surrogate pair becomes a question
    mark.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def as_json(value: Any) -> str:
    """Return a value as JSON text. A text is returned unchanged. NaN and infinities become texts,
    because JSON cannot hold them.
    """
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=describe_value, allow_nan=False)
    except ValueError:
        return json.dumps(
            json.loads(json.dumps(value, default=describe_value), parse_constant=str),
            ensure_ascii=False,
        )
    except RecursionError:
        return _TOO_DEEP


def is_blank(text: str) -> bool:
    return not text or text.isspace()


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def name_part(part: JsonMap, why: str = "") -> Part:
    """Return a text part in place of a part that cannot be sent. The text part contains the texts
    of the replaced part, or a note that gives the reason ``why``.
    """
    kind = str(part.get("type") or "part").removesuffix("_url")
    if why:
        texts = []
    else:
        texts = [text for text in content_texts(part) if not is_blank(text)]
    words = "\n".join(texts) or f"[{kind}: {why or 'it cannot be sent to this server'}]"
    return text_part(sendable(words))


def with_texts(
    value: Any, change: Callable[[str], str], name: str = "text", levels: int = _LEVELS_MAX
) -> Any:
    """Return a content or a part, with ``change`` applied to its texts. Texts are the fields in
    ``_TEXTS``, text files, and all texts in the input of a call. Images and the citations of an
    answer do not change.
    """
    if isinstance(value, str):
        return change(value) if name in _TEXTS else value
    if isinstance(value, File):
        if (text := value.text) is None:
            return value
        return value._replace(data=_base64(change(text).encode()))
    if isinstance(value, list | tuple) and levels:
        return type(value)([with_texts(item, change, name, levels - 1) for item in value])
    if not isinstance(value, Mapping) or not levels or value.get("type") in _IMAGES:
        return value
    bytes_field = _bytes_field(value)
    changed = {**value}
    for key in dict.fromkeys((*_TEXTS, *value)):
        if key in value and key != "citations":
            field = key
            if name == "input":
                field = name  # All texts in the input of a call are changed.
            elif key == bytes_field:
                field = ""  # The bytes of a text file are decoded and changed below.
            changed[key] = with_texts(value[key], change, field, levels - 1)
    if bytes_field in value:
        former_file = File("", *data_of(_url_of(value)), "", "")
        changed_file = with_texts(former_file, change)
        if changed_file != former_file:
            is_data_url = bytes_field == "file_data"
            changed[bytes_field] = changed_file.data_url if is_data_url else changed_file.data
    return changed


def _bytes_field(part: JsonMap) -> str | None:
    """Return the name of the field in which a part holds the bytes of a file, or None for a
    text.
    """
    if "file_data" in part:
        return "file_data"
    return None if part.get("type") == "text" else "data"


def content_texts(content: Any) -> list[str]:
    """Return the texts that ``with_texts`` changes."""
    texts: list[str] = []

    def keep(text: str) -> str:
        texts.append(text)
        return text

    with_texts(content, keep)
    return texts


def content_of(event: Event) -> Content:
    """Return what a prompt shows of an event: its content, or the text beside a call."""
    if isinstance(event, Annotation):
        return f"{event.name}:\n{as_json(event.data)}"
    if isinstance(event, Action):
        return event.thought
    content: Content = getattr(event, "content", "")
    return content


def parts_of(content: Content) -> list[Part]:
    """Return copies of the parts of a content, without texts that are only white space."""
    if isinstance(content, str):
        return [] if is_blank(content) else [text_part(sendable(content))]
    parts: list[Part] = []
    for part in content:
        text = part.get("text")
        # In OpenAI's threads, the text is a map with a ``value``.
        if isinstance(text, Mapping):
            text = text.get("value", text)
        kind = part.get("type", "text" if isinstance(text, str) else None)
        is_empty = text is None and not any(
            part[key] for key in part if key not in ("type", "text")
        )
        if kind in _TEXT_PARTS and (is_empty or isinstance(text, str)):
            if text and not is_blank(text):
                parts.append({**copy_part(part), "type": "text", "text": sendable(text)})
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            parts += parts_of(part["refusal"])
        elif kind in _IMAGES:
            parts.append(_image(part))
        elif kind in _FILES:
            parts += _file(part)
        else:
            copied = copy_part(part)
            parts.append(copied if _can_be_sent(copied) else name_part(copied))
    for part in parts:
        if "cache_control" in part and not isinstance(part["cache_control"], Mapping):
            del part["cache_control"]
    return parts


def _can_be_sent(part: Part) -> bool:
    """Return whether a part has a form that a server accepts. No server accepts the other parts, so
    a text takes their place.
    """
    match part:
        case {"type": "server_tool", "blocks": [_, *_] as blocks}:
            return all(map(_is_block, blocks))
        case {"type": "anthropic", "block": block}:
            return _is_block(block)
        case {
            "type": "search_result",
            "source": str(),
            "title": str(),
            "content": [_, *_] as texts,
        }:
            return all(_is_block(text) and text["type"] == "text" for text in texts)
        case {"type": "compaction", "encrypted_content": str()}:
            return isinstance(part.get("id"), str | None)
        case {"type": "input_audio", "input_audio": {"data": str(), "format": str()}}:
            return True
        case {"type": "video_url", "video_url": {"url": str()}}:
            return True
    return False


def _is_block(value: Any) -> bool:
    """Return whether a value is a block that Anthropic's server may have sent. A block with a call
    or a result is none, because foldlog makes these blocks from other fields of an event.
    """
    match value:
        case {"type": "text", "text": str(text)}:
            return not is_blank(text)
        case {"type": str(kind)}:
            return kind not in ("", "text", "tool_use", "tool_result")
    return False


def words_of(content: Content) -> str:
    """Return the texts of a content as lines. A part that is not a text is shown by its type."""
    if isinstance(content, str):
        return content
    names = (
        [] if isinstance(part.get("text"), str) else [f"[{part.get('type', 'part')}]"]
        for part in content
    )
    return "\n".join(
        text
        for part, name in zip(content, names, strict=True)
        for text in (*name, *content_texts(part))
    )


def says_something(content: Content) -> bool:
    """Return False if the content is empty: such a message is not sent."""
    if isinstance(content, str):
        return not is_blank(content)
    return bool(parts_of(content))


def _image(part: JsonMap) -> Part:
    """Return a part with an image in OpenAI's shape, or a note if the image is missing."""
    source = part.get("source")
    if isinstance(source, Mapping):
        part = {"image_url": {"url": _url_of(source) or source.get("url")}}
    image = part.get("image_url")
    if isinstance(image, str | bytes):
        image = {"url": image}
    if isinstance(image, Mapping) and isinstance(image.get("url"), bytes):
        image = {**image, "url": data_url(image["url"])}
    if (
        not isinstance(image, Mapping)
        or not isinstance(image.get("url"), str)
        or is_blank(image["url"])
    ):
        return name_part({"type": "image"}, "the history does not hold it")
    return {"type": "image_url", "image_url": copy_part(image)}


class File(NamedTuple):
    """A file in a message. The value of an unknown field is an empty text."""

    name: str
    media_type: str
    data: str
    url: str
    id: str

    @property
    def text(self) -> str | None:
        """The text of a text file, or None."""
        if not self.media_type.startswith("text/"):
            return None
        try:
            return base64.b64decode(self.data).decode("utf-8", "replace")
        except ValueError:
            return None

    @property
    def data_url(self) -> str:
        """The media type and the bytes as one address."""
        return f"data:{self.media_type};base64,{self.data}"

    def of_openai(self, allowed: str, *, any_type: bool = False) -> Part:
        """Return the fields of the file for one of OpenAI's servers, or a ``text`` in place of the
        file. ``allowed`` describes the files that the server accepts, and becomes a part of this
        text. If ``any_type`` is true, the server accepts files of any type, and web addresses.
        """
        if (text := self.text) is not None:
            return {"text": sendable(f"{self.name or 'file'}:\n{text}")}
        is_audio_or_video = self.media_type.startswith(("audio/", "video/"))
        if self.data and (self.media_type == PDF or (any_type and not is_audio_or_video)):
            from mimetypes import guess_extension

            suffix = guess_extension(self.media_type) or ""
            return {"filename": self.name or f"file{suffix}", "file_data": self.data_url}
        if any_type and self.url.startswith(("https://", "http://")):
            return {"file_url": self.url}
        if self.id and not self.id.startswith("file_"):  # Anthropic's ids begin with this text
            return {"file_id": self.id}
        return {"text": self.named(allowed)["text"]}

    def named(self, allowed: str) -> Part:
        """Return a text in place of the file, which names it and says what the server accepts."""
        label = " ".join(filter(None, ("file", self.name or self.url or self.id)))
        kind = self.media_type or "its address or id"
        return text_part(f"[{label}: {kind} cannot be sent to this server; it takes {allowed}]")


def _file(part: JsonMap) -> list[Part]:
    """Return a part with a ``File``, or a note if the file is missing. If the file consists of
    blocks, return a part for each block.
    """
    source = part.get("source")
    file = part.get("file", part)
    fields: Mapping[str, Any] = file if isinstance(file, Mapping) else {}
    if isinstance(source, Mapping):
        fields = source
    url = _url_of(fields)
    if isinstance(source, Mapping):
        blocks = source.get("content")
        if isinstance(blocks, str):
            return parts_of(blocks)
        if isinstance(blocks, list | tuple):
            return parts_of(
                tuple(
                    block if isinstance(block, dict) else text_part(as_json(block))
                    for block in blocks
                )
            )
        fields = {
            "filename": part.get("title"),
            "file_url": source.get("url"),
            "file_id": source.get("file_id"),
        }
    name, address, file_id = (
        sendable(str(fields.get(key) or "")) for key in ("filename", "file_url", "file_id")
    )
    file = File(name, *data_of(sendable(url)), address, file_id)
    if (url and not file.data) or not any(file[2:]):
        return [name_part(part, "the history does not hold it")]
    others = {key: part[key] for key in ("context", "citations", "cache_control") if key in part}
    return [{"type": "file", "file": file, **copy_part(others)}]


def _url_of(fields: JsonMap) -> str:
    """Return the bytes or the text in the fields of a part as a data URL. Return an empty text if
    there are none.
    """
    data = fields.get("file_data", fields.get("data"))
    media_type = fields.get("media_type")
    if "file_data" in fields:
        from mimetypes import guess_type

        media_type, _ = guess_type(str(fields.get("filename")).rpartition("/")[2])
    elif isinstance(data, str) and fields.get("type") == "text":
        data = data.encode("utf-8", "replace")
        media_type = "text/plain"
    elif isinstance(data, str):
        kind = media_type if isinstance(media_type, str) else _UNKNOWN
        return f"data:{kind};base64,{data}"
    if isinstance(data, bytes):
        return data_url(data, media_type)
    if isinstance(data, str):
        return data
    return ""


def data_url(data: bytes, media_type: object = None) -> str:
    """Return bytes as a data URL. If the media type is unknown, the first bytes tell it."""
    kind = media_type if isinstance(media_type, str) else _media_type(data)
    return f"data:{kind};base64,{_base64(data)}"


def copy_part(part: JsonMap, levels: int = _LEVELS_MAX) -> Part:
    """Return a copy that JSON can hold. Bytes in ``data`` become base64, as servers expect, and all
    other bytes become a note. A value that is nested deeper than ``levels`` becomes a note too,
    because Python limits the recursion.
    """
    return {
        name: (
            _base64(value)
            if name == "data" and isinstance(value, bytes)
            else _copied_value(value, levels - 1)
        )
        for name, value in part.items()
    }


def _copied_value(value: Any, levels: int) -> Any:
    """Return a copy of a value in a part, as ``copy_part`` describes."""
    if not levels and isinstance(value, (Mapping, list, tuple)):
        return _TOO_DEEP
    if isinstance(value, Mapping):
        return copy_part(value, levels)
    if isinstance(value, (list, tuple)):
        return [_copied_value(item, levels - 1) for item in value]
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, bytes):
        return describe_value(value)
    return value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _media_type(data: bytes) -> str:
    """Return the media type that the first bytes of a file tell."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next(
        (kind for begins, kind in _BEGINNINGS if data.startswith(begins)),
        _UNKNOWN,
    )


def image_url_of(part: JsonMap) -> str | None:
    """Return the address of an image that servers accept: a web address, or a data URL of one of
    ``IMAGE_TYPES``. Return None for any other part.
    """
    if part.get("type") != "image_url":
        return None
    url: str = part["image_url"]["url"]
    if url.startswith(("https://", "http://")):
        return url
    return url if data_of(url)[0] in IMAGE_TYPES else None


def data_of(url: str) -> tuple[str, str]:
    """Return the media type and the base64 data of a data URL, or two empty texts."""
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:") and data:
        return (head[5:].lower(), data)
    return ("", "")


def without_pictures(
    parts: Iterable[Part], moved: list[Part], where: str, holds: str = "text"
) -> list[Part]:
    """Return the parts that the message may contain: the texts, and the parts of the type
    ``holds``. Add all other images and files to ``moved``, for the user's message after this one,
    and put a text in their place.
    """
    remaining: list[Part] = []
    for part in parts:
        if part["type"] in ("text", holds):
            remaining.append(part)
        elif part["type"] in _MOVED:
            article, name = _MOVED[part["type"]]
            moved += [text_part(f"[{article} {name} of {where} follows]"), part]
            remaining.append(text_part(f"[{name}: it is in the user's message after this one]"))
        else:
            remaining.append(name_part(part))
    return remaining
