"""The figures of the book: one style, one map, and the few kinds of picture that chapters need.

`import figures` sets the style, registers the Chinese font and makes notebooks show SVG.

How a cell ends: with the Figure that each function returns, as its last expression, no semicolon.
These figures are unknown to pyplot, so a notebook shows them once, where the cell asks for it. The
plain-text twin of the picture, `<Figure size 560x340 with 1 Axes>`, has no address in it, and the
SVG no date and no random id: executing a notebook again changes nothing. For several panels:

    fig, axes = figures.panels(1, 2)
    figures.heatmap(weights, tokens, tokens, ax=axes[0])
    figures.mask_plot(mask, tokens, tokens, ax=axes[1])
    fig
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, PathPatch, Polygon
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    Locator,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

FONT = Path(__file__).resolve().parent.parent / "data" / "fonts" / "NotoSansCJKsc-subset.otf"
LATIN = "DejaVu Sans"

WIDTH = 5.6  # inches: 538 pixels of a page, and still legible shrunk to a phone's 360
CARD = "#ffffff"
INK = "#1f1f1f"
GREY = "#6b6b6b"
FAINT = "#d9d9d6"
# Okabe and Ito's colours, told apart with any kind of colour vision
BLUE = "#0072b2"
VERMILLION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#cc79a7"
ORANGE = "#e69f00"
SKY = "#56b4e9"
YELLOW = "#f0e442"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK)

ZERO = "#f1f4f6"  # not white: a cell that holds 0 is still a cell
SHARES = LinearSegmentedColormap.from_list("shares", [ZERO, "#b5d9ee", SKY, BLUE, "#00304f"])
SIGNED = LinearSegmentedColormap.from_list(
    "signed", ["#7a3300", VERMILLION, "#f6c9a6", ZERO, "#b5d9ee", BLUE, "#00304f"]
)
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
VECTOR_CELLS = 144  # a heat map with more cells than this is stored as an image
PRINTED_CELLS = 64  # and one with more than this does not print its values


def setup() -> None:
    """Set style, font and notebook output. Importing this module calls it; again does no harm."""
    families = [LATIN]
    if FONT.is_file():
        name = FT2Font(FONT).family_name
        manager = font_manager.fontManager
        # Another copy of the font on this machine would move labels by a hair.
        manager.ttflist = [font for font in manager.ttflist if font.name != name]
        manager.addfont(FONT)
        families.insert(0, name)
    matplotlib.rcParams.update(
        {
            "font.family": families,  # Chinese first: a string with maths in it uses only the first
            "font.size": 11,
            "mathtext.fontset": "stix",
            "text.color": INK,
            "figure.figsize": (WIDTH, 3.4),
            "figure.dpi": 100,
            "figure.facecolor": CARD,
            "savefig.facecolor": CARD,
            "axes.facecolor": CARD,
            "axes.edgecolor": GREY,
            "axes.linewidth": 0.8,
            "axes.labelcolor": INK,
            "axes.labelsize": 11,
            "axes.titlesize": 12,
            "axes.titlecolor": INK,
            "axes.titlelocation": "left",
            "axes.titlepad": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=PALETTE),
            "axes.axisbelow": True,
            "grid.color": FAINT,
            "grid.linewidth": 0.6,
            "xtick.color": GREY,
            "ytick.color": GREY,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "xtick.labelsize": 10.5,
            "ytick.labelsize": 10.5,
            "lines.linewidth": 2,
            "lines.solid_capstyle": "round",
            "hatch.linewidth": 0.7,
            "hatch.color": GREY,
            "svg.fonttype": "path",
            "svg.hashsalt": "transformer",
        }
    )
    _show_svg()


def _show_svg() -> None:
    """In a notebook, show figures as SVG without date and version; elsewhere do nothing."""
    try:
        from IPython import get_ipython
        from matplotlib_inline.config import InlineBackend
    except ImportError:
        return
    shell = get_ipython()
    if shell is None:
        return
    options: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.1}
    options["metadata"] = {"Date": None, "Creator": None}
    backend = InlineBackend.instance(parent=shell)
    backend.shell = shell
    backend.print_figure_kwargs = options
    backend.figure_formats = {"svg"}


# --- text ---------------------------------------------------------------------------------------


def label(chinese: str, gloss: str = "") -> str:
    """`小明 (Xiaoming)`, or the gloss alone where the font with the characters is missing."""
    if not gloss:
        return _text(chinese)
    return f"{chinese} ({gloss})" if _text(chinese) == chinese else gloss


@functools.cache
def _drawn(path: str) -> frozenset[str]:
    """Characters that a font file draws."""
    return frozenset(map(chr, FT2Font(path).get_charmap()))


def _text(text: str) -> str:
    """`text`, with any character that no font draws replaced by its code point (U+9F98)."""
    families = matplotlib.rcParams["font.family"]
    if "$" in text:  # maths: no second font is asked
        families = families[:1]
    fonts = [_drawn(str(font_manager.fontManager.findfont(family))) for family in families]
    return "".join(
        c if c == "\n" or any(c in font for font in fonts) else f"U+{ord(c):04X}" for c in text
    )


def _math(name: str) -> str:
    """`W_Q` and `K^T` as they stand in a formula; anything else as it is."""
    match = re.fullmatch(r"([A-Za-z]+)(?:_(\w+))?(?:\^(\w+))?", name)
    if not match:
        return _text(name)
    base, below, above = match.groups()
    formula = base if len(base) == 1 else rf"\mathrm{{{base}}}"
    if below:
        formula += f"_{{{below}}}" if len(below) == 1 else rf"_{{\mathrm{{{below}}}}}"
    if above:
        formula += r"^{\top}" if above == "T" else f"^{{{above}}}"
    return f"${formula}$"


def _wide(text: str, size: float) -> float:
    """Width of a text of this size in points, in hundredths of an inch."""
    font = font_manager.FontProperties(family=matplotlib.rcParams["font.family"])
    outline = np.asarray(TextPath((0, 0), _text(text), size=size, prop=font).vertices)
    return float(np.ptp(outline[:, 0])) / 0.72


def _mix(colour: str, other: str, share: float) -> str:
    """`share` of `other` in `colour`."""
    red, green, blue = (1 - share) * np.array(to_rgb(colour)) + share * np.array(to_rgb(other))
    return to_hex((red, green, blue))


def _legible(colour: str) -> str:
    """`colour`, darkened until text in it has contrast 4.5 to 1 on the card."""
    while _luminance(colour) > 1.05 / 4.5 - 0.05:
        colour = _mix(colour, "#000000", 0.1)
    return colour


def _luminance(colour: str) -> float:
    """Relative luminance as the web's accessibility guidelines define it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


