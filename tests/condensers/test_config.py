"""Configurations mean what they say, or say what is wrong with them and where."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import traceback
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest

import foldlog
from foldlog.condensers.base import Condenser
from foldlog.condensers.config.registry import (
    CONDENSER_REGISTRY,
    CondenserConfig,
    condenser_from_config,
    config_type_of,
    list_strategies,
    names_of,
    parse_config,
    register_config,
)
from foldlog.condensers.config.toml import (
    load_condenser,
    load_condenser_config,
    read_condenser_config,
)
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models import llm_config
from foldlog.condensers.models.llm_config import SET_BY_FOLDLOG, LLMConfig
from foldlog.condensers.strategies.digest import DigestCondenser
from foldlog.condensers.strategies.model_summaries import LLMSummarizingCondenser
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.condensers.strategies.showing import BrowserOutputCondenser, NoOpCondenser
from tests.condensers.strategies import strategy_of

CASES = Path(__file__).parents[2].parent / "shared" / "conformance"

KEY_IS_HERE = """
[condenser]
type = "llm"
max_size = 100
keep_first = 1
max_event_length = 10000
llm_config = "condenser_llm"

[llm.condenser_llm]
model = "gpt-4o-mini"
api_key = "..."
"""

A_PIPELINE_WITHOUT_A_NAME = """
[condenser]
type = "pipeline"
[[condenser.condensers]]
type = "browser_output"
attention_window = 1
[[condenser.condensers]]
type = "llm"
max_size = 80

[llm]
model = "gpt-4o-mini"
"""


def read(text: str, name: str | None = None) -> CondenserConfig:
    return read_condenser_config(tomllib.loads(text), name)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def problem(text: str, name: str | None = None) -> str:
    with pytest.raises(InvalidCondenser) as caught:
        condenser_from_config(read(text, name))
    return str(caught.value)


@pytest.fixture
def toml(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return path

    return write


# --- what the reference documents, and turns into NoOp ---


def test_a_summarizer_with_a_named_model_loads(toml):
    condenser = load_condenser(toml(KEY_IS_HERE))
    assert isinstance(condenser, LLMSummarizingCondenser)
    assert (condenser.max_size, condenser.keep_first, condenser.max_event_length) == (
        100,
        1,
        10_000,
    )
    assert condenser.llm.model == "gpt-4o-mini"
    assert condenser.llm.config.api_key.get_secret_value() == "..."


def test_a_pipeline_whose_summarizer_names_no_model_takes_the_default_one(toml):
    condenser = load_condenser(toml(A_PIPELINE_WITHOUT_A_NAME))
    assert isinstance(condenser, PipelineCondenser)
    masking, summarizing = condenser.condensers
    assert isinstance(masking, BrowserOutputCondenser)
    assert (summarizing.max_size, summarizing.llm.model) == (80, "gpt-4o-mini")


# --- the recorded cases ---

DIFFERENCES = {
    "toml none": "C1: a file without [condenser] is reported",
    "toml notype": "C1: the wrong key is reported, not the whole configuration dropped",
    "toml llm missing name": "C1: a name that means nothing is reported, not another model taken",
    "toml llm no llm_config": "C2: a condenser that names no model takes [llm]",
    "toml structured named": "C1: names are resolved for every strategy",
    "toml seed alias": "C1: the documented name of a type is understood",
    "toml pipeline": "C2: names are resolved in the elements of a pipeline",
    "toml pipeline untyped element": (
        "C2: an element says its type; it is not guessed from its keys"
    ),
    "toml extra": "C1: an unknown key is reported",
    "toml attention window 0": "C1: a value out of range is reported",
    "toml no llms table": "C1: a name that means nothing is reported",
}
RESOLVED = {"toml llm no llm_config", "toml structured named", "toml seed alias", "toml pipeline"}
"""Where ours is what was asked for, and the reference's is NoOp. The others are errors that say
what is wrong.
"""
CLASSES = {"CondenserPipelineConfig": "PipelineCondenserConfig"}
"""Classes of ours by the reference's names, where they differ."""


