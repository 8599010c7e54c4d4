"""Make hostile inputs from valid ones: change their bytes, or the values of their JSON."""

import json
from pathlib import Path

_CORPUS = Path(__file__).parent / "corpus"
_TOKENS = [
    line.encode().decode("unicode_escape").encode("latin-1")
    for line in (_CORPUS / "tokens.txt").read_text().splitlines()
]
_VALUES = [
    *map(json.loads, (_CORPUS / "values.jsonl").read_text().splitlines()),
    "a" * 10_000,
]


def mutate(rng, data):
    """Change, insert, delete or repeat some bytes, or cut off the end."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8, 20))):
        place = rng.randrange(len(content) + 1)
        match rng.randrange(6):
            case 0 if content:
                content[place % len(content)] = rng.randrange(256)
            case 1 | 2:
                content[place:place] = rng.choice(_TOKENS)
            case 3:
                del content[place : place + rng.choice((1, 2, 5, 30, 200))]
            case 4:
                other = rng.randrange(len(content) + 1)
                content[place:place] = content[other : other + rng.choice((5, 50, 500))]
            case _ if rng.randrange(4) == 0:
                del content[place:]
    return bytes(content)


def mutate_json(rng, value):
    """Return a copy of a value in which a few values are replaced, keys are deleted, renamed or added,
    and items of lists are deleted, repeated or shuffled.
    """
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        value = _change(rng, value, rng.choice((0, 1, 2, 3, 5)))
    return value


def any_text(rng):
    """Return a name or a content. Most of these texts are hostile."""
    texts = [value for value in _VALUES if isinstance(value, str)]
    return rng.choice(
        (*texts, "c1", "a b", "-x", "--json", "a/b\\c", "%00", "~", "$(id)", "日本", "é")
    )


def _change(rng, value, depth):
    if isinstance(value, dict) and value and depth:
        changed = dict(value)
        key = rng.choice(list(changed))
        match rng.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[rng.choice((*changed, "kind", "id", "$exact", "", "\udcff"))] = changed.pop(
                    key
                )
            case 2:
                changed[rng.choice(("kind", "type", "id", "extra", "x", "$blob"))] = rng.choice(
                    _VALUES
                )
            case 3:
                changed[key] = rng.choice(list(changed.values()))
            case _:
                changed[key] = _change(rng, changed[key], depth - 1)
        return changed
    if isinstance(value, list) and value and depth:
        changed_list = list(value)
        place = rng.randrange(len(changed_list))
        match rng.randrange(7):
            case 0:
                del changed_list[place]
            case 1:
                changed_list.insert(place, rng.choice(changed_list))
            case 2:
                rng.shuffle(changed_list)
            case _:
                changed_list[place] = _change(rng, changed_list[place], depth - 1)
        return changed_list
    if isinstance(value, str) and rng.randrange(3) == 0:
        return value + str(rng.choice(_VALUES))[:500]
    if rng.randrange(200) == 0:
        return _nested(rng.choice((300, 600, 5_000)), rng.choice((list, dict)))
    return rng.choice(_VALUES)


def _nested(depth, kind):
    value = "deep"
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def as_json(value):
    """Return what Python writes for a value, even if that is not valid JSON, such as ``NaN``."""
    try:
        return json.dumps(value).encode("ascii")
    except (ValueError, RecursionError):
        return b"null"
