"""The version of foldlog. A new store records the version that made it."""

__version__ = "0.1.0"
