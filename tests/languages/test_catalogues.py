"""Every sentence is in the catalogues, translated into both Chinese, and none that nobody says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po

from languages.reading import CHINESE, fields, found, told, tool

HAN = r"\u4e00-\u9fff"
# What they write on the mainland, or what OpenCC would leave of it.
NOT_IN_TAIWAN = re.compile(
    "內存|默認|數據|網絡|服務器|硬盤|字符|信息|加載|緩存|隊列|線程|進程|運行|設置|帶寬|支持|並行|"
    "分布式|視頻|屏幕|集群|字段|調用|函數庫|您"
)
NOT_ON_THE_MAINLAND = re.compile(
    "档案|资料|记忆体|伫列|程式|预设|网路|伺服器|硬体|软体|萤幕|字串|讯息|快取|丛集|型录|位元|"
    "列印|滑鼠|执行绪|您"
)


@pytest.mark.parametrize("locale", CHINESE)
def test_every_sentence_is_translated_and_none_is_unused(locale: str) -> None:
    said = {sentence.text for sentence in found()}
    listed = told(locale)
    assert set(listed) == said, "run python tools/make_catalogues.py"
    assert [text for text, chinese in listed.items() if not chinese.strip()] == []


@pytest.mark.parametrize("locale", CHINESE)
def test_no_translation_is_a_guess(locale: str) -> None:
    with tool("make_catalogues").catalogue_path(locale).open("rb") as file:
        read = read_po(file, locale=locale)
    assert [one.id for one in read if one.fuzzy] == []
    assert list(read.obsolete) == []


@pytest.mark.parametrize("locale", CHINESE)
def test_the_compiled_catalogue_says_what_the_text_says(locale: str) -> None:
    make = tool("make_catalogues")
    with make.catalogue_path(locale, "mo").open("rb") as file:
        compiled = {one.id: one.string for one in read_mo(file) if isinstance(one.id, str)}
    compiled.pop("", None)
    assert {str(text): str(chinese) for text, chinese in compiled.items()} == told(locale)


@pytest.mark.parametrize("locale", CHINESE)
def test_fields_and_their_formats_are_those_of_the_english(locale: str) -> None:
    differs = {
        text: chinese
        for text, chinese in told(locale).items()
        if set(fields(text)) != set(fields(chinese))
    }
    assert differs == {}


@pytest.mark.parametrize("locale", CHINESE)
def test_chinese_sentences_end_and_pause_as_chinese_does(locale: str) -> None:
    latin_end = re.compile(rf"[{HAN}）」”]\s*[.,;:?!]$")
    latin_pause = re.compile(rf"[{HAN}][,;?!]|[{HAN}]:(?!=)")
    wrong = [
        chinese
        for chinese in told(locale).values()
        if latin_end.search(chinese) or latin_pause.search(chinese)
    ]
    assert wrong == []


@pytest.mark.parametrize("locale", CHINESE)
def test_a_sentence_ends_in_chinese_where_it_ends_in_english(locale: str) -> None:
    wrong = [
        (text, chinese)
        for text, chinese in told(locale).items()
        if re.search(rf"[{HAN}]", chinese)
        and text.rstrip().endswith(".")
        and not text.rstrip().endswith("...")
        and not chinese.rstrip().endswith(("。", "。）", "。」"))
        and re.search(rf"[{HAN}）]$", chinese.rstrip())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("locale", "words"), [("zh_TW", NOT_IN_TAIWAN), ("zh_CN", NOT_ON_THE_MAINLAND)]
)
def test_each_chinese_has_the_words_of_its_readers(locale: str, words: re.Pattern[str]) -> None:
    assert [chinese for chinese in told(locale).values() if words.search(chinese)] == []


def test_simplified_chinese_is_made_of_traditional_chinese_or_marked_by_hand() -> None:
    make, simplified = tool("make_catalogues"), tool("simplified_chinese").simplified
    by_hand = make.by_hand()
    traditional = told("zh_TW")
    differs = {
        text: chinese
        for text, chinese in told("zh_CN").items()
        if text not in by_hand and chinese != simplified(traditional[text])
    }
    assert differs == {}, "run python tools/make_catalogues.py"


def test_a_correction_by_hand_survives_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tool("make_catalogues")
    monkeypatch.setattr(make, "LOCALE", tmp_path)
    monkeypatch.setattr(
        make,
        "sentences",
        lambda _package: (
            tool("catalogue_extraction").Sentence(text="a file", modules=("m.py",), codes=()),
            tool("catalogue_extraction").Sentence(text="a queue", modules=("m.py",), codes=()),
        ),
    )

    def write() -> None:
        for path, content in list(make.files()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def correct(locale: str, wrong: str, right: str) -> None:
        path = make.catalogue_path(locale)
        path.write_text(path.read_text("utf-8").replace(wrong, right), "utf-8")

    write()
    correct("zh_TW", 'msgid "a file"\nmsgstr ""', 'msgid "a file"\nmsgstr "一個檔案"')
    correct("zh_TW", 'msgid "a queue"\nmsgstr ""', 'msgid "a queue"\nmsgstr "一個佇列"')
    write()
    assert make.translations("zh_CN") == {"a file": "一个文件", "a queue": "一个队列"}
    correct("zh_CN", "一个文件", "一份文件")
    correct("zh_TW", "一個佇列", "佇列")
    write()
    write()
    assert make.translations("zh_CN") == {"a file": "一份文件", "a queue": "队列"}
    assert make.by_hand() == {"a file"}
    assert make.compiled("zh_CN")["a file"] == "一份文件"
