"""The former name of ``eventstore.stored.results``."""

from eventstore.stored.results import *  # noqa: F403 - every public name
