"""Sessions of pi and OpenClaw: what pi sends its model is what the View shows."""

from __future__ import annotations

import json

from tests.foldlog.formats.reading import histories_at, recorded

HEAD, FIRST, REPLY, *_ = recorded("pi", "the view is the branch of the last entry")


def test_a_session_has_its_id_and_its_name(tmp_path, foldlog):
    path = tmp_path / "2026_x.jsonl"
    named = {**FIRST, "type": "session_info", "id": "n", "parentId": "b", "name": "The lighthouse"}
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (HEAD, FIRST, REPLY, named)))
    (history,) = histories_at(tmp_path)
    assert (history.name, history.format) == ("s-1", "pi")
    assert foldlog("import", path).status == 0
    with path.open("a") as file:
        file.write(f"{json.dumps({**FIRST, 'id': 'd', 'parentId': 'a'})}\n")
    assert foldlog("import", path).status == 0
    (row,) = foldlog("list", "--long", "--json").document["conversations"]
    assert row["title"] == "The lighthouse"
