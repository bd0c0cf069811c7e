"""The way of the data: how it gets to the machine, and whether disk and CPU keep up with training.

The rates of disks and networks are nominal ones of common kinds; each is a row of its own in an
answer, so that a reader takes the one at hand.
"""

from __future__ import annotations

from typing import Final

from tuneplan.economics.storage import TRANSFER_EFFICIENCY, shipping_s, transfer_s
from tuneplan.frozen import dataclass
from tuneplan.units import DAY_S

# Sustained sequential rates in bytes a second: the two of the worked values, and a network of
# 10 Gbit/s as a shared file system is reached over.
DISKS: Final = {"nvme": 7e9, "sata_ssd": 550e6, "network_10g": 1.25e9}
# Nominal rates of an upload, in bytes a second.
UPLINKS: Final = {"100 Mbit/s": 100e6 / 8, "1 Gbit/s": 1e9 / 8, "10 Gbit/s": 10e9 / 8}
# Door to door by courier within a continent, and a portable hard disk's rate: assumptions.
COURIER_S: Final = 3 * DAY_S
PORTABLE_DISK_BYTES_PER_S: Final = 200e6
# Token columns as they are read back: int32 ids, an int8 mask and int32 labels.
TOKENISED_BYTES_PER_TOKEN: Final = 9.0
# `tuneplan data profile` counted 215,000 tokens a second of the bilingual chat example with
# Qwen2.5's vocabulary (tiktoken) on two cores of an AMD EPYC that had other work too.
TOKENISED_PER_CORE_S: Final = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A data set over one network.

    Attributes:
        ideal_s: At the nominal rate.
        likely_s: At the efficiency that networks give for hours.
        shipped_s: By courier on portable disks.
    """

    uplink: str
    size_bytes: float
    ideal_s: float
    likely_s: float
    shipped_s: float

    @property
    def ship_instead(self) -> bool:
        """Whether a courier is there before the network is done."""
        return self.shipped_s < self.likely_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What training asks of disk and CPU.

    Attributes:
        tokens_per_s: Real tokens of the whole job.
        disk_bytes_per_s: To read them tokenised.
        raw_bytes_per_s: To read them as text; None where the size of the text is not known.
        cores_on_the_fly: Busy cores where the text is tokenised while training.
    """

    tokens_per_s: float
    disk_bytes_per_s: float
    raw_bytes_per_s: float | None
    cores_on_the_fly: float


def uploads(size_bytes: float, *, efficiency: float = TRANSFER_EFFICIENCY) -> tuple[Upload, ...]:
    """A data set over each of the common networks."""
    return tuple(
        Upload(
            uplink=name,
            size_bytes=size_bytes,
            ideal_s=transfer_s(size_bytes=size_bytes, bandwidth_bytes_per_s=rate, efficiency=1.0),
            likely_s=transfer_s(
                size_bytes=size_bytes, bandwidth_bytes_per_s=rate, efficiency=efficiency
            ),
            shipped_s=shipping_s(
                size_bytes=size_bytes,
                courier_s=COURIER_S,
                disk_bytes_per_s=PORTABLE_DISK_BYTES_PER_S,
            ),
        )
        for name, rate in UPLINKS.items()
    )


def loading(*, tokens_per_s: float, raw_bytes_per_token: float | None) -> Loading:
    """What a loader must give so that no card waits for data."""
    return Loading(
        tokens_per_s=tokens_per_s,
        disk_bytes_per_s=tokens_per_s * TOKENISED_BYTES_PER_TOKEN,
        raw_bytes_per_s=None if raw_bytes_per_token is None else tokens_per_s * raw_bytes_per_token,
        cores_on_the_fly=tokens_per_s / TOKENISED_PER_CORE_S,
    )