# --- data and axes ------------------------------------------------------------------------------


def _array(name: str, value: Any, dimensions: int) -> np.ndarray:
    """Lists, arrays and tensors as one kind of thing, with the dimensions checked."""
    if hasattr(value, "detach"):  # a tensor: any device, any dtype, with or without gradient
        value = value.detach().cpu().tolist()
    array = np.asarray(value)
    if array.ndim != dimensions or array.size == 0:
        raise ValueError(
            f"{name} must have {dimensions} dimension(s) and not be empty, "
            f"but its shape is {array.shape}"
        )
    return array


def _same(name: str, found: int, of: str, wanted: int) -> None:
    """One number of labels for one number of things."""
    if found != wanted:
        raise ValueError(f"{name} has {found} entries, but {of} has {wanted}")


def panels(
    rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float | None = None
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its axes, row by row, for functions that take `ax`. Sizes in inches."""
    if rows < 1 or columns < 1:
        raise ValueError(f"panels needs at least 1 row and 1 column, not {rows} and {columns}")
    if not 0 < width <= 7:
        raise ValueError(f"width is {width} inches: a page holds more than 0 and at most 7")
    fig = Figure(figsize=(width, height or 0.85 * width * rows / columns), layout="constrained")
    return fig, list(fig.subplots(rows, columns, squeeze=False).flat)


def _axes(ax: Axes | None, width: float, height: float) -> tuple[Figure, Axes]:
    """The given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        figure = ax.get_figure(root=True)
        assert isinstance(figure, Figure)
        return figure, ax
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.add_subplot()


# --- matrices -----------------------------------------------------------------------------------


def heatmap(
    weights: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    mask: Any = None,
    vmin: float | None = 0.0,
    vmax: float | None = 1.0,
    annotate: bool | None = None,
    digits: int = 2,
    colourbar: bool | None = None,
) -> Figure:
    """A matrix as coloured cells: rows read, columns are read.

    weights: (T, S) numbers; rows, columns: T and S labels, or None to number them.
    mask: (T, S) booleans, True = may be read; the other cells are hatched and may hold anything.
    vmin, vmax: ends of the colour scale, 0 and 1 for weights; None takes that end from the data.
        A scale with zero inside it has two colours and is made symmetric.
    annotate: print the values; by default in at most 64 cells, 10 columns.
    colourbar: draw the scale; by default where no values are printed.
    Raises ValueError for sizes that differ and for values outside the scale.
    """
    values = _array("weights", weights, 2).astype(float)
    height, width = values.shape
    for name, labels, size in (("rows", rows, height), ("columns", columns, width)):
        if labels is not None:
            _same(name, len(labels), f"that side of the {height} × {width} weights", size)
    allowed = np.ones(values.shape, bool) if mask is None else _mask(mask, values.shape)
    if not np.isfinite(values[allowed]).all():
        raise ValueError("weights holds inf or nan in a cell that the mask lets be read")
    low, high = _scale(values[allowed], vmin, vmax)

    cell = min(0.62, (WIDTH - 1.2) / width)
    square = 1 / 3 <= height / width <= 3
    tall = height * cell if square else 2.6
    fig, ax = _axes(ax, min(WIDTH, width * cell + 1.6), tall + 0.9)
    norm = Normalize(low, high)
    colours = SIGNED if low < 0 < high else SHARES
    shown = np.ma.masked_array(values, ~allowed)
    if values.size <= VECTOR_CELLS:
        image: Any = ax.pcolormesh(shown, cmap=colours, norm=norm, edgecolors=CARD, linewidth=0.8)
    else:
        extent = (0, width, height, 0)
        image = ax.imshow(shown, cmap=colours, norm=norm, extent=extent, interpolation="none")
        if values.size <= 1024:  # few enough to tell cells apart
            ax.vlines(np.arange(1, width), 0, height, color=CARD, linewidth=0.6)
            ax.hlines(np.arange(1, height), 0, width, color=CARD, linewidth=0.6)
    _hatch(ax, ~allowed)
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal" if square else "auto")
    ax.spines[:].set_visible(False)
    _ticks(ax, rows, columns)
    _captions(ax, title, xlabel, ylabel)

    if annotate is None:
        annotate = values.size <= PRINTED_CELLS and width <= 10
    if annotate:
        for row, column in np.argwhere(allowed):
            value = values[row, column]
            dark = _luminance(to_hex(colours(norm(value)))) < 0.2
            text = f"{value:z.{digits}f}".replace("-", "−")  # z: no minus before a rounded 0
            ax.text(column + 0.5, row + 0.5, text, color=CARD if dark else INK, **CENTRED)
    if colourbar is None:
        colourbar = not annotate
    if colourbar:
        bar = fig.colorbar(image, ax=ax, shrink=0.9, pad=0.02, aspect=26)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2)
    return fig


def _scale(values: np.ndarray, vmin: float | None, vmax: float | None) -> tuple[float, float]:
    """Ends of a colour scale that holds all values, symmetric where it crosses zero."""
    least, most = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    for name, end, outside in (("vmin", vmin, least), ("vmax", vmax, most)):
        slack = 1e-6 * max(1.0, abs(end or 0.0))  # float32 shares may pass 1 by a rounding error
        if end is not None and (outside < end - slack if name == "vmin" else outside > end + slack):
            raise ValueError(
                f"weights holds {outside:.6g}, outside {name}={end:.6g}; "
                f"give another {name}, or {name}=None to take it from the data"
            )
    low, high = least if vmin is None else vmin, most if vmax is None else vmax
    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    if low == high:
        high = low + 1.0
    if low > high:
        raise ValueError(f"vmin={low:.6g} is not below vmax={high:.6g}")
    return low, high


