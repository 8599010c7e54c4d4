"""Checkpoints, with which an auditor finds out what changed in a store. Nothing of a store imports
this folder.

``leaves``: what a checkpoint covers of each conversation.
``stored_leaves``: the leaves as they are stored.
``checkpoint``: make a checkpoint.
``comparison``: compare a store with a checkpoint.
``proofs``: proofs of one event, and of a later checkpoint, for other programs.
``merkle``, ``signed_note``, ``time_stamp``: hash trees, signed texts, and RFC 3161 time stamps.
"""
