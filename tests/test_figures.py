"""Figures draw the data that they were given, in glyphs that exist, the same bytes every time."""

import importlib.util
import io
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from types import ModuleType

import matplotlib
import nbclient
import nbformat
import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Polygon
from matplotlib.text import Text

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["小明", "开始", "工作"]
X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
WEIGHTS = np.array([[0.4011, 0.1978, 0.4011], [0.1400, 0.2840, 0.5760], [0.0501, 0.1017, 0.8482]])

pytestmark = pytest.mark.filterwarnings("error")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "chapters" / "figures.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module  # where its annotations are looked up
    spec.loader.exec_module(module)
    return module


figures = load()
NAMES = list(figures.CHAPTERS)


@pytest.fixture
def fonts(monkeypatch):
    """A machine with no other font than matplotlib's own."""
    manager = font_manager.fontManager
    own = [font for font in manager.ttflist if matplotlib.get_data_path() in font.fname]
    monkeypatch.setattr(manager, "ttflist", own)
    manager._findfont_cached.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    manager._findfont_cached.cache_clear()
    figures.setup()


def svg(fig: Figure) -> bytes:
    assert isinstance(fig, Figure)
    out = io.BytesIO()
    fig.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def samples() -> dict[str, Figure]:
    """One figure of each kind."""
    mask = np.tril(np.ones((3, 3), bool))
    fig, axes = figures.panels(1, 2)
    figures.heatmap(WEIGHTS, WORDS, WORDS, ax=axes[0])
    figures.mask_plot(mask, WORDS, WORDS, ax=axes[1])
    wave = np.sin(np.arange(40)[:, None] / 1.1 ** np.arange(50))
    nodes = [("BOS", 0.0, "alive"), ("开始", -0.7, "best"), ("B", -0.9, "pruned")]
    product = [("X", "T", "d"), "·", ("W_Q", "d", "d_k"), "=", ("Q", "T", "d_k")]
    return {
        "panels": fig,
        "heatmap": figures.heatmap(WEIGHTS * mask, WORDS, WORDS, mask=mask, title="读"),
        "image": figures.heatmap(wave, vmin=-1, vmax=1, xlabel="i", ylabel="p"),
        "mask": figures.mask_plot(mask, WORDS, WORDS),
        "vectors": figures.vectors(X, WORDS),
        "lines": figures.lines([1, 2], {"训练": [1, -2], "$d_k$": [1, -2.1]}, xlabel="步"),
        "bars": figures.bars(WORDS, [0.1, -0.2, 0.3], highlight="工作"),
        "shapes": figures.shapes([*product, "+", "偏置"]),
        "tree": figures.tree(nodes, [(0, 1), (0, 2)]),
        "architecture": figures.architecture("end_to_end"),
    }


# --- the font -----------------------------------------------------------------------------------


def test_chinese_ticks_and_a_negative_number_on_a_bare_machine(fonts):
    """Case B9."""
    figures.setup()
    fig = figures.heatmap(X @ X.T - 2, WORDS, WORDS, vmin=None, vmax=None, colourbar=True)
    drawn = svg(fig).decode()  # a missing glyph is a warning, and warnings are errors here
    bar = [tick.get_text() for tick in fig.axes[1].get_yticklabels()]
    assert "−2" in bar
    assert [tick.get_text() for tick in fig.axes[0].get_xticklabels()] == WORDS
    glyphs = font_manager.get_font(str(figures.FONT)).get_charmap()
    for sign in "小明开始工作−":
        assert f"#NotoSansCJKsc-Regular-{glyphs[ord(sign)]:x}" in drawn, sign


def test_the_check_above_can_fail(fonts):
    with matplotlib.rc_context({"font.family": ["DejaVu Sans"]}):
        fig, axes = figures.panels()
        axes[0].set_title("小明")
        with pytest.warns(UserWarning, match="missing from font"):
            svg(fig)


