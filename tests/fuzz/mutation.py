"""Hostile variants of sound inputs: of their bytes, and of the JSON that they are."""

import json
from pathlib import Path

__all__ = ["any_text", "mutated", "mutated_json"]

_CORPUS = Path(__file__).parent / "corpus"
_TOKENS = [
    line.encode().decode("unicode_escape").encode("latin-1")
    for line in (_CORPUS / "tokens.txt").read_text().splitlines()
]
_VALUES = [
    *map(json.loads, (_CORPUS / "values.jsonl").read_text().splitlines()),
    "a" * 10_000,
]


def mutated(at, data):
    """``data`` with a few bytes changed, put in, taken out, doubled, or its end cut off."""
    content = bytearray(data)
    for _ in range(at.choice((1, 1, 1, 2, 3, 8, 20))):
        place = at.randrange(len(content) + 1)
        match at.randrange(6):
            case 0 if content:
                content[place % len(content)] = at.randrange(256)
            case 1 | 2:
                content[place:place] = at.choice(_TOKENS)
            case 3:
                del content[place : place + at.choice((1, 2, 5, 30, 200))]
            case 4:
                other = at.randrange(len(content) + 1)
                content[place:place] = content[other : other + at.choice((5, 50, 500))]
            case _ if at.randrange(4) == 0:
                del content[place:]
    return bytes(content)


def mutated_json(at, value):
    """A copy of ``value`` in which a few values are others, keys are gone, renamed or new, lists
    cut or doubled.
    """
    for _ in range(at.choice((1, 1, 2, 3, 6))):
        value = _change(at, value, at.choice((0, 1, 2, 3, 5)))
    return value


def any_text(at):
    """Text that names nothing well."""
    texts = [value for value in _VALUES if isinstance(value, str)]
    return at.choice(
        (*texts, "c1", "a b", "-x", "--json", "a/b\\c", "%00", "~", "$(id)", "日本", "é")
    )


def _change(at, value, depth):
    if isinstance(value, dict) and value and depth:
        changed = dict(value)
        key = at.choice(list(changed))
        match at.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[at.choice((*changed, "kind", "id", "$exact", "", "\udcff"))] = changed.pop(
                    key
                )
            case 2:
                changed[at.choice(("kind", "type", "id", "extra", "x", "$blob"))] = at.choice(
                    _VALUES
                )
            case 3:
                changed[key] = at.choice(list(changed.values()))
            case _:
                changed[key] = _change(at, changed[key], depth - 1)
        return changed
    if isinstance(value, list) and value and depth:
        changed_list = list(value)
        place = at.randrange(len(changed_list))
        match at.randrange(7):
            case 0:
                del changed_list[place]
            case 1:
                changed_list.insert(place, at.choice(changed_list))
            case 2:
                at.shuffle(changed_list)
            case _:
                changed_list[place] = _change(at, changed_list[place], depth - 1)
        return changed_list
    if isinstance(value, str) and at.randrange(3) == 0:
        return value + str(at.choice(_VALUES))[:500]
    if at.randrange(200) == 0:
        return _nested(at.choice((300, 600, 5_000)), at.choice((list, dict)))
    return at.choice(_VALUES)


def _nested(depth, kind):
    value = "deep"
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def as_json(value):
    """Leniently: whatever Python's json writes, also what is no JSON."""
    try:
        return json.dumps(value).encode("ascii")
    except (ValueError, RecursionError):
        return b"null"
