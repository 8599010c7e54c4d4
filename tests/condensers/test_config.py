"""A configuration makes the condenser that it describes, or its error names the mistake and the
place.

``tests/golden/configurations`` has files with what is loaded of them;
``python -m tests.condensers.test_config`` loads them again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import traceback
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import pytest
from pydantic import BaseModel, Field, SecretStr, ValidationError

import foldlog
from foldlog.condensers import (
    Condensation,
    CondenseHandler,
    Condenser,
    DigestCondenser,
    InvalidCondenser,
    LLMConfig,
    LLMSummarizingCondenser,
    NoOpCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
)
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
    condenser_config_from_toml_section,
    load_condenser,
    load_condenser_config,
    read_condenser_config,
)
from foldlog.condensers.models.llm_config import SET_BY_FOLDLOG
from foldlog.condensers.strategies.by_name import condenser_named
from tests.condensers.made import messages, new_history, viewed
from tests.condensers.scripted import AskableAgent, Scripted
from tests.golden.cases import cases_in, write_anew
from tests.golden.rows import rows

CASES = [case for cases in cases_in("configurations").values() for case in cases]


def run_case(case, output):
    """Return the configuration that a file gives, or one of its groups: ``loaded as GROUP``."""
    group = output.removeprefix("loaded").removeprefix(" as ")
    try:
        config = read_condenser_config(tomllib.loads("\n".join(case.lines)), group or None)
        condenser_from_config(config)
    except InvalidCondenser as error:
        return f"refused: {error}"
    return json.dumps(config.model_dump(mode="json", exclude_none=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_golden_configurations(case):
    for output, text in case.outputs.items():
        assert run_case(case, output) == text, "python -m tests.condensers.test_config"


@pytest.mark.parametrize("name", sorted(SET_BY_FOLDLOG))
def test_extra_refuses_arguments_that_foldlog_sets(name):
    with pytest.raises(ValidationError, match=f"foldlog itself sets {name} in each call"):
        LLMConfig(model="m", extra={name: 1, "user": "u"})


# --- files ---


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "config.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_an_error_names_the_file_and_the_place(toml, tmp_path):
    path = toml('[condenser]\ntype = "recent_events"\nmax_events = 0')
    with pytest.raises(InvalidCondenser, match=f"^{path}: condenser.max_events: "):
        load_condenser(path)
    group = toml('[condenser.small]\ntype = "digest"\nmax_size = 10\nkeep_first = 9')
    for name in ("small", "[condenser.small]"):
        with pytest.raises(InvalidCondenser, match=f"^{group}: condenser.small: keep_first "):
            load_condenser(group, name)
    with pytest.raises(InvalidCondenser, match=r"nowhere.toml: cannot be read: No such file"):
        load_condenser(tmp_path / "nowhere.toml")
    with pytest.raises(InvalidCondenser, match=r"config.toml: is not TOML: .*line 1"):
        load_condenser(toml("[condenser\n"))
    for not_toml in (b"\xff\xfe", b"a = " + b"[" * 5_000):
        with pytest.raises(InvalidCondenser, match="is not TOML"):
            load_condenser_config(toml(not_toml))


def test_a_byte_order_mark_is_accepted(toml):
    path = toml(b"\xef\xbb\xbf[condenser]\ntype = 'digest'\n")
    assert isinstance(load_condenser(path), DigestCondenser)


def test_no_traceback_shows_a_key(toml):
    text = '[condenser]\ntype = "llm"\n[llm]\nmodel = "m"\napi_key = ["sk-1234"]'
    with pytest.raises(InvalidCondenser) as caught:
        load_condenser(toml(text))
    assert "1234" not in "".join(traceback.format_exception(caught.value))


# --- from Python, and back ---


@pytest.mark.parametrize(
    "table",
    rows("settings.json", "a table of each condenser"),
    ids=lambda table: table["type"],
)
def test_a_configuration_makes_the_same_condenser_again(table):
    condenser = condenser_from_config(table)
    dumped = condenser.config.model_dump()
    assert condenser_from_config(dumped).config == condenser.config
    assert (type(condenser), condenser.type) == (
        CONDENSER_REGISTRY[type(condenser.config)],
        table["type"],
    )
    assert "sk-secret" not in f"{dumped!r}{condenser.config.model_dump_json()}{condenser.config!r}"


def test_an_invalid_setting_has_no_configuration():
    with pytest.raises(InvalidCondenser, match="attention_window: should be greater than or"):
        _ = ObservationMaskingCondenser(attention_window=0).config


def test_a_masked_key_is_refused():
    masked = json.loads(LLMConfig(model="m", api_key="sk-secret").model_dump_json())
    with pytest.raises(InvalidCondenser, match=r"llm_config: api_key is masked.*api_key_env"):
        condenser_from_config({"type": "llm", "llm_config": masked})
    with pytest.raises(InvalidCondenser, match="api_key is masked, as in printed JSON"):
        condenser_from_config({"type": "llm", "llm_config": {"model": "m", "api_key": "****"}})
    condenser_from_config({"type": "llm", "llm_config": {"model": "gpt-4o", "api_key": "**x*"}})


def test_a_model_may_be_a_configuration_object():
    config = LLMConfig(model="m")
    assert parse_config({"type": "llm", "llm_config": config}).llm_config is config
    with pytest.raises(ValueError, match="the fallback 'm' has fallbacks"):
        LLMConfig(model="c", fallbacks=[LLMConfig(model="m", fallbacks=[config])])


class AgentConfig(BaseModel):
    condenser: CondenserConfig = parse_config({"type": "noop"})
    others: list[CondenserConfig] = []


def test_a_field_may_hold_any_configuration():
    config = AgentConfig.model_validate({"condenser": {"type": "recent_events", "max_events": 5}})
    assert config.condenser == parse_config({"type": "recent_events", "max_events": 5})
    assert AgentConfig.model_validate_json(config.model_dump_json()) == config
    assert AgentConfig(others=[{"kind": "noop"}]).others == [parse_config({"type": "noop"})]
    with pytest.raises(ValidationError, match=r"unknown condenser type 'x'"):
        AgentConfig.model_validate({"condenser": {"type": "x"}})
    assert "condenser" in AgentConfig.model_json_schema()["properties"]


# --- constructors ---


@pytest.mark.parametrize(
    "type, setting, value, says", rows("settings.json", "settings out of their bounds")
)
def test_constructors_check_their_settings(type, setting, value, says):
    condenser = CONDENSER_REGISTRY[config_type_of(type)]
    if says.startswith("a "):
        problem = rf"^{setting} must be {says}, not {re.escape(repr(value))}$"
    else:
        problem = rf"^{setting} \({value}\) must be {says}$"
    with pytest.raises(InvalidCondenser, match=problem):
        condenser(**{"llm": None} if type == "llm" else {}, **{setting: value})


# --- strategies from elsewhere ---


class PlainConfig(BaseModel):
    """A pydantic model that knows nothing of foldlog."""

    type: Literal["plain"] = "plain"
    many: int = Field(default=2, ge=1)
    model_config = {"extra": "forbid"}


class Plain(Condenser):
    type = "plain"

    def __init__(self, many):
        if many == 13:
            raise KeyError(many)
        self.many = many

    def condense(self, view):
        return view.with_events(view[: self.many])


class HalvedConfig(CondenserConfig):
    """A configuration with another name for its type."""

    aliases = ("second",)
    type: Literal["halved"] = "halved"
    many: int = 2


class Halved(Plain):
    """A condenser that makes itself of its configuration."""

    type = "halved"

    @classmethod
    def from_config(cls, config):
        return cls(config.many // 2)


@pytest.fixture
def registered():
    with patch.dict(CONDENSER_REGISTRY):
        Plain.register_config(PlainConfig)
        register_config(HalvedConfig, Halved)
        yield


@pytest.mark.usefixtures("registered")
def test_a_registered_strategy_is_configured_like_others():
    plain = Condenser.from_config(PlainConfig(many=3))
    assert (type(plain), plain.many) == (Plain, 3)
    assert Condenser.from_config(plain.config.model_dump()).config == plain.config
    parts = [{"type": "plain", "many": 3}, {"type": "second", "many": 6}]
    pipeline = Condenser.from_config({"type": "pipeline", "condensers": parts})
    for made_again in (pipeline, Condenser.from_config(pipeline.config.model_dump())):
        assert made_again.condensers[0].many == 3
    assert pipeline.condensers[1].many == 3
    assert {"plain", "halved"} < {names_of(config_type)[0] for config_type in list_strategies()}


@pytest.mark.usefixtures("registered")
def test_errors_of_a_registered_strategy_are_raised():
    with pytest.raises(InvalidCondenser, match="many"):
        condenser_from_config({"type": "plain", "many": 0})
    with pytest.raises(KeyError, match="13"):
        condenser_from_config({"type": "plain", "many": 13})


@pytest.mark.usefixtures("registered")
def test_kind_may_name_a_registered_class():
    assert condenser_from_config({"kind": "Plain", "many": 3}).many == 3
    assert condenser_from_config({"kind": "DigestCondenser"}).type == "digest"
    with pytest.raises(InvalidCondenser, match="unknown condenser type 'Plain'"):
        condenser_from_config({"type": "Plain", "many": 3})


@pytest.mark.usefixtures("registered")
def test_a_type_has_a_name_and_is_registered_once():
    class Other(CondenserConfig):
        type: Literal["plain"] = "plain"

    for config_type in (PlainConfig, Other):
        with pytest.raises(ValueError, match="'plain' is already registered, by PlainConfig"):
            register_config(config_type, Plain)

    class Unregistered(BaseModel):
        """It names no type."""

    with pytest.raises(InvalidCondenser, match="must declare its field 'type' as a literal"):
        Plain.register_config(Unregistered)
    with pytest.raises(InvalidCondenser, match="config: Unregistered is not registered"):
        Condenser.from_config(Unregistered())
    with pytest.raises(InvalidCondenser, match="'noop', which is no RecentEventsCondenser"):
        RecentEventsCondenser.from_config({"type": "noop"})


def test_model_of_ones_own_has_no_configuration():
    condenser = LLMSummarizingCondenser(Scripted())
    with pytest.raises(
        InvalidCondenser, match="the model 'scripted' of the condenser 'llm' has no"
    ):
        _ = condenser.config
    assert LLMSummarizingCondenser(None).config.llm_config is None


def test_keys_of_a_models_table():
    fields = {
        "model": "m",
        "aws_secret_access_key": SecretStr("sk"),
        "aws_region_name": "eu",
        "litellm_extra_body": {"a": 1},
        "completion_kwargs": {"seed": 7},
        "usage_id": "ignored",
        "auth_type": "api_key",
        "temperature": None,
    }
    config = LLMConfig(**fields, extra={"seed": 8})
    assert config.extra == {
        "aws_secret_access_key": "sk",
        "aws_region_name": "eu",
        "extra_body": {"a": 1},
        "seed": 8,
    }
    assert LLMConfig(model="m", litellm_extra_body={}).extra == {}
    assert LLMConfig(model="m", timeout=7, timeout_s=7).timeout_s == 7
    with pytest.raises(ValidationError, match="two keys set timeout_s to different values") as two:
        LLMConfig(model="m", timeout=7, timeout_s=8)
    assert "input" not in str(two.value)
    for odd in ({"completion_kwargs": 5}, {"litellm_extra_body": [1]}, {"top_p": 1, "extra": 5}):
        with pytest.raises(ValidationError, match=r"should be a (table, not|valid dictionary)"):
            LLMConfig(model="m", **odd)
    for wrong in (7, "m"):
        with pytest.raises(ValidationError, match="be a valid dictionary or instance of LLMConfig"):
            LLMConfig.model_validate(wrong)


def test_section_of_another_program():
    """The models come as tables or configurations, and the type has OpenHands' other name."""
    models = {"llm": LLMConfig(model="a", retries=7), "small": {"model": "b"}}
    section = {"kind": "llm", "llm_config": "small", "max_size": 80}
    config = condenser_config_from_toml_section(section, models)["condenser"]
    assert (config.max_size, config.llm_config.model) == (80, "b")
    config = condenser_config_from_toml_section({"type": "llm"}, models)["condenser"]
    assert (config.llm_config.model, config.llm_config.retries) == ("a", 7)
    assert config.llm_config.model_fields_set == {"model", "retries"}
    assert condenser_config_from_toml_section({})["condenser"].type == "noop"
    assert condenser_config_from_toml_section({"type": "digest"})["condenser"].type == "digest"


