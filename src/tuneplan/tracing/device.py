"""A device without memory: the one module that owns PyTorch's private API.

PyTorch keeps a dispatch key, PrivateUse1, for devices that are not its own; it can be set up from
Python (``torch/utils/backend_registration.py _setup_privateuseone_for_python_backend``, torch 2.10
and later, marked experimental). Tensors on it are fake: they have shapes, strides, dtypes and
storages of a size, but no bytes. Everything that runs above the kernels (autograd, autocast,
checkpointing, hooks, optimizers, Hugging Face's modules) is the real code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tuneplan.tracing.one_kernel import install_one_kernel
from tuneplan.tracing.versions import check_torch

DEVICE: Final = "fakecuda"
CPU: Final = "cpu"
_chosen: list[str] = [DEVICE]


def choose_device(kind: str) -> None:
    """Which device this process traces: the one like CUDA, or the CPU with its own kernels."""
    _chosen[0] = kind


def device_type() -> str:
    """The type of the device that is traced."""
    return _chosen[0]


@cache
def fake_device() -> torch.device:
    """Register the device, once a process, and patch what cannot work on fake tensors."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    check_torch(torch.__version__)
    torch.UntypedStorage.resize_ = _resize_and_tell
    torch.nn.Module._apply = _apply  # type: ignore[method-assign] # noqa: SLF001
    FakeTensor.__deepcopy__ = _deep_copy  # type: ignore[method-assign]
    if device_type() == CPU:
        return torch.device(CPU)
    _setup_privateuseone_for_python_backend(DEVICE, backend_module=_backend_module())
    torch.autograd.set_multithreading_enabled(False)
    install_one_kernel()
    return torch.device(DEVICE, 0)


@cache
def fake_mode() -> FakeTensorMode:
    """The mode under which tensors have no bytes, one a process."""

    class DeviceWithoutMemory(FakeTensorMode):
        """Fake tensors whose constructors never touch the device."""

        @property
        def avoid_device_init(self) -> bool:
            return True

    fake_device()
    mode = DeviceWithoutMemory(allow_non_fake_inputs=True)
    _share_defaults(mode)
    return mode


# What ``FakeTensor.__new__`` sets on every tensor and is the same for nearly all: set once, on the
# class, for those that ``fresh_fake`` and ``view_fake`` make.
_FAKE_TENSOR_DEFAULTS: Final = (
    "constant", "pytype", "dispatch_keys", "real_tensor",
    *(
        f"_{memo}{part}"
        for memo in (
            "nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo",
            "nested_int_memo",
        )
        for part in ("", "_vc", "_epoch")
    ),
)  # fmt: skip


def _share_defaults(mode: FakeTensorMode) -> None:
    for name in _FAKE_TENSOR_DEFAULTS:
        setattr(FakeTensor, name, None)
    FakeTensor.fake_mode = mode


def asked_device(tensor: Any) -> torch.device:
    """What ``FakeTensorMode`` answers to ``tensor.device``."""
    if tensor.fake_mode.in_kernel_invocation:
        return torch.device("meta")
    return tensor._fake_device  # type: ignore[no-any-return] # noqa: SLF001


def fresh_fake(shape: Any, stride: Any, dtype: Any, device: Any) -> Any:
    """A fake tensor on a storage of its own, as ``FakeTensor.__new__`` makes it."""
    with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined] # noqa: SLF001
        element = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    return _as_fake(element, device)


def view_fake(base: Any, shape: Any, stride: Any, offset: int, dtype: Any, device: Any) -> Any:
    """A fake tensor on the storage of another."""
    with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined] # noqa: SLF001
        element = torch.empty(0, dtype=dtype, device="meta")
        element.set_(base.untyped_storage(), offset, shape, stride)
    return _as_fake(element, device)


def _as_fake(element: Any, device: Any) -> Any:
    made = torch.Tensor._make_subclass(  # type: ignore[attr-defined] # noqa: SLF001
        FakeTensor,
        element,
        False,
        dispatch_device=True,
        device_for_backend_keys=device,
    )
    torch._C._set_throw_on_mutable_data_ptr(made)  # noqa: SLF001
    made._fake_device = device  # noqa: SLF001
    return made


class Stream:
    """A queue of kernels: nothing runs, but what is made on it comes from pools of its own."""

    device_index = 0
    _last = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs
        Stream._last += 1
        self.stream_id = Stream._last

    def __enter__(self) -> Stream:
        _streams.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _streams.pop()

    def wait_stream(self, stream: Stream | None = None) -> None:
        """Nothing to wait for."""

    wait_event = synchronize = wait_stream

    def record_event(self, event: Event | None = None) -> Event:
        """A point that is passed already."""
        return event or Event()


