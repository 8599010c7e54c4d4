"""Bytes in events as people and models see them: images as data URLs, all else named, base64 in
JSON.
"""

import base64
import json

import pytest
from msgspec.structs import replace

import foldlog as api
from foldlog.eventstore import Action, Annotation, Message, Observation
from foldlog.formats import encode
from foldlog.projections import View
from tests.foldlog.formats.writing import WRITTEN
from tests.said import said

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
NAMED = "[2 bytes, sha256 06eb7d6a69ee…]"
EVENTS = [
    said(({"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},)),
    said(({"type": "image", "source": {"media_type": "image/png", "data": PNG}},)),
    said(({"type": "input_audio", "input_audio": {"data": b"\x00\xff", "format": "wav"}},)),
    Action(tool="look", arguments={"at": b"\x00\xff", "n": 1}, call_id="c1"),
    Observation(
        tool="look", call_id="c1", content=({"type": "image_url", "image_url": {"url": b"GIF89a"}},)
    ),
    Annotation(name="raw", data={"raw": PNG}),
]


def test_model_is_sent_images():
    view = View.from_events(EVENTS)
    for dialect in ("openai", "litellm", "anthropic"):
        sent = json.dumps(view.to_messages(dialect), ensure_ascii=False)
        assert "AP8=" in sent or dialect == "anthropic"
        assert NAMED in sent
        assert base64.b64encode(b"GIF89a").decode() in sent
    user, *_ = view.to_messages("openai")
    assert user["content"][0] == {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
    assert user["content"][1] == {"type": "image_url", "image_url": {"url": URL}}


def test_unknown_image_is_not_sent():
    view = View.from_events([said(({"type": "image_url", "image_url": {"url": b"\x00"}},))])
    assert view.to_messages("openai") == [
        {"role": "user", "content": "[image: it cannot be sent to this server]"},
    ]


@pytest.fixture
def path(tmp_path):
    with api.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append(EVENTS)
        histories["c"].request_condensation()
        assert histories["c"].step()
    return tmp_path / "foldlog.db"


def assert_shown(foldlog, *lines):
    for line in lines:
        ran = foldlog(line)
        assert (ran.status, ran.err.count("Traceback")) == (0, 0), (line, ran)


@pytest.mark.usefixtures("path")
def test_commands_show_events_with_bytes(foldlog):
    assert_shown(
        foldlog,
        "log c",
        "log c --full",
        "show c 0",
        "show c 3",
        "view c",
        "why c 3",
        "stats c",
        "list",
        "store verify",
        "store verify c --views",
        "search look",
        "export c --format openai-chat",
        "condense c",
        "compare c",
    )


def test_documents_with_bytes_are_shown(foldlog, path):
    with api.open(path) as histories:
        histories["c"].append((), documents={"state": {"at": b"\x00\xff"}, "none": None})
        version = histories["c"].version()
    assert foldlog("show c --documents").out.split("\n")[:2] == [
        "none  null",
        f'state  {{"at": "{NAMED}"}}',
    ]
    assert foldlog("show c --documents --json").document["documents"]["state"] == {"at": "AP8="}
    assert_shown(foldlog, "log c", f"show c {version - 1}", "log c --json", "search state")


def test_an_export_has_images_as_urls():
    image = {"type": "image_url", "image_url": {"url": PNG}}
    content = ({"type": "text", "text": "look"}, image)
    as_bytes = [
        Message(id=0, source="user", content=content),
        Observation(id=1, tool="look", call_id="1", content=content),
    ]
    as_url = [
        replace(event, content=(content[0], {**image, "image_url": {"url": URL}}))
        for event in as_bytes
    ]
    for format in ("openai-chat", "openhands-v1"):
        records, expected = (
            json.dumps(list(encode(events, format))) for events in (as_bytes, as_url)
        )
        assert records == expected, format
        assert base64.b64encode(PNG).decode() in records


@pytest.mark.parametrize("format", WRITTEN)
def test_an_export_is_json(format):
    pdf = {"type": "file", "file": {"filename": "a.pdf", "file_data": b"%PDF-1.4"}}
    events = [replace(event, id=place) for place, event in enumerate((*EVENTS, said((pdf,))))]
    assert json.dumps(list(encode(events, format)), allow_nan=False)