def test_recorded_files_load_as_the_reference_loads_them_or_are_labelled(record_property):
    if not CASES.is_dir():
        pytest.skip(f"the recorded cases are not beside this checkout ({CASES} is no folder)")
    cases = lines(CASES / "v0.edge.jsonl")
    answers = lines(CASES / "v0.edge.expected.jsonl")
    agreeing = []
    for case, answer in zip(cases, answers, strict=True):
        if case.get("op") != "toml":
            continue
        name = case["case"]
        if name in DIFFERENCES and name not in RESOLVED:
            assert "condenser." in problem(case["text"]), name
            continue
        config = read(case["text"])
        if name in RESOLVED:
            assert not isinstance(config, NoOpCondenser.config_type), name
            continue
        dumped = config.model_dump(mode="json")
        if "llm_config" in dumped:
            dumped["llm_config"] = {"model": dumped["llm_config"]["model"]}
        others = (
            []
            if config.type != "llm"
            else [key for key in ("max_size", "keep_first") if key not in case["text"]]
        )
        # a model's summary has V1's defaults
        dumped |= {key: answer["config"][key] for key in others}
        wanted = _by_published_names(answer["config"])
        assert {key: dumped[key] for key in wanted} == wanted, name
        assert type(config).__name__ == CLASSES.get(answer["class"], answer["class"])
        agreeing.append(name)
    record_property("recorded files that agree", len(agreeing))
    assert len(agreeing) + len(DIFFERENCES) == 17


