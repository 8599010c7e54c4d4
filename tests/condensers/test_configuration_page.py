"""The page about configuration says what the code does. Run as a program, this renews the tables on
it.
"""

import re
import tomllib
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from foldlog.condensers import LLMConfig, list_strategies
from foldlog.condensers.config.registry import CONDENSER_REGISTRY, names_of
from foldlog.condensers.config.toml import read_condenser_config
from tests.condensers.strategies import strategy_of

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


def test_the_tables_on_the_page_are_those_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    assert renewed(text) == text, "run: python -m tests.condensers.test_configuration_page"


def renewed(text):
    for name, table in (("strategies", strategy_tables()), ("models", model_table())):
        pattern = rf"(<!-- {name}.*?-->\n).*?(<!-- /{name} -->)"
        text = re.sub(
            pattern, lambda match, table=table: match[1] + table + match[2], text, flags=re.DOTALL
        )
    return text


HEAD = "| parameter | | default | |\n|---|---|---|---|\n"


def strategy_tables():
    """Parameters that are the same in several strategies in one table, then each strategy with the
    others.
    """
    strategies = [strategy_of(name) for name in list_strategies()]
    uses = Counter(
        (row(parameter), parameter.name)
        for strategy in strategies
        for parameter in strategy.parameters
    )
    rows_of_a_name = Counter(name for _, name in uses)
    shared = [
        line for (line, name), times in uses.items() if times > 1 and rows_of_a_name[name] == 1
    ]
    return "\n".join(
        [
            "\nSeveral strategies have these parameters:\n",
            HEAD + "\n".join(shared) + "\n",
            *(described(strategy, shared) for strategy in strategies),
            "",
        ]
    )


def described(strategy, shared):
    also = (
        f" (also {', '.join(f'`{alias}`' for alias in strategy.aliases)})"
        if strategy.aliases
        else ""
    )
    description = " ".join(strategy.description.replace("``", "`").split())
    text = f"**`{strategy.type}`**{also} {description[0].lower()}{description[1:]}"
    names = [f"`{parameter.name}`" for parameter in strategy.parameters if row(parameter) in shared]
    rest = [f"`{name}`" for name in shared_names(shared) if f"`{name}`" not in names]
    if len(names) > len(rest):
        but = f", except {', '.join(rest)}" if rest else ""
        text += f" `{strategy.type}` also has the parameters of the first table{but}."
    elif names:
        text += f" `{strategy.type}` also has {', '.join(names)} from the first table."
    own = [row(parameter) for parameter in strategy.parameters if row(parameter) not in shared]
    return f"{text}\n\n{HEAD}" + "\n".join(own) + "\n" if own else f"{text}\n"


def shared_names(shared):
    return [line.split("`")[1] for line in shared]


def row(parameter):
    kind = parameter.type.replace("|", "\\|")
    default = "" if parameter.required else repr(parameter.default)
    return f"| `{parameter.name}` | {kind} | {default} | {parameter.description} |"


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
