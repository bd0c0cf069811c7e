"""A data set to its profile: sums by hand, bad rows located, nothing lost."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.errors import InvalidRequest
from tuneplan.spec.answer import Basis
from tuneplan.tokens.lengths import (
    covering_length,
    histogram_of,
    quantiles_of,
    truncated_fractions,
    usual_lengths,
)
from tuneplan.tokens.profiling import profile_files
from tuneplan.tokens.tokenizers import Tokenizer, find_tokenizer
from tuneplan.tokens.totals import MAX_LISTED_BAD_ROWS

COUNTS = st.dictionaries(st.integers(1, 5000), st.integers(1, 50), min_size=1).map(
    lambda counts: tuple(sorted(counts.items()))
)


def texts(*lengths):
    return [{"text": chr(97 + number % 26) * length} for number, length in enumerate(lengths)]


def test_totals_lengths_and_shares_are_those_of_the_rows(write_rows, characters):
    path = write_rows("data.jsonl", *texts(10, 20, 30, 40))
    profile = profile_files([path], tokenizer=characters, max_lengths=[25])
    assert profile.num_samples == 4
    assert profile.shape == "text"
    assert profile.tokens.all.likely == profile.tokens.trained.likely == 100
    assert profile.tokens.all.basis is Basis.MEASURED
    assert (profile.length.mean, profile.length.min, profile.length.max) == (25, 10, 40)
    assert profile.length.quantiles[0.5] == 20
    assert profile.length_counts == ((10, 1), (20, 1), (30, 1), (40, 1))
    at = profile.at_max_length[0]
    # 30 and 40 are longer than 25; 5 + 15 of 100 tokens are cut.
    assert (at.max_length, at.truncated_samples_fraction) == (25, 0.5)
    assert at.truncated_tokens_fraction == 0.2
    # Rows of 25: 25 | 25 | 20 | 10 of 4 x 25 (20 + 10 > 25).
    assert at.packed_efficiency["best_fit_decreasing"] == 80 / 100
    assert at.packed_efficiency["wrapped"] == 1.0
    # One batch of 4 rows, padded to 25: 80 of 100.
    assert at.padding_fraction["longest"] == pytest.approx(0.2)
    assert at.worst_batch_tokens == 8 * 25
    assert profile.storage.raw_bytes == path.stat().st_size
    # 100 tokens x (4 + 1) bytes, 4 rows x 2 offsets x 4 bytes.
    assert profile.storage.tokenised_bytes == 100 * 5 + 4 * 8


def test_bad_rows_are_located_counted_and_left_out(write_rows, characters):
    good = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    rows = [good, "{broken", "", good, {"text": "other"}, {"id": 1}, {"messages": []}, '"x"']
    rows.append('{"messages": [{"role": "user", "content": "\\ud83d"}]}')
    path = write_rows("data.jsonl", *rows)
    profile = profile_files([path], tokenizer=characters, skip_bad_rows=True)
    assert [(row.line, row.code) for row in profile.bad_rows] == [
        (2, "json_syntax"),
        (5, "other_shape"),
        (6, "unknown_shape"),
        (7, "no_messages"),
        (8, "not_an_object"),
        (9, "lone_surrogate"),
    ]
    (facts,) = profile.files
    assert (facts.rows_ok, facts.rows_bad, facts.blank_lines) == (2, 6, 1)
    assert facts.rows_ok + facts.rows_bad + facts.blank_lines == len(rows)
    assert profile.rows_bad == 6
    assert profile.num_samples == 2
    assert all(row.path == str(path) for row in profile.bad_rows)


def test_the_layout_of_most_rows_is_that_of_the_file(write_rows, characters):
    path = write_rows("data.jsonl", {"prompt": "p", "completion": "c"}, *texts(1, 2, 3))
    profile = profile_files([path], tokenizer=characters, skip_bad_rows=True)
    assert profile.shape == "text"
    assert [(row.line, row.code) for row in profile.bad_rows] == [(1, "other_shape")]


def test_more_bad_rows_than_are_listed_are_still_counted(write_rows, characters):
    path = write_rows("data.jsonl", *texts(5), *["{"] * (MAX_LISTED_BAD_ROWS + 7))
    profile = profile_files([path], tokenizer=characters, skip_bad_rows=True)
    assert len(profile.bad_rows) == MAX_LISTED_BAD_ROWS
    assert profile.bad_rows_by_code == {"json_syntax": MAX_LISTED_BAD_ROWS + 7}
    assert [notice.message.code for notice in profile.notices] == ["more_bad_rows"]


def test_duplicates_and_rows_with_nothing_to_learn_are_counted_and_kept(write_rows, characters):
    row = {"prompt": "p", "completion": "c"}
    blank = {"prompt": "p", "completion": " "}
    profile = profile_files([write_rows("data.jsonl", row, blank, row, row)], tokenizer=characters)
    assert (profile.num_samples, profile.duplicates, profile.empty) == (4, 2, 1)


def test_a_pair_is_one_sample_of_two_sequences(write_rows, characters):
    path = write_rows("data.jsonl", {"prompt": "ppp", "chosen": "cc", "rejected": "r"})
    profile = profile_files([path], tokenizer=characters)
    # ppp + cc = 5, ppp + r = 4; the answers, 2 + 1, are learned.
    assert (profile.num_samples, profile.sequences_per_sample) == (1, 2)
    assert profile.length_counts == ((4, 1), (5, 1))
    assert profile.tokens.all.likely == 9
    assert profile.tokens.trained.likely == 3
    assert profile.at_max_length[0].worst_batch_tokens == 8 * 2 * 5
    statistics = profile.statistics()
    assert (statistics.num_samples, statistics.sequences_per_sample) == (1, 2)
    assert statistics.total_tokens == 9


def test_pairs_and_other_rows_are_not_one_data_set(write_rows, characters):
    pairs = write_rows("a.jsonl", {"prompt": "p", "chosen": "c", "rejected": "r"})
    other = write_rows("b.jsonl", *texts(3))
    with pytest.raises(InvalidRequest, match="preference pairs and other rows"):
        profile_files([pairs, other], tokenizer=characters)


def test_files_of_different_layouts_are_one_set_of_mixed_shape(write_rows, characters):
    paths = [
        write_rows("a.jsonl", *texts(3)),
        write_rows("b.jsonl", {"prompt": "p", "answer": "q"}),
    ]
    profile = profile_files(paths, tokenizer=characters)
    assert profile.shape == "mixed"
    assert [file.shape for file in profile.files] == ["text", "prompt_completion"]
    assert profile.files[1].columns == ("prompt", "answer")


def test_pictures_are_noted_and_their_tokens_unknown(write_rows, characters):
    row = {"messages": [{"role": "user", "content": "<image>q"}], "images": ["a.jpg", "b.jpg"]}
    profile = profile_files([write_rows("data.jsonl", row)], tokenizer=characters)
    assert profile.tokens.image is None
    assert "2 pictures" in str(profile.notices[0].message)


def test_every_file_that_cannot_be_read_is_named_at_once(tmp_path, characters):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InvalidRequest) as caught:
        profile_files(
            [tmp_path / "empty.jsonl", tmp_path / "none.jsonl", tmp_path], tokenizer=characters
        )
    codes = [mistake.message.code for mistake in caught.value.mistakes]
    assert codes == ["empty_file", "no_such_file", "is_a_folder"]


@pytest.mark.parametrize("rows", [["", "  "], ["{", "[]"]], ids=["blank", "bad"])
def test_a_set_without_a_sample_says_what_was_seen(write_rows, characters, rows):
    with pytest.raises(InvalidRequest) as caught:
        profile_files([write_rows("data.jsonl", *rows)], tokenizer=characters)
    (mistake,) = caught.value.mistakes
    assert mistake.message.code == "empty_data_set"
    assert "no sample" in str(mistake.message)
    assert [place.line for place in mistake.places] == ([1, 2] if rows[0] else [])


def test_bad_rows_are_refused_where_they_are_not_skipped(write_rows, characters):
    one = write_rows("one.jsonl", *texts(4, 5))
    path = write_rows("data.jsonl", *texts(1, 2), '{"text": oops}', *["[]"] * 6)
    with pytest.raises(InvalidRequest) as caught:
        profile_files([one, path], tokenizer=characters)
    (mistake,) = caught.value.mistakes
    assert mistake.message.params == {"bad": 7, "all": 11}
    assert mistake.path == str(path)
    assert "--skip-bad-rows" in str(mistake.how_to_fix)
    *shown, more = mistake.places
    assert [(place.line, place.column) for place in shown] == [
        (3, 10),
        *((line, None) for line in (4, 5, 6, 7)),
    ]
    assert str(more.message) == "and 2 more"


def test_rows_with_nothing_to_learn_are_no_bad_rows(write_rows, characters):
    rows = [{"prompt": "p", "completion": ""}, {"prompt": "p", "completion": "c"}]
    profile = profile_files([write_rows("data.jsonl", *rows)], tokenizer=characters)
    assert (profile.num_samples, profile.empty, profile.rows_bad) == (2, 1, 0)


def test_no_file_is_a_mistake(characters):
    with pytest.raises(InvalidRequest, match="name at least one"):
        profile_files([], tokenizer=characters)


def test_progress_ends_with_all_bytes_of_all_files(write_rows, characters):
    paths = [write_rows("a.jsonl", *texts(3)), write_rows("b.jsonl", *texts(4, 5))]
    told: list[tuple[int, int]] = []
    profile_files(
        paths, tokenizer=characters, progress=lambda done, total: told.append((done, total))
    )
    total = sum(path.stat().st_size for path in paths)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_an_average_of_characters_is_a_range_and_an_assumption(write_rows):
    path = write_rows("data.jsonl", {"text": "word " * 80})
    profile = profile_files([path], tokenizer=find_tokenizer(tokenizer="approximate"))
    assert profile.tokens.all.low < profile.tokens.all.likely < profile.tokens.all.high
    assert profile.tokens.all.basis is Basis.ASSUMED
    assert not profile.exact
    assert profile.tokenizer.vocab_size is None
    assert "data.tokenizer" in [one.name for one in profile.assumptions]
    assert profile.statistics().basis is Basis.ASSUMED


def test_a_bilingual_conversation_has_the_tokens_of_qwen(write_rows):
    said = [{"role": "user", "content": "你好"}, {"role": "assistant", "content": "Hello, world!"}]
    path = write_rows("data.jsonl", json.dumps({"messages": said}, ensure_ascii=False))
    profile = profile_files([path], tokenizer=find_tokenizer(tokenizer="qwen3"))
    # <|im_start|> user \n 你好 <|im_end|> \n = 6; <|im_start|> assistant \n = 3;
    # Hello , world ! <|im_end|> = 5 (learned); \n = 1. Qwen3 adds no system message.
    assert profile.tokens.all.likely == 6 + 3 + 5 + 1
    assert profile.tokens.trained.likely == 5


def test_the_same_files_give_the_same_profile(write_rows):
    said = [{"role": "user", "content": "問題"}, {"role": "assistant", "content": "答案 answer"}]
    path = write_rows("data.jsonl", *[{"messages": said}] * 20)
    tokenizer: Tokenizer = find_tokenizer(model="Qwen/Qwen2.5-7B")
    assert profile_files([path], tokenizer=tokenizer) == profile_files([path], tokenizer=tokenizer)


class TestStatistics:
    def test_evaluation_samples_are_taken_off_and_the_rest_keeps_its_lengths(
        self, write_rows, characters
    ):
        path = write_rows("data.jsonl", *texts(*range(1, 101)))
        profile = profile_files([path], tokenizer=characters)
        whole, part = profile.statistics(), profile.statistics(eval_fraction=0.1)
        assert (whole.num_samples, whole.num_eval_samples, whole.total_tokens) == (100, 0, 5050)
        assert (part.num_samples, part.num_eval_samples) == (90, 10)
        assert len(part.lengths) == 90
        assert part.total_tokens == sum(part.lengths)
        assert part.mean_tokens == pytest.approx(whole.mean_tokens, rel=0.02)
        assert list(whole.lengths) == list(range(1, 101))

    def test_a_fraction_of_a_sample_is_a_whole_one(self, write_rows, characters):
        profile = profile_files([write_rows("d.jsonl", *texts(5, 6, 7))], tokenizer=characters)
        # ceil(0.02 x 3) = 1
        assert profile.statistics(eval_fraction=0.02).num_eval_samples == 1


class TestLengths:
    def test_a_quantile_is_the_length_of_a_real_sequence(self):
        counts = ((10, 1), (20, 1), (30, 2))
        assert quantiles_of(counts, (0.25, 0.5, 0.75, 1.0)) == {
            0.25: 10.0,
            0.5: 20.0,
            0.75: 30.0,
            1.0: 30.0,
        }

    def test_the_recommended_length_holds_95_of_100_samples(self):
        # 95 samples of 900 fit 1,024; five of 9,000 would need 16,384.
        counts = ((900, 95), (9000, 5))
        assert covering_length(counts, 0.95) == 1024
        assert covering_length(counts, 1.0) == 16384
        assert usual_lengths(counts) == (1024, 2048, 4096, 8192, 16384)

    @given(COUNTS)
    def test_the_histogram_holds_every_sequence_once(self, counts):
        bars = histogram_of(counts)
        assert sum(count for _, _, count in bars) == sum(count for _, count in counts)
        assert all(low < high for low, high, _ in bars)
        assert all(a[1] == b[0] for a, b in pairwise(bars))

    @given(COUNTS, st.integers(1, 6000))
    def test_a_longer_limit_never_cuts_more(self, counts, limit):
        shorter, longer = truncated_fractions(counts, limit), truncated_fractions(counts, limit + 1)
        assert all(0 <= a <= 1 for a in shorter)
        assert all(b <= a for a, b in zip(shorter, longer, strict=True))

    @given(COUNTS)
    def test_quantiles_rise_to_the_maximum(self, counts):
        found = list(quantiles_of(counts, (0.05, 0.5, 0.95, 1.0)).values())
        assert found == sorted(found)
        assert found[-1] == counts[-1][0]
