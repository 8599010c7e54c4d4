"""A recorded run as the model of a test.

recorded.py                a run that answers for the model, call by call
calls.py                   the calls of the model in a history
prompts.py                 what a program asks, read from any API
differences.py             how a request differs from the recorded request, in words
condensing_differences.py  where a program condensed elsewhere than the run
answers.py                 a recorded reply as the answer of an API, also as a stream
server.py                  a server on this machine that answers from a run
run_file.py                a run in a file: one JSON object a line
going_on.py                the rest of a run with another model or condenser, in a fork
"""
