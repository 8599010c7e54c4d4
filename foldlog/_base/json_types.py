"""The types of JSON objects. This module imports nothing that takes time, because the command's
completion imports it.
"""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object: its values are JSON values."""
JsonMap = Mapping[str, Any]
"""A JSON object that is only read."""
