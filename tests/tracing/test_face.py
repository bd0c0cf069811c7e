"""The command on a small real model: JSON, text, cache, estimate, snapshot, Python."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import jsonschema
import pytest
from torch.cuda import _memory_viz

import tuneplan
from tracing.small_jobs import recipe_for, small_llama
from tuneplan.catalog.architectures import build_architecture
from tuneplan.catalog.models import load_models
from tuneplan.contract.schema import json_schema
from tuneplan.errors import InvalidRequest
from tuneplan.spec.parallelism import Parallelism
from tuneplan.tracing.cache import TraceCache, job_key
from tuneplan.tracing.images import image_size
from tuneplan.tracing.refusals import check_traceable
from tuneplan.tracing.wire import Traced, TraceRequest, read_request, request_document
from tuneplan.units import GIB

ROOT = Path(__file__).parents[2]
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
}
# Parameters: 2 embeddings of 1024 x 256; a layer: q and o 256 x 256, k and v 128 x 256, gate, up
# and down 512 x 256, two norms; a last norm.
PARAMETERS = 2 * 1024 * 256 + 2 * (2 * 256**2 + 2 * 128 * 256 + 3 * 512 * 256 + 2 * 256) + 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder, a job whose samples vary in length, and a cache of their own."""
    found = tmp_path_factory.mktemp("traced")
    (found / "model").mkdir()
    (found / "model" / "config.json").write_text(json.dumps(CONFIG))
    job = {
        "model": "model",
        "method": "full",
        "framework": "transformers",
        "data": {"num_samples": 200, "mean_tokens": 300},
        "training": {"max_length": 512, "per_device_train_batch_size": 2, "dtype": "bfloat16"},
        "hardware": {"accelerator": "NVIDIA L4"},
    }
    (found / "job.json").write_text(json.dumps(job))
    return found


