"""Rows of tokens against the plainest way to make them."""

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.tokens.encoders import Encoded, Rendered
from tuneplan.tokens.token_rows import Learned, Packing, RowSettings, TooLong, token_rows
from tuneplan.tokens.tokenizers import find_tokenizer

SAMPLES = st.lists(
    st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=12).map(
        lambda tokens: Encoded(
            np.asarray([token for token, _ in tokens], dtype=np.int32),
            np.asarray([learned for _, learned in tokens], dtype=bool),
        )
    ),
    max_size=12,
)
SETTINGS = st.builds(
    RowSettings,
    max_length=st.integers(1, 15),
    packing=st.sampled_from(Packing),
    too_long=st.sampled_from(TooLong),
    learned=st.sampled_from(Learned),
)


def rows_of(made, name):
    return [made.columns[name][a:b].tolist() for a, b in pairwise(made.offsets[name])]


def flat(lists):
    return list(chain.from_iterable(lists))


def kept(samples, settings):
    """Tokens and labels of each sample that is in a row."""
    found = []
    for one in samples:
        ids = one.ids.tolist()
        labels = [
            token if learned or settings.learned is Learned.ALL else -100
            for token, learned in zip(ids, one.trained.tolist(), strict=True)
        ]
        if settings.packing is not Packing.WRAPPED:
            if settings.too_long is TooLong.DROP and len(ids) > settings.max_length:
                continue
            ids, labels = ids[: settings.max_length], labels[: settings.max_length]
        if ids:
            found.append((ids, labels))
    return found


@given(samples=SAMPLES, settings=SETTINGS)
def test_every_kept_token_is_in_one_row_once_beside_its_label(samples, settings):
    made = token_rows(samples, settings)
    wanted = kept(samples, settings)
    rows = list(zip(rows_of(made, "input_ids"), rows_of(made, "labels"), strict=True))
    assert made.num_sequences == len(wanted)
    if settings.packing is Packing.NONE:
        assert rows == wanted
    elif settings.packing is Packing.WRAPPED:
        assert flat(ids for ids, _ in rows) == flat(ids for ids, _ in wanted)
        assert flat(labels for _, labels in rows) == flat(labels for _, labels in wanted)
        assert all(len(ids) == settings.max_length for ids, _ in rows[:-1])
    else:
        assert sorted(_cut_apart(made)) == sorted(
            (ids, [-100, *labels[1:]]) for ids, labels in wanted
        )
    assert all(0 < len(ids) <= settings.max_length for ids, _ in rows)


def _cut_apart(made):
    """The samples of packed rows, found by ``seq_lengths`` and checked by ``position_ids``."""
    names = ("input_ids", "labels", "position_ids", "seq_lengths")
    found = []
    for ids, labels, positions, lengths in zip(*(rows_of(made, one) for one in names), strict=True):
        assert positions == [position for length in lengths for position in range(length)]
        start = 0
        for length in lengths:
            found.append((ids[start : start + length], labels[start : start + length]))
            start += length
        assert start == len(ids)
    return found


@given(samples=SAMPLES, settings=SETTINGS)
def test_what_is_cut_dropped_and_empty_is_counted(samples, settings):
    made = token_rows(samples, settings)
    lengths = [len(one.ids) for one in samples]
    limit = settings.max_length
    longer = [length for length in lengths if length > limit]
    drops = settings.too_long is TooLong.DROP
    if settings.packing is Packing.WRAPPED:
        longer = []
    assert made.num_empty == lengths.count(0)
    assert made.num_dropped == (len(longer) if drops else 0)
    assert made.num_cut == (0 if drops else len(longer))
    assert made.cut_tokens == (0 if drops else sum(longer) - limit * len(longer))
    assert made.num_sequences + made.num_dropped + made.num_empty == len(samples)


TEXTS = ["Hello, world. 12345", "你好，世界。这是一个测试。", "def f(x):\n    return x ** 2", ""]


@pytest.mark.parametrize("name", ["qwen3", "mistral-7b"])
def test_tokens_are_as_many_and_as_many_learned_as_are_counted(name):
    encoder = find_tokenizer(tokenizer=name).encoder
    sequences = [Rendered(text) for text in TEXTS]
    sequences += [Rendered(text, ((0, len(text)),)) for text in TEXTS if text]
    sequences += [Rendered(a + b, ((len(a), len(a + b)),)) for a in TEXTS for b in TEXTS if b]
    for counted, one in zip(encoder.count(sequences), encoder.encode(sequences), strict=True):
        assert (counted.total, counted.trained) == (len(one.ids), int(one.trained.sum()))
