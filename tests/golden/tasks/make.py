"""Let agent SDKs write the files of this folder: ``python -m tests.golden.tasks.make NAME``.

In each file, a lead calls a scout and a smith, the smith calls a probe, and the scout's tool fails.
``SERVED`` is what the scripted model served to each agent. A function's name is the name of its
file, and its docstring names the packages that it needs.
"""

import asyncio
import base64
import gzip
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tests.adapters.model_server import ModelServer, Reply

HERE = Path(__file__).parent
SIZES = {"lead": (1_000, 11), "scout": (200, 22), "smith": (3_000, 33), "probe": (40_000, 44)}
SERVED = {agent: (2, 2 * prompt + 1, 2 * reply) for agent, (prompt, reply) in SIZES.items()}
"""The calls, the prompt tokens and the completion tokens of each agent."""
CALLS = {"lead": ("scout", "smith"), "smith": ("probe",)}
MEASURES = {"scout": "boom", "probe": "mast"}
_NAMED = re.compile(r"\[(\w+)\]")


def request(agent):
    return f"[{agent}] do your work"


def calls_of(agent, argument, prefix="ask_"):
    """Return the calls of an agent's first reply. ``argument`` is the name of a sub-agent's
    argument.
    """
    if what := MEASURES.get(agent):
        return [("measure", f"call_{what}", {"what": what})]
    return [(f"{prefix}{name}", f"call_{name}", {argument: request(name)}) for name in CALLS[agent]]


def measure(what: str) -> str:
    """Measure."""
    if what == "boom":
        raise ValueError("boom: no measure")
    return f"{what}: measured"


def tree(make, as_tool):
    """Make the agents with ``make(name, tools)``. ``as_tool(agent, name)`` makes a tool of one."""
    smith = make("smith", [as_tool(make("probe", [measure]), "probe")])
    scout = make("scout", [measure])
    return make("lead", [as_tool(scout, "scout"), as_tool(smith, "smith")])


class Fleet(ModelServer):
    def __init__(self, argument, prefix="ask_"):
        super().__init__()
        self.url += "/v1"
        self._call = argument, prefix

    def reply_to(self, request):
        messages = request["messages"]
        words = json.dumps([message for message in messages if message["role"] != "assistant"][:2])
        agent = _NAMED.findall(words)[-1]
        turn = sum(message["role"] == "assistant" for message in messages)
        prompt, reply = SIZES[agent]
        calls = () if turn else calls_of(agent, *self._call)
        return Reply(f"the {agent} is done" if turn else "", calls, prompt + turn, reply)


