"""A store in memory, for tests and short-lived histories. Its data is gone when it is closed.

recorder     the seam: one lock for all
transaction  what may be written
reader       the questions that one transaction answers; index: those over many conversations
tables       everything that is stored, and how changes are taken back
"""

from eventstore.recorders.memory.recorder import MemoryRecorder

__all__ = ["MemoryRecorder"]
