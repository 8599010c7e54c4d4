"""Logs of Inspect: a history for each sample."""

import json
import tracemalloc
import zipfile

import pytest

import foldlog
from foldlog.formats import NotAHistory, inspect_eval
from tests.foldlog.formats.reading import histories_at, recorded
from tests.foldlog.imports.imports import Import, new_store

FORMAT = "inspect-eval"
*MESSAGES, END = recorded(FORMAT, "the end of a sample tells the tokens of each model")
INPUT = MESSAGES[1]
ABOUT = {"eval_id": "E1", "run_id": "R", "task": "t", "model": "m"}
ENTRY = b"PK\x01\x02"
"""An entry in the list of files begins so. 30 bytes before the name of a file is its header."""
IS_ENCRYPTED = 1
IS_UTF_8 = 8
"""Bits of the flags: the first of the first byte, and the fourth of the second byte."""


def sample(messages, **more):
    events = [{"event": "model", "input": messages}]
    return {
        **END,
        "input": "how far?",
        "messages": messages,
        "events": events,
        "attachments": {},
        **more,
    }


def zipped(path, samples, method=zipfile.ZIP_DEFLATED, header="header.json"):
    with zipfile.ZipFile(path, "w", method) as log:
        log.writestr(
            "_journal/start.json" if header is None else header,
            json.dumps({"version": 2, "eval": ABOUT}),
        )
        for name, content in samples.items():
            log.writestr(
                f"samples/{name}.json", content if isinstance(content, str) else json.dumps(content)
            )
        log.writestr("summaries.json", "[]")
    return path


def test_each_sample_of_a_log_is_a_history(tmp_path):
    samples = [sample(MESSAGES), sample(MESSAGES[:2], id="x/1", epoch=1)]
    path = zipped(tmp_path / "a.eval", {"1_epoch_2": samples[0], "x_1_epoch_1": samples[1]})
    for place in (path, tmp_path):
        first, second = histories_at(place)
        assert (first.name, first.format, first.records) == (
            "E1/1_epoch_2",
            FORMAT,
            [*MESSAGES, END],
        )
        end = {**END, "id": "x/1", "epoch": 1}
        assert (second.name, second.records) == ("E1/x/1_epoch_1", [*MESSAGES[:2], end])
    assert len(histories_at(path.rename(tmp_path / "a.bak"))) == 2


def test_the_texts_of_attachments_stand_in_their_places(tmp_path):
    parts = [{"type": "text", "text": "attachment://h1"}, {"type": "image", "image": "tc://h2"}]
    attached = sample(
        [{**INPUT, "content": parts}],
        attachments={"h1": "a long text", "h2": "data:image/png;base64,AP8="},
    )
    (history,) = histories_at(zipped(tmp_path / "a.eval", {"1_epoch_2": attached}, header=None))
    assert history.name == "E1/1_epoch_2"
    assert [part.get("text") or part["image"] for part in history.records[0]["content"]] == [
        "a long text",
        "data:image/png;base64,AP8=",
    ]


def call_of_model(span, prompt_tokens, cache=None):
    """Return the event of a call with ``prompt_tokens`` and one token of a reply."""
    message = {"role": "assistant", "content": f"reply in {span}", "source": "generate"}
    usage = {"input_tokens": prompt_tokens, "output_tokens": 1, "total_tokens": prompt_tokens + 1}
    return {
        "event": "model",
        "model": "m",
        "span_id": span,
        "input": [INPUT],
        "output": {"choices": [{"message": message}], "usage": usage},
        "cache": cache,
    }


@pytest.mark.parametrize("cache", [None, "read"], ids=["all called", "main agent cached"])
def test_calls_of_an_agent_that_a_tool_called_are_counted_once(cache, tmp_path):
    sub_calls = [call_of_model("sub", 70), call_of_model("sub", 7)]
    main_call = call_of_model("main", 900, cache)
    # as Inspect counts: the calls of all agents, without the replies from the cache
    paid = sub_calls if cache else [main_call, *sub_calls]
    prompt_tokens = [call["output"]["usage"]["input_tokens"] for call in paid]
    counted = sample(
        MESSAGES[:2],
        events=[
            {"event": "span_begin", "id": "main", "parent_id": None},
            main_call,
            {"event": "tool", "id": "call-1", "span_id": "main", "agent_span_id": "sub"},
            {"event": "span_begin", "id": "sub", "parent_id": "main"},
            *sub_calls,
        ],
        model_usage={"m": {"input_tokens": sum(prompt_tokens), "output_tokens": len(paid)}},
    )
    path = zipped(tmp_path / "a.eval", {"1_epoch_2": counted})
    with foldlog.open("memory:") as histories:
        main, sub = histories.import_(path)
        spent = {history.id: history.stats().spent for history in (main, sub)}
        assert spent[main.id].calls == len(paid) - len(sub_calls)
        assert spent[sub.id].calls == len(sub_calls)
        assert sum(usage.prompt_tokens or 0 for usage in spent.values()) == sum(prompt_tokens)
        assert sum(usage.completion_tokens or 0 for usage in spent.values()) == len(paid)


