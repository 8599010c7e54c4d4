"""Who follows a store around a damaged page meets all that stands between its rows."""

from pathlib import Path

from eventstore import Message, open_store
from eventstore.maintenance.erase import erase
from eventstore.stored.row_codec import DAMAGED


def test_an_erasure_between_unreadable_rows_is_met(tmp_path: Path):
    path = tmp_path / "store.db"
    live = [Message(source="user", content=f"live {n:04} " + "x" * 300) for n in range(100)]
    with open_store(path) as store:
        store.append("gone", live[:1], expected_version=0)
        store.append("stays", live[:50], expected_version=0)
        erase(store, "gone", reason="asked")
        store.append("stays", live[50:], expected_version=50)
    content = bytearray(path.read_bytes())
    for page in range(0, len(content), 4_096):
        if b"live 0049 " in content[page : page + 4_096]:
            content[page : page + 4_096] = b"\xff" * 4_096
    path.write_bytes(content)
    met, more = [], True
    with open_store(path) as store:
        while more:
            rows, more = store.database.readable_places(met[-1].position if met else 0, 100)
            met += rows
    assert [placed.position for placed in met] == list(range(2, 103))
    assert met[50].conversation == "gone"
    assert met[49].row.encoding == DAMAGED
