"""Exceptions at every place where Python may run a signal handler.

A handler runs between two instructions: at the beginning of a function, after a call of one written
in C, and at a jump backwards (``eval_breaker`` in CPython). A test raises at the first such place
of our code, then at the second, until there is none left.
"""

import dis
import gc
import sys
from contextlib import contextmanager

_CHECKED_AFTER = {
    dis.opmap[name]
    for name in ("RESUME", "JUMP_BACKWARD", "CALL", "CALL_FUNCTION_EX")
    if name in dis.opmap
}


class Interrupting:
    """A trace function that raises an exception at the place with a number, in modules whose names
    begin with ``of``. ``raised`` says whether the exception was raised.
    """

    def __init__(self, place, exception, of):
        self.raised = False
        self._of = of
        self.places_left = place
        self._exception = exception
        self._returned_to = set()

    def __call__(self, frame, event, _):
        # After the call of a function that is written in Python, no handler runs.
        self._returned_to.add(frame.f_back)
        if not frame.f_globals["__name__"].startswith(self._of):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        last = None

        def step(frame, event, _):
            nonlocal last
            if event == "opcode":
                before = last
                last = frame.f_code.co_code[frame.f_lasti]
                if frame in self._returned_to:
                    self._returned_to.remove(frame)
                # At the beginning of a function, no instruction came before.
                elif before is None or before in _CHECKED_AFTER:
                    self._pass_place()
            return step

        return step

    def _pass_place(self):
        """Count a place. At the last one, raise the exception, as a handler would. Python then
        stops tracing.
        """
        self.places_left -= 1
        if self.places_left == 0:
            self.raised = True
            raise self._exception


@contextmanager
def interrupted_at(place, exception, of="foldlog.eventstore."):
    """Raise an exception in the block, at the place with this number."""
    interrupting = Interrupting(place, exception, of)
    before = sys.gettrace()
    # The garbage of earlier tests would have places too, in ``__del__``, which can raise nothing.
    gc.disable()
    sys.settrace(interrupting)
    try:
        yield interrupting
    finally:
        sys.settrace(before)
        gc.enable()