def test_without_the_font_labels_are_latin(fonts, tmp_path):
    fonts.setattr(figures, "FONT", tmp_path / "none.otf")
    figures.setup()
    assert figures.label("小明", "Xiaoming") == "Xiaoming"
    assert figures.label("小明") == "U+5C0FU+660E"
    for fig in samples().values():
        svg(fig)
    texts = [text.get_text() for text in figures.architecture().axes[0].texts]
    assert texts.count("Xiaoming") == 3 and "小明" not in texts


def test_with_the_font_labels_are_chinese():
    assert figures.label("小明", "Xiaoming") == "小明 (Xiaoming)"
    assert figures.label("小明") == "小明"
    assert figures.label("龘") == "U+9F98"  # in neither font: its code point, not an empty box
    assert matplotlib.rcParams["font.family"][0] == "Noto Sans CJK SC"


def test_the_font_file():
    assert figures.FONT.stat().st_size <= 1_000_000
    cells = [bytes((0xA0 + row, 0xA0 + cell)) for row in range(16, 56) for cell in range(1, 95)]
    common = b"".join(cells[:-5]).decode("gb2312")
    assert len(set(common)) == 3755
    needed = (
        common + "−–—·，。、？！“”‘’《》→←↑↓×÷≤≥≈∞√∑ÀéüǚβθΣ" + "".join(map(chr, range(33, 127)))
    )
    missing = set(needed) - set(map(chr, font_manager.get_font(str(figures.FONT)).get_charmap()))
    assert not missing
    licence = (figures.FONT.parent / "OFL.txt").read_text(encoding="utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence and "Adobe" in licence


# --- output -------------------------------------------------------------------------------------

SCRIPT = "import sys, test_figures as t; sys.stdout.buffer.write(t.everything())"


def everything() -> bytes:
    return b"".join(svg(fig) for fig in samples().values())  # a warning would be an error


def test_two_processes_draw_the_same_bytes():
    here = everything()
    assert b"<dc:date>" not in here and b"Matplotlib v" not in here
    environment = {**os.environ, "PYTHONHASHSEED": "123", "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", SCRIPT]
    run = subprocess.run(command, cwd=ROOT / "tests", env=environment, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    assert run.stdout == here


def test_svgs_are_small_and_fit_a_page():
    for name, fig in samples().items():
        assert fig.get_figwidth() <= 7, name
        assert len(svg(fig)) < 120_000, name


def test_a_notebook_shows_each_figure_once_and_the_same_each_time():
    cells = [
        "import figures\nfigures.setup()",
        "figures.bars(['小明', 'b'], [1, -2])",
        "fig, axes = figures.panels(1, 2)\nfigures.vectors([[1, 2]], ['q'], ax=axes[0])\nfig",
        "figures.architecture('attention')",
    ]
    outputs = []
    for _ in range(2):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        nbclient.NotebookClient(
            notebook, resources={"metadata": {"path": str(ROOT / "chapters")}}
        ).execute()
        outputs.append([cell.outputs for cell in notebook.cells])
    assert outputs[0] == outputs[1]
    first, *shown = outputs[0]
    assert first == []
    for output in shown:
        assert [o.output_type for o in output] == ["execute_result"]
        assert set(output[0].data) == {"image/svg+xml", "text/plain"}
        assert output[0].data["image/svg+xml"].rstrip().endswith("</svg>")
        assert re.fullmatch(r"<Figure size \d+x\d+ with \d+ Axes>", output[0].data["text/plain"])


def test_colours_of_text_are_legible():
    def luminance(colour):
        channels = np.array(to_rgba(colour)[:3])
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        return linear @ [0.2126, 0.7152, 0.0722]

    card = luminance(figures.CARD)
    for colour in (*map(figures._legible, figures.PALETTE), figures.INK, figures.GREY):
        assert (card + 0.05) / (luminance(colour) + 0.05) >= 4.5, colour


# --- the map ------------------------------------------------------------------------------------

# What a reader of each chapter should find lit: the words in the boxes, and how many of each.
ATTENTION = {"Self-attention": 1, "Masked self-attention": 1, "Cross-attention": 1}
ALL = {"Embedding": 2, "Positional encoding": 1, **ATTENTION, "Add & norm": 5, "Feed-forward": 2}
ALL |= {"Linear": 1, "Softmax": 1}
LIT = {
    "tokens": {},
    "embedding": {"Embedding": 2, "Linear": 1},
    "positional_encoding": {"Positional encoding": 1},
    "attention": ATTENTION,
    "multi_head": ATTENTION,
    "residual_norm": {"Add & norm": 5},
    "feed_forward": {"Feed-forward": 2},
    "encoder": {"Self-attention": 1, "Add & norm": 2, "Feed-forward": 1},
    "decoder": {
        "Masked self-attention": 1,
        "Cross-attention": 1,
        "Add & norm": 3,
        "Feed-forward": 1,
    },
    "loss": {"Linear": 1, "Softmax": 1, "Loss": 1},
    "decoding": {"Softmax": 1},
    "sliding_window": {"Self-attention": 1, "Masked self-attention": 1},
    "variants": {**ALL, "Cross-attention": 0, "Add & norm": 4},
    "training": {**ALL, "Loss": 1},
    "end_to_end": {**ALL, "Loss": 1},
}


def lit(fig: Figure) -> Counter[str]:
    """How many boxes of each name are lit."""
    shown = [text for text in fig.axes[0].texts if text.get_fontsize() < 12]  # no heading
    words = [text.get_text() for text in shown if to_hex(text.get_color()) == figures.INK]
    return Counter(word for word in words if word in {**ALL, "Loss": 1})


def test_the_map_knows_every_chapter():
    assert set(NAMES) == set(LIT)


@pytest.mark.parametrize("name", NAMES)
def test_the_map_lights_what_the_chapter_is_about(name):
    fig = figures.architecture(name)
    assert lit(fig) == Counter(LIT[name])
    assert figures.CHAPTERS[name][0] in [text.get_text() for text in fig.axes[0].texts]


@pytest.mark.parametrize("name", [(), *NAMES])
def test_nothing_on_the_map_overlaps_or_sticks_out(name):
    fig = figures.architecture(name)
    fig.draw_without_rendering()
    extents = [(t.get_text(), t.get_window_extent()) for t in fig.axes[0].texts]
    for (one, box), (two, other) in combinations(extents, 2):
        assert not box.padded(-1).overlaps(other.padded(-1)), (one, two)
    for text, box in extents:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1, text


@pytest.mark.parametrize("name", [(), *NAMES])
def test_every_arrow_on_the_map_touches_what_it_points_at(name):
    ax = figures.architecture(name).axes[0]
    edges = []
    for patch in ax.patches:
        if isinstance(patch, FancyBboxPatch):
            edges.append(patch.get_bbox().extents)
        elif isinstance(patch, Circle):
            edges.append((*np.subtract(patch.center, 10), *np.add(patch.center, 10)))
    heads = [patch.get_xy()[0] for patch in ax.patches if isinstance(patch, Polygon)]
    assert len(heads) >= 29
    for x, y in heads:
        gaps = []
        for x0, y0, x1, y1 in edges:
            if y0 - 0.1 <= y <= y1 + 0.1 and x0 - 0.1 <= x <= x1 + 0.1:
                gaps.append(min(abs(x - x0), abs(x - x1), abs(y - y0), abs(y - y1)))
        assert min(gaps, default=99) < 0.5, (x, y)


def test_the_map_alone_is_wholly_lit_and_chapters_add_up():
    assert lit(figures.architecture()) == Counter(ALL)
    both = figures.architecture(("encoder", "loss"))
    assert lit(both) == Counter(LIT["encoder"] | LIT["loss"])


def test_the_maps_differ():
    def drawn(name):
        ax = figures.architecture(name).axes[0]
        return tuple((patch.get_facecolor(), patch.get_edgecolor()) for patch in ax.patches)

    assert len(set(map(drawn, [(), *NAMES]))) == len(NAMES) + 1


def test_an_unknown_part_is_refused_with_the_names():
    with pytest.raises(ValueError, match="'atention'") as error:
        figures.architecture("atention")
    assert all(name in str(error.value) for name in NAMES)


# --- matrices -----------------------------------------------------------------------------------


def test_heatmap_draws_its_data():
    fig = figures.heatmap(WEIGHTS, WORDS, WORDS)
    ax = fig.axes[0]
    assert len(fig.axes) == 1  # values are printed, so no scale
    np.testing.assert_array_equal(ax.collections[0].get_array(), WEIGHTS)
    assert ax.collections[0].get_clim() == (0, 1)
    printed = {t.get_position(): t.get_text() for t in ax.texts}
    assert printed[(2.5, 2.5)] == "0.85" and printed[(0.5, 2.5)] == "0.05" and len(printed) == 9
    assert ax.get_ylim() == (3, 0)  # the first row on top
    assert [tick.get_text() for tick in ax.get_yticklabels()] == WORDS


def test_big_heatmap_is_an_image_of_its_data():
    values = np.random.default_rng(0).random((60, 64))
    fig = figures.heatmap(values)
    np.testing.assert_array_equal(fig.axes[0].images[0].get_array(), values)
    assert not fig.axes[0].texts and len(fig.axes) == 2
    ticks = fig.axes[0].get_yticks(), [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert list(ticks[0]) == [0.5, 10.5, 20.5, 30.5, 40.5, 50.5]  # in the middle of rows
    assert ticks[1] == ["0", "10", "20", "30", "40", "50"]


def test_heatmap_takes_tensors():
    import torch

    tensor = torch.tensor(WEIGHTS, dtype=torch.bfloat16, requires_grad=True)
    mesh = figures.heatmap(tensor, mask=torch.ones(3, 3, dtype=torch.bool)).axes[0].collections[0]
    np.testing.assert_allclose(mesh.get_array(), WEIGHTS, rtol=0.01)


def test_masked_cells_are_hatched_and_not_printed():
    mask = np.array([[True, False], [True, True]])
    scores = np.array([[0.25, -np.inf], [-1.0, 2.0]])
    ax = figures.heatmap(scores, mask=mask, vmin=None, vmax=None).axes[0]
    assert sorted(t.get_text() for t in ax.texts) == ["0.25", "2.00", "−1.00"]
    (hatch,) = [patch for patch in ax.patches if patch.get_hatch()]
    assert hatch.get_path().get_extents().extents.tolist() == [1, 0, 2, 1]
    assert ax.collections[0].get_clim() == (-2, 2)  # symmetric, so that 0 is colourless


def test_mask_plot_fills_what_may_be_read():
    mask = np.array([[True, False, False], [True, True, False]])
    fig = figures.mask_plot(mask, ["a", "b"], WORDS)
    filled = fig.axes[0].collections[0].get_array()
    np.testing.assert_array_equal(~np.ma.getmaskarray(filled), mask)
    assert not fig.axes[0].texts
    (hatch,) = [patch for patch in fig.axes[0].patches if patch.get_hatch()]
    inside = [
        [hatch.get_path().contains_point((c + 0.5, r + 0.5)) for c in range(3)] for r in (0, 1)
    ]
    np.testing.assert_array_equal(inside, ~mask)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: figures.heatmap(WEIGHTS, WORDS[:2], WORDS), ValueError, "rows has 2 .* 3 × 3"),
        (lambda: figures.heatmap(WEIGHTS, WORDS, [*WORDS, "x"]), ValueError, "columns has 4"),
        (lambda: figures.heatmap(WEIGHTS * 2), ValueError, "1.6964, outside vmax=1"),
        (lambda: figures.heatmap(-WEIGHTS), ValueError, "-0.8482, outside vmin=0"),
        (lambda: figures.heatmap([0.1, 0.2]), ValueError, r"2 dimension.*\(2,\)"),
        (lambda: figures.heatmap(np.zeros((0, 3))), ValueError, r"not be empty.*\(0, 3\)"),
        (lambda: figures.heatmap([[np.nan, 0.1]]), ValueError, "inf or nan"),
        (lambda: figures.heatmap(WEIGHTS, mask=np.ones((3, 3))), TypeError, "booleans.*float64"),
        (lambda: figures.heatmap(WEIGHTS, mask=[[True]]), ValueError, r"\(1, 1\).*\(3, 3\)"),
        (lambda: figures.heatmap(WEIGHTS, vmin=2, vmax=1), ValueError, "vmin=2"),
        (lambda: figures.mask_plot([[1, 0]]), TypeError, "booleans"),
        (lambda: figures.mask_plot([[True]], WORDS), ValueError, "rows has 3"),
        (lambda: figures.vectors(X, WORDS[:2]), ValueError, "labels has 2 .* points has 3"),
        (lambda: figures.vectors(WEIGHTS, WORDS), ValueError, r"pairs.*\(3, 3\)"),
        (lambda: figures.lines([1, 2], {"a": [1, 2, 3]}), ValueError, "'a' has 3 .* x has 2"),
        (lambda: figures.lines([1, 2], {}), ValueError, "at least one"),
        (lambda: figures.lines([1, 2], {"a": [0, 1]}, logy=True), ValueError, "'a' holds 0"),
        (lambda: figures.lines([0, 1], {"a": [1, 1]}, logx=True), ValueError, "x holds 0"),
        (lambda: figures.lines([0, 1], {"a": [np.nan] * 2}), ValueError, "no finite"),
        (lambda: figures.bars(WORDS, [1, 2]), ValueError, "labels has 3 .* values has 2"),
        (lambda: figures.bars(["a"], [np.inf]), ValueError, "inf"),
        (lambda: figures.bars(["a"], [1], highlight="b"), ValueError, "'b'"),
        (lambda: figures.panels(0), ValueError, "not 0 and 1"),
        (lambda: figures.panels(width=9), ValueError, "9 inches"),
        (lambda: figures.shapes([]), ValueError, "at least one"),
        (lambda: figures.shapes([("X", "T", "q")]), ValueError, "known for q"),
        (lambda: figures.shapes([("X", "T", "d")] * 20), ValueError, "20 matrices"),
        (
            lambda: figures.shapes([("X", "T", "d"), "·", ("W", "T", "d")]),
            ValueError,
            "sides d and T differ",
        ),
        (lambda: figures.tree([], []), ValueError, "at least one"),
        (lambda: figures.tree([("a", 0, "dead")], []), ValueError, "'dead'.*alive"),
        (lambda: figures.tree([("a", 0, "alive")] * 2, []), ValueError, "one root, but 2"),
        (lambda: figures.tree([("a", 0, "alive")], [(0, 1)]), ValueError, "node 1 of 1"),
        (
            lambda: figures.tree([("a", 0, "alive")] * 3, [(0, 2), (1, 2)]),
            ValueError,
            "two parents",
        ),
        (
            lambda: figures.tree([("a", 0, "alive")] * 3, [(1, 2), (2, 1)]),
            ValueError,
            "cycle: node 1",
        ),
    ],
)
def test_bad_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_shapes_are_to_scale():
    product = [("X", "T", "d"), "·", ("W_Q", "d", "d_k"), "=", ("Q", "T", "d_k")]
    fig = figures.shapes(product, sizes={"T": 5, "d": 4, "d_k": 2})
    boxes = [p for p in fig.axes[0].patches if isinstance(p, FancyBboxPatch)]
    x, w, q = [np.array([box.get_height(), box.get_width()]) for box in boxes]
    np.testing.assert_allclose(x / w, [5 / 4, 4 / 2])
    np.testing.assert_allclose(q / w, [5 / 4, 1])
    words = [text.get_text() for text in fig.axes[0].texts]
    assert words[:4] == ["$X$", "$T$", "$d$", "·"]
    assert words[4:] == ["$W_{Q}$", "$d$", "$d_{k}$", "=", "$Q$", "$T$", "$d_{k}$"]


