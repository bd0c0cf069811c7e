"""Batch files of Windows in the words of a POSIX shell, line by line, so that one reader does.

``^`` at the end of a line goes on to the next, ``%NAME%`` is a variable, ``set NAME=value`` sets
one, ``rem`` and ``::`` begin a remark, a backslash is a letter of a path. Source: Microsoft's
reference of cmd, ``set``, ``rem`` and "Command shell overview".
"""

from __future__ import annotations

import re
from typing import Final

ENDINGS: Final = (".bat", ".cmd")
_REMARK: Final = re.compile(r"^\s*@?(?:rem\b|::).*$", re.IGNORECASE)
_SET: Final = re.compile(r'^(\s*)@?set\s+"?([A-Za-z_]\w*)=(.*?)"?\s*$', re.IGNORECASE)
_VARIABLE: Final = re.compile(r"%([A-Za-z_]\w*)%")
_GOES_ON: Final = re.compile(r"\^[ \t]*$")


def as_posix(text: str) -> str:
    """The same commands for a POSIX shell; every line keeps its number."""
    return "\n".join(_line(line.rstrip("\r")) for line in text.split("\n"))


def _line(line: str) -> str:
    if _REMARK.match(line):
        return "#"
    line, goes_on = _GOES_ON.subn("", line)
    line = _VARIABLE.sub(r"${\1}", line.replace("\\", "\\\\"))
    setting = _SET.match(line)  # an apostrophe quotes nothing
    if setting is not None:
        quoted = setting[3].strip('"').replace('"', '\\"')
        line = f'{setting[1]}export {setting[2]}="{quoted}"'
    else:
        line = re.sub(r"^\s*@", "", line.replace("'", "\\'"))
    return f"{line} \\" if goes_on else line