CONFIGURATIONS = """
import json
from foldlog.condensers.config.registry import list_strategies, names_of
for config_type in list_strategies():
    schema = config_type.model_json_schema()
    print(names_of(config_type), config_type.__doc__, json.dumps(schema))
    try:
        config_type(max_size=True, keep_first=True)
    except ValueError as error:
        print(error)
"""


def test_a_process_makes_the_same_configurations(capsys):
    exec(CONFIGURATIONS, {})
    printed = capsys.readouterr().out
    made = subprocess.run(
        [sys.executable, "-c", CONFIGURATIONS], capture_output=True, text=True, check=True
    )
    assert made.stdout == printed
    assert "should be a number, not True" in printed


def test_a_condenser_may_have_no_configuration():
    class Unknown(Plain):
        config_type = None

    with pytest.raises(InvalidCondenser, match="Unknown has no configuration; register a"):
        _ = Unknown(1).config


PROGRAM = """
from typing import Literal
from foldlog.condensers import Condenser, CondenserConfig, InvalidCondenser, condenser_from_config, register_config
class C(CondenserConfig):
    type: Literal["digest"] = "digest"
try:
    register_config(C, Condenser)
except InvalidCondenser as error:
    print(error)
print(condenser_from_config({"type": "digest"}).type)
"""


