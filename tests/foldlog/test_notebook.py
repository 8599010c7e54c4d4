"""What a notebook shows: tables without markup of their texts; a repr that is short and asks no
database.
"""

import re

import pytest

import foldlog
import foldlog._reports.words.tables  # as opening a store does
from foldlog.eventstore import open_store
from foldlog.projections import View, Views
from tests.foldlog.elements import Elements
from tests.page_samples import HOSTILE, hostile_history, usual_history
from tests.said import said


def all_shown():
    with open_store("memory:") as store:
        store.ingest("c", hostile_history())
        views = Views(store)
        view = views.current("c")
        yield from (view, views.at("c", 5), views.difference("c", 3, view.version))
        yield from (views.why("c", event_id) for event_id in (1, 2, 3, 30, view.version - 1))
        yield View.from_events(())


@pytest.mark.parametrize("shown", list(all_shown()), ids=lambda shown: type(shown).__name__)
def test_table_shows_texts_without_their_markup(shown):
    elements = Elements(shown._repr_html_())
    for tag, attributes in elements.tags:
        assert tag in {"div", "strong", "table", "tr", "th", "td", "bdi"}
        assert attributes.keys() <= {"style"}
    texts = "".join(elements.texts)
    assert texts
    assert not {"\x1b", "\u202e", "\0", "\x9b"} & {*texts}
    assert len(repr(shown)) < 400


def test_a_long_view_is_shown_by_its_ends():
    view = View.from_events(usual_history(200))
    shown = view._repr_html_()
    ids = [int(number) for number in re.findall(r"<tr><td[^>]*><bdi>(-?\d+)<", shown)]
    expected = [event.id for event in view]
    assert ids == [*expected[:10], *expected[-20:]]
    assert f"{len(expected) - 30} more events" in shown


def test_history_shows_its_view_or_why_not():
    histories = foldlog.open("memory:")
    history = histories["c"]
    assert "View of 0 events" in history._repr_html_()
    history.append(said(HOSTILE[0]))
    assert "&lt;script&gt;" in history._repr_html_()
    histories.close()
    assert (repr(history), repr(histories).startswith("<Histories in ")) == ("<History 'c'>", True)
    assert "closed" in history._repr_html_()