def zipped_with_zstd(path, texts):
    zstandard = pytest.importorskip("zstandard")
    with zipfile.ZipFile(path, "w") as log:
        for name, text in texts.items():
            log.writestr(name, zstandard.compress(text.encode()))
    # Python writes zstd since 3.14: the method is at 8 and at 10 of the headers
    marked = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (ENTRY, 10)):
        at = marked.find(mark)
        while at >= 0:
            marked[at + place] = 93
            at = marked.find(mark, at + 4)
    path.write_bytes(marked)
    return path


def test_log_compressed_with_zstd_is_read(tmp_path):
    texts = {
        "header.json": json.dumps({"version": 2, "eval": ABOUT}),
        "samples/1_epoch_2.json": json.dumps(sample(MESSAGES)),
    }
    (history,) = histories_at(zipped_with_zstd(tmp_path / "a.eval", texts))
    assert (history.name, history.records) == ("E1/1_epoch_2", [*MESSAGES, END])


@pytest.mark.parametrize("pack", ["deflate", "zstd"])
def test_a_sample_that_would_fill_the_memory_is_refused(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(inspect_eval, "_SIZE_LEAST", 2**20)
    bomb = json.dumps(sample([{**INPUT, "content": "spam" * 2**23}], id="b", epoch=1))
    small = json.dumps(sample(MESSAGES))
    path = tmp_path / "a.eval"
    texts = {"samples/1_epoch_2.json": small, "samples/b_epoch_1.json": bomb}
    if pack == "zstd":
        zipped_with_zstd(path, {"header.json": json.dumps({"version": 2, "eval": ABOUT}), **texts})
    else:
        zipped(path, {"1_epoch_2": small, "b_epoch_1": bomb})
    with new_store() as store:
        tracemalloc.start()
        try:
            whole, refused = Import(store, [path])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert store.version(whole.conversation) == 8
    assert "b_epoch_1.json: cannot be read: it unpacks to more than" in str(refused.error)
    assert peak < len(bomb)


def test_an_unreadable_sample_spoils_no_other(tmp_path):
    path = zipped(
        tmp_path / "a.eval",
        {"1_epoch_2": '{"id": 1, "epo', "3_epoch_1": sample(MESSAGES, id=3, epoch=1)},
    )
    with new_store() as store:
        broken, whole = Import(store, [path])
        assert "cannot be read" in str(broken.error)
        assert f"{path}/samples/1_epoch_2.json" in str(broken.error)
        assert (whole.conversation, store.version(whole.conversation)) == ("E1/3_epoch_1", 8)


@pytest.mark.parametrize("damage", ["encrypted", "beyond the end", "cut", "name"])
def test_a_sample_in_a_damaged_place_spoils_no_other(damage, tmp_path):
    texts = {
        "header.json": json.dumps({"version": 2, "eval": ABOUT}),
        "samples/3_epoch_1.json": json.dumps(sample(MESSAGES, id=3, epoch=1)),
        "samples/4_epoch_1.json": json.dumps(sample(MESSAGES, id=4, epoch=1)),
    }
    path = tmp_path / "a.eval"
    if damage == "beyond the end":
        zipped_with_zstd(path, texts)
    else:
        zipped(path, {"3_epoch_1": texts["samples/3_epoch_1.json"], "4_epoch_1": ""})
    log = bytearray(path.read_bytes())
    entry = log.rfind(ENTRY, 0, log.rfind(b"samples/4_epoch_1.json"))
    header = log.find(b"samples/4_epoch_1.json") - 30
    if damage == "encrypted":
        log[entry + 8] |= IS_ENCRYPTED
        log[header + 6] |= IS_ENCRYPTED
    elif damage == "name":
        log[header + 7] |= IS_UTF_8
        log[header + 30] = 0xFF
    elif damage == "cut":  # its sizes, packed and unpacked, are more bytes than the log has
        log[entry + 20 : entry + 28] = (9_000).to_bytes(4, "little") * 2
    else:  # its header would begin in the last bytes of the log
        log[entry + 42 : entry + 46] = (len(log) - 27).to_bytes(4, "little")
    path.write_bytes(log)
    with new_store() as store:
        whole, broken = Import(store, [path])
        assert (whole.conversation, store.version(whole.conversation)) == ("E1/3_epoch_1", 8)
        assert "samples/4_epoch_1.json: cannot be read: " in str(broken.error)


@pytest.mark.parametrize("damage", ["cut", "name", "version"])
def test_a_log_without_a_list_of_files_is_no_history(damage, tmp_path):
    path = zipped(tmp_path / "a.eval", {"3_epoch_1": sample(MESSAGES, id=3, epoch=1)})
    log = bytearray(path.read_bytes())
    entry = log.find(ENTRY)
    if damage == "cut":
        del log[200:]
    elif damage == "name":
        log[entry + 9] |= IS_UTF_8
        log[entry + 46] = 0xFF
    else:
        log[entry + 6] = 0xFF  # the version of ZIP that it needs
    path.write_bytes(log)
    with pytest.raises(NotAHistory, match="damaged, or not yet finished"):
        histories_at(path)
