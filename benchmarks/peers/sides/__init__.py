"""One file for each peer: how it is used. Each runs in the peer's own environment and imports none
of the others.
"""
