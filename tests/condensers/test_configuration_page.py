"""The page about configuration says what the code does. Run as a program, this renews the tables on
it.
"""

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import pytest
from pydantic_core import to_jsonable_python

from foldlog.condensers import LLMConfig, list_strategies
from foldlog.condensers.config.registry import CONDENSER_REGISTRY, names_of
from foldlog.condensers.config.toml import read_condenser_config

PAGE = Path(__file__).parents[2] / "docs" / "CONFIGURATION.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", [text for text in blocks("toml") if "[condenser]" in text])
def test_every_file_on_the_page_loads(text):
    document = tomllib.loads(text)
    groups = [name for name, value in document["condenser"].items() if isinstance(value, dict)]
    for name in (None, *groups):
        assert read_condenser_config(document, name).type != "noop"


def test_the_strategy_on_the_page_runs():
    (code,) = (text for text in blocks("python") if "register_config(" in text)
    with patch.dict(CONDENSER_REGISTRY):
        exec(code, {"__name__": "page"})
        assert "every_other" in [names_of(config_type)[0] for config_type in CONDENSER_REGISTRY]


def test_the_tables_on_the_page_are_current():
    text = PAGE.read_text(encoding="utf-8")
    assert renewed(text) == text, "run: python -m tests.condensers.test_configuration_page"


def renewed(text):
    for name, table in (("strategies", strategy_tables()), ("models", model_table())):
        pattern = rf"(<!-- {name}.*?-->\n).*?(<!-- /{name} -->)"
        (match,) = re.finditer(pattern, text, re.DOTALL)
        text = text[: match.end(1)] + table + text[match.start(2) :]
    return text


def strategy_tables():
    """Return the aliases of strategies, and a table of parameters. Strategies that describe a
    parameter in the same way share its row.
    """
    aliases = []
    having = defaultdict(list)
    for config_type in list_strategies():
        strategy, *names = names_of(config_type)
        aliases += [f"`{alias}` for `{strategy}`" for alias in names]
        for name, field in config_type.model_fields.items():
            if name != "type":
                cells = (f"`{name}`", default_of(field), field.description)
                having[cells].append(f"`{strategy}`")
    rows = (" | ".join((*cells, ", ".join(types))) for cells, types in sorted(having.items()))
    return (
        f"\n`type` also accepts {', '.join(aliases)}.\n\n"
        + "| parameter | default | | of |\n|---|---|---|---|\n"
        + "".join(f"| {row} |\n" for row in rows)
        + "\n"
    )


def default_of(field):
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True)
    return repr(to_jsonable_python(default, fallback=repr))


def model_table():
    rows = [f"| `{name}` | {field.description} |" for name, field in LLMConfig.model_fields.items()]
    return (
        "\n| key | |\n|---|---|\n"
        + "\n".join(rows)
        + "\n\n`timeout` is another name of `timeout_s`,"
        + " and `num_retries` is another name of `retries`.\n\n"
    )


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
