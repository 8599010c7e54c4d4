"""The former name of ``eventstore.writing.importing``."""

from eventstore.writing.importing import *  # noqa: F403 - every public name
