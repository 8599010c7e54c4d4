"""The page shows all texts of an event, and only the size of its data, such as an image."""

import pytest

from foldlog._app.page.texts import text_document
from foldlog.eventstore import Action, Message, Observation

DATA = "iVBORw0KGgo" * 30
SIZE = "[330 characters of data]"


@pytest.mark.parametrize(
    "part, shown",
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
            {"type": "image_url", "image_url": {"url": "[352 characters of data]"}},
        ),
        (
            {"type": "image", "source": {"type": "base64", "data": DATA}},
            {"type": "image", "source": {"type": "base64", "data": SIZE}},
        ),
    ],
    ids=["url", "base64"],
)
def test_an_image_is_replaced_by_its_size(part, shown):
    assert text_document(Message(source="user", content=[part]))["content"] == [shown]


def test_a_stream_of_server_sent_events_is_shown():
    stream = 'data: {"delta": "hi"}\n\n' * 40
    assert text_document(Observation(tool="curl", content=stream))["content"] == stream


def test_a_long_address_is_shown():
    address = f"https://example.org/{'a' * 400}"
    document = text_document(Action(tool="fetch", arguments={"url": address}))
    assert document["arguments"] == {"url": address}
