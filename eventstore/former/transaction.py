"""The former name of ``eventstore.stored.transaction``."""

from eventstore.stored.transaction import *  # noqa: F403 - every public name
