"""The JSON Schema of all answers."""

from importlib import import_module

import msgspec

from foldlog._answers.document import Document
from foldlog._base.json_types import JsonObject

_MODULES = (
    "comparison",
    "conversations",
    "document",
    "events",
    "figures",
    "files",
    "page",
    "programs",
    "redaction",
    "runs",
    "store",
    "verification",
    "views",
)


def documents() -> dict[str, type[Document]]:
    """Return the class of each document by its name."""
    return {
        name: kind
        for module in _MODULES
        for name, kind in vars(import_module(f"foldlog._answers.{module}")).items()
        if name.endswith("Document") and kind is not Document
    }


def schema() -> JsonObject:
    """Return the JSON Schema of all documents. Each document has the name of its class."""
    _, components = msgspec.json.schema_components(
        documents().values(), ref_template="#/$defs/{name}"
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": components}
