"""The former name of ``eventstore.stored.rows``."""

from eventstore.stored.rows import *  # noqa: F403 - every public name
