"""Use-case: what a data set holds, in tokens of the model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuneplan.errors import InputError, InvalidRequest

if TYPE_CHECKING:
    from tuneplan.tokens.pictures import Pictures
    from tuneplan.tokens.profile import DataProfile
    from tuneplan.tokens.profiling import Progress


def profile_data(
    paths: Sequence[str | Path],
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    max_length: int | Sequence[int] | None = None,
    per_device_train_batch_size: int | None = None,
    image: tuple[int, int] | None = None,
    skip_bad_rows: bool = False,
    workers: int | None = None,
    ray_address: str | None = None,
    exact: bool = False,
    sample_bytes: int | None = None,
    progress: Progress | None = None,
) -> DataProfile:
    """Read data files and count them with a real tokenizer.

    Args:
        paths: Data files (docs/concepts/data.md lists the formats), URLs, folders of ``datasets``;
            together they are one data set.
        model: The model whose tokenizer counts: a name, a hub id, a folder.
        tokenizer: A tokenizer file or folder, a model's name, or ``approximate``; wins over model.
        max_length: One or more lengths to look at; None for the usual ones.
        per_device_train_batch_size: Samples of a batch behind the padding figures; None for 8.
        image: Height and width of pictures whose file is not at hand; None leaves their tokens
            unknown.
        skip_bad_rows: Bad rows are left out, counted and located; without it they are an error.
        workers: Processes; None for all cores, where the files are large.
        ray_address: A Ray cluster that counts, ``local`` for one on this machine.
        exact: Every row is read, however many there are; else a part of files beyond 4 GiB.
        sample_bytes: About so much is read, whatever the size; None for 256 MiB of large sets.
        progress: Told now and then how many bytes of how many are read.

    Raises:
        InvalidRequest: Files that cannot be read, or hold no sample or a bad row; every reason at
            once.
        InputError: No tokenizer for the model; says what to install or to name.
        MissingExtra: The tokenizer's library is not installed.
    """
    from tuneplan.planner.engines import chosen_engine
    from tuneplan.tokens.files import data_files
    from tuneplan.tokens.profiling import BATCH_SIZE, profile_files
    from tuneplan.tokens.tokenizers import find_tokenizer

    lengths = (max_length,) if isinstance(max_length, int) else tuple(max_length or ())
    _, problems = data_files(paths)
    try:
        counter = find_tokenizer(tokenizer=tokenizer, model=model)
    except InputError as error:
        if not problems:
            raise
        raise InvalidRequest([*problems, *error.mistakes]) from error
    return profile_files(
        paths,
        tokenizer=counter,
        pictures=_pictures(model or tokenizer, image),
        max_lengths=lengths,
        per_device_train_batch_size=per_device_train_batch_size or BATCH_SIZE,
        skip_bad_rows=skip_bad_rows,
        progress=progress,
        engine=chosen_engine(workers=workers, ray_address=ray_address),
        exact=exact,
        sample_bytes=sample_bytes,
    )


def look_at(
    profile: DataProfile, *, max_length: int | None, per_device_train_batch_size: int | None = None
) -> DataProfile:
    """A profile with one more length looked at, or for other batches; no file is read for it.

    Args:
        profile: As ``profile_data`` gave it.
        max_length: None for none beside those that it has.
        per_device_train_batch_size: None for the profile's own.
    """
    from tuneplan.tokens.summary import looked_at

    lengths = () if max_length is None else (max_length,)
    return looked_at(profile, lengths, per_device_train_batch_size)


def _pictures(model: str | None, image: tuple[int, int] | None) -> Pictures | None:
    from tuneplan.tokens.picture_rules import rule_of_model
    from tuneplan.tokens.pictures import Pictures

    rule = rule_of_model(model) if model else None
    return None if rule is None else Pictures(rule=rule, usual_size=image)
