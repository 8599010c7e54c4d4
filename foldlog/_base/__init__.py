"""What all floors share. These modules import nothing of foldlog.

steady_clock.py  a clock of the machine that nobody can set
telemetry.py     log messages, and the hook for telemetry
values.py        search inside a JSON value at any depth
json_types.py    the types of JSON objects
lazy.py          names that are imported at first use
version.py       the version of foldlog
"""
