"""The server: tools and the schema of the job file, over stdin and stdout.

By the official SDK (extra ``mcp``); modelcontextprotocol.io "Tools", "Resources".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tuneplan._version import __version__
from tuneplan.agents.calls import Limits, Reply, call
from tuneplan.agents.offered import TOOLS, Tool
from tuneplan.contract.schema import json_schema
from tuneplan.errors import MissingExtra
from tuneplan.language import say

JOB_RESOURCE: Final = "tuneplan://job"
_INSTRUCTIONS: Final = (
    "tuneplan says whether an LLM fine-tuning job fits, how long it takes, what it costs and what "
    "to run it on. Answers are ranges (low, likely, high: P10, P50, P90) with every assumption. "
    "Start with `plan` (model, data, limits); `check` reads a framework's own configuration."
)


def serve(limits: Limits) -> None:
    """Answer until stdin ends.

    Raises:
        MissingExtra: The SDK is not installed.
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise MissingExtra(extra="mcp", purpose=say("the interface for agents")) from None

    async def run() -> None:
        server = build_server(limits)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


def build_server(limits: Limits, run_call: Callable[..., Reply] = call) -> Any:
    """The SDK's server with our tools; calls run one at a time."""
    import anyio
    from anyio import to_thread
    from mcp import types
    from mcp.server import Server

    one_at_a_time = anyio.Semaphore(1)
    tools = {tool.name: tool for tool in TOOLS}

    async def list_tools(_context: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=[_described(types, tool) for tool in TOOLS])

    async def call_tool(_context: Any, params: Any) -> Any:
        tool = tools.get(params.name)
        if tool is None:
            text = say("there is no tool {name}", name=params.name)
            return _result(types, Reply(document={"errors": [{"message": text}]}, is_error=True))
        async with one_at_a_time:
            work = partial(run_call, tool, params.arguments or {}, limits)
            reply = await to_thread.run_sync(work, abandon_on_cancel=True)
        return _result(types, reply)

    async def list_resources(_context: Any, _params: Any) -> Any:
        resource = types.Resource(
            uri=JOB_RESOURCE,
            name="job",
            title="Schema of the job file",
            mime_type="application/schema+json",
        )
        return types.ListResourcesResult(resources=[resource])

    async def read_resource(_context: Any, params: Any) -> Any:
        if str(params.uri) != JOB_RESOURCE:
            text = say("there is no resource {name}", name=str(params.uri))
            raise ValueError(text)
        content = types.TextResourceContents(
            uri=JOB_RESOURCE,
            mime_type="application/schema+json",
            text=json.dumps(json_schema("job")),
        )
        return types.ReadResourceResult(contents=[content])

    return Server(
        "tuneplan",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _described(types: Any, tool: Tool) -> Any:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=json_schema(tool.answer),
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


def _result(types: Any, reply: Reply) -> Any:
    document = dict(reply.document)
    text = json.dumps(document, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=None if reply.is_error else document,
        is_error=reply.is_error,
    )
