"""Find out from its output whether a command failed."""

from __future__ import annotations

import re
from typing import Any

import msgspec


class _Metadata(msgspec.Struct):
    exit_code: int


class _ShellOutput(msgspec.Struct):
    metadata: _Metadata


_shell_output = msgspec.json.Decoder(_ShellOutput)
_HEADER_MAX = 500
_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d+)$", re.MULTILINE)
_REFUSED = re.compile(r"(?:failed in sandbox\b.{0,300}?\bexit code: |execution error\b)", re.DOTALL)


def has_failed(output: Any) -> bool:
    """Return whether an output reports an exit code other than 0, or that the command could not be run.

    It may be JSON text with ``metadata.exit_code``, a text with a header before a line ``Output:``, or an object that
    says ``success``.
    """
    if type(output) is dict:
        return output.get("success") is False or _says_failed(output.get("content"))
    return _says_failed(output)


def _says_failed(output: Any) -> bool:
    if type(output) is not str:
        return False
    if output.startswith("{"):
        return _exit_code(output) != 0
    header, found, _ = output[:_HEADER_MAX].partition("\nOutput:")
    code = _CODE.search(header) if found else None
    return int(code[1]) != 0 if code is not None else _REFUSED.match(output) is not None


def _exit_code(output: str) -> int:
    try:
        return _shell_output.decode(output).metadata.exit_code
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):  # another tool's JSON, or none
        return 0