def tracer(path):
    """Return a provider that writes spans as a collector does, with ids in hexadecimal digits."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

    def in_hex(value):
        if isinstance(value, list):
            return [in_hex(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64decode(each).hex()
            if key.endswith(("traceId", "panId"))
            else in_hex(each)
            for key, each in value.items()
        }

    class Exporter(SpanExporter):
        def export(self, spans):
            with path.open("a") as file:
                file.write(f"{json.dumps(in_hex(MessageToDict(encode_spans(spans))))}\n")

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Exporter()))
    trace.set_tracer_provider(provider)
    return provider


# -- the SDKs
# --------------------------------------------------------------------------------------------------


def pydantic_ai(path):
    """pydantic-ai-slim[openai]==2.68.0"""
    from pydantic_ai import Agent, InstrumentationSettings, ModelRetry
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    Agent.instrument_all(InstrumentationSettings(tracer_provider=tracer(path)))
    provider = OpenAIProvider(base_url=Fleet("task").url, api_key="k")

    def make(name, tools):
        model = OpenAIChatModel("scripted", provider=provider)
        agent = Agent(model, name=name, instructions=f"You are [{name}]")
        for tool in tools:
            agent.tool_plain(retried if tool is measure else tool)
        return agent

    def retried(what: str) -> str:
        try:
            return measure(what)
        except ValueError as error:
            raise ModelRetry(str(error)) from error

    retried.__name__ = "measure"

    def as_tool(agent, name):
        async def ask(task: str) -> str:
            return (await agent.run(task)).output

        ask.__name__ = f"ask_{name}"
        return ask

    asyncio.run(tree(make, as_tool).run(request("lead")))


def _openai_agents():
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=Fleet("input").url, api_key="k")
    model = OpenAIChatCompletionsModel("scripted", client)

    def make(name, tools):
        chosen = [function_tool(tool) if tool is measure else tool for tool in tools]
        return Agent(name, instructions=f"You are [{name}]", model=model, tools=chosen)

    lead = tree(make, lambda agent, name: agent.as_tool(f"ask_{name}", "asks"))
    asyncio.run(Runner.run(lead, request("lead")))


def openai_agents(path):
    """openai-agents==0.24.0 opentelemetry-instrumentation-openai-agents-v2"""
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    OpenAIAgentsInstrumentor().instrument(tracer_provider=tracer(path))
    _openai_agents()


def openinference(path):
    """openai-agents==0.24.0 openinference-instrumentation-openai-agents"""
    from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    OpenAIAgentsInstrumentor().instrument(tracer_provider=tracer(path))
    _openai_agents()


def strands(path):
    """strands-agents[openai,otel]==1.62.0"""
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    tracer(path)
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    address = {"base_url": Fleet("task").url, "api_key": "k"}

    def make(name, tools):
        model = OpenAIModel(client_args=address, model_id="scripted")
        chosen = [tool(function) if function is measure else function for function in tools]
        about = {"system_prompt": f"You are [{name}]", "callback_handler": None}
        return Agent(model=model, name=name, tools=chosen, **about)

    def as_tool(agent, name):
        @tool(name=f"ask_{name}")
        def ask(task: str) -> str:
            """Ask."""
            return str(agent(task))

        return ask

    tree(make, as_tool)(request("lead"))


def agent_framework(path):
    """agent-framework-core==1.23.0 agent-framework-openai"""
    tracer(path)
    from agent_framework import Agent
    from agent_framework.observability import enable_instrumentation
    from agent_framework.openai import OpenAIChatCompletionClient

    enable_instrumentation(enable_sensitive_data=True)
    client = OpenAIChatCompletionClient("scripted", api_key="k", base_url=Fleet("task").url)

    def make(name, tools):
        return Agent(client, f"You are [{name}]", name=name, tools=tools)

    lead = tree(make, lambda agent, name: agent.as_tool(name=f"ask_{name}"))
    asyncio.run(lead.run(request("lead")))


def google_adk(path):
    """google-adk==2.13.0"""
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
    tracer(path)
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.adk.tools.agent_tool import AgentTool
    from google.genai import types

    class Scripted(BaseLlm):
        async def generate_content_async(self, llm_request, stream=False):
            (agent,) = set(_NAMED.findall(str(llm_request.config.system_instruction)))
            turn = sum(content.role == "model" for content in llm_request.contents)
            parts = [types.Part(text=f"the {agent} is done")] if turn else []
            if not turn:
                for tool, call_id, arguments in calls_of(agent, "request", ""):
                    call = types.FunctionCall(id=call_id, name=tool, args=arguments)
                    parts.append(types.Part(function_call=call))
            prompt, reply = SIZES[agent]
            usage = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=prompt + turn, candidates_token_count=reply
            )
            content = types.Content(role="model", parts=parts)
            yield LlmResponse(content=content, usage_metadata=usage)

    def tried(what: str) -> dict[str, str]:
        try:
            return {"result": measure(what)}
        except ValueError as error:
            return {"error": str(error)}

    tried.__name__ = "measure"

    def make(name, tools):
        def instruct(callback_context, llm_request):
            llm_request.config.system_instruction = f"You are [{name}]"  # without ADK's sentences

        chosen = [tried if tool is measure else tool for tool in tools]
        about = {"name": name, "description": name, "before_model_callback": instruct}
        return LlmAgent(model=Scripted(model="scripted"), tools=chosen, **about)

    runner = InMemoryRunner(tree(make, lambda agent, name: AgentTool(agent)), app_name="app")
    asyncio.run(runner.run_debug(request("lead"), session_id="s1", quiet=True))


def inspect_eval(path):
    """inspect-ai==0.3.285 openai"""
    from inspect_ai import Task, eval
    from inspect_ai.agent import AgentPrompt, as_tool, react
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.tool import ToolError, tool

    @tool(name="measure")
    def measuring():
        async def execute(what: str) -> str:
            """Measure.

            Args:
                what: The thing.
            """
            try:
                return measure(what)
            except ValueError as error:
                raise ToolError(str(error)) from error

        return execute

    def make(name, tools):
        prompt = AgentPrompt(f"You are [{name}]", None, None, None)
        chosen = [measuring() if function is measure else function for function in tools]
        return react(name=name, description=name, prompt=prompt, tools=chosen, submit=False)

    url = Fleet("input", "").url
    model = get_model("openai-api/fleet/scripted", base_url=url, api_key="k", memoize=False)
    sample = Sample(id="s1", input=request("lead"))
    lead = tree(make, lambda agent, name: as_tool(agent))
    settings = {"display": "none", "score": False, "log_format": "json"}
    task = Task(dataset=[sample], solver=lead, name="fleet")
    (log,) = eval(task, model=model, log_dir=str(path.parent), **settings)
    shutil.move(log.location, path)


if __name__ == "__main__":
    writer = globals()[sys.argv[1]]
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "written")
        writer(written)
        # traces of exceptions have the folders of this machine
        text = re.sub(r'(File \\+")[^"]*/', r"\1", written.read_text())
    (HERE / f"{writer.__name__}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
