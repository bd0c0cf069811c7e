"""Colours and type of charts and documents, for light and for dark screens.

A chart is drawn once, in the light colours; on a dark screen a style sheet puts the dark ones in
their place, colour by colour, so that no picture is made twice and none needs a program.
"""

from __future__ import annotations

from typing import Any, Final

INK: Final = "#1f2328"
MUTED: Final = "#66707b"
GRID: Final = "#dfe3e8"
ALARM: Final = "#c62f2d"
FITS: Final = "#1a7f45"
TIGHT: Final = "#a15c00"
SERIES: Final = (
    "#3569b8",  # weights
    "#8e5fb8",  # gradients
    "#d07b1f",  # optimizer
    "#2f9a78",  # activations
    "#c04f80",  # head and loss
    "#8b929b",  # other
    "#b9bfc7",  # fragments and context
    "#7a8f1f",
)
# Light to dark.
DARK: Final = {
    INK: "#e6e9ed",
    MUTED: "#9aa4af",
    GRID: "#343b44",
    ALARM: "#ff7b72",
    FITS: "#4cc27d",
    TIGHT: "#e3a23c",
    SERIES[0]: "#6b9bec",
    SERIES[1]: "#bd93e6",
    SERIES[2]: "#f0a455",
    SERIES[3]: "#56c9a3",
    SERIES[4]: "#ea86b3",
    SERIES[5]: "#a9b1ba",
    SERIES[6]: "#6d7680",
    SERIES[7]: "#b5cc4f",
}
FONTS: Final = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK TC', "
    "'PingFang TC', 'Microsoft JhengHei', sans-serif"
)
# The same sign is drawn otherwise on the mainland.
SIMPLIFIED_FONTS: Final = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', "
    "'PingFang SC', 'Microsoft YaHei', sans-serif"
)


def vega_config() -> dict[str, Any]:
    """What every chart looks like."""
    text = {"labelColor": MUTED, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": None,
        "padding": {"left": 18, "right": 18, "top": 4, "bottom": 4},  # fonts differ in width
        "font": "sans-serif",
        "view": {"stroke": None},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "domainColor": MUTED,
            "tickColor": MUTED,
            "gridColor": GRID,
        },
        "legend": {**text, "symbolType": "square"},
        "title": {"color": INK, "fontSize": 13, "anchor": "start"},
        "header": {"labelColor": INK, "titleColor": INK},
        "text": {"fontSize": 12},
        "range": {"category": list(SERIES)},
    }


def dark_rules() -> str:
    """The style rules that put the dark colours into drawn charts."""
    return "\n".join(
        f'figure svg [{attribute}="{light}"] {{ {attribute}: {dark}; }}'
        for light, dark in DARK.items()
        for attribute in ("fill", "stroke")
    )
