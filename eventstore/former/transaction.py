"""The former name of ``eventstore.stored.read_transaction`` and ``eventstore.stored.write_transaction``."""

from eventstore.stored.read_transaction import *  # noqa: F403 - every public name
from eventstore.stored.staging import *  # noqa: F403 - every public name
from eventstore.stored.write_transaction import *  # noqa: F403 - every public name
