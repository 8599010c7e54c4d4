"""Each module uses one peer as its runtime does. A module runs in the environment of its peer, and
imports no other module of this package.
"""