def tuneplan_says(folder: Path, *arguments: str, **environment: str):
    command = [sys.executable, "-m", "tuneplan", *arguments]
    settings = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        **environment,
    }
    return subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def answer(folder: Path) -> dict:
    said = tuneplan_says(
        folder, "trace", "job.json", "--json", "--snapshot", "snapshot.pickle",
        "--limit", "200 MiB", "--limit", "2 GiB",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def test_the_answer_obeys_its_schema(answer):
    jsonschema.validate(answer, json_schema("trace"))
    assert answer["supported"] is True
    assert answer["model"]["total_parameters"] == PARAMETERS


def test_memory_is_traced_and_its_terms_sum_to_the_peak(answer):
    memory = answer["memory"]
    assert memory["peak_bytes"]["basis"] == "traced"
    terms = {term["kind"]: term["size_bytes"] for term in memory["terms"]}
    assert sum(terms.values()) == memory["peak_bytes"]["likely"]
    rounding = 512 * 20  # each weight in steps of 512 bytes
    assert 0 <= terms["trained_weights"] - 2 * PARAMETERS <= rounding
    assert 0 <= terms["optimizer_states"] - 2 * 2 * PARAMETERS <= 2 * rounding + 512 * 40


def test_reserved_is_never_less_than_allocated_and_a_history_of_lengths_adds_to_it(answer):
    memory = answer["memory"]
    reserved = memory["reserved"]
    assert reserved["fresh_bytes"] >= memory["peak_bytes"]["likely"]
    assert reserved["after_history_bytes"] >= reserved["fresh_bytes"]
    assert memory["peak_device_bytes"]["likely"] == pytest.approx(
        memory["peak_reserved_bytes"]["likely"] + memory["context_bytes"], abs=1
    )
    for moment in answer["timeline"]:
        assert moment["reserved_bytes"] >= moment["allocated_bytes"]


def test_the_timeline_goes_from_loading_through_two_steps_and_reaches_the_peak(answer):
    times = [moment["t"] for moment in answer["timeline"]]
    assert times == sorted(set(times))
    phases = [moment["phase"] for moment in answer["timeline"]]
    changes = [one for one, before in zip(phases, ["", *phases], strict=False) if one != before]
    step = ["forward", "loss", "backward", "optimizer_step"]
    assert changes == ["load", *step, *step]
    top = max(moment["allocated_bytes"] for moment in answer["timeline"])
    assert top == answer["memory"]["peak_bytes"]["likely"]


def test_what_is_alive_at_the_peak_is_named_by_module(answer):
    alive = {one["module"]: one for one in answer["at_peak"] if one["kind"] == "trained_weights"}
    gate = alive["model.layers.*.mlp.gate_proj.weight"]
    assert gate["shape"] == [512, 256]
    assert gate["count"] == 2
    assert gate["size_bytes"] == 2 * 512 * 256 * 2


def test_arithmetic_is_counted_by_class(answer):
    """A product of T tokens with n weights is 2 T n; twice that backward; no recomputation."""
    classes = {one["class"]: one for one in answer["operations"]}
    tokens = answer["sequences"] * answer["length"]
    linear = PARAMETERS - 1024 * 256 - 5 * 256  # no embedding, no norms
    assert classes["matmul"]["flops"] == pytest.approx(2 * 6 * tokens * linear, rel=1e-6)
    assert classes["view"]["flops"] == 0


def test_limits_are_answered_by_replay_with_the_context_on_top(answer):
    small, large = answer["fit_in"]
    assert (small["verdict"], large["verdict"]) == ("does_not_fit", "fits")
    assert small["capacity_bytes"] == 200 * 2**20  # less than the context of an L4
    assert large["capacity_bytes"] == 2 * GIB


def test_the_process_tells_its_time_memory_and_libraries(answer):
    process = answer["process"]
    assert process["from_cache"] is False
    assert 0 < process["trace_s"] < 60
    assert 50e6 < process["host_peak_bytes"] < 2e9
    assert {"torch", "transformers", "peft"} <= set(process["versions"])


def test_pytorch_s_own_viewer_reads_the_snapshot(answer, folder):
    found = pickle.loads((folder / "snapshot.pickle").read_bytes())  # noqa: S301 - our own file
    assert _memory_viz.segsum(found).count("20.0MiB allocated") == sum(
        segment["total_size"] == 20 * 2**20 for segment in found["segments"]
    )
    listed = _memory_viz.trace(found)
    assert "segment_alloc" in listed or "cudaMalloc" in listed
    assert len(_memory_viz.trace_plot(found)) > 1000
    assert len(_memory_viz.segment_plot(found)) > 1000
    now, most = 0, 0
    for entry in found["device_traces"][0]:
        now += {"segment_alloc": 1, "segment_free": -1}.get(entry["action"], 0) * entry["size"]
        most = max(most, now)
    assert most == answer["memory"]["reserved"]["fresh_bytes"]
    assert sum(segment["total_size"] for segment in found["segments"]) == now


def test_the_same_job_is_answered_from_the_cache(answer, folder):
    again = json.loads(tuneplan_says(folder, "trace", "job.json", "--json").stdout)
    assert again["process"]["from_cache"] is True
    assert again["memory"] == answer["memory"]
    assert again["timeline"] == answer["timeline"]


def test_estimate_takes_its_memory_from_a_trace_of_the_same_job(answer, folder):
    said = json.loads(tuneplan_says(folder, "estimate", "job.json", "--json").stdout)
    assert said["memory"]["peak_bytes"] == answer["memory"]["peak_bytes"]
    assert said["memory"]["peak_bytes"]["basis"] == "traced"
    warning = next(one for one in said["warnings"] if one["code"] == "memory_traced")
    assert answer["process"]["versions"]["torch"] in warning["message"]
    assert said["memory"]["peak_bytes"] == answer["memory"]["peak_bytes"]


def test_estimate_of_any_other_job_and_explain_stay_with_the_formulas(answer, folder):
    other = tuneplan_says(
        folder, "estimate", "job.json", "--set", "training.max_length=256", "--json"
    )
    assert json.loads(other.stdout)["memory"]["peak_bytes"]["basis"] == "analytic"
    explained = tuneplan_says(folder, "explain", "job.json", "memory.peak_bytes", "--json")
    assert json.loads(explained.stdout)["value"]["likely"] == answer["estimated_peak_bytes"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_keeps_within_the_page(answer, folder, width):
    del answer  # which has made the trace
    said = tuneplan_says(folder, "trace", "job.json", COLUMNS=str(width))
    lines = said.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == "model, full fine-tuning, on 1 x NVIDIA L4"
    assert any(line.startswith("Alive at the peak") for line in lines)
    assert ("Module, and each block" in said.stdout) is (width == 80)  # no room for both


def test_a_limit_that_is_too_small_leaves_with_status_3_where_that_is_asked(answer, folder):
    del answer
    said = tuneplan_says(
        folder, "trace", "job.json", "--limit", "200 MiB", "--require-fit", "--json"
    )
    assert said.returncode == 3
    assert json.loads(said.stdout)["fit"]["verdict"] == "fits"


def test_python_gets_the_same_answer_from_the_cache(answer, folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.chdir(folder)
    found = tuneplan.trace("job.json", limits=["2 GiB"], today=date(2026, 11, 30))
    assert found.traced.from_cache
    assert found.memory.usual.peak_allocated_bytes == answer["memory"]["peak_bytes"]["likely"]
    assert [fit.verdict for fit in found.fits_in] == ["fits"]


def test_a_method_of_peft_stands_for_the_jobs_adapter(folder):
    saved = {
        "peft_type": "VERA", "r": 16, "target_modules": ["q_proj", "v_proj"],
        "inference_mode": True, "base_model_name_or_path": "somewhere/else",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(saved))
    arguments = ("trace", "job.json", "--method", "lora", "--peft", "adapter_config.json")
    said = tuneplan_says(folder, *arguments, "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    jsonschema.validate(found, json_schema("trace"))
    assert found["peft_type"] == "VERA"
    assert found["estimated_peak_bytes"] is None
    # For each layer a number for each rank and output, of 256 queries and 128 values.
    assert found["model"]["trainable_parameters"] == 2 * (2 * 16 + 256 + 128)
    assert "traced_peft" in {one["code"] for one in found["warnings"]}
    told = tuneplan_says(folder, *arguments)  # from the cache
    assert "PEFT's VERA trains 832 parameters" in " ".join(told.stdout.split())


@pytest.mark.parametrize(
    ("content", "method", "told"),
    [
        ('{"peft_type": "LOHAS"}', "lora", "LOHAS is not traced"),
        ('{"r": 8}', "lora", "no peft_type"),
        ('{\n"peft_type": ', "lora", "adapter_config.json:2: adapter_config.json is no JSON"),
        ("[]", "lora", "holds no JSON object"),
        (None, "lora", "cannot read absent.json"),
        ('{"peft_type": "VERA"}', "full", "method full has no adapter"),
    ],
)
def test_what_is_no_method_of_peft_that_traces_is_refused(folder, content, method, told):
    name = "absent.json" if content is None else "adapter_config.json"
    if content is not None:
        (folder / name).write_text(content)
    said = tuneplan_says(folder, "trace", "job.json", "--method", method, "--peft", name)
    assert said.returncode == 2
    assert told in said.stderr


def test_a_cache_that_cannot_be_written_or_read_is_no_obstacle(tmp_path):
    (tmp_path / "file").write_text("no folder")
    request = TraceRequest(
        architecture=small_llama(), recipe=recipe_for(small_llama()), parallelism=Parallelism(),
        sequences=1, length=64,
    )  # fmt: skip
    traced = Traced(recordings=(), versions={"torch": "2.13.0"})
    for folder in (tmp_path / "file", tmp_path / "file" / "under"):
        TraceCache(folder).put(request, traced.versions, traced)
        assert TraceCache(folder).get(request, traced.versions) is None
    kept = TraceCache(tmp_path / "cache")
    kept.put(request, traced.versions, traced)
    assert kept.get(request, traced.versions) == replace(traced, from_cache=True)
    assert kept.get(request, {"torch": "2.12.0"}) is None
    assert kept.newest(request, {"torch": "2.12.0"}) == replace(traced, from_cache=True)
    assert kept.get(replace(request, length=65), traced.versions) is None
    for file in (tmp_path / "cache").rglob("*.gz"):
        file.write_bytes(b"broken")
    assert kept.newest(request, traced.versions) is None


def test_a_request_survives_its_journey():
    request = TraceRequest(
        architecture=small_llama(), recipe=recipe_for(small_llama(), method="qlora"),
        parallelism=Parallelism(), sequences=3, length=64, shorter=16, compute_capability=8.9,
    )  # fmt: skip
    assert read_request(json.loads(json.dumps(request_document(request)))) == request


def test_images_survive_the_journey_and_are_part_of_the_name_in_the_cache():
    plain = TraceRequest(
        architecture=small_llama(), recipe=recipe_for(small_llama()), parallelism=Parallelism(),
        sequences=1, length=64,
    )  # fmt: skip
    seeing = replace(plain, images=(image_size("280x420"), image_size("56x84")))
    assert read_request(json.loads(json.dumps(request_document(seeing)))) == seeing
    other = replace(plain, images=(image_size("420x280"), image_size("56x84")))
    assert len({job_key(one) for one in (plain, seeing, other)}) == 3


def test_images_are_refused_for_a_model_that_sees_none_and_for_a_family_that_is_not_known():
    plain = small_llama()
    request = TraceRequest(
        architecture=plain, recipe=recipe_for(plain), parallelism=Parallelism(),
        sequences=1, length=64, images=(image_size("280x420"),),
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match="sees no images"):
        check_traceable(request)
    tower = load_models().entry("Qwen2.5-VL-3B-Instruct")
    seeing = build_architecture(tower.config, name="seeing", hf_id=None, source="test")[0]
    check_traceable(replace(request, architecture=seeing))
    unknown = replace(seeing, hf_config={**seeing.hf_config, "model_type": "mllama"})
    with pytest.raises(InvalidRequest, match="mllama with images") as caught:
        check_traceable(replace(request, architecture=unknown))
    (mistake,) = caught.value.mistakes
    assert "qwen2_5_vl" in str(mistake.how_to_fix)


def test_a_model_that_sees_is_traced_with_an_image_and_the_answer_says_so(tmp_path):
    config = dict(load_models().entry("Qwen2.5-VL-3B-Instruct").config)
    config["num_hidden_layers"] = 1
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "num_hidden_layers": 1}
    vision = {**config["vision_config"], "depth": 1, "fullatt_block_indexes": [0]}
    config["vision_config"] = vision
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    said = tuneplan_says(
        tmp_path, "trace", "--model", "model", "--method", "lora", "--accelerator", "NVIDIA L4",
        "--set", "training.max_length=256", "--set", "training.per_device_train_batch_size=1",
        "--image", "280x420", "--json",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert any("280x420" in one["message"] for one in answer["warnings"])
    assert "traced_shape_assumed" not in [one["code"] for one in answer["warnings"]]
    assert "images" not in [one["name"] for one in answer["not_modelled"]]
    assert "batches_without_images" not in [one["name"] for one in answer["stand_ins"]]
    classes = {one["class"]: one for one in answer["operations"]}
    patches, wide = 20 * 30, vision["hidden_size"]
    # The tower's first layer is a convolution over 3 channels, 2 frames and 14 x 14 pixels.
    assert classes["convolution"]["flops"] == 2 * 2 * patches * wide * 3 * 2 * 14 * 14


def test_dora_over_a_quantised_base_is_refused_by_name():
    recipe = recipe_for(small_llama(), method="qlora")
    recipe = replace(recipe, adapter=replace(recipe.adapter, use_dora=True))
    request = TraceRequest(
        architecture=small_llama(), recipe=recipe, parallelism=Parallelism(), sequences=1, length=64
    )
    with pytest.raises(InvalidRequest, match="DoRA over a quantised base") as caught:
        check_traceable(request)
    assert caught.value.mistakes[0].path == "adapter.use_dora"


def test_a_trace_refuses_linears_on_which_lora_fails_by_name():
    architecture = small_llama()
    group = architecture.groups[0]
    block = group.layer.feed_forward
    grouped = replace(block.weights[0], takes_lora=False)
    layer = replace(group.layer, feed_forward=replace(block, weights=(grouped, *block.weights[1:])))
    architecture = replace(architecture, groups=(replace(group, layer=layer),))
    recipe = recipe_for(small_llama(), method="lora")
    adapter = replace(recipe.adapter, target_modules=("q_proj", "gate_proj"))
    request = TraceRequest(
        architecture=architecture, recipe=replace(recipe, adapter=adapter),
        parallelism=Parallelism(), sequences=1, length=64,
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match="gate_proj") as caught:
        check_traceable(request)
    (mistake,) = caught.value.mistakes
    assert "gate_proj" not in mistake.near
