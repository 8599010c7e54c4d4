"""Merkle trees as in RFC 6962, section 2.1, over leaves that are only ever appended.

The *edge* of a tree has the roots of its largest complete subtrees, from left to right. It has at
most 64 hashes, and is all that is needed to append further leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from hashlib import sha256

Hashes = Sequence[bytes]


def leaf_hash(data: bytes) -> bytes:
    return sha256(b"\0" + data).digest()


def _parent(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def grown_edge(edge: Iterable[bytes], size: int, leaf_hashes: Iterable[bytes]) -> list[bytes]:
    """Return the edge of a tree with ``size`` leaves, after ``leaf_hashes`` were appended."""
    grown = [*edge]
    for number, subtree in enumerate(leaf_hashes, size):
        root = subtree
        while number & 1:
            root = _parent(grown.pop(), root)
            number >>= 1
        grown.append(root)
    return grown


def root_of_edge(edge: Hashes) -> bytes:
    """Return the root of the tree with an edge. The root of a tree without leaves is the hash of no
    bytes.
    """
    if not edge:
        return sha256().digest()
    return reduce(lambda right, left: _parent(left, right), reversed(edge))


def root_of(leaf_hashes: Hashes) -> bytes:
    return root_of_edge(grown_edge((), 0, leaf_hashes))


def _halves(leaf_hashes: Hashes) -> tuple[int, Hashes, Hashes]:
    """Return the number of leaves of the left subtree, and the leaves of both subtrees. The left
    subtree has the largest power of two that is smaller than the number of all leaves.
    """
    middle = 1 << ((len(leaf_hashes) - 1).bit_length() - 1)
    return middle, leaf_hashes[:middle], leaf_hashes[middle:]


def inclusion_path(index: int, leaf_hashes: Hashes) -> list[bytes]:
    """Return the hashes that prove that the tree has the leaf ``index``, from the leaf's sibling up
    to the child of the root.
    """
    if len(leaf_hashes) == 1:
        return []
    middle, left, right = _halves(leaf_hashes)
    if index < middle:
        return [*inclusion_path(index, left), root_of(right)]
    return [*inclusion_path(index - middle, right), root_of(left)]


def consistency_path(earlier: int, leaf_hashes: Hashes, *, is_known: bool = True) -> list[bytes]:
    """Return the hashes that prove that the tree begins with the ``earlier`` leaves of an earlier
    tree. ``earlier`` is at least 1. ``is_known`` is true while the verifier knows the root of these
    leaves.
    """
    if earlier == len(leaf_hashes):
        return [] if is_known else [root_of(leaf_hashes)]
    middle, left, right = _halves(leaf_hashes)
    if earlier <= middle:
        return [*consistency_path(earlier, left, is_known=is_known), root_of(right)]
    return [*consistency_path(earlier - middle, right, is_known=False), root_of(left)]
