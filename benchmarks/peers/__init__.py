"""Compare foldlog with the stores of other runtimes, on one history: ``python -m
benchmarks.peers``.

    items.py          the history that peers record, and the answers that they must return
    side.py           the interface of a peer, and its process (standard library only)
    sides/            a file for each peer, which uses the peer as its runtime does
    environments.py   an environment for each peer, in .cache/peers
    worker.py         starts the process of a peer, and sends requests to it
    syncs.py          fsync and fdatasync calls of an append, counted by strace
    measuring.py      interleaved rounds
    report.py         the table, and the figures in docs/internals/SPEED.md and README.md
    plot.py           the picture of the README

docs/internals/SPEED.md says how each peer is used and what the figures mean.
"""
