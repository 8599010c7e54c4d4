"""The JSON Schema of all answers."""

from importlib import import_module
from pkgutil import iter_modules

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog._reports import answers
from foldlog._reports.answers.document import Document


def documents() -> dict[str, type[Document]]:
    """Return the class of each document by its name."""
    return {
        name: kind
        for module in iter_modules(answers.__path__, f"{answers.__name__}.")
        for name, kind in vars(import_module(module.name)).items()
        if name.endswith("Document") and kind is not Document
    }


def schema() -> JsonObject:
    """Return the JSON Schema of all documents. Each document has the name of its class."""
    _, components = msgspec.json.schema_components(
        documents().values(), ref_template="#/$defs/{name}"
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": components}
