"""Every interactive figure: it lives on a page without kernel and network, for every reader.

What one widget computes is tested in tests/test_widget_NAME.py.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import execute
import guard
import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from pages import (
    ROOT,
    WIDGETS,
    Visit,
    build,
    small_book,
    two_pages,
    widget_notebook,
    widget_of,
)
from playwright.sync_api import Page

# What a reader can reach by keyboard, with its name and whether one sees that it has the focus.
FOCUSED = """() => {
  const node = document.activeElement;
  const inside = node.closest(".tw");
  if (!inside) return null;
  const label = node.closest("label") || node.labels?.[0];
  const style = getComputedStyle(node), ring = node.querySelector(".ring");
  return {
    id: [...inside.querySelectorAll("*")].indexOf(node),
    name: node.getAttribute("aria-label") || label?.textContent.trim() || node.textContent.trim(),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2
      || !!ring && getComputedStyle(ring).strokeWidth === "3px",
  };
}"""
# Radio buttons of one name are one stop, the others of the group are reached by arrow keys.
STOPS = """() => [...document.querySelectorAll(".tw *")].filter((node) =>
  node.tabIndex >= 0 && !node.disabled && node.getClientRects().length
  && !(node.type === "radio" && !node.checked)).length"""
# The lowest contrast of a text with what lies behind it, by the formula of WCAG 2.
CONTRAST = """() => {
  const parse = (colour) => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    const scale = colour.startsWith("color(") ? 255 : 1;
    return [...parts.slice(0, 3).map((v) => scale * v), parts[3] ?? 1];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, alpha] = parse(getComputedStyle(node).backgroundColor);
      if (alpha > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll(".tw *")) {
    const text = [...node.childNodes].filter((child) => child.nodeType === 3)
      .map((child) => child.data).join("").trim();
    const style = getComputedStyle(node);
    if (!text && node.tagName !== "INPUT" || style.visibility === "hidden") continue;
    if (node.closest("[data-ground]") || !node.getClientRects().length) continue;
    const own = parse(node instanceof SVGElement ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(own), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, text || node.outerHTML];
  }
  return worst;
}"""
BEYOND = """() => [...document.querySelectorAll(".tw, .tw *")].filter((node) => {
  const { left, right, width } = node.getBoundingClientRect();
  return width && !node.closest(".tw-spoken") && (left < -0.5 || right > innerWidth + 0.5);
}).map((node) => node.outerHTML.slice(0, 200))"""
OVERFLOW = "() => document.scrollingElement.scrollWidth - innerWidth"


def stops(page: Page) -> list[dict[str, Any]]:
    """What Tab comes to inside the widget, in order."""
    found: list[dict[str, Any]] = []
    for _ in range(300):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at:
            found.append(at)
        elif found:
            break
    return found


@pytest.mark.parametrize("module", WIDGETS)
def test_it_lives_over_http_and_for_every_reader(
    module: str, widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, f"chapters/{module}.html", reduced_motion="reduce").alive()
    page = opened.page
    assert not page.locator(".widget-still").is_visible()
    assert page.locator(".tw[role=group][aria-label]").count() == 1
    assert len(page.locator(".tw-spoken[aria-live=polite]").inner_text().split()) >= 3

    found = stops(page)
    assert len(found) == page.evaluate(STOPS) >= 3
    assert [stop for stop in found if not stop["name"] or not stop["seen"]] == []
    assert len({stop["id"] for stop in found}) == len(found)

    moving = """() => [...document.querySelectorAll(".tw *")].filter((node) => {
      const style = getComputedStyle(node);
      return parseFloat(style.transitionDuration) > 0 || style.animationName !== "none";
    }).length"""
    assert page.evaluate(moving) == 0

    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        contrast, text = page.evaluate(CONTRAST)
        assert contrast >= 4.5, (theme, text)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(BEYOND) == []
    assert opened.errors == [] and opened.elsewhere == []


@pytest.mark.parametrize("module", WIDGETS)
def test_it_lives_from_the_file_system(
    module: str, widgets: Path, visit: Callable[..., Visit]
) -> None:
    """A page opened by double click, in a dark system; and the first values come back."""
    address = f"chapters/{module}.html"
    page = visit(widgets, address, local=True, color_scheme="dark").alive().page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    spoken = page.locator(".tw-spoken")
    before = spoken.inner_text()
    for control in page.locator(".tw input[type=range]:visible, .tw input[type=checkbox]").all():
        control.press("ArrowRight" if control.get_attribute("type") == "range" else "Space")
    page.locator(".tw-reset").click()
    page.wait_for_function(
        "text => document.querySelector('.tw-spoken').textContent === text", arg=before
    )


@pytest.mark.parametrize("module", WIDGETS)
def test_without_javascript_there_is_a_picture_and_the_values(
    module: str, widgets: Path, visit: Callable[..., Visit]
) -> None:
    page = visit(widgets, f"chapters/{module}.html", java_script_enabled=False).page
    picture = page.locator(".widget-still img[alt='The widget as a picture']")
    assert picture.is_visible() and picture.bounding_box()["height"] > 100  # type: ignore[index]
    assert page.locator(".widget-still pre").inner_text().split() == (
        widget_of(module).text().split()
    )


@pytest.mark.parametrize("module", WIDGETS)
def test_its_state_travels_and_only_its_own(module: str) -> None:
    notebook = widget_notebook(widget_of(module))
    state = notebook.metadata.widgets[execute.WIDGET_STATE]["state"]
    (shown,) = [out for cell in notebook.cells[1:] for out in cell.outputs]
    name = shown.data[execute.WIDGET].model_id
    assert sorted(state) == [name, f"{name}-layout"]
    for trait, value in widget_of(module).get_state().items():
        if not trait.startswith("_") and trait not in ("layout", "tabbable", "tooltip"):
            assert state[name].state[trait] == value, trait
    script = state[name].state._esm
    assert not re.search(r"^\s*import\b|https?://(?!www\.w3\.org)|\bfetch\(", script, re.M)


# --- what carries them ---------------------------------------------------------------------------


def test_a_page_without_widgets_asks_for_none_of_it(
    tmp_path: Path, visit: Callable[..., Visit]
) -> None:
    page = nbformat.from_dict({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    page.cells = [nbformat.v4.new_markdown_cell("# Page\n\nA formula, $x$.")]
    page.metadata.language_info = {"name": "python", "pygments_lexer": "ipython3"}
    folder = small_book(tmp_path, **{"01_page": page})
    status, output = build(folder)
    assert status == 0, output
    opened = visit(folder / "_build" / "html", "chapters/01_page.html")
    assert "/widgets/" not in opened.page.content()
    assert "widget-state" not in opened.page.content()


def stored(tmp_path: Path, *sources: str) -> nbformat.NotebookNode:
    """A notebook as tools/execute.py stores it, by a kernel in a folder as chapters/ is."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": ROOT / "chapters"}}
    NotebookClient(notebook, kernel_name="python3", resources=resources).execute()
    return execute.canonical(notebook)


