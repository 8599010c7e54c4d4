"""The former name of ``eventstore.stored.hash_chain``."""

from eventstore.stored.hash_chain import *  # noqa: F403 - every public name
