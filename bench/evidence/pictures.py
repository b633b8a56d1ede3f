"""Bars as SVG, readable on light and on dark pages."""

from __future__ import annotations

from html import escape

from bench.report import Chart, number

_COLOURS = ("#1f8a70", "#d98324", "#e8b87c", "#5b7db1", "#9db4d6", "#9a6fb0", "#7f8c8d")
_WIDTH, _LEFT, _RIGHT = 760, 250, 70
_BAR, _GAP, _TOP, _LEGEND = 15, 12, 58, 18
_STYLE = (
    "text{font:12px sans-serif;fill:#24292f}.t{font-size:14px;font-weight:600}"
    ".axis{stroke:#8c959f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{stroke:#6e7681}}"
)


def svg(chart: Chart) -> str:
    """Draw the bars of a chart, each group on a scale of its own."""
    names = list(dict.fromkeys(name for _, bars in chart.groups for name in bars))
    colours = dict(zip(names, _COLOURS, strict=False))
    parts = [_text(8, 20, chart.title, kind="t")]
    x, line = 8.0, 0
    for name in names:
        width = 40 + 7 * len(name)
        if x > 8 and x + width > _WIDTH:
            x, line = 8.0, line + _LEGEND
        parts.append(
            f'<rect x="{x}" y="{31 + line}" width="12" height="12" fill="{colours[name]}"/>'
        )
        parts.append(_text(x + 17, 41 + line, name))
        x += width
    y = _TOP + line
    for caption, bars in chart.groups:
        height = _BAR * len(bars)
        parts.append(_text(_LEFT - 8, y + height / 2 + 4, caption, anchor="end"))
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_LEFT}" y1="{y}" y2="{y + height}"/>')
        greatest = max(bars.values(), default=0.0) or 1.0
        for name, value in bars.items():
            long = max((_WIDTH - _LEFT - _RIGHT) * value / greatest, 1)
            parts.append(
                f'<rect x="{_LEFT}" y="{y + 1}" width="{long:.1f}" height="{_BAR - 2}" '
                f'fill="{colours[name]}"><title>{escape(f"{caption}: {name}")}</title></rect>'
            )
            parts.append(_text(_LEFT + long + 6, y + _BAR - 4, number(value)))
            y += _BAR
        y += _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" '
        f'height="{y}" role="img"><title>{escape(chart.title)}</title><style>{_STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
