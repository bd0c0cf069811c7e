"""Which versions of PyTorch the trace was tested with.

2.12.1 and 2.13.0 trace alike, to the byte. 2.9 has no devices that are set up from Python; 2.10 has
them, but fake tensors that lack what the trace asks of them.
"""

from __future__ import annotations

from typing import Final

from tuneplan.errors import NotSupported
from tuneplan.language import message

OLDEST_TORCH: Final = (2, 12)
NEWEST_TORCH: Final = (2, 13)


def check_torch(version: str) -> str:
    """A version of torch, if the private API behind the trace was tested with it.

    Raises:
        NotSupported: It was not.
    """
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if not OLDEST_TORCH <= numbers <= NEWEST_TORCH:
        raise NotSupported(
            message(
                "torch_untested",
                "the trace uses parts of PyTorch that change without notice; torch {found} is not "
                "among the versions it was tested with, {oldest} to {newest}",
                found=version,
                oldest=".".join(map(str, OLDEST_TORCH)),
                newest=".".join(map(str, NEWEST_TORCH)),
            )
        )
    return version