# --- charts -------------------------------------------------------------------------------------


def test_vectors_end_at_their_points():
    ax = figures.vectors(X, WORDS).axes[0]
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert [tuple(arrow._posA_posB[1]) for arrow in arrows] == [(1, 0), (0, 1), (1, 2)]
    assert [text.get_text() for text in ax.texts] == WORDS
    assert [text.xy for text in ax.texts] == [(1, 0), (0, 1), (1, 2)]


def test_lines_draw_their_data_and_their_names_do_not_touch():
    x = np.linspace(0, 10, 50)
    series = {"a": np.exp(-x), "b": np.exp(-1.1 * x), "c": np.exp(-1.2 * x), "d": 1 - np.exp(-x)}
    fig = figures.lines(x, series)
    ax = fig.axes[0]
    curves = [line for line in ax.lines if len(line.get_xdata()) == 50]
    for line, y in zip(curves, series.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.column_stack([x, y]))
    svg(fig)
    # of the name alone, without the stem that joins it to its line
    extents = {text.get_text(): Text.get_window_extent(text) for text in ax.texts}
    assert list(extents) == list(series)
    for one, two in combinations(extents.values(), 2):
        assert not one.overlaps(two)
    assert extents["a"].y0 > extents["b"].y0 > extents["c"].y0  # as the lines end
    assert extents["d"].y0 > extents["a"].y1


