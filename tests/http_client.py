"""A client of the HTTP service that knows only ``docs/openapi.json``. Each answer is checked against
the document.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from jsonschema import Draft202012Validator

from tests.web_client import Answer, Client

DOCUMENT = json.loads((Path(__file__).parents[1] / "docs/openapi.json").read_text())
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}

_PYTHON = re.compile(r"\w\(\)|\b(history|histories|store|datetime)\.\w+|\w=(True|False|…|\{)")
"""Calls and arguments in Python."""


class Refusal(Exception):
    """A problem. The members of its document are attributes."""

    def __init__(self, answer: Answer) -> None:
        self.document = answer.json()
        self.headers = answer.headers
        assert not _PYTHON.search(self.document["detail"]), "clients need not know Python"
        super().__init__(self.document["detail"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.document[name]


class HttpClient:
    def __init__(self, app: Any, token: str) -> None:
        self._client = Client(app, {"authorization": f"Bearer {token}"}, waits=True)

    def read_document(self) -> Any:
        return self._client.get("/v1/openapi.json").json()

    def refusal(self, name: str, **request: Any) -> Refusal:
        """Send a request that the service refuses, and return why."""
        with pytest.raises(Refusal) as refused:
            self(name, **request)
        return refused.value

    def __call__(
        self, name: str, *, body: Any = None, headers: Mapping[str, str] = {}, **parameters: Any
    ) -> Any:
        """Send a request, and return the document of the answer. Raises ``Refusal``."""
        method, path, operation = OPERATIONS[name]
        query = {}
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                text = quote(str(parameters.pop(parameter["name"])), safe="")
                path = path.replace(f"{{{parameter['name']}}}", text)
            elif parameter["in"] == "query" and parameter["name"] in parameters:
                query[parameter["name"]] = parameters.pop(parameter["name"])
        assert parameters == {}, "the document does not name these parameters"
        content = b""
        if "requestBody" in operation:
            content = json.dumps({} if body is None else body).encode()
            headers = {"content-type": "application/json", **headers}
        answer = self._client.send(
            method, f"{path}?{urlencode(query)}", headers=headers, body=content
        )
        assert str(answer.status) in operation["responses"], f"{name} answers {answer.status}"
        expected = operation["responses"][str(answer.status)]
        if "$ref" in expected:
            expected = DOCUMENT["components"]["responses"][expected["$ref"].rpartition("/")[2]]
            _check(expected["content"]["application/problem+json"], answer)
            assert {
                header.lower() for header in expected.get("headers", {})
            } <= answer.headers.keys()
            raise Refusal(answer)
        if "content" not in expected:
            assert answer.body == b""
            return None
        _check(expected["content"]["application/json"], answer)
        return answer.json()


def _check(content: dict[str, Any], answer: Answer) -> None:
    schema = {**content["schema"], "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(answer.json())