STANDARD = [
    "from ipywidgets import IntSlider, interact",
    "IntSlider(value=7, description=r'\\(n\\)')",
    "import matplotlib.pyplot as plt\n\n"
    "@interact(n=(1, 3))\ndef draw(n=2):\n    plt.plot([0, n])\n    plt.show()",
    "from widgets.attention import AttentionByHand\n\nAttentionByHand(query=0)",
    "IntSlider(value=9)\nNone",
]


def test_widgets_of_ipywidgets_stand_in_the_page_too(
    tmp_path: Path, visit: Callable[..., Visit]
) -> None:
    """Case B3; and executing twice gives no diff."""
    notebook = stored(tmp_path, *STANDARD)
    assert nbformat.writes(notebook) == nbformat.writes(stored(tmp_path, *STANDARD))
    again = nbformat.reads(nbformat.writes(notebook), as_version=4)
    assert nbformat.writes(execute.canonical(again)) == nbformat.writes(notebook)

    states = notebook.metadata.widgets[execute.WIDGET_STATE]["state"]
    assert not [name for name, model in states.items() if model.state.get("value") == 9]
    (drawn,) = [model.state for model in states.values() if model.model_name == "OutputModel"]
    assert any("image/png" in shown.get("data", {}) for shown in drawn.outputs)

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        cell.metadata.mystnb = {"image": {"alt": "a widget as a picture"}}
    text = nbformat.v4.new_markdown_cell("A formula, $x$.")
    folder = two_pages(tmp_path, text, *cells, widgets=notebook.metadata.widgets)
    status, output = build(folder)
    assert status == 0, output
    html = (folder / "_build/html/chapters/01_page.html").read_text(encoding="utf-8")
    assert html.count('type="application/vnd.jupyter.widget-state+json"') == 1
    assert html.count('type="application/vnd.jupyter.widget-view+json"') == 3
    assert html.count("widgets/embed-amd.js") == 1

    for local in (False, True):
        opened = visit(folder / "_build" / "html", "chapters/01_page.html", local=local).alive()
        page = opened.page
        slider = page.locator(".widget-slider").first
        assert slider.locator(".widget-readout").inner_text() == "7"
        slider.locator("[role=slider], .noUi-handle").first.press("ArrowRight")
        assert slider.locator(".widget-readout").inner_text() == "8"
        assert page.locator(".widget-label mjx-container").count() == 1
        assert page.locator(".widget-output img").evaluate("image => image.naturalWidth") > 100
        assert opened.errors == [] and opened.elsewhere == []


