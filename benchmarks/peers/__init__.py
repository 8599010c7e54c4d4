"""foldlog beside the stores of other runtimes, on one history: ``python -m benchmarks.peers``.

    items.py          the history that every side records, and the answers that every side must give
    side.py           what a side is; the process that runs one (standard library only)
    sides/            one file for each peer: how it is used
    environments.py   an environment for each peer, in .cache/peers
    worker.py         the other end of a side's process
    syncs.py          fsync and fdatasync calls of an append, counted by strace
    measuring.py      interleaved rounds
    report.py         the table, and the figures in docs/internals/PEERS.md and README.md
    plot.py           the picture of the README

docs/internals/PEERS.md says how each peer is used and what the figures mean.
"""