def _mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The mask as booleans of this shape."""
    allowed = _array("mask", mask, 2)
    if allowed.dtype != bool:
        raise TypeError(f"mask must hold booleans, True = may be read, not {allowed.dtype}")
    if allowed.shape != shape:
        raise ValueError(f"mask has shape {allowed.shape}, but weights has {shape}")
    return allowed


def _hatch(ax: Axes, cells: np.ndarray) -> None:
    """Hatch these cells, as one shape."""
    square = Outline.unit_rectangle()
    places = np.argwhere(cells)[:, ::-1]  # column is x, row is y
    if len(places):
        corners = places[:, None, :] + np.asarray(square.vertices)
        codes = np.tile(np.asarray(square.codes), len(places))
        outline = Outline(corners.reshape(-1, 2), codes)
        style = {"facecolor": "#f3f3f1", "edgecolor": "#b9b9b5", "linewidth": 0.0}
        ax.add_patch(PathPatch(outline, hatch="////", **style))


def _ticks(ax: Axes, rows: Sequence[str] | None, columns: Sequence[str] | None) -> None:
    """Labels in the middle of cells; long ones under columns are turned."""
    ax.tick_params(length=0)
    height, width = (int(abs(np.subtract(*ends))) for ends in (ax.get_ylim(), ax.get_xlim()))
    for axis, labels, size in ((ax.yaxis, rows, height), (ax.xaxis, columns, width)):
        if labels is None:
            steps = (step for tens in (1, 10, 100, 1000) for step in (tens, 2 * tens, 5 * tens))
            numbers = np.arange(0, size, next(step for step in steps if size / step <= 9))
            axis.set_ticks(numbers + 0.5, [str(number) for number in numbers])
            for line in axis.get_ticklines():
                line.set_markersize(3)
        else:
            axis.set_ticks(np.arange(size) + 0.5, [_text(name) for name in labels])
    if columns is not None and (len(columns) > 12 or sum(map(_extent, columns)) > 44):
        ax.tick_params(axis="x", rotation=90 if len(columns) > 12 else 45)
        if len(columns) <= 12:
            for tick in ax.get_xticklabels():
                tick.set(ha="right", rotation_mode="anchor")


def _extent(text: str) -> float:
    """Width of a label in Latin letters; a Chinese character is as wide as two."""
    return sum(2 if ord(c) > 0x2E00 else 1 for c in text) + 1


def _captions(ax: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Title and axis labels, each only where there is one."""
    if title:
        ax.set_title(_text(title))
    if xlabel:
        ax.set_xlabel(_text(xlabel))
    if ylabel:
        ax.set_ylabel(_text(ylabel))


def mask_plot(
    mask: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
    title: str = "",
    xlabel: str = "may be read",
    ylabel: str = "reads",
) -> Figure:
    """A boolean mask (T, S): filled cells may be read, hatched ones are hidden."""
    allowed = _mask(mask, _array("mask", mask, 2).shape)
    style: dict[str, Any] = {"annotate": False, "colourbar": False, "vmax": 1.6, "mask": allowed}
    names: dict[str, Any] = {"title": title, "xlabel": xlabel, "ylabel": ylabel}
    return heatmap(allowed.astype(float), rows, columns, ax=ax, **style, **names)


# --- charts -------------------------------------------------------------------------------------


def vectors(
    points: Any,
    labels: Sequence[str],
    *,
    ax: Axes | None = None,
    title: str = "",
    colours: Sequence[str] = PALETTE,
) -> Figure:
    """Arrows from the origin to each of the (n, 2) points, with their names at the tips."""
    tips = _array("points", points, 2).astype(float)
    if tips.shape[1] != 2:
        raise ValueError(f"points must be pairs of numbers, but the shape is {tips.shape}")
    _same("labels", len(labels), "points", len(tips))
    everything = np.vstack([tips, [0.0, 0.0]])
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.14 * max(*(high - low), 1e-9)
    span = high - low + 2 * margin
    scale = min(3.2 / span[1], 4.0 / span[0])
    fig, ax = _axes(ax, span[0] * scale + 1.0, span[1] * scale + 0.6)
    ax.grid(visible=True)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.axvline(0, color=GREY, linewidth=0.8)
    for index, (tip, name) in enumerate(zip(tips, labels, strict=True)):
        colour = colours[index % len(colours)]
        length = float(np.hypot(*tip))
        away = tip / length if length else np.array([0.0, 1.0])
        if length:
            arrow = FancyArrowPatch((0, 0), tuple(tip), shrinkA=0, shrinkB=0, color=colour)
            arrow.set(arrowstyle="-|>,head_length=5,head_width=2.6", linewidth=2.2)
            ax.add_patch(arrow)
        else:
            ax.plot(0, 0, "o", color=colour)
        horizontal = "left" if away[0] > 0.4 else "right" if away[0] < -0.4 else "center"
        vertical = "bottom" if away[1] > 0.4 else "top" if away[1] < -0.4 else "center"
        ax.annotate(
            _text(name),
            tuple(tip),
            xytext=tuple(5 * away),
            textcoords="offset points",
            ha=horizontal,
            va=vertical,
            color=_legible(colour),
            bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1},
        )
    ax.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=bool(span.max() > 1.5)))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    _captions(ax, title, "", "")
    return fig


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    xlabel: str = "",
    ylabel: str = "",
    logx: bool = False,
    logy: bool = False,
    markers: bool = False,
    ax: Axes | None = None,
    title: str = "",
) -> Figure:
    """A line for each named series over the same x, its name at its right end."""
    across = _array("x", x, 1).astype(float)
    if not series:
        raise ValueError("lines needs at least one series")
    curves = {name: _array(repr(name), y, 1).astype(float) for name, y in series.items()}
    for name, curve in curves.items():
        _same(f"series {name!r}", len(curve), "x", len(across))
        if logy and not (curve > 0).all():
            raise ValueError(f"series {name!r} holds {curve.min():.6g}: logy needs values above 0")
    if logx and not (across > 0).all():
        raise ValueError(f"x holds {across.min():.6g}: logx needs values above 0")
    fig, ax = _axes(ax, WIDTH, 3.4)
    ax.grid(visible=True, axis="y")
    ax.set(xscale="log" if logx else "linear", yscale="log" if logy else "linear")
    marks = "osD^vPX"  # a second way to tell lines apart
    ends = []
    for index, (name, curve) in enumerate(curves.items()):
        colour = PALETTE[index % len(PALETTE)]
        mark = marks[index % len(marks)] if markers else ""
        ax.plot(across, curve, color=colour, marker=mark, markersize=5.5)
        known = np.flatnonzero(np.isfinite(curve))
        if not known.size:
            raise ValueError(f"series {name!r} holds no finite value")
        ends.append((name, colour, across[known[-1]], curve[known[-1]]))
    ax.margins(x=0.02)
    if logx:
        _log_ticks(ax.xaxis, across)
    if logy:
        _log_ticks(ax.yaxis, np.concatenate(list(curves.values())))
    _captions(ax, title, xlabel, ylabel)
    _end_labels(fig, ax, ends)
    return fig


