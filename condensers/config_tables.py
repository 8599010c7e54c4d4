"""Pydantic models for the tables of a configuration. The error about a wrong table lists the
allowed keys and values.
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
    """A table that refuses unknown keys. No error shows a value, because a value may be an API
    key.
    """

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
            raise wrong_table([(item["loc"], cls._problem(item)) for item in problems]) from None

    @classmethod
    def _problem(cls, error: ErrorDetails) -> str:
        """Return what is wrong with a value of a table. An API key is not shown."""
        match error["type"]:
            case "extra_forbidden":
                return f"unknown key{suggestion(str(error['loc'][-1]), cls.model_fields)}"
            case "missing":
                return "is required"
            # Foldlog's own validator raised this error, with a complete message.
            case "value_error":
                return str(error["ctx"]["error"])
        value = error["input"]
        shown = isinstance(value, int | float) and error["loc"][-1:] != ("api_key",)
        expectation = error["msg"].removeprefix("Input ").replace("tuple", "list")
        return expectation + (f", not {value!r}" if shown else "")


def wrong_table(problems: Iterable[tuple[tuple[int | str, ...], str]]) -> ValidationError:
    """Return the error for a table. A problem is the keys that lead to the wrong value, and a
    message.
    """
    lines: list[InitErrorDetails] = [
        {
            "type": PydanticCustomError("wrong", "{problem}", {"problem": problem}),
            "loc": keys,
            "input": None,
        }
        for keys, problem in problems
    ]
    return ValidationError.from_exception_data("table", lines, hide_input=True)


def configuration_error(error: ValidationError, path: str) -> InvalidCondenser:
    problems: list[str] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in problem["loc"])
        problems.append(f"{path}{keys}: {problem['msg']}")
    return InvalidCondenser("; ".join(problems))


def name_of_kind(value: Any) -> str:
    """Return the kind of a value for an error, which must not show the value itself: it may be an
    API key.
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
    allowed = sorted(allowed)
    similar = difflib.get_close_matches(wrong, allowed, n=1)
    guess = f" (did you mean {similar[0]!r}?)" if similar else ""
    return f"{guess}; allowed are {', '.join(allowed)}"
