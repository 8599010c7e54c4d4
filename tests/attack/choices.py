"""What each strategy forgets, written down again from its definition: nothing of the product is used.

A choice is a set of ids to forget. ``None`` says that there is nothing that may be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.attack.law import Item, Shown, cut_points, loops, sent, unseen

Spec = dict[str, Any]


def tokens(item: Item) -> int:
    """What an item is worth to the agent's model of this attack."""
    return 3 + len(item.text) // 4


def total(items: Sequence[Item]) -> int:
    return sum(map(tokens, items))


# --- when ---


@dataclass(frozen=True)
class Due:
    request: bool
    events: bool
    tokens: bool

    @property
    def hard(self) -> bool:
        return self.request or self.tokens


def due(spec: Spec, view: Shown, limit: int | None) -> Due:
    by_tokens = limit is not None and "token" in spec["counts"] and total(view.items) > limit
    return Due(view.requested, "event" in spec["counts"] and len(view.items) > spec["max_size"], by_tokens)


# --- strategies without a summary: their own rule counts items one by one, then whole units stay ---


def forgotten_beside(view: Shown, kept: set[int], *, summaries: bool) -> set[int]:
    """What lies between two cut points goes if no place of it is kept, and a model was shown it. Summaries of what is
    forgotten stay, unless the rule counts them like anything else.
    """
    gone: set[int] = set()
    kept = kept | set(range(unseen(view), len(view.items)))
    for start, stop in pairwise(cut_points(view)):
        if not kept & set(range(start, stop)):
            gone |= {item.id for item in view.items[start:stop] if summaries or item.id >= 0}
    return gone


def ends(view: Shown, head: int, tail: int) -> set[int]:
    places = list(range(len(view.items)))
    return set(places[:head]) | (set(places[-tail:]) if tail > 0 else set())


def recent(spec: Spec, view: Shown) -> set[int]:
    if len(view.items) <= spec["max_events"]:
        return set()
    kept = ends(view, spec["keep_first"], spec["max_events"] - spec["keep_first"])
    return forgotten_beside(view, kept, summaries=True)


def amortized(spec: Spec, view: Shown) -> list[set[int]]:
    kept = ends(view, spec["keep_first"], spec["max_size"] // 2 - spec["keep_first"])
    return [forgotten_beside(view, kept, summaries=True)]


def window(spec: Spec, view: Shown) -> list[set[int]]:
    """V0's window; if it shows observations alone, their calls stay, and may only go where nothing else can. To forget
    only what no model is sent would fulfil no request.
    """
    items = view.items
    users = [place for place, item in enumerate(items) if item.kind == "message" and item.by_user]
    if not users:
        return []
    asked = users[0]
    essential = {asked} | set([place for place, item in enumerate(items) if item.kind == "system"][:1])
    recalls = [n for n, item in enumerate(items) if n > asked and item.tool == "recall" and item.kind == "action"]
    recalls = [n for n in recalls if items[n].query == items[asked].text][:1]
    essential |= set(recalls)
    for recall in recalls:
        found = [n for n, item in enumerate(items) if item.kind == "observation" and item.cause == items[recall].id]
        essential |= set([n for n in found if n > recall][:1])
    newest = list(range(len(items)))[-max(1, (len(items) - len(essential)) // 2) :]
    kept = list(newest)
    while kept and items[kept[0]].kind in ("observation", "summary"):
        kept.pop(0)
    choices = [set(kept)]
    if not kept:
        calls = {place for place in newest if items[place].id in sent(view)}
        choices = [
            calls,
            calls & {place for place, item in enumerate(items) for loop in loops(view) if item.id in loop},
        ]
    gone = [forgotten_beside(view, essential | each, summaries=False) for each in choices]
    return [each for each in gone if each & sent(view)]


def attention(spec: Spec, view: Shown, ids: Sequence[object]) -> list[set[int]]:
    """The head, the first distinct ids of the reply that are in the View outside it, and then the newest."""
    head = set(range(min(spec["keep_first"], len(view.items))))
    places = spec["max_size"] // 2 - len(head)
    free = [n for n, item in enumerate(view.items) if n not in head and item.id >= 0]
    place_of = {view.items[place].id: place for place in free}
    chosen = list(dict.fromkeys(place_of[each] for each in ids if type(each) is int and each in place_of))[:places]
    chosen += [place for place in reversed(free) if place not in chosen][: places - len(chosen)]
    return [forgotten_beside(view, head | set(chosen), summaries=False)]


# --- strategies with a summary: one piece of the View, between cut points ---


@dataclass(frozen=True)
class Piece:
    start: int
    stop: int


def next_cut(view: Shown, wanted: int) -> int | None:
    return next((cut for cut in cut_points(view) if cut >= wanted), None)


def last_cut(view: Shown) -> int:
    """The last cut point before what no model was shown."""
    return max(cut for cut in cut_points(view) if cut <= unseen(view))


def after_prompt(view: Shown) -> int:
    return next((place + 1 for place, item in enumerate(view.items) if item.kind == "system"), 0)


def head_end(spec: Spec, view: Shown) -> int | None:
    return next_cut(view, max(spec["keep_first"], after_prompt(view)))


def by_tokens(view: Shown, head: int, limit: int) -> int:
    """How many items stay at the end so that they and the head come below half of the limit."""
    reduction = total(view.items) - limit // 2
    gone = 0
    rest = view.items[head:]
    for count, item in enumerate(rest, 1):
        gone += tokens(item)
        if gone > reduction:
            return len(rest) - count
    return 0


def middles(spec: Spec, view: Shown, limit: int | None) -> list[Piece]:
    """What a summary may stand for."""
    reasons, length, beside = due(spec, view, limit), len(view.items), spec["keep_first"] + 1
    start = head_end(spec, view)
    if start is None:
        return []
    tails = [spec["max_size"] // 2 - beside] if reasons.events else []
    if reasons.request:
        tails.append(length // 2 - beside)
    if spec["type"] == "digest":  # which leaves two thirds of them: it tells more than a summary of a few lines
        tails = [tail - max(0, tail) // 3 for tail in tails]
    if reasons.tokens and limit is not None:
        tails.append(by_tokens(view, start, limit))
    if min(tails) < 0:
        return []
    stop = next_cut(view, length - min(tails))
    stop = last_cut(view) if stop is None else min(stop, last_cut(view))
    real = sum(item.id >= 0 for item in view.items[start:stop])
    return [Piece(start, stop)] if stop > start and real >= max(1, spec["minimum_progress"] * length) else []


def reset(view: Shown) -> Piece | None:
    """Everything between the first system prompt and calls that wait."""
    start, stop = next_cut(view, after_prompt(view)), last_cut(view)
    if start is None:
        return None
    return Piece(start, stop) if any(item.id >= 0 for item in view.items[start:stop]) else None