def test_built_in_strategies_are_registered_first():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        "condenser type 'digest' is already registered, by DigestCondenserConfig;"
        " choose another type",
        "digest",
    ]


@patch.dict(CONDENSER_REGISTRY)
def test_an_entry_point_registers_a_strategy(tmp_path, monkeypatch):
    (tmp_path / "third.py").write_text(
        "from tests.condensers.test_config import Halved, HalvedConfig\n"
        "def register(): Halved.register_config(HalvedConfig)\n"
    )
    installed = tmp_path / "third-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[foldlog.condensers]\nhalved = third:register\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "third" not in sys.modules
    assert "halved" in [names_of(config_type)[0] for config_type in list_strategies()]
    assert condenser_from_config({"type": "halved"}).type == "halved"
    del sys.modules["third"]


@patch.dict(CONDENSER_REGISTRY)
@pytest.mark.parametrize("value", ["no_such_module:register", "json:no_such_function"])
def test_a_broken_entry_point_is_named(monkeypatch, value):
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


# --- the agent's model where a condenser names none ---


UNNAMED = {"type": "pipeline", "condensers": [{"type": "llm", "max_size": 10, "keep_first": 1}]}


def test_the_agents_model_is_the_default():
    agent_llm = AskableAgent(None, "what came before")
    with new_history(UNNAMED, agent_llm=agent_llm) as history:
        history.append(messages(14))
        assert isinstance(history.step(), Condensation)
        assert "what came before" in str(history.view().events)
    direct = condenser_from_config(UNNAMED).condense(viewed(messages(14)), agent_llm)
    assert isinstance(direct, Condensation)
    assert len(agent_llm.calls) == 2


