"""The JSON Schema of all answers."""

from typing import Any

import msgspec

from foldlog._answers import (
    comparison,
    conversations,
    document,
    events,
    figures,
    files,
    page,
    programs,
    redaction,
    runs,
    store,
    verification,
    views,
)
from foldlog._answers.document import Document

_FILES = (
    comparison,
    conversations,
    document,
    events,
    figures,
    files,
    page,
    programs,
    redaction,
    runs,
    store,
    verification,
    views,
)


def documents() -> dict[str, type[Document]]:
    """Return the class of each document by its name."""
    return {
        name: kind
        for file in _FILES
        for name, kind in vars(file).items()
        if name.endswith("Document") and kind is not Document
    }


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents. Each document has the name of its class."""
    _, components = msgspec.json.schema_components(
        documents().values(), ref_template="#/$defs/{name}"
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": components}