def test_logarithmic_axes_have_ticks_that_say_something():
    def ticks(fig):
        fig.draw_without_rendering()
        shown = []
        for axis in (fig.axes[0].xaxis, fig.axes[0].yaxis):
            low, high = sorted(axis.get_view_interval())
            inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            shown.append([tick.label1.get_text() for tick in inside])
        return shown

    doubled = figures.lines([256, 512, 1024], {"a": [0.7, 2.0, 8.0]}, logx=True, logy=True)
    assert ticks(doubled) == [["256", "512", "1,024"], ["1", "2", "5"]]
    wide = figures.lines([10, 3e4], {"a": [1e-5, 1]}, logx=True, logy=True)
    across, up = ticks(wide)
    assert across == ["10", "100", "1,000", "10,000"]
    assert up[0] == "$10^{-5}$" and up[-1] == "1"


def test_a_name_stands_at_the_last_finite_value():
    text = figures.lines([1, 2, 3], {"a": [5.0, 6.0, np.nan]}).axes[0].texts[0]
    assert text.xy == (2, 6)


def test_bars_are_as_long_as_their_values():
    ax = figures.bars(WORDS, [0.05, -0.1, 0.85], highlight="工作").axes[0]
    assert [bar.get_width() for bar in ax.patches] == [0.05, -0.1, 0.85]
    assert [text.get_text() for text in ax.texts] == ["0.05", "−0.10", "0.85"]
    assert to_hex(ax.patches[2].get_facecolor()) == figures.VERMILLION
    assert to_hex(ax.patches[0].get_facecolor()) == figures.FAINT