def _log_ticks(axis: Axis, values: np.ndarray) -> None:
    """Ticks of a logarithmic axis as a reader would choose them for these values."""
    values = values[np.isfinite(values)]
    distinct, ratio = np.unique(values), values.max() / values.min()
    locator: Locator = LogLocator()
    if 2 < len(distinct) < 16 and (np.log2(distinct) % 1 == 0).all():  # doubled at each step
        locator = FixedLocator(distinct[:: -(-len(distinct) // 8)].tolist())
    elif ratio < 4:
        locator = MaxNLocator(5)
    elif ratio < 300:
        locator = LogLocator(subs=(1, 2, 5))
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_locator(NullLocator())


def _plain(value: float) -> str:
    """A tick's number: 0.05, 2,000, or 10⁶ where that is too long."""
    if 1e-3 <= value < 1e6:
        return f"{value:,.0f}" if value >= 1 and value % 1 == 0 else f"{value:g}"
    power = round(float(np.log10(value)))
    factor = value / 10.0**power
    return f"$10^{{{power}}}$" if np.isclose(factor, 1) else f"{value:.0e}"


def _end_labels(fig: Figure, ax: Axes, ends: list[tuple[str, str, float, float]]) -> None:
    """Write each line's name at its end, moved up or down until no two names touch."""
    fig.draw_without_rendering()  # fixes the scale
    points = [ax.transData.transform((x, y)) * 72 / fig.dpi for _, _, x, y in ends]
    right = max(point[0] for point in points)
    floor = ax.get_window_extent().y0 * 72 / fig.dpi + 6
    heights = _spread([float(point[1]) for point in points], 16, floor)
    crowded = any(abs(height - point[1]) > 2 for height, point in zip(heights, points, strict=True))
    for (name, colour, x, y), point, height in zip(ends, points, heights, strict=True):
        stem = {"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 2}
        ax.annotate(
            _text(name),
            (x, y),
            xytext=(right - point[0] + (18 if crowded else 7), height - point[1]),
            textcoords="offset points",
            va="center",
            color=_legible(colour),
            arrowprops=stem if crowded else None,
            annotation_clip=False,
        )


def _spread(wanted: list[float], gap: float, floor: float) -> list[float]:
    """Positions at least `gap` apart, in the same order, as near as can be to those wanted."""

    def bottom(group: list[int]) -> float:
        mean = sum(wanted[index] for index in group) / len(group)
        return max(floor, mean - gap * (len(group) - 1) / 2)

    groups: list[list[int]] = []  # of indices, lowest first; the members of a group touch
    for index in sorted(range(len(wanted)), key=wanted.__getitem__):
        groups.append([index])
        while len(groups) > 1 and (bottom(groups[-1]) < bottom(groups[-2]) + gap * len(groups[-2])):
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = [0.0] * len(wanted)
    for group in groups:
        for step, index in enumerate(group):
            placed[index] = bottom(group) + gap * step
    return placed


def bars(
    labels: Sequence[str],
    values: Any,
    *,
    xlabel: str = "",
    highlight: str | Sequence[str] = (),
    format: str = "{:.2f}",
    ax: Axes | None = None,
    title: str = "",
) -> Figure:
    """Horizontal bars from zero, each with its value at its end; some may be highlighted."""
    numbers = _array("values", values, 1).astype(float)
    _same("labels", len(labels), "values", len(numbers))
    if not np.isfinite(numbers).all():
        raise ValueError("values holds inf or nan")
    chosen = [highlight] if isinstance(highlight, str) else list(highlight)
    for name in chosen:
        if name not in labels:
            raise ValueError(f"highlight names {name!r}, which is not among the labels")
    fig, ax = _axes(ax, WIDTH, 0.34 * len(numbers) + 0.7)
    places = np.arange(len(numbers))
    quiet = FAINT if chosen else _mix(BLUE, CARD, 0.35)
    colours = [VERMILLION if name in chosen else quiet for name in labels]
    ax.barh(places, numbers, height=0.68, color=colours)
    for place, number in zip(places, numbers, strict=True):
        ax.annotate(
            format.format(number).replace("-", "−"),
            (number, place),
            xytext=(4 if number >= 0 else -4, 0),
            textcoords="offset points",
            ha="left" if number >= 0 else "right",
            va="center",
        )
    ax.set_yticks(places, [_text(name) for name in labels])
    ax.invert_yaxis()
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    ax.spines[:].set_visible(False)
    low, high = min(0.0, numbers.min()), max(0.0, numbers.max())
    room = 0.16 * ((high - low) or 1.0)  # for the values
    ax.set_xlim(low - room if low else 0, high + room if high or not low else 0)
    ax.margins(y=0.02)
    _captions(ax, title, xlabel, "")
    return fig


# --- drawings: a grid of hundredths of an inch ---------------------------------------------------


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty sheet whose coordinates are hundredths of an inch."""
    fig = Figure(figsize=(width / 100, height / 100), layout=None)
    ax = fig.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return fig, ax


def _box(
    ax: Axes,
    centre: tuple[float, float],
    size: tuple[float, float],
    *,
    fill: str,
    edge: str,
    linewidth: float = 1.2,
    corner: float = 6,
    **style: Any,
) -> None:
    """A rectangle with round corners."""
    left, bottom = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    shape = f"round,pad=0,rounding_size={corner}"
    style = {"facecolor": fill, "edgecolor": edge, "linewidth": linewidth, **style}
    ax.add_artist(FancyBboxPatch((left, bottom), *size, boxstyle=shape, **style))


def _word(
    ax: Axes, x: float, y: float, text: str, size: float, colour: str = INK, **style: Any
) -> None:
    """Text whose capitals are centred on y, so that neighbours share a baseline."""
    style = {"ha": "center", "va": "baseline", "zorder": 4, **style}
    ax.text(x, y - 0.5 * size, text, size=size, color=colour, **style)


def _route(
    ax: Axes,
    points: Sequence[tuple[float, float]],
    *,
    colour: str,
    linewidth: float = 1.2,
    head: bool = True,
    dashed: bool = False,
    zorder: float = 1,
    corner: float = 8,
) -> None:
    """A line through `points` with round corners; its head ends exactly at the last of them."""
    corners = [np.array(point, float) for point in points]
    tip = corners[-1]
    along = (tip - corners[-2]) / np.hypot(*(tip - corners[-2]))
    if head:
        across = np.array([-along[1], along[0]])
        base = tip - 8 * along
        triangle = [tip, base + 4 * across, base - 4 * across]
        ax.add_artist(Polygon(triangle, facecolor=colour, linewidth=0, zorder=zorder + 0.1))
        corners[-1] = base + along
    vertices, codes = [corners[0]], [Outline.MOVETO]
    for before, here, after in zip(corners, corners[1:], corners[2:], strict=False):
        into, out = here - before, after - here
        radius = min(corner, np.hypot(*into) / 2, np.hypot(*out) / 2)
        vertices += [here - radius * into / np.hypot(*into), here]
        vertices += [here + radius * out / np.hypot(*out)]
        codes += [Outline.LINETO, Outline.CURVE3, Outline.CURVE3]
    outline = Outline([*vertices, corners[-1]], [*codes, Outline.LINETO])
    style = {"facecolor": "none", "edgecolor": colour, "linewidth": linewidth, "zorder": zorder}
    ax.add_artist(PathPatch(outline, linestyle=(0, (4, 2.5)) if dashed else "-", **style))


def shapes(
    matrices: Sequence[tuple[str, str, str] | str],
    *,
    sizes: Mapping[str, float] | None = None,
    title: str = "",
) -> Figure:
    """Matrices as rectangles to scale, the letters of their dimensions along their sides.

    matrices: (name, rows, columns), with signs such as "·", "+", "=" between them. Names and
        letters may be `W_Q`, `d_ff`, `K^T`. The sides that meet at a "·" must carry one letter.
    sizes: length drawn for a letter, beside or instead of those that the book uses.
    """
    lengths = {"1": 0.6, "B": 2, "T": 3, "S": 4, "V": 7, "d": 4, "d_k": 2, "d_v": 2, "d_ff": 6}
    lengths |= {"h": 2, "L": 2} | dict(sizes or {})
    boxes = [item for item in matrices if not isinstance(item, str)]
    if not boxes:
        raise ValueError("shapes needs at least one matrix")
    unknown = sorted({side for box in boxes for side in box[1:] if side not in lengths})
    if unknown:
        raise ValueError(f"no length is known for {', '.join(unknown)}: give it in sizes")
    for before, sign, after in zip(matrices, matrices[1:], matrices[2:], strict=False):
        if isinstance(before, str) or isinstance(after, str) or sign != "·":
            continue
        if before[2] != after[1]:
            raise ValueError(
                f"{before[0]} ({before[1]} × {before[2]}) · {after[0]} ({after[1]} × {after[2]}): "
                f"the inner sides {before[2]} and {after[1]} differ"
            )

    sign_widths = {item: 20 + _wide(item, 14) for item in matrices if isinstance(item, str)}
    margins = {box: 10 + _wide(_math(box[1]), 11.5) for box in boxes}  # the letter on the left
    fixed = sum(sign_widths[i] if isinstance(i, str) else margins[i] + 4 for i in matrices)
    unit = min(24.0, (100 * WIDTH - fixed) / sum(lengths[box[2]] for box in boxes))
    if unit < 6:
        raise ValueError(f"{len(matrices)} matrices and signs do not fit on one line: split them")
    high = max(44.0, unit * max(lengths[box[1]] for box in boxes))
    width = fixed + unit * sum(lengths[box[2]] for box in boxes)
    fig, ax = _canvas(width, high + 34 + (30 if title else 0))
    x, middle = 0.0, 6 + high / 2
    for item in matrices:
        if isinstance(item, str):
            ax.text(x + sign_widths[item] / 2, middle, _text(item), size=14, **CENTRED)
            x += sign_widths[item]
            continue
        name, rows, columns = item
        wide, tall = unit * lengths[columns], unit * lengths[rows]
        x += margins[item]
        shades = _shades(PALETTE[boxes.index(item) % 6], True)
        _box(ax, (x + wide / 2, middle), (wide, tall), corner=3, **shades)
        thin = tall < 22 or wide < _wide(_math(name), 13) + 6  # then the name stands below
        below = tall / 2 + 12 if thin else 0
        ax.text(x + wide / 2, middle - below, _math(name), size=13, **CENTRED)
        ax.text(x - 6, middle, _math(rows), size=11.5, color=GREY, ha="right", va="center")
        above = middle + tall / 2 + 12
        ax.text(x + wide / 2, above, _math(columns), size=11.5, color=GREY, **CENTRED)
        x += wide + 4
    if title:
        ax.text(0, high + 52, _text(title), size=12, va="center")
    return fig


STATES = {
    "alive": "kept, still growing",
    "finished": "finished",
    "pruned": "dropped",
    "best": "the answer",
}


def tree(
    nodes: Sequence[tuple[str, float, str]], edges: Sequence[tuple[int, int]], *, title: str = ""
) -> Figure:
    """The tree that a beam search grew, from the root at the left.

    nodes: (token, log-probability of the prefix that ends here, state). States differ in shape as
        well as colour: alive, finished (double frame), pruned (dashed), best (double, thick path).
    edges: (index of the parent, index of the child); children stand in this order, top down.
    """
    if not nodes:
        raise ValueError("tree needs at least one node")
    for token, _, state in nodes:
        if state not in STATES:
            raise ValueError(f"state {state!r} of node {token!r} is none of {', '.join(STATES)}")
    parents: dict[int, int] = {}
    children: dict[int, list[int]] = {index: [] for index in range(len(nodes))}
    for parent, child in edges:
        for end in (parent, child):
            if not 0 <= end < len(nodes):
                raise ValueError(f"edge {(parent, child)} names node {end} of {len(nodes)}")
        if child in parents:
            raise ValueError(f"node {child} has two parents, {parents[child]} and {parent}")
        parents[child] = parent
        children[parent].append(child)
    roots = [index for index in children if index not in parents]
    if len(roots) != 1:
        raise ValueError(f"a tree has one root, but {len(roots)} nodes have no parent: {roots}")

    depth: dict[int, int] = {}
    level: dict[int, float] = {}
    leaves = 0

    def place(node: int, deep: int) -> None:
        nonlocal leaves
        depth[node] = deep
        for child in children[node]:
            place(child, deep + 1)
        if children[node]:
            level[node] = sum(level[child] for child in children[node]) / len(children[node])
        else:
            level[node] = leaves
            leaves += 1

    place(roots[0], 0)
    if len(depth) != len(nodes):
        raise ValueError(f"edges form a cycle: node {min(set(children) - set(depth))} hangs in it")
    onpath: set[int] = set()
    for index, (_, _, state) in enumerate(nodes):
        while state == "best" and index not in onpath:
            onpath.add(index)
            index = parents.get(index, index)

    step = min(110.0, (100 * WIDTH - 90) / max(1, *depth.values()))
    width = 90 + step * max(depth.values())
    height = 46 * leaves + 44 + (26 if title else 0)
    fig, ax = _canvas(max(width, 380), height)
    centre = {
        node: (45 + step * depth[node], 44 + 46 * (leaves - level[node]) - 16) for node in children
    }
    wide = min(76.0, step - 22)
    for parent, child in edges:
        (x0, y0), (x1, y1) = centre[parent], centre[child]
        middle, best = (x0 + wide / 2 + x1 - wide / 2) / 2, child in onpath
        turn = [(middle, y0), (middle, y1)] if abs(y0 - y1) > 0.1 else []
        points = [(x0 + wide / 2, y0), *turn, (x1 - wide / 2, y1)]
        colour = VERMILLION if best else "#b9b9b5"
        _route(
            ax,
            points,
            colour=colour,
            linewidth=2.4 if best else 1.2,
            head=False,
            zorder=0.6 if best else 0.5,
        )
    for index, (token, score, state) in enumerate(nodes):
        x, y = centre[index]
        _node(ax, (x, y), wide, state)
        quiet = state == "pruned"
        _word(ax, x, y, _text(token), 10.5, GREY if quiet else INK)
        _word(ax, x, y - 20, f"{score:.2f}".replace("-", "−"), 9, GREY)
    x = 14.0
    for state in [state for state in STATES if any(state == node[2] for node in nodes)]:
        _node(ax, (x + 11, 9), 22, state, 12)
        _word(ax, x + 28, 9, STATES[state], 9, GREY, ha="left")
        x += 46 + _wide(STATES[state], 9)
    if title:
        ax.text(10, height - 14, _text(title), size=12, va="center")
    return fig


def _node(ax: Axes, centre: tuple[float, float], wide: float, state: str, high: float = 24) -> None:
    """The frame of a node in this state."""
    colour = {"alive": BLUE, "finished": GREEN, "pruned": "#9a9a96", "best": VERMILLION}[state]
    fill = CARD if state == "pruned" else _mix(colour, CARD, 0.82)
    corner = {"alive": 5, "pruned": 1}.get(state, high / 2 - 0.1)
    style = {"linestyle": (0, (3, 2))} if state == "pruned" else {}
    _box(ax, centre, (wide, high), fill=fill, edge=colour, corner=corner, linewidth=1.3, **style)
    if state in ("finished", "best"):
        inner = (wide - 5, high - 5)
        _box(ax, centre, inner, fill="none", edge=colour, corner=corner - 2.5, linewidth=0.9)


# --- the map ------------------------------------------------------------------------------------

# Each box: centre, size, text and colour. The encoder stands on the left, the decoder on the right.
ENC, DEC = 147, 413
BOXES = {
    "src_emb": ((ENC, 73), (166, 26), "Embedding", PURPLE),
    "tgt_emb": ((DEC, 73), (166, 26), "Embedding", PURPLE),
    "pe": ((280, 108), (156, 26), "Positional encoding", GREEN),
    "enc_attn": ((ENC, 180), (166, 28), "Self-attention", ORANGE),
    "enc_norm1": ((ENC, 217), (166, 22), "Add & norm", YELLOW),
    "enc_ff": ((ENC, 267), (166, 26), "Feed-forward", SKY),
    "enc_norm2": ((ENC, 303), (166, 22), "Add & norm", YELLOW),
    "dec_self": ((DEC, 180), (166, 28), "Masked self-attention", ORANGE),
    "dec_norm1": ((DEC, 217), (166, 22), "Add & norm", YELLOW),
    "dec_cross": ((DEC, 268), (166, 28), "Cross-attention", ORANGE),
    "dec_norm2": ((DEC, 305), (166, 22), "Add & norm", YELLOW),
    "dec_ff": ((DEC, 355), (166, 26), "Feed-forward", SKY),
    "dec_norm3": ((DEC, 391), (166, 22), "Add & norm", YELLOW),
    "linear": ((DEC, 443), (166, 26), "Linear", BLUE),
    "softmax": ((DEC, 483), (166, 26), "Softmax", BLUE),
    "loss": ((207, 443), (114, 26), "Loss", VERMILLION),
}
ATTENTION = {"enc_attn", "dec_self", "dec_cross"}
FRAMES = {"enc_frame": (139, 132, 326), "dec_frame": (421, 132, 414)}

# Each line: the part it belongs to, and its points. A line into a box belongs to that box.
LINES = [
    ("src_emb", [(ENC, 46), (ENC, 60)]),
    ("tgt_emb", [(DEC, 46), (DEC, 60)]),
    ("pe", [(ENC, 86), (ENC, 98)]),
    ("pe", [(DEC, 86), (DEC, 98)]),
    ("pe", [(202, 108), (ENC + 10, 108)]),
    ("pe", [(358, 108), (DEC - 10, 108)]),
    ("enc_norm1", [(ENC, 194), (ENC, 206)]),
    ("enc_ff", [(ENC, 228), (ENC, 254)]),
    ("enc_norm2", [(ENC, 280), (ENC, 292)]),
    ("enc_res", [(ENC, 144), (48, 144), (48, 217), (64, 217)]),
    ("enc_res", [(ENC, 240), (48, 240), (48, 303), (64, 303)]),
    ("dec_norm1", [(DEC, 194), (DEC, 206)]),
    ("dec_cross", [(DEC, 228), (DEC, 254)]),
    ("dec_norm2", [(DEC, 282), (DEC, 294)]),
    ("dec_ff", [(DEC, 316), (DEC, 342)]),
    ("dec_norm3", [(DEC, 368), (DEC, 380)]),
    ("dec_res", [(DEC, 144), (512, 144), (512, 217), (496, 217)]),
    ("dec_res2", [(DEC, 240), (512, 240), (512, 305), (496, 305)]),
    ("dec_res", [(DEC, 328), (512, 328), (512, 391), (496, 391)]),
    ("memory", [(ENC, 314), (ENC, 352), (280, 352), (280, 268), (330, 268)]),
    ("linear", [(DEC, 402), (DEC, 430)]),
    ("softmax", [(DEC, 456), (DEC, 470)]),
    ("out", [(DEC, 496), (DEC, 510)]),
]
for centre, stack in ((ENC, "enc_attn"), (DEC, "dec_self")):
    LINES += [  # one vector in three roles: query, key, value
        (stack, [(centre, 118), (centre, 166)]),
        (stack, [(centre, 153), (centre - 44, 153), (centre - 44, 166)]),
        (stack, [(centre, 153), (centre + 44, 153), (centre + 44, 166)]),
    ]

ENCODER = {"enc_attn", "enc_norm1", "enc_ff", "enc_norm2", "enc_res", "enc_frame", "heads"}
DECODER = {"dec_self", "dec_norm1", "dec_cross", "dec_norm2", "dec_ff", "dec_norm3"}
DECODER |= {"dec_res", "dec_res2", "dec_frame", "heads"}
INPUTS = {"src", "tgt", "src_emb", "tgt_emb", "pe"}
OUTPUTS = {"linear", "softmax", "out"}
WHOLE = ENCODER | DECODER | INPUTS | OUTPUTS | {"memory"}

# What each chapter is about: heading, explanation, and the parts that it lights.
CHAPTERS = {
    "tokens": ("Tokens", "A sentence becomes a row\nof integers, and back.", {"src", "tgt", "out"}),
    "embedding": (
        "Embedding",
        "Each integer picks a row of a matrix.\nThe output layer reads the same matrix.",
        {"src_emb", "tgt_emb", "linear", "tie"},
    ),
    "positional_encoding": (
        "Positional encoding",
        "Added to each vector:\nwhere in the sentence it stands.",
        {"pe"},
    ),
    "attention": (
        "Attention",
        "Every position asks, and takes from each\nanswer the share that fits its question.",
        {*ATTENTION, "memory"},
    ),
    "multi_head": (
        "Multi-head attention",
        "Several attentions side by side,\neach in its own projection.",
        {*ATTENTION, "heads", "memory"},
    ),
    "residual_norm": (
        "Residual and norm",
        "A path around every sub-layer,\nand a common scale after it.",
        {part for part in WHOLE if "norm" in part or "res" in part},
    ),
    "feed_forward": (
        "Feed-forward",
        "Each position is worked on alone,\nby the same two matrices.",
        {"enc_ff", "dec_ff"},
    ),
    "encoder": (
        "Encoder",
        "L layers turn the source into vectors\nthat know their sentence.",
        ENCODER | {"memory"},
    ),
    "decoder": (
        "Decoder",
        "Reads the target so far and the source;\nnever what is still to come.",
        DECODER | {"memory", "tgt"},
    ),
    "loss": (
        "Loss",
        "From vector to probabilities,\nfrom probabilities to one number.",
        OUTPUTS | {"loss"},
    ),
    "decoding": (
        "Decoding",
        "What was chosen becomes input.\nThe source is encoded once.",
        {"softmax", "out", "loop", "tgt", "memory"},
    ),
    "sliding_window": (
        "Sliding window",
        "Self-attention that reads\nonly its neighbourhood.",
        {"enc_attn", "dec_self", "heads", "window"},
    ),
    "variants": (
        "Variants",
        "The left column alone: BERT.\nThe right one, reading no source: GPT.",
        WHOLE - {"memory", "dec_cross", "dec_norm2", "dec_res2"} | {"cut"},
    ),
    "training": (
        "Training",
        "The loss sends a gradient back\nto every parameter.",
        WHOLE - {"src", "tgt", "out"} | {"loss", "gradient"},
    ),
    "end_to_end": (
        "End to end",
        "Trained, then set to write:\neverything at work.",
        WHOLE | {"loss", "gradient", "loop"},
    ),
}
OFF = "#b9b9b5"  # lines of parts that are not lit


def architecture(lit: str | tuple[str, ...] = ()) -> Figure:
    """The map of the encoder–decoder, with one chapter's part lit, or several chapters' parts.

    lit: names of chapters without their numbers, such as "attention". With none, the whole model
        in colour and no heading. Loss, gradient, generation loop, tied matrix and window appear
        only where they are lit. Raises ValueError for a name that is no chapter.
    """
    names = (lit,) if isinstance(lit, str) else tuple(lit)
    for name in names:
        if name not in CHAPTERS:
            raise ValueError(f"no part of the map is called {name!r}: {', '.join(CHAPTERS)}")
    parts = set(WHOLE) if not names else set().union(*(CHAPTERS[name][2] for name in names))
    fig, ax = _canvas(560, 560)

    for frame, (x, bottom, top) in FRAMES.items():
        on = frame in parts
        middle, size, edge = (x, (bottom + top) / 2), (210, top - bottom), INK if on else OFF
        _box(ax, middle, size, fill="#f6f6f4", edge=edge, corner=10, linewidth=1.1, zorder=0)
        corner, side = (x - 101, "left") if frame == "enc_frame" else (x + 101, "right")
        ax.text(corner, top + 6, "× L", size=11, ha=side, color=INK if on else GREY)

    for part, points in LINES:
        on = part in parts
        _route(ax, points, colour=INK if on else OFF, zorder=2 if on else 1)
    ax.text(214, 361, "Z", size=10.5, color=INK if "memory" in parts else GREY, ha="center")
    ax.text(298, 275, "K, V", size=9, color=INK if "memory" in parts else GREY, ha="center")
    ax.text(DEC + 9, 247, "Q", size=9, color=INK if "dec_cross" in parts else GREY, va="center")

    for part, ((x, y), (wide, high), text, colour) in BOXES.items():
        if part == "loss" and part not in parts:
            continue
        on = part in parts
        shades = _shades(colour, on)
        if part in ATTENTION:  # a stack: one sheet a head
            behind = _shades(colour, on and "heads" in parts)
            for shift in (3, 0):
                _box(ax, (x + shift, y + shift), (wide - 6, high - 6), zorder=3, **behind)
            x, y, wide, high = x - 3, y - 3, wide - 6, high - 6
        _box(ax, (x, y), (wide, high), zorder=3, **shades)
        _word(ax, x, y, text, 10.5, INK if on else GREY)

    for x in (ENC, DEC):  # the sum of vector and position
        on = "pe" in parts
        ink = INK if on else OFF
        fill = _shades(GREEN, on)["fill"]
        ax.add_artist(Circle((x, 108), 10, facecolor=fill, edgecolor=ink, linewidth=1.2, zorder=3))
        for dx, dy in ((5, 0), (0, 5)):
            ax.plot((x - dx, x + dx), (108 - dy, 108 + dy), color=ink, linewidth=1.2, zorder=4)

    words = (("小明", "Xiaoming"), ("开始", "starts"), ("工作", "working"))
    source = [word if _text(word) == word else gloss for word, gloss in words]
    target = ["BOS", "Xiaoming", "starts", "working", "EOS"]
    _chips(ax, (ENC, 34), source, "src" in parts, "source", 10)
    fed = _chips(ax, (DEC, 34), target[:-1], "tgt" in parts, "target, shifted right", 10)
    chosen = _chips(ax, (DEC, 522), target[1:], "out" in parts, "next tokens", 546)
    if "loop" in parts:
        red = _legible(VERMILLION)
        loop = [(chosen, 522), (546, 522), (546, 34), (fed, 34)]
        _route(ax, loop, colour=red, linewidth=1.6, zorder=2)
        ax.text(536, 452, "append", size=9, color=red, rotation=270, ha="center", va="center")

    if names:
        heading = " + ".join(CHAPTERS[name][0] for name in names)
        ax.text(14, 541, heading, size=15, va="center")
        if len(names) == 1:
            ax.text(14, 524, CHAPTERS[names[0]][1], size=10, color=GREY, va="top", linespacing=1.35)
    _extras(ax, parts)
    return fig


def _shades(colour: str, on: bool) -> dict[str, Any]:
    """Fill and edge of a box, lit or not."""
    if not on:
        return {"fill": "#fafaf9", "edge": OFF, "linewidth": 0.9}
    return {"fill": _mix(colour, CARD, 0.66), "edge": _mix(colour, INK, 0.45), "linewidth": 1.4}


def _chips(
    ax: Axes, centre: tuple[float, float], tokens: list[str], on: bool, caption: str, height: float
) -> float:
    """Tokens in small boxes side by side, with a caption. Returns where they end on the right."""
    sizes = [14 + _wide(token, 9.5) for token in tokens]
    total = sum(sizes) + 4 * (len(tokens) - 1)
    x, ink = centre[0] - total / 2, INK if on else GREY
    for token, wide in zip(tokens, sizes, strict=True):
        edge, fill = (INK, "#e9e9e6") if on else (OFF, CARD)
        place = (x + wide / 2, centre[1])
        _box(ax, place, (wide, 24), fill=fill, edge=edge, linewidth=1.1, zorder=3)
        _word(ax, *place, token, 9.5, ink)
        x += wide + 4
    _word(ax, centre[0], height, caption, 9, ink)
    return centre[0] + total / 2


def _extras(ax: Axes, parts: set[str]) -> None:
    """What only some chapters add to the map."""
    red = _legible(VERMILLION)
    small: dict[str, Any] = {"size": 9, "ha": "center", "va": "center"}
    if "loss" in parts:
        _route(ax, [(330, 483), (207, 483), (207, 456)], colour=INK, zorder=2)
    if "gradient" in parts:
        dashed: dict[str, Any] = {"colour": red, "linewidth": 1.6, "dashed": True, "zorder": 2}
        _route(ax, [(264, 443), (330, 443)], **dashed)
        _route(ax, [(150, 443), (14, 443), (14, 73), (64, 73)], **dashed)
        _route(ax, [(14, 237), (14, 229), (34, 229)], **dashed)
        ax.text(82, 454, "gradient", color=red, **small)
    if "tie" in parts:
        purple = _legible(PURPLE)
        tie = [(496, 73), (540, 73), (540, 443), (496, 443)]
        _route(ax, tie, colour=purple, linewidth=1.6, dashed=True, head=False, zorder=2)
        ax.text(550, 270, "one matrix", color=purple, rotation=270, **small)
    if "window" in parts:
        for left, name, ahead in ((20, "encoder", 1), (124, "decoder", 0)):
            for row in range(7):
                for column in range(7):
                    near = -2 + ahead <= column - row <= ahead
                    fill = _mix(ORANGE, CARD, 0.2 if near else 1.0)
                    place = (left + 12 * column, 474 - 12 * row)
                    _box(ax, place, (11, 11), fill=fill, edge=FAINT, linewidth=0.6, corner=1)
            _word(ax, left + 36, 384, name, 9, GREY)
    if "cut" in parts:
        for slope in (-1, 1):
            ax.plot((271, 289), (320 - 9 * slope, 320 + 9 * slope), color=red, linewidth=2.4)


setup()
