"""Why a target is missed, and what would fix it, by the key of its figure (or its first word)."""

from __future__ import annotations

ANALYSIS: dict[str, str] = {
    "memory_one_reserved": (
        "allocated memory of the same kind of runs is met; what is off is how much PyTorch's cache "
        "holds beside it. `peft-old` (15 of its 17 runs 11 % high): its loop empties the cache "
        "after each step and evaluates by generating text, which the replay of the formula does "
        "not play; `tuneplan trace` does, and is near "
        "([traces against runs](internals/trace_accuracy.md)). `swift-bm`: the published length is "
        "a cap, the longest sample of a step is not known. A memory snapshot of one run of each "
        "would settle the first; the lengths of the data the second."
    ),
    "speed_one": (
        "two runs are off by more than a quarter: `tt-0009`, whose samples are shorter than the "
        "length that its row states, and `qwen-039` (GPTQ weights unpacked by PyTorch steps of "
        "which no timing is published)."
    ),
    "speed_node": (
        "15 of 113 runs are off by more than a quarter. Six are `qwen` with LoRA under ZeRO-2, 60 "
        "to 115 % too fast at every length from 256 to 8,192 tokens, two its full fine-tuning "
        "under ZeRO-3: DeepSpeed's hooks and buckets are counted by bandwidth and exposed shares "
        "alone. "
        "Three are `fsdpq` on two RTX 3090, four `fms` on two cards. A timeline (PyTorch's "
        "profiler) of one ZeRO-2 step would say what is exposed; nothing published does."
    ),
    "speed_all": (
        "55 of 474 runs are off by more than a quarter, and 38 of them are bigscience's: `bsg` on "
        "V100 (published while it was tuned; its author puts the noise at 40 %, and the settings "
        "of its ZeRO-3 runs are not in the table) and `bsc` (pipelines of the largest models); "
        "eight are `qwen` under ZeRO. A rerun of any of these with its log would separate noise "
        "from error."
    ),
    "speed_held_out": (
        "the same sources as without calibration: what is learned from other programs on the same "
        "chip is a factor of a few per cent, and these are off by their own programs' overhead. "
        "Runs of a second source with the same program would let it be learned."
    ),
    "speed_models": "as for held-out sources.",
    "missed_oom_field": (
        "few reports, each of which says less than a row of a table: those that are wrong stand "
        "below with what is known of each."
    ),
    "coverage_memory_source": (
        "on the wide side: with its source held out, a job has five or six other sources to go by, "
        "whose errors differ by more than a factor of twenty, and a range that owns up to that "
        "covers nearly all of the careful ones. More sources would narrow it; a narrower rule "
        "would fail the next odd source."
    ),
    "coverage_memory_shipped": (
        "the ranges have seen these runs; with each model held out they cover what they should."
    ),
    "coverage_throughput_shipped": (
        "the ranges have seen these runs; with each model held out they cover what they should."
    ),
}
