"""Logs of runs that ran out of memory: the wordings of each generation, with figures of our own."""

OLDEST = (
    "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 1; 10.92 GiB total "
    "capacity; 9.80 GiB already allocated; 100.50 MiB free; 160.25 MiB cached)"
)
BEFORE_2_1 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.69 GiB "
    "total capacity; 17.00 GiB already allocated; 1.19 GiB free; 21.25 GiB reserved in total by "
    "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
    "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
FROM_2_1 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a "
    "total capacty of 39.39 GiB of which 700.00 MiB is free. Process 4242 has 5.00 GiB memory in "
    "use. Including non-PyTorch memory, this process has 33.70 GiB memory in use. Of the allocated "
    "memory 32.50 GiB is allocated by PyTorch, and 720.00 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to "
    "avoid fragmentation."
)
FROM_2_5 = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 2 has a "
    "total capacity of 79.15 GiB of which 3.10 GiB is free. Process 99 has 76.00 GiB memory in "
    "use. Of the allocated memory 74.00 GiB is allocated by PyTorch, with 40.00 MiB allocated in "
    "private pools (e.g., CUDA Graphs), and 512.00 MiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
HOST = (
    "[12345.678901] Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:2kB",
    "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 0",
    "[launch.py:315:sigkill_handler] python train.py exits with return code = -9",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.",
    "    Reason:       OOMKilled",
    "    Exit Code:    137",
    "train.sh: line 12:  4711 Killed                  python train.py",
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 270532608 bytes. Error code 12"
    ),
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 29.5 GiB for an array with shape",
    "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
)
OTHERS = {
    "library": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "RuntimeError: Triton Error [CUDA]: out of memory",
    ),
    "collective": (
        "node1:7:9 [0] include/alloc.h:48 NCCL WARN Cuda failure 'out of memory'",
        "ncclUnhandledCudaError: Last error: Failed to CUDA calloc 10485760 bytes",
    ),
    "device": (
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:58",
        "Error out of memory at line 70 in file csrc/ops.cu",
    ),
    "paged": ("Error out of memory at line 396 in file csrc/pythonInterface.cpp",),
}
_TRAINER = "site-packages/transformers/trainer.py"
_FRAMES = {
    "load": (
        ("train.py", "main"),
        ("site-packages/transformers/modeling_utils.py", "from_pretrained"),
        ("site-packages/torch/nn/modules/module.py", "to"),
    ),
    "first_forward": (
        (_TRAINER, "training_step"),
        (_TRAINER, "compute_loss"),
        ("site-packages/transformers/models/llama/modeling_llama.py", "forward"),
        ("site-packages/torch/nn/functional.py", "cross_entropy"),
    ),
    "first_backward": (
        (_TRAINER, "training_step"),
        ("site-packages/accelerate/accelerator.py", "backward"),
        ("site-packages/torch/_tensor.py", "backward"),
        ("site-packages/torch/utils/checkpoint.py", "unpack_hook"),
        ("site-packages/transformers/models/llama/modeling_llama.py", "forward"),
    ),
    "optimizer_step": (
        (_TRAINER, "training_step"),
        ("site-packages/accelerate/accelerator.py", "backward"),
        ("site-packages/accelerate/utils/deepspeed.py", "backward"),
        ("site-packages/deepspeed/runtime/engine.py", "step"),
        ("site-packages/torch/optim/adam.py", "_multi_tensor_adam"),
    ),
    "eval": (
        (_TRAINER, "_maybe_log_save_evaluate"),
        (_TRAINER, "evaluate"),
        (_TRAINER, "prediction_step"),
        (_TRAINER, "compute_loss"),
    ),
    "save": (
        (_TRAINER, "_maybe_log_save_evaluate"),
        (_TRAINER, "_save_checkpoint"),
        ("site-packages/torch/distributed/fsdp/fully_sharded_data_parallel.py", "full_optim_state"),
    ),
}


def traceback_of(stage: str, message: str = BEFORE_2_1, mark: str = "") -> str:
    """A traceback of a stage as Python prints it, each line behind a mark."""
    lines = ["Traceback (most recent call last):"]
    for number, (file, function) in enumerate(_FRAMES[stage], start=7):
        lines += [f'  File "{file}", line {number}, in {function}', "    some_call(of, the, code)"]
    return "\n".join(mark + line for line in (*lines, message))


def bar(done: int, total: int, name: str = "") -> str:
    """A progress bar of tqdm."""
    return f"{name} {100 * done // total}%|###   | {done}/{total} [00:10<00:59,  1.0s/it]"
