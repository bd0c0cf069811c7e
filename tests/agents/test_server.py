"""The server for agents, as the SDK's own client sees it."""

import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator
from mcp import ClientSession, StdioServerParameters, stdio_client

from tuneplan.agents.offered import TOOLS
from tuneplan.contract.schema import json_schema

CONFIG = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: lora
lora_rank: 16
lora_target: all
cutoff_len: 2048
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
bf16: true
"""
LOG = """\
Traceback (most recent call last):
  File "train.py", line 10, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 0 has a total capacity \
of 23.64 GiB of which 2.87 GiB is free. Including non-PyTorch memory, this process has 20.76 GiB \
memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 337.00 MiB is \
reserved by PyTorch but unallocated.
"""
Work = Callable[[ClientSession], Coroutine[Any, Any, None]]


def session(work: Work, *options: str) -> None:
    """Run ``work`` with a client that is connected to a fresh server."""

    async def run() -> None:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "tuneplan", "mcp", *options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        async with (
            stdio_client(server) as (reading, writing),
            ClientSession(reading, writing) as client,
        ):
            await client.initialize()
            await work(client)

    anyio.run(run)


def content(result: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.content[0].text)
    return document


def test_an_agent_plans_a_job_checks_a_configuration_and_diagnoses_a_log() -> None:
    async def work(client: ClientSession) -> None:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [tool.name for tool in TOOLS]
        assert all(tool.annotations.read_only_hint for tool in listed)
        job = {
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "method": "lora",
            "data": {"num_samples": 21000, "mean_tokens": 850},
        }
        planned = await client.call_tool("plan", {"job": job})
        assert not planned.is_error, planned.content
        assert planned.structured_content == content(planned)
        assert planned.structured_content["entries"]
        Draft202012Validator(json_schema("plan")).validate(planned.structured_content)

        checked = await client.call_tool(
            "check", {"text": CONFIG, "file_name": "train.yaml", "gpu": "RTX 4090:1"}
        )
        assert not checked.is_error, checked.content
        assert checked.structured_content["format"] == "llamafactory"
        assert checked.structured_content["estimate"]["fit"]["verdict"]

        found = await client.call_tool("oom", {"log": LOG})
        assert not found.is_error, found.content
        assert found.structured_content["requested_bytes"] == round(3.91 * 2**30)

    session(work)


def test_files_are_read_only_in_the_folders_that_are_allowed(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "job.yaml").write_text(
            "model: Qwen/Qwen2.5-7B-Instruct\naccelerators: [x.yaml]\n"
        )
        (folder / "x.yaml").write_text("accelerators: []\n")
        (folder / "train.yaml").write_text(CONFIG)
    (allowed / "link.yaml").symlink_to(other / "job.yaml")
    (allowed / "out.yaml").write_text(f"{CONFIG}deepspeed: {other / 'ds.json'}\n")
    (other / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')

    async def work(client: ClientSession) -> None:
        inside = await client.call_tool("check", {"path": str(allowed / "train.yaml")})
        assert not inside.is_error, inside.content
        for arguments in (
            {"path": str(other / "train.yaml")},
            {"path": str(allowed / ".." / "other" / "train.yaml")},
            {"path": "../other/train.yaml"},
            {"path": "/etc/passwd"},
            {"path": "file:///etc/passwd"},
            {"path": str(allowed / "link.yaml")},
        ):
            refused = await client.call_tool("check", arguments)
            assert refused.is_error
            assert content(refused)["errors"][0]["code"] == "path_not_allowed"
        # A file that an allowed one points to is stopped where it is opened.
        pointed = await client.call_tool("check", {"path": str(allowed / "out.yaml")})
        assert "zero" not in json.dumps(content(pointed).get("job", {})).casefold()
        job = {"model": "Qwen/Qwen2.5-7B-Instruct", "data": {"path": str(other / "train.yaml")}}
        assert (await client.call_tool("estimate", {"job": job})).is_error

    session(work, "--allow", str(allowed))


def test_wrong_arguments_and_unknown_tools_are_errors_that_say_why() -> None:
    async def work(client: ClientSession) -> None:
        wrong = await client.call_tool("plan", {"modle": "x", "count": 0})
        assert wrong.is_error
        told = json.dumps(content(wrong))
        assert "modle" in told
        assert "count" in told
        unknown_model = await client.call_tool("estimate", {"model": "Qwen/Qwen2.5-7C"})
        assert unknown_model.is_error
        assert content(unknown_model)["errors"][0]["near"]
        assert (await client.call_tool("train", {})).is_error

    session(work)


def test_a_call_that_takes_too_long_ends() -> None:
    async def work(client: ClientSession) -> None:
        late = await client.call_tool("estimate", {"model": "7B"})
        assert late.is_error
        assert content(late)["errors"][0]["code"] == "call_timed_out"
        again = await client.call_tool("catalog", {"kind": "models", "name": "nothing like it"})
        assert again.is_error

    session(work, "--time-limit", "0.05 s")


def test_the_schema_of_the_job_file_is_a_resource() -> None:
    async def work(client: ClientSession) -> None:
        listed = (await client.list_resources()).resources
        assert [str(one.uri) for one in listed] == ["tuneplan://job"]
        read = await client.read_resource(listed[0].uri)
        assert json.loads(read.contents[0].text) == json_schema("job")

    session(work)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_describes_its_arguments_in_a_valid_schema(tool: Any) -> None:
    schema = tool.input_schema()
    Draft202012Validator.check_schema(schema)
    assert len(json.dumps(schema)) < 30_000
    assert not schema["additionalProperties"]
