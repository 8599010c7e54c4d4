"""A limit of tokens holds without the agent's model: an estimate that errs high counts in its
place.
"""

import base64
import json
import random
from pathlib import Path

import pytest
from msgspec.structs import replace as change

import foldlog
from foldlog.condensers import (
    LLM,
    DigestCondenser,
    LLMConfig,
    LLMSummarizingCondenser,
    Reason,
)
from foldlog.condensers.models import estimate as estimating
from foldlog.condensers.models.estimate import (
    ESTIMATE,
    counting,
    estimate,
    estimate_by_samples,
    of_thinking,
)
from foldlog.eventstore import SystemMessage
from foldlog.projections import View
from tests.condensers.made import (
    answer,
    call,
    message,
    messages,
    parts_with,
    plan,
    viewed,
)
from tests.condensers.scripted import Characters, Scripted
from tests.how_many import some
from tests.imported import imported, real_histories
from tests.projections.parts import image, text


@pytest.mark.parametrize("seed", some(range(50), 5))
def test_a_long_text_is_counted_in_parts(monkeypatch, seed):
    """The sum is the same as without parts, and other threads go on between the parts."""
    rng = random.Random(seed)
    words = [
        "word",
        "number 12 ",
        "\n",
        "    x",
        "Größe ",
        "X9",
        "a1b2 ",
        "\t",
        "-- ",
        "日本",
        "_f(",
        "End. ",
    ]
    text = "".join(rng.choice(words) for _ in range(3_000))
    at_once = estimate(text)
    monkeypatch.setattr(estimating, "_SLICE", 100)
    assert len([*estimating._slices(text)]) > 20
    assert estimate(text) == at_once


TOKENIZERS = ["gpt-4o-mini", "gpt-4", "claude-sonnet-4-5"]
"""Three tokenizers that litellm ships."""

DRAWS = random.Random(7)


def drawn(choices, count=3_000):
    return "".join(DRAWS.choices(choices, k=count))


TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog, and nobody is surprised. " * 30,
    "code": Path(foldlog.__file__).read_text() * 3,
    "minified code": drawn(["a=b(c,d);", "if(!x)return!1;", "var e=t[n],", "}};"], 500),
    "base64": base64.b64encode(DRAWS.randbytes(3_000)).decode(),
    "hex": DRAWS.randbytes(2_000).hex(),
    "digits": drawn("0123456789"),
    "numbers": json.dumps([DRAWS.random() for _ in range(200)]),
    "signs": drawn("{}[]()<>;:,.!?@#$%^&*-_=+|/~`'\""),
    "letters": drawn("abcdefghijklmnopqrstuvwxyz"),
    "colours of a terminal": "".join(f"\x1b[{n % 9};{n}m{n % 7}\x1b[0m" for n in range(300)),
    "Chinese": "我们需要修复解析器中的错误并且重新运行所有的测试以确认结果是正确的。" * 30,
    "Russian": "Нужно исправить ошибку в разборе даты и снова запустить тесты. " * 30,
    "Hindi": "हमें तारीख पार्सर में त्रुटि को ठीक करना होगा और परीक्षण फिर से चलाना होगा। " * 30,
    "spaces": " " * 3_000 + "\n" * 300,
    "nothing": "",
}


def counted(model, content):
    """Return the tokens of a text without the message around it."""
    llm = LLM(LLMConfig(model=model))
    whole, empty = (llm.count_tokens([{"role": "user", "content": text}]) for text in (content, ""))
    return whole - empty


def test_an_estimate_is_hardly_below_the_tokens():
    for name, content in TEXTS.items():
        for model in TOKENIZERS:
            assert estimate(content) >= 0.95 * counted(model, content), (name, model)


def test_prose_and_code_are_estimated_below_twice_their_tokens():
    for name in ("prose", "code"):
        assert estimate(TEXTS[name]) <= 2 * counted("gpt-4o-mini", TEXTS[name])


def without_thinking(event):
    """litellm counts no thinking."""
    return change(event, thinking=()) if getattr(event, "thinking", ()) else event


def test_a_long_text_is_estimated_by_samples_of_all_of_it():
    text = "the queue returns a value " * 400
    assert estimate_by_samples(text) == pytest.approx(estimate(text), rel=0.05)
    halves = "word " * 2_000 + 10_000 * " "
    assert estimate(halves) / 2 < estimate_by_samples(halves) < estimate(halves) * 2
    assert estimate_by_samples(text[:2_000]) == estimate(text[:2_000])


def test_encrypted_thinking_does_not_count_as_text():
    signature = "q83vEjRWeJC7" * 100
    block = {"type": "thinking", "thinking": "two words", "signature": signature}
    assert of_thinking(block) == of_thinking({**block, "signature": ""}) + 240
    assert estimate(signature) > 3 * 240


@pytest.mark.parametrize("model", some(TOKENIZERS, 2))
@real_histories
def test_estimates_of_real_views(model, path):
    llm = LLM(LLMConfig(model=model))
    views = [
        View.from_events(map(without_thinking, history.events(0, 120)))
        for history in imported(path)
    ]
    ratios = [
        ESTIMATE.token_sums(view)[-1] / llm.token_sums(view)[-1] for view in views if len(view) > 5
    ]
    assert min(ratios) > 1
    assert max(ratios) < 2.2


def test_sums_add_up_and_count_images():
    system = SystemMessage(content="s", tools=({"type": "function", "function": {"name": "run"}},))
    events = [system, message("go"), call(), answer((text("see"), image()))]
    view = viewed(events)
    sums = ESTIMATE.token_sums(view)
    assert list(sums) == sorted(sums)
    assert sums[len(view)] > 1_600
    assert ESTIMATE.token_sums(view.with_events(view[:2]))[-1] == sums[2]


def test_a_text_file_counts_as_its_text():
    for part in parts_with(TEXTS["code"]).values():
        tokens = ESTIMATE.token_sums(viewed(message((part,))))[-1]
        assert 1 <= tokens / estimate(TEXTS["code"]) < 1.3


# --- limits ---


@pytest.mark.parametrize(
    "agent", [counting(None), Characters(unknown=True)], ids=["no model", "no tokenizer"]
)
def test_max_tokens_holds_without_a_count(agent):
    condenser = DigestCondenser(max_size=1_000, max_tokens=2_500)
    view = viewed(message(f"message {n}: " + "words " * 1_000) for n in range(40))
    assert condenser.reasons(view, agent) == {Reason.TOKENS}
    action = plan(condenser.condense(view, agent))
    assert action.metadata["tokens_estimated"] is True
    assert action.metadata["tokens_before"] > 40 * 1_000
    after = ESTIMATE.token_sums(view.then([action]))[-1]
    assert after == action.metadata["tokens_after"] <= 2_500


def test_a_models_limit_holds_without_a_count():
    view = viewed(messages(200))
    condenser = DigestCondenser(max_size=1_000)
    assert condenser.reasons(view, Characters(500, unknown=True)) == {Reason.TOKENS}
    assert condenser.reasons(view, Characters(50_000, unknown=True)) == set()


def test_a_count_goes_before_an_estimate():
    condenser = DigestCondenser(max_size=1_000, max_tokens=100)
    action = plan(condenser.condense(viewed(messages(60)), Characters()))
    assert "tokens_estimated" not in action.metadata


def test_without_any_limit_nothing_is_estimated(monkeypatch):
    monkeypatch.setattr(ESTIMATE, "token_sums", lambda view: pytest.fail("there is no limit"))
    assert LLMSummarizingCondenser(Scripted()).reasons(viewed(messages(5))) == set()