def _by_published_names(table: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of V0 with the types by the names that are written; V0's own are
    aliases.
    """
    named = {**table, "type": names_of(config_type_of(table["type"]))[0]}
    if "condensers" in table:
        named["condensers"] = [_by_published_names(part) for part in table["condensers"]]
    return named


# --- names, defaults, aliases ---


@pytest.mark.parametrize(
    "alias, canonical",
    [
        ("no_op", "noop"),
        ("NoOpCondenser", "noop"),
        ("observation_masking", "observation_masking"),
        ("browser_output_masking", "browser_output"),
        ("recent", "recent_events"),
        ("amortized", "amortized_forgetting"),
        ("conversation_window", "conversation_window"),
        ("llm_summarizing", "llm"),
        ("LLMSummarizingCondenser", "llm"),
        ("structured", "structured_summary"),
        ("llm_attention", "llm_attention"),
        ("PipelineCondenser", "pipeline"),
        ("digest", "digest"),
    ],
)
def test_every_name_of_a_type_is_understood_and_the_canonical_one_is_written(alias, canonical):
    needed = {"llm_config": {"model": "m"}, "condensers": []}
    kind = type(parse_config({"type": canonical, **_needed(canonical, needed)}))
    config = parse_config({"type": alias, **_needed(canonical, needed)})
    assert type(config) is kind
    assert config.model_dump()["type"] == canonical


@pytest.mark.parametrize("name", ["recent", "recent_events", "amortized", "amortized_forgetting"])
def test_a_name_of_a_type_is_understood_wherever_one_is_read(toml, name):
    condensers = [
        load_condenser(toml(f"[condenser]\ntype = '{name}'")),
        condenser_from_config({"type": name}),
        condenser_from_config({"type": "pipeline", "condensers": [{"type": name}]}).condensers[0],
        foldlog.open("memory:", condenser=name).condenser,
    ]
    written = {condenser.config.model_dump()["type"] for condenser in condensers}
    assert written == {names_of(config_type_of(name))[0]}
    assert written <= {"recent_events", "amortized_forgetting"}


def _needed(canonical: str, values: dict[str, Any]) -> dict[str, Any]:
    fields = config_type_of(canonical).model_fields
    return {name: values[name] for name, field in fields.items() if field.is_required()}


@pytest.mark.parametrize("text", ["", "# nothing", "[condenser]", "[core]\nworkspace = 'here'"])
def test_a_file_without_a_condenser_is_refused(toml, text):
    with pytest.raises(
        InvalidCondenser,
        match=r"config.toml: condenser.type: is missing, because there is no table",
    ):
        load_condenser(toml(text))


# --- models ---

MODELS = """
[condenser]
type = "pipeline"
[[condenser.condensers]]
type = "structured_summary"
llm_config = "cheap"
[[condenser.condensers]]
type = "pipeline"
[[condenser.condensers.condensers]]
type = "llm_attention"
llm_config = "cheap"
[[condenser.condensers.condensers]]
type = "llm"
[condenser.small]
type = "llm"
llm_config = "dear"
max_size = 20
[llm]
model = "base"
base_url = "http://example.org/v1"
api_key = "base key"
fallbacks = ["cheap"]
num_retries = 7
retry_min_wait = 8
[llm.cheap]
model = "cheap"
retry_wait_s = 2
timeout = 5
[llm.dear]
model = "dear"
api_key_env = "DEAR_KEY"
fallbacks = ["cheap", {model = "inline"}]
"""


def test_model_names_are_resolved_at_every_depth_and_named_models_inherit():
    structured, inner = read(MODELS).condensers
    attention, summarizing = inner.condensers
    for named in (structured, attention):
        assert (named.llm_config.model, named.llm_config.base_url) == (
            "cheap",
            "http://example.org/v1",
        )
        assert (named.llm_config.retries, named.llm_config.timeout_s) == (7, 5)
        assert named.llm_config.retry_wait_s == 2
        assert named.llm_config.fallbacks == ()
    assert summarizing.llm_config.model == "base"
    assert [model.model for model in summarizing.llm_config.fallbacks] == ["cheap"]


def test_a_named_group_is_loaded_by_its_name_however_it_is_written():
    for name in ("small", "condenser.small", "[condenser.small]"):
        config = read(MODELS, name)
        assert (config.type, config.max_size, config.llm_config.model) == ("llm", 20, "dear")


def test_a_models_own_way_to_its_key_is_taken_before_an_inherited_key():
    config = read(MODELS, "small").llm_config
    assert (config.api_key, config.api_key_env) == (None, "DEAR_KEY")
    assert [model.model for model in config.fallbacks] == ["cheap", "inline"]


@pytest.mark.parametrize(
    "fallbacks, name",
    [
        ('["llm"]', "llm"),
        ('["b"]', "b"),
        ('[{model = "m", fallbacks = [{model = "n"}]}]', "m"),
        ('["c"]', None),
    ],
)
def test_a_fallback_that_has_fallbacks_is_refused_by_its_name(fallbacks, name):
    text = (
        f'{LLM}[llm]\nmodel = "m"\nfallbacks = {fallbacks}\n[llm.b]\nfallbacks ='
        ' ["llm"]\n[llm.c]\nfallbacks = []'
    )
    if name is None:
        assert [model.fallbacks for model in read(text).llm_config.fallbacks] == [()]
    else:
        said = (
            f"condenser.llm_config: llm.fallbacks[0]: the fallback {name!r} has fallbacks of its own, which"
            " are never asked"
        )
        assert problem(text).startswith(said)


def test_a_fallback_given_as_a_configuration_has_no_fallbacks_either():
    first = LLMConfig(model="a", fallbacks=[LLMConfig(model="b")])
    with pytest.raises(ValueError, match="the fallback 'a' has fallbacks"):
        LLMConfig(model="c", fallbacks=[first])


def test_extra_sets_no_argument_that_foldlog_sets():
    for name in SET_BY_FOLDLOG:
        said = f"condenser.llm_config: llm.extra: foldlog itself sets {name} in each call"
        assert problem(f"{ASKING}[llm.extra]\n{name} = 1\nuser = 'u'").startswith(said)
        assert problem(f"{ASKING}completion_kwargs = {{{name} = 1}}").startswith(said)


def test_an_environment_variable_that_is_not_set_is_reported_with_its_place(monkeypatch):
    monkeypatch.delenv("DEAR_KEY", raising=False)
    said = problem(MODELS, "small")
    assert said.startswith(
        "condenser.llm_config.api_key_env: the environment variable DEAR_KEY is not set"
    )


# --- mistakes ---


OF = "[condenser]\ntype = "
LLM = '[condenser]\ntype = "llm"\n'
PARTS = '[condenser]\ntype = "pipeline"\n[[condenser.condensers]]\n'
NEARLY_LLM = ("LLM", "lllm", "llms")
ASKING = '[condenser]\ntype = "llm"\n[llm]\nmodel = "m"\n'


@pytest.mark.parametrize(
    "text, said",
    [
        (
            OF + '"recent_event"',
            "condenser.type: unknown condenser type 'recent_event' (did you mean 'recent_events'?)",
        ),
        (
            "[condenser]\nmax_size = 3",
            "condenser.type: is required, as a text; it is one of amortized_forgetting,",
        ),
        (LLM + 'max_sise = 3\n[llm]\nmodel = "m"', "condenser.max_sise: unknown key (did you mean"),
        (OF + '"noop"\nfoo = 1', "condenser.foo: unknown key; allowed are type"),
        (
            OF + '"recent_events"\nmax_events = 0',
            "condenser.max_events: should be greater than or equal to 1, not",
        ),
        (
            OF + '"recent_events"\nmax_events = "many"',
            "condenser.max_events: should be a valid integer",
        ),
        (LLM + 'llm_config = "x"\n[llm.y]\nmodel = "m"', "condenser.llm_config: unknown model 'x'"),
        (
            LLM + 'llm_config = "y"\n[llm.y]\nmodle = "m"',
            "condenser.llm_config: llm.y.model: is required; llm.y.modle: unkn",
        ),
        (LLM + "[llm]\ntemperature = 1", "condenser.llm_config: llm.model: is required"),
        (
            LLM + '[condenser.llm_config]\nmodel = "m"\nkey = "x"',
            "condenser.llm_config.key: unknown",
        ),
        (PARTS + "attention_window = 1", "condenser.condensers[0].type: is"),
        (
            PARTS
            + 'type = "noop"\n[[condenser.condensers]]\ntype = "recent_events"\nmax_events = -1',
            "condenser.condensers[1].max_events: should be",
        ),
        (OF + '"pipeline"\ncondensers = 3', "condenser.condensers: "),
        (
            OF + '"pipeline"\ncondensers = [3]',
            "condenser.condensers[0]: should be a table with a 'type'",
        ),
        (
            OF + '"amortized_forgetting"\nmax_size = 4\nkeep_first = 2',
            "condenser: keep_first (2) must be less than half",
        ),
        (
            PARTS + 'type = "digest"\nmax_size = 4\nkeep_first = 1',
            "condenser.condensers[0]: keep_first (1) must",
        ),
        (
            '[condenser.a]\ntype = "noop"',
            "condenser.type: is missing, because there is no table [condenser]",
        ),
        ('[condensers]\ntype = "noop"', "condensers: unknown table; did you mean [condenser]?"),
        (
            ASKING + '[condensr]\ntype = "noop"',
            "condensr: unknown table; did you mean [condenser]?",
        ),
        *(
            (f'{LLM}[{wrong}]\nmodel = "m"', f"{wrong}: unknown table; did you mean [llm]?")
            for wrong in NEARLY_LLM
        ),
        (ASKING + '[LLM.cheap]\nmodel = "n"', "LLM: unknown table; did you mean [llm]?"),
        (
            'type = "digest"\nmax_size = 80',
            "condenser.type: is missing, because there is no table [condenser]; add the table",
        ),
        ('condenser = "noop"', "condenser: should be a table, not a text"),
        (
            OF + '"noop"\nkind = "llm"',
            "condenser.kind: is another word for 'type', and both are given",
        ),
        (
            OF + '"digest"\nmax_length = 499',
            "condenser.max_length: should be greater than or equal to 500",
        ),
        (
            ASKING + "timeout = 9\ntimeout_s = 3",
            "condenser.llm_config: llm: timeout_s has two values, one of them under",
        ),
        (
            ASKING + "retry_wait_s = 9\nretry_min_wait = 3",
            "condenser.llm_config: llm: retry_wait_s has two values",
        ),
        (ASKING + 'fallbacks = "b"', "condenser.llm_config: llm.fallbacks: should be a valid list"),
        (
            ASKING + "timeout_s = inf",
            "condenser.llm_config: llm.timeout_s: should be a finite number",
        ),
        (ASKING + 'api_key = ""', "condenser.llm_config: llm.api_key: "),
        (ASKING + 'base_url = "localhost:8000"', "condenser.llm_config: llm.base_url: "),
    ],
)
def test_a_mistake_is_reported_with_the_path_of_its_key_and_what_is_allowed(text, said):
    assert problem(text).startswith(said)


@pytest.mark.parametrize(
    "type, setting, value, says",
    [
        *(
            (masks, "attention_window", -1, "at least 0")
            for masks in ("observation_masking", "browser_output")
        ),
        *(("recent_events", setting, -1, "at least 0") for setting in ("max_events", "keep_first")),
        ("clear_tool_uses", "trigger", 0, "at least 1"),
        ("clear_tool_uses", "keep", -1, "at least 0"),
        ("clear_thinking", "keep", 0, "at least 1"),
        ("digest", "max_length", 499, "at least 500"),
        ("digest", "minimum_progress", 0.0, "more than 0"),
        ("digest", "minimum_progress", 1.0, "less than 1"),
        ("digest", "hard_context_reset_max_retries", 0, "at least 1"),
        ("digest", "hard_context_reset_context_scaling", 1.0, "less than 1"),
    ],
)
def test_a_constructor_holds_its_settings_to_their_bounds(type, setting, value, says):
    condenser = CONDENSER_REGISTRY[config_type_of(type)]
    with pytest.raises(InvalidCondenser, match=rf"^{setting} \({value}\) must be {says}$"):
        condenser(**{setting: value})


def test_a_setting_that_counts_is_a_whole_number():
    with pytest.raises(InvalidCondenser, match=r"^max_size must be a whole number, not 10.5$"):
        DigestCondenser(max_size=10.5)
    assert DigestCondenser(minimum_progress=0.5).minimum_progress == 0.5


@pytest.mark.parametrize("value", ["10", None, [3]])
def test_a_constructor_names_the_setting_that_is_no_number(value):
    for type, setting in (
        ("amortized_forgetting", "max_size"),
        ("digest", "keep_first"),
        ("recent_events", "max_events"),
    ):
        with pytest.raises(
            InvalidCondenser, match=rf"^{setting} must be a number, not {re.escape(repr(value))}$"
        ):
            CONDENSER_REGISTRY[config_type_of(type)](**{setting: value})


def test_a_group_that_is_not_there_is_reported_with_those_that_are():
    assert (
        problem('[condenser.a]\ntype = "noop"', "b")
        == "condenser.b: unknown group; the groups are 'a'"
    )


def test_an_error_in_a_file_names_the_file_and_where(toml, tmp_path):
    path = toml('[condenser]\ntype = "recent_events"\nmax_events = 0')
    with pytest.raises(InvalidCondenser) as caught:
        load_condenser(path)
    assert str(caught.value).startswith(f"{path}: condenser.max_events: ")
    path = toml("[condenser\n")
    with pytest.raises(InvalidCondenser, match=r"config.toml: is not TOML: .*line 1"):
        load_condenser(path)
    with pytest.raises(InvalidCondenser, match=r"nowhere.toml: cannot be read: No such file"):
        load_condenser(tmp_path / "nowhere.toml")
    for not_toml in (b"\xff\xfe", b"a = " + b"[" * 5_000):
        path.write_bytes(not_toml)
        with pytest.raises(InvalidCondenser, match="is not TOML"):
            load_condenser_config(path)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf[condenser]\ntype = 'digest'\n")
    assert isinstance(load_condenser(path), DigestCondenser)


@pytest.mark.parametrize(
    "text",
    [
        (
            '[condenser]\ntype = "llm"\n[llm]\nmodel = "m"\napi_key = ["sk-1234"]\nbase_url ='
            ' 3\nsk_key = "sk-1234"'
        ),
        '[condenser]\ntype = "llm"\n[[llm]]\nmodel = "m"\napi_key = "sk-1234"',
        '[condenser]\ntype = "llm"\nllm_config = [{model = "m", api_key = "sk-1234"}]',
        '[[condenser]]\ntype = "llm"\n[condenser.llm_config]\nmodel = "m"\napi_key = "sk-1234"',
        '[condenser]\ntype = "pipeline"\ncondensers = [["sk-1234"]]',
        '[condenser]\ntype = "llm"\n[llm]\nmodel = "m"\napi_key = 1234',
    ],
)
def test_no_key_is_shown_by_an_error(toml, text):
    with pytest.raises(InvalidCondenser) as caught:
        load_condenser(toml(text))
    assert "1234" not in "".join(traceback.format_exception(caught.value))


def test_a_name_in_place_of_a_model_needs_a_file():
    with pytest.raises(
        InvalidCondenser,
        match=r"condenser.llm_config: .*only a TOML file has tables \[llm\] to name",
    ):
        condenser_from_config({"type": "llm", "llm_config": "cheap"})


def test_what_is_no_model_in_a_file_is_told_of_the_files_models():
    text = '[condenser]\ntype = "llm"\nllm_config = 3\n[llm]\nmodel = "m"\n[llm.cheap]\nmodel = "n"'
    said = (
        "condenser.llm_config: should be a table with a 'model', or the name of one, not a number"
    )
    assert problem(text) == f"{said}; the models are 'llm', 'cheap'"
    in_vain = '[condenser]\ntype = "llm"\n[llm]\nmodel = "m"\nfallbacks = [3]'
    assert problem(in_vain).startswith(
        "condenser.llm_config: llm.fallbacks[0]: should be a table with a 'model', or the name"
        " of one"
    )


def test_a_model_may_be_given_as_a_configuration_of_its_own():
    config = LLMConfig(model="m")
    assert parse_config({"type": "llm", "llm_config": config}).llm_config is config


# --- strategies from elsewhere ---


class EveryOther(Condenser):
    """Goes on with every other event."""

    type = "every_other"

    def __init__(self, first: int) -> None:
        if first == 13:
            raise KeyError(first)
        self.first = first

    def condense(self, view, agent_llm=None):
        return view.with_events(view.events[self.first :: 2])


def every_other_config() -> type[CondenserConfig]:
    class EveryOtherConfig(CondenserConfig):
        """Goes on with every other event."""

        aliases = ("second",)
        type: Literal["every_other"] = "every_other"
        first: int = 0

    return EveryOtherConfig


@patch.dict(CONDENSER_REGISTRY)
def test_a_strategy_of_ones_own_is_registered_and_configured_like_any_other():
    register_config(every_other_config(), EveryOther)
    assert condenser_from_config({"type": "second", "first": 1}).first == 1
    inner = condenser_from_config(
        {"type": "pipeline", "condensers": [{"type": "every_other"}]}
    ).condensers[0]
    assert isinstance(inner, EveryOther)
    assert "every_other" in [names_of(config_type)[0] for config_type in list_strategies()]


@patch.dict(CONDENSER_REGISTRY)
def test_registering_a_type_twice_is_an_error():
    config = every_other_config()
    register_config(config, EveryOther)
    with pytest.raises(ValueError, match="already registered"):
        register_config(config, EveryOther)
    with pytest.raises(
        ValueError, match="'every_other' is already registered, by EveryOtherConfig"
    ):
        register_config(every_other_config(), EveryOther)


def test_an_unregistered_configuration_is_an_error():
    with pytest.raises(ValueError, match="Unknown condenser config: EveryOtherConfig"):
        condenser_from_config(every_other_config()())


@patch.dict(CONDENSER_REGISTRY)
def test_a_strategys_own_key_error_is_not_taken_for_an_unknown_configuration():
    register_config(every_other_config(), EveryOther)
    with pytest.raises(KeyError, match="13"):
        condenser_from_config({"type": "every_other", "first": 13})


@patch.dict(CONDENSER_REGISTRY)
def test_an_installed_package_brings_its_strategy_by_an_entry_point(tmp_path, monkeypatch):
    (tmp_path / "third.py").write_text(
        "from typing import Literal\n"
        "from foldlog.condensers.base import Condenser\n"
        "from foldlog.condensers.config.registry import CondenserConfig, register_config\n"
        "class ThirdConfig(CondenserConfig):\n"
        "    '''Does nothing, elsewhere.'''\n"
        "    type: Literal['third'] = 'third'\n"
        "class Third(Condenser):\n"
        "    type = 'third'\n"
        "    def condense(self, view, agent_llm=None): return view\n"
        "def register(): register_config(ThirdConfig, Third)\n"
    )
    installed = tmp_path / "third-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[foldlog.condensers]\nthird = third:register\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "third", raising=False)
    assert "third" in [names_of(config_type)[0] for config_type in list_strategies()]
    assert type(condenser_from_config({"type": "third"})).__name__ == "Third"
    monkeypatch.delitem(sys.modules, "third")


@patch.dict(CONDENSER_REGISTRY)
@pytest.mark.parametrize("value", ["no_such_module:register", "json:no_such_function"])
def test_a_package_that_cannot_be_loaded_is_named_and_hides_no_other_mistake(monkeypatch, value):
    broken = EntryPoints([EntryPoint("broken", value, "foldlog.condensers")])
    monkeypatch.setattr(
        "foldlog.condensers.config.registry.entry_points", lambda **which: broken.select(**which)
    )
    with pytest.raises(
        InvalidCondenser, match=f"'broken' of an installed package cannot be loaded from '{value}'"
    ):
        condenser_from_config({"type": "broken"})
    with pytest.raises(
        InvalidCondenser,
        match=r"unknown condenser type 'digset' \(did you mean 'digest'\?\).* broken,",
    ):
        condenser_from_config({"type": "digset"})
    assert condenser_from_config({"type": "digest"})


# --- the list for people ---


def test_strategies_are_listed_with_every_parameter_its_type_default_and_meaning():
    listed = {strategy.type: strategy for strategy in map(strategy_of, list_strategies())}
    assert list(listed) == sorted(listed)
    recent = listed["recent_events"]
    assert recent.aliases == ("recent",)
    assert [(each.name, each.type, each.default) for each in recent.parameters] == [
        ("max_events", "int", 100),
        ("keep_first", "int", 1),
    ]
    assert ("llm_config", "table or name", False) in [
        (each.name, each.type, each.required) for each in listed["llm"].parameters
    ]
    assert {each.name for each in listed["digest"].parameters if each.required} == set()
    wordless = [
        (strategy.type, each.name)
        for strategy in listed.values()
        for each in strategy.parameters
        if not each.description
    ]
    assert wordless == []
    assert [strategy.type for strategy in listed.values() if not strategy.description] == []


def test_every_key_of_another_programs_model_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "COMING_FROM_OPENHANDS.md").read_text(
        encoding="utf-8"
    )
    keys = {
        *llm_config.RENAMED,
        *llm_config.PASSED_ON,
        *llm_config.MAPS,
        *llm_config.WITHOUT_EFFECT,
    }
    named = set(re.findall(r"`(\w+)`", page))
    assert {key for key in keys if key not in named and not key.startswith("aws_")} == set()