def test_chapters_store_the_present_scripts() -> None:
    """`tools/execute.py widgets` stores them; a page would show yesterday's widget."""
    found = 0
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        stored = notebook.metadata.get("widgets", {}).get(execute.WIDGET_STATE, {})
        for model in stored.get("state", {}).values():
            if model.state.get("_anywidget_id", "").startswith("widgets."):
                widget = widget_of(model.state._anywidget_id.split(".")[1])
                assert model.state._esm == str(widget._esm), path.name
                assert model.state._css == str(widget._css), path.name
                found += 1
    assert found >= 1


def test_stale_scripts_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(ROOT / "chapters")
    present = widget_notebook(widget_of("attention"))
    page = tmp_path / "chapters" / "01_page.ipynb"
    page.parent.mkdir()
    execute.write(page, present)
    fresh = page.read_text(encoding="utf-8")
    page.write_text(fresh.replace("Start again", "Yesterday"), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != fresh
    execute.renew_widgets()
    assert page.read_text(encoding="utf-8") == fresh


def test_python_and_the_page_move_each_other(widgets: Path, visit: Callable[..., Visit]) -> None:
    """As in Jupyter, with a model that writes down what the page would send to the kernel."""
    page = visit(widgets, "chapters/attention.html").alive().page
    widget = widget_of("attention")
    page.evaluate(
        """([esm, state]) => import(URL.createObjectURL(
            new Blob([esm], { type: "text/javascript" }))).then((module) => {
          const heard = {};
          window.sent = {};
          let changed = {};
          window.model = {
            get: (name) => state[name],
            set(values) {
              for (const [name, value] of Object.entries(values)) {
                state[name] = changed[name] = value;
                (heard[`change:${name}`] || []).forEach((call) => call());
              }
            },
            save_changes() { Object.assign(sent, changed); changed = {}; },
            on(names, call) { for (const n of names.split(" ")) (heard[n] ||= []).push(call); },
            off() {},
          };
          const el = document.createElement("div");
          el.id = "lab";
          document.querySelector("main").prepend(el);
          return module.default.render({ model, el });
        })""",
        [widget._esm, {k: v for k, v in widget.get_state().items() if not k.startswith("_")}],
    )
    lab = page.locator("#lab")
    # Python to page: what a changed trait sends
    widget.vectors = [[0, 1], [2, 1], [-1, 0.5]]
    widget.query = 1
    page.evaluate("state => model.set(state)", widget.get_state(["vectors", "query"]))
    weights = [float(text) for text in lab.locator(".tw-weights").all_inner_texts()]
    assert weights == pytest.approx(widget.values()["weights"].tolist(), abs=5.1e-5)
    # page to Python: what the page sent is what a comm message brings
    lab.locator("input[type=checkbox]").nth(1).check()
    lab.locator("input[type=number]").first.fill("2.5")
    widget.set_state(page.evaluate("sent"))
    assert widget.masked is True and widget.vectors[0] == [2.5, 1.0]
    weights = [float(text) for text in lab.locator(".tw-weights").all_inner_texts()]
    assert weights == pytest.approx(widget.values()["weights"].tolist(), abs=5.1e-5)
    assert "2.5" in repr(widget) and "causal mask" in repr(widget)


def test_the_files_that_carry_them_are_served_with_their_licences() -> None:
    folder = ROOT / "book" / "vendor" / "widgets"
    for name, words in {
        "html-manager": "Project Jupyter",
        "anywidget": "MIT License",
        "requirejs": "Permission is hereby granted",
    }.items():
        assert words in (folder / f"LICENSE-{name}").read_text(encoding="utf-8")
    version = widget_of("attention")._model_module_version.strip("~^").removesuffix(".*")
    assert f'version = "{version}' in (folder / "anywidget.js").read_text(encoding="utf-8")


def test_the_wheel_holds_none_of_them() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["setuptools"]["packages"] == ["transformer"]


def test_the_guard_wants_text_picture_and_caption(tmp_path: Path) -> None:
    cell = widget_notebook(widget_of("attention")).cells[1]

    def judged(change: Callable[[nbformat.NotebookNode], None]) -> str:
        changed = nbformat.from_dict(json.loads(json.dumps(cell)))
        change(changed)
        return "\n".join(guard.one_cell(changed, 1, "01_page"))

    assert judged(lambda _: None) == ""
    for what, change in {
        "without text": lambda c: c.outputs[0].data.update({"text/plain": "<Widget object>"}),
        "alternative text": lambda c: c.metadata.mystnb.image.update(alt=""),
        "without a caption": lambda c: c.metadata.mystnb.figure.update(caption=""),
        "still picture": lambda c: c.outputs[0].data.pop("image/svg+xml"),
    }.items():
        assert what in judged(change)
