"""Simplified Chinese from traditional Chinese: OpenCC, and the words that it does not know.

OpenCC's ``tw2sp`` turns characters and common words of Taiwan into those of the mainland. Terms of
our field come first: those of the glossary (docs/reference/glossary_languages.md), then the other
words of this file. They stand in for what OpenCC would make of their parts.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from opencc import OpenCC

GLOSSARY: Final = (
    Path(__file__).resolve().parents[1] / "docs" / "reference" / "glossary_languages.md"
)
# Words of Taiwan and of the mainland that are no terms of the glossary.
_WORDS: Final = {
    "「": "“",
    "」": "”",
    "『": "‘",
    "』": "’",
    "進行": "进行",
    "平行": "并行",
    "執行程式": "执行程序",
    "呼叫": "调用",
    "欄": "列",
    "列印": "打印",
    "任務檔案": "任务文件",
    "價目檔": "价目文件",
    "日誌檔": "日志文件",
    "啟動檔": "启动文件",
    "檔名": "文件名",
    "檔": "文件",
    "陣列": "数组",
    "序列": "序列",
    "序列長": "序列长",
    "資料列": "数据行",
    "每列": "每行",
    "各列": "各行",
    "一列": "一行",
    "此列": "此行",
    "該列": "该行",
    "哪些列": "哪些行",
    "列長": "行长",
    "列數": "行数",
    "整列": "整行",
    "打包的列": "打包的行",
    "列沒有": "行没有",
    "位元組": "字节",
    "位元": "位",
    "能源": "能源",
    "啟用": "启用",
    "堆疊": "堆叠",
    "指標": "指标",
    "複製": "复制",
    "查詢": "查询",
    "介面": "接口",
    "缺省": "默认",
}
# Where private characters of Unicode begin: one stands for a word until OpenCC is done.
_FIRST_STAND_IN: Final = 0xE000


def glossary() -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """Rows of the glossary: English, the words of zh-TW, those of zh-CN."""
    rows = []
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if line.startswith("| ") and len(cells) >= 3 and cells[0] not in ("English", "---"):
            rows.append((cells[0], _words(cells[1]), _words(cells[2])))
    return tuple(rows)


def _words(cell: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in cell.split("、"))


@cache
def _pairs() -> tuple[tuple[str, str], ...]:
    """What stands in for what, longest first."""
    terms = {
        taiwan: mainland
        for _, taiwans, mainlands in glossary()
        for taiwan, mainland in zip(taiwans, mainlands, strict=True)
        if re.search(r"[\u4e00-\u9fff]", taiwan)
    }
    return tuple(sorted({**_WORDS, **terms}.items(), key=lambda pair: -len(pair[0])))


@cache
def _converter() -> OpenCC:
    return OpenCC("tw2sp")


def simplified(text: str) -> str:
    """A text of zh-TW as zh-CN."""
    stand_ins: dict[str, str] = {}
    for number, (taiwan, mainland) in enumerate(_pairs()):
        if taiwan in text:
            mark = chr(_FIRST_STAND_IN + number)
            stand_ins[mark] = mainland
            text = text.replace(taiwan, mark)
    converted = str(_converter().convert(text))
    for mark, mainland in stand_ins.items():
        converted = converted.replace(mark, mainland)
    return converted
