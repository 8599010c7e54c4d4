"""The version of foldlog. A new store records the version that made it."""

VERSION = "0.1.0"