class Event:
    """A point on a stream."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs

    def record(self, stream: Stream | None = None) -> None:
        """Nothing to record."""

    wait = synchronize = record

    def query(self) -> bool:
        """Whether everything before it is done."""
        return True


def _default_stream() -> Stream:
    stream = Stream.__new__(Stream)
    stream.stream_id = 0
    return stream


_streams = [_default_stream()]


def current_stream_id() -> int:
    """Number of the stream that is current; 0 is the default one."""
    return _streams[-1].stream_id


@cache
def give_addresses() -> None:
    """Let storages without bytes have addresses that tell them apart, once a process."""
    real = torch.UntypedStorage.data_ptr

    def of_storage(storage: Any) -> int:
        if storage.device.type != "meta":
            return int(real(storage))
        return int(storage._cdata) if storage.nbytes() else 0  # noqa: SLF001

    def of_tensor(tensor: Any) -> int:
        start = of_storage(tensor.untyped_storage())
        return start + tensor.storage_offset() * tensor.element_size() if start else 0

    torch.UntypedStorage.data_ptr = of_storage
    FakeTensor.data_ptr = of_tensor


class Watcher(Protocol):
    """Who is told what no operation tells."""

    def cache_emptied(self) -> None:
        """The program gives cached memory back."""

    def resized(self, storage: Any) -> None:
        """A storage has another size."""


_watchers: list[Watcher] = []


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell ``watcher`` for a while."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


_resize = torch.UntypedStorage.resize_


def _resize_and_tell(storage: Any, size: int) -> Any:
    out = _resize(storage, size)
    if _watchers:
        _watchers[-1].resized(storage)
    return out


def _backend_module() -> Any:  # noqa: C901 - one short method for each question
    """What PyTorch asks a device's module for (``torch.cuda`` in the real run)."""

    class BackendModule:
        """Answers of a device that is always ready."""

        def __init__(self) -> None:
            self.Stream = Stream
            self.Event = Event

        def is_initialized(self) -> bool:
            return True

        is_available = is_bf16_supported = is_initialized

        def _is_in_bad_fork(self) -> bool:
            return False

        def current_device(self) -> int:
            return 0

        def device_count(self) -> int:
            return 1

        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.bfloat16, torch.float16]

        def get_rng_state(self, device: object = None) -> torch.Tensor:
            del device
            return torch.empty(16, dtype=torch.uint8, device="cpu")

        def set_rng_state(self, state: object, device: object = None) -> None:
            del state, device

        def manual_seed_all(self, seed: int) -> None:
            del seed

        manual_seed = set_device = manual_seed_all

        def synchronize(self, device: object = None) -> None:
            del device

        lazy_init = _lazy_init = synchronize

        def empty_cache(self) -> None:
            if _watchers:
                _watchers[-1].cache_emptied()

        def current_stream(self, device: object = None) -> Stream:
            del device
            return _streams[-1]

        def default_stream(self, device: object = None) -> Stream:
            del device
            return _streams[0]

        def set_stream(self, stream: Stream) -> None:
            _streams[-1] = stream

        def stream(self, stream: Stream | None) -> contextlib.AbstractContextManager[Any]:
            return contextlib.nullcontext() if stream is None else stream

        def device(self, device: object) -> contextlib.AbstractContextManager[None]:
            del device
            return contextlib.nullcontext()

    return BackendModule()


def _deep_copy(tensor: Any, memo: dict[int, Any]) -> Any:
    """``copy.deepcopy`` of a tensor or parameter, as PEFT copies modules that are trained whole.

    PyTorch's own looks at the data's address.
    """
    known = memo.get(id(tensor))
    if known is not None:
        return known
    with torch.no_grad():
        copied = tensor.detach().clone(memory_format=torch.preserve_format)
    if isinstance(tensor, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, requires_grad=tensor.requires_grad)
    memo[id(tensor)] = copied
    return copied


_moved: dict[int, Any] = {}


def _apply(module: Any, function: Any, recurse: bool = True) -> Any:  # noqa: FBT001, FBT002
    """``nn.Module._apply`` for fake parameters, which cannot be swapped in place.

    New parameters take the place of the old ones; tied ones stay tied.
    """
    outermost = not _moved
    _moved[0] = None
    try:
        if recurse:
            for child in module.children():
                child._apply(function)  # noqa: SLF001
        for name, parameter in module._parameters.items():  # noqa: SLF001
            if parameter is None:
                continue
            key = id(parameter)
            if key not in _moved:
                with torch.no_grad():
                    applied = function(parameter)
                new = parameter
                if applied is not parameter:
                    new = torch.nn.Parameter(applied, requires_grad=parameter.requires_grad)
                _moved[key] = (new, parameter)
            module._parameters[name] = _moved[key][0]  # noqa: SLF001
        for name, buffer in module._buffers.items():  # noqa: SLF001
            if buffer is not None:
                module._buffers[name] = function(buffer)  # noqa: SLF001
    finally:
        if outermost:
            _moved.clear()
    return module


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
