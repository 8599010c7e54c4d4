"""Each file describes how a peer is used. It runs in the peer's own environment, and imports no
other side.
"""
