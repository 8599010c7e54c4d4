"""Tables of a configuration, as pydantic models whose errors say which keys and values are
allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from foldlog.condensers.errors import InvalidCondenser


class StrictTable(BaseModel):
    """A table without unknown keys. No error shows a value that may be a key of a model."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    @model_validator(mode="wrap")
    @classmethod
    def _in_plain_words(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            raise wrong_table([(each["loc"], cls._problem(each)) for each in problems]) from None

    @classmethod
    def _problem(cls, error: ErrorDetails) -> str:
        match error["type"]:
            case "extra_forbidden":
                return f"unknown key{suggestion(str(error['loc'][-1]), cls.model_fields)}"
            case "missing":
                return "is required"
            case "value_error":  # one of our own
                return str(error["ctx"]["error"])
        given = error["input"]
        shown = isinstance(given, int | float) and error["loc"][-1] != "api_key"
        said = error["msg"].removeprefix("Input ").replace("tuple", "list")
        return said + (f", not {given!r}" if shown else "")


def wrong_table(problems: Iterable[tuple[tuple[int | str, ...], str]]) -> ValidationError:
    """Return the error of a table with these problems, each with the keys that lead to it."""
    lines: list[InitErrorDetails] = [
        {
            "type": PydanticCustomError("wrong", "{problem}", {"problem": problem}),
            "loc": keys,
            "input": None,
        }
        for keys, problem in problems
    ]
    return ValidationError.from_exception_data("table", lines, hide_input=True)


def refused(error: ValidationError, path: str) -> InvalidCondenser:
    """Return the error that names each problem of the table at ``path`` with the path of its
    key.
    """
    problems = []
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in each["loc"])
        problems.append(f"{path}{keys}: {each['msg']}")
    return InvalidCondenser("; ".join(problems))


def told(value: Any) -> str:
    """Name the kind of a value that should be a table, for an error; not the value itself, which
    may be a key.
    """
    kinds = {
        str: "a text",
        list: "a list",
        tuple: "a list",
        type(None): "nothing",
        bool: "true or false",
    }
    return kinds.get(
        type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}"
    )


def suggestion(wrong: str, allowed: Iterable[str]) -> str:
    """Return the end of an error on an unknown word: the word that was meant, if one is near, and
    those allowed.
    """
    allowed = sorted(allowed)
    near = difflib.get_close_matches(wrong, allowed, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{meant}; allowed are {', '.join(allowed)}"