def test_a_missing_model_is_an_error():
    condenser = condenser_from_config(UNNAMED)
    says = r"names no model.*a table 'llm_config'.*a table \[llm\].*agent_llm="
    with pytest.raises(InvalidCondenser, match=says):
        foldlog.open("memory:", condenser=UNNAMED)
    with foldlog.open("memory:") as histories, pytest.raises(InvalidCondenser, match=says):
        CondenseHandler(histories.store, histories.views, condenser)
    with pytest.raises(InvalidCondenser, match=says):
        condenser.condense(viewed(messages(14)))

    class OnlyCounts:
        model = "counts"

    with pytest.raises(InvalidCondenser, match="'counts' cannot be asked"):
        condenser.for_agent(OnlyCounts())


def test_the_agents_model_must_have_the_needed_abilities():
    weak = Scripted(function_calling=False, response_schema=False)
    for kind in ("structured_summary", "llm_attention"):
        with pytest.raises(InvalidCondenser, match="needs a model that"):
            condenser_from_config({"type": kind}).for_agent(weak)


@pytest.mark.parametrize(
    "wrong, problem",
    [("openai/gpt-4o", "type str"), (object(), "no model, max_input_tokens, max_output_tokens")],
)
def test_an_invalid_agent_model_opens_no_store(tmp_path, wrong, problem):
    with pytest.raises(InvalidCondenser, match=problem):
        foldlog.open(f"sqlite:///{tmp_path}/h.db", agent_llm=wrong)
    assert not (tmp_path / "h.db").exists()
    with foldlog.open("memory:") as histories, pytest.raises(InvalidCondenser, match=problem):
        CondenseHandler(histories.store, histories.views, NoOpCondenser(), wrong)


# --- for people ---


def test_strategies_and_parameters_have_descriptions():
    """Their types, names and defaults are on the page: see ``test_configuration_page.py``."""
    names = [names_of(config_type)[0] for config_type in list_strategies()]
    assert names == sorted(names)
    for config_type in list_strategies():
        fields = (field for name, field in config_type.model_fields.items() if name != "type")
        assert all((config_type.__doc__, *(field.description for field in fields)))


@pytest.mark.parametrize("config_type", list_strategies(), ids=lambda config: config.__name__)
def test_a_name_means_the_default_settings(config_type):
    name = names_of(config_type)[0]
    condenser = condenser_named(name)
    if condenser is None:
        assert "llm_config" in config_type.model_fields or "condensers" in config_type.model_fields
    else:
        assert condenser.config == condenser_from_config({"type": name}).config


def test_configuration_of_no_registered_class_is_refused():
    class Ours(CondenserConfig):
        type: str = "ours"

    with pytest.raises(InvalidCondenser, match="Ours is not registered; call register_config"):
        condenser_from_config(Ours())


def test_configurations_are_the_same_where_nothing_was_imported_before():
    """Fields and limits of configurations are made at import, here in a process of its own."""
    program = (
        "from tests.condensers.test_config import CASES, run_case\n"
        "for case in CASES:\n"
        "    for output, text in case.outputs.items():\n"
        "        assert run_case(case, output) == text, case.rule\n"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


if __name__ == "__main__":
    write_anew("configurations", run_case)