def test_tree_shows_nodes_scores_and_the_winning_path():
    nodes = [("BOS", 0.0, "alive"), ("A", -0.69, "alive"), ("B", -0.92, "alive")]
    nodes += [("EOS", -1.61, "finished"), ("EOS", -1.02, "best"), ("C", -3.0, "pruned")]
    fig = figures.tree(nodes, [(0, 1), (0, 2), (1, 3), (2, 4), (2, 5)])
    words = [text.get_text() for text in fig.axes[0].texts]
    assert words[:4] == ["BOS", "0.00", "A", "−0.69"] and words.count("EOS") == 2
    assert {"kept, still growing", "finished", "dropped", "the answer"} <= set(words)
    place = {text.get_text(): text.get_position() for text in fig.axes[0].texts}
    assert place["BOS"][0] < place["A"][0] == place["B"][0] < place["C"][0]
    assert place["A"][1] > place["BOS"][1] > place["B"][1] > place["C"][1]
    thick = [p for p in fig.axes[0].patches if p.get_linewidth() == 2.4]
    assert len(thick) == 2  # BOS to B, B to EOS
    fig.draw_without_rendering()
    boxes = [text.get_window_extent() for text in fig.axes[0].texts]
    assert not any(one.overlaps(two) for one, two in combinations(boxes, 2))


def test_the_picture_of_the_readme_is_the_map():
    stored = Path(__file__).resolve().parent.parent / "book" / "map.svg"
    assert stored.read_bytes() == svg(figures.architecture())
