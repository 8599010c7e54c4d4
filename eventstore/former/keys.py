"""The former name of ``eventstore.stored.keys``."""

from eventstore.stored.keys import *  # noqa: F403 - every public name
