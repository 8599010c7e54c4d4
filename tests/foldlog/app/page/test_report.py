"""A report is one file that holds a history, and nothing that an event says becomes part of its
markup.
"""

import base64
import json
import re
import zlib
from pathlib import Path

import pytest

from foldlog._app.page import assets
from foldlog._app.page.report import write_report
from foldlog.eventstore import Action, CondensationAction, Observation, open_store
from tests.foldlog.elements import Elements
from tests.page_samples import HOSTILE, hostile_history
from tests.said import replied, said
from tests.stored_rows import execute


def written(tmp_path, events):
    with open_store("memory:") as store:
        store.ingest("c", iter(events))
        path = tmp_path / "c.html"
        assert write_report(store, "c", path) == path.stat().st_size
    text = path.read_text("utf-8")
    return text, Elements(text)


def data(elements, name):
    return [
        json.loads(zlib.decompress(base64.b64decode(script)))
        for attrs, script in elements.scripts
        if attrs.get("class") == name
    ]


def test_file_has_every_event_and_its_fate(tmp_path):
    events = [
        said("look around"),
        Action(tool="ls", arguments={"path": "."}, call_id="1"),
        Observation(tool="ls", content="a.py", call_id="1"),
        CondensationAction(
            forgotten_event_ids=[1, 2],
            summary="it looked",
            summary_offset=1,
            metadata={"tokens_max": 900},
        ),
        replied("done"),
    ]
    _, elements = written(tmp_path, events)
    (document,) = data(elements, "history")
    assert [document["kinds"][kind] for kind in document["events"]["kind"]] == [
        "user",
        "action",
        "observation",
        "condensation",
        "agent",
    ]
    assert document["events"]["left"] == [0, 4, 4, -1, 0]
    assert document["events"]["sent"] == [1, 3, 3, 0, 5]
    assert document["events"]["answers"] == [-1, -1, 1, -1, -1]
    assert document["summaries"][0]["id"] == -5
    assert document["limit"] == 900
    assert document["changes"][0]["summary"] == -5
    texts = [event for chunk in data(elements, "texts") for event in chunk]
    assert [event["id"] for event in texts] == [0, 1, 2, 3, 4]
    assert texts[1]["arguments"] == {"path": "."}
    assert texts[0]["content"] == "look around"


def test_no_text_of_an_event_becomes_markup(tmp_path):
    _, of_harmless = written(tmp_path, [said("x") for _ in hostile_history()])
    text, elements = written(tmp_path, hostile_history())
    kinds = {tag for tag, _ in of_harmless.tags}
    assert {tag for tag, _ in elements.tags} <= kinds | {"tr", "td", "th", "table"}
    assert not any(
        name.startswith("on") or name in ("src", "srcdoc")
        for _, attrs in elements.tags
        for name in attrs
    )
    attacks = [attack for attack in HOSTILE if set(attack) & set("<>{\x1b\u202e")]
    assert len(attacks) > 10
    assert [attack for attack in attacks if attack in text] == []


def test_policy_allows_only_script_and_style(tmp_path):
    _, elements = written(tmp_path, [said("x")])
    policy = next(
        attributes["content"]
        for _, attributes in elements.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed["default-src"] == "'none'"
    assert allowed["script-src"] == assets.content_hash(assets.script())
    assert allowed["style-src"] == assets.content_hash(assets.style())
    runs = [script for attrs, script in elements.scripts if attrs.get("type") is None]
    assert runs == [assets.script()]


def test_modules_share_one_scope_without_a_clash():
    app = Path(assets.__file__).parent / "app"
    assert {path.stem for path in app.glob("*.js")} == set(assets.MODULES)
    for place, name in enumerate(assets.MODULES):
        text = (app / f"{name}.js").read_text()
        imported = re.findall(r'^import [^;]* from "\./([^"]*)\.js";$', text, re.MULTILINE)
        assert len(imported) == len(re.findall("^import ", text, re.MULTILINE)), name
        assert set(imported) <= set(assets.MODULES[:place]), name
    assert not re.search(r"^(?:import|export)\b", assets.script(), re.MULTILINE)
    names = re.findall(
        r"^(?:async )?(?:function|class|const|let) (\w+)", assets.script(), re.MULTILINE
    )
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_script_makes_no_markup_of_texts():
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\.src\b"
    forbidden = rf"{markup}|\beval\b|new Function|window\.open"
    assert re.findall(forbidden, assets.script()) == []
    assert re.findall(r"https?://|@import|url\(", assets.script() + assets.style()) == []


def contrast(some, other):
    """Return the contrast of two colours, as the guidelines for accessible pages define it."""

    def luminance(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(some), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_of_texts_and_kinds(theme):
    blocks = re.findall(r":root[^{]*\{(.*?)\}", assets.style(), re.DOTALL)
    themes = [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in blocks]
    colour = themes[theme]
    for name in (
        "ink",
        "soft",
        "focus",
        "entered",
        "left",
        "limit",
        "border",
        "user-text",
        "summary",
    ):
        for ground in ("ground", "panel"):
            assert contrast(colour[name], colour[ground]) >= 4.5, (name, ground)
    kinds = ("system", "user", "summary", "agent", "observation")
    assert all(contrast(colour[kind], colour["ground"]) >= 3 for kind in kinds)
    neighbours = [
        ("agent", "observation"),
        ("user", "summary"),
        ("summary", "observation"),
        ("system", "agent"),
    ]
    assert all(contrast(colour[first], colour[second]) >= 1.3 for first, second in neighbours)


def test_the_file_is_small_beside_the_texts(tmp_path):
    from benchmarks.workload import history

    events = list(history(1_000))
    text, elements = written(tmp_path, events)
    shown = sum(len(json.dumps(event)) for chunk in data(elements, "texts") for event in chunk)
    assert len(text) <= 1.2 * shown + 300_000


def test_report_says_its_size(foldlog, tmp_path):
    foldlog("append a hi --new")
    assert foldlog("report a --output /dev/null").out == "/dev/null: written\n"
    written_file = foldlog("report a -o r.html --json").document
    assert written_file == {
        "conversation": "a",
        "version": 1,
        "file": "r.html",
        "bytes": (tmp_path / "r.html").stat().st_size,
    }


def test_reader_without_script_sees_the_count(tmp_path):
    text, _ = written(tmp_path, [said("only this")])
    assert "<p>1 event. This page needs a browser" in text


def test_damaged_event_stays_in_its_place(tmp_path):
    url = f"sqlite:///{tmp_path}/s.db"
    path = tmp_path / "c.html"
    with open_store(url) as store:
        store.ingest("c", (said(f"message {number}") for number in range(3)))
    execute(tmp_path / "s.db", "UPDATE events SET body = replace(body, '1', '9') WHERE id = 1")
    with open_store(url) as store:
        write_report(store, "c", path)
    (texts,) = data(Elements(path.read_text("utf-8")), "texts")
    assert [(text["id"], text["kind"]) for text in texts] == [
        (0, "message"),
        (1, "damaged"),
        (2, "message"),
    ]
