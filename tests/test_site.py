"""The site: what must fail its build does, and its pages ask for nothing from elsewhere."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from nbformat.v4 import new_markdown_cell, new_output
from pages import Visit, build, code, two_pages

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAG7buVgAAAABJRU5ErkJggg=="

RAISED = new_output(
    "error", ename="ZeroDivisionError", evalue="division by zero", traceback=["ZeroDivisionError"]
)
IMAGE = new_output("display_data", data={"image/png": PNG})
WIDGET = new_output(
    "display_data",
    data={"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "slider"},
)
ALT = {"alt": "a grey dot"}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a book without faults."""
    folder = two_pages(
        tmp_path_factory.mktemp("clean"),
        code("#| default_exp thing"),
        code("#| export\nimport json\n\nTHING = 1"),
        code("#| hide\nprint(THING)", new_output("stream", name="stdout", text="1\n")),
        code("1 / 0", RAISED, tags=("raises-exception",)),
        code("dot()", IMAGE, image=ALT, figure={"caption": "A dot.", "name": "fig-dot"}),
        new_markdown_cell(
            "{numref}`fig-dot` and {cite:t}`vaswani2017attention` ($x$, $y$).\n\n"
            "```{math}\n:label: eq-one\nx = 1\n```\n\n{eq}`eq-one`, [top](00_preface.md)\n\n"
            "```{exercise} Count\n:label: ex-one\n\nTo one.\n```\n\n"
            "```{solution} ex-one\n:label: sol-one\n:class: dropdown\n\nOne.\n```\n\n"
            "```{bibliography}\n```"
        ),
    )
    status, output = build(folder)
    assert status == 0, output
    return (folder / "_build/html/chapters/01_page.html").read_text(encoding="utf-8")


def test_directives_are_hidden_and_exported_cells_marked(clean: str) -> None:
    assert "#|" not in clean and "default_exp" not in clean
    assert clean.count("exported-into") == 1
    marked = re.search(r'<div class="cell exported[^"]*container">(.*?)</pre>', clean, re.S)
    assert marked and "transformer/thing.py" in marked[1] and "THING" in marked[1]
    # a cell that held nothing but a directive leaves no empty box: of five, four are shown
    assert clean.count('class="cell_input docutils container"') == 4


def test_references_numbers_and_alt_text(clean: str) -> None:
    text = re.sub(r"<[^>]+>", "", clean)
    for shown in ("Figure 1.1 and Vaswani et al.", "(1.1)", "Exercise 1.1", "Is All You Need"):
        assert shown in text, shown
    assert 'alt="a grey dot"' in clean
    # a formula keeps the bracket and comma that touch it
    assert re.search(r'<span class="nobreak">\(<span class="math[^>]*>[^<]*</span>,</span>', clean)


FAULTS = {
    "a cell that raised": (code("1 / 0", RAISED), "stores the error ZeroDivisionError"),
    "an image without alt text": (code("dot()", IMAGE), "image without alt text"),
    "a warning printed": (
        code("warn()", new_output("stream", name="stderr", text="Glyph missing")),
        "stderr was found",
    ),
    "a widget without its state": (code("slider", WIDGET), "whose state is not stored"),
    "a link to no notebook": (new_markdown_cell("[next](02_absent.ipynb)"), "02_absent.ipynb"),
    "a reference to no label": (new_markdown_cell("{ref}`nowhere`"), "nowhere"),
    "a citation of no work": (new_markdown_cell("{cite:p}`nobody1999`"), "nobody1999"),
    "a term of no glossary": (new_markdown_cell("{term}`nonsense`"), "nonsense"),
}


def test_every_fault_is_named(tmp_path: Path) -> None:
    """Cases B1 and B3, all in one build, for speed; exit codes one by one are tested below."""
    folder = two_pages(tmp_path, *(cell for cell, _ in FAULTS.values()))
    status, output = build(folder)
    assert status != 0
    warnings = [line for line in output.splitlines() if "WARNING" in line or "ERROR" in line]
    for kind, (_, message) in FAULTS.items():
        found = [line for line in warnings if message in line]
        assert found, f"{kind}: {output}"
        assert "01_page" in found[0], found


@pytest.mark.parametrize("kind", ["a cell that raised", "a link to no notebook"])
def test_one_fault_fails_the_build_and_fails_it_again(tmp_path: Path, kind: str) -> None:
    """Case B1."""
    cell, message = FAULTS[kind]
    folder = two_pages(tmp_path, cell)
    for _ in range(2):  # Sphinx does not repeat the warnings of pages that it need not read again
        status, output = build(folder)
        assert status != 0 and message in output, output
        assert "build finished with problems, 1 warning." in output, output


# --- the whole book ------------------------------------------------------------------------------


class Resources(HTMLParser):
    """The addresses that a browser fetches to show a page; outgoing links are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") not in ("next", "prev", "index", "search"):
            self.found.append(values.get("href") or "")
        elif tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "track"):
            self.found += [value for name in ("src", "srcset") if (value := values.get(name))]
        elif tag == "object" and values.get("data"):
            self.found.append(values["data"] or "")
        self.found += re.findall(r"url\((.*?)\)", values.get("style") or "")


CDN = re.compile(r"\bcdn\.|cdnjs|unpkg|jsdelivr|googleapis|gstatic|polyfill\.io|mybinder")


def test_pages_name_only_files_of_the_site(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        resources = Resources()
        resources.feed(text)
        assert resources.found or page.name == "index.html"
        for address in resources.found:
            parts = urlsplit(address.strip("'\""))
            if parts.scheme == "data":
                continue
            assert not parts.scheme and not parts.netloc, f"{page.name} asks for {address}"
            target = page.parent / unquote(parts.path)
            assert target.is_file(), f"{page.name} asks for {address}, which is not there"
        for script in re.findall(r"<script[^>]*>(.*?)</script>", text, re.S):
            assert not CDN.search(script), page.name


def test_styles_and_scripts_name_no_other_host(site: Path) -> None:
    styles, scripts = sorted(site.rglob("*.css")), sorted(site.rglob("*.js"))
    assert len(styles) >= 5 and len(scripts) >= 5
    for style in styles:
        text = style.read_text(encoding="utf-8")
        for address in re.findall(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""", text):
            assert not re.match(r"(https?:)?//", "".join(address)), f"{style.name}: {address}"
    for script in scripts:
        assert not CDN.search(script.read_text(encoding="utf-8")), script.name


def test_the_licence_of_the_vendored_mathjax_is_served(site: Path) -> None:
    assert "Apache License" in (site / "mathjax" / "LICENSE").read_text(encoding="utf-8")
    shipped = sum(path.stat().st_size for path in (site / "mathjax").rglob("*") if path.is_file())
    assert shipped < 1_500_000


# --- the whole book in a browser that has no network ---------------------------------------------

# What a page became, once its formulas are set and its widgets, if it has any, stand there.
BECAME = """async () => {
  const formulas = [...document.querySelectorAll(".math")];
  const views = document.querySelectorAll("script[type$='widget-view+json']").length;
  const settle = ms => new Promise(done => setTimeout(done, ms));
  const living = () => document.querySelectorAll(".widget-subarea > *").length;
  for (let i = 0; i < 400 && formulas.length && !window.MathJax?.startup?.promise; i++)
    await settle(50);
  await window.MathJax?.startup?.promise;
  for (let i = 0; i < 400 && living() < views; i++) await settle(50);
  await document.fonts.ready;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map(image => image.decode().catch(() => 0)));
  await new Promise(done => requestAnimationFrame(done));
  return {
    excess: document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth,
    formulas: formulas.length,
    unset: formulas.filter(e => !e.querySelector("mjx-container")).map(e => e.textContent),
    wrong: [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(e => e.textContent),
    blank: [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
    dead: views - living(),
    loads_widgets: !!document.querySelector("script[src*='/widgets/']"),
    has_widgets: views > 0,
  };
}"""


@pytest.mark.parametrize("local", [False, True], ids=["http", "file"])
def test_every_page_works_in_a_browser_without_network(
    local: bool, site: Path, visit: Callable[..., Visit]
) -> None:
    pages = sorted(path.name for path in (site / "chapters").glob("*.html"))
    assert len(pages) >= 20
    phone = {"width": 390, "height": 844}
    opened = visit(site, f"chapters/{pages[0]}", local=local, viewport=phone)
    formulas = 0
    for page in pages:
        became = opened.go(f"chapters/{page}").evaluate(BECAME)
        assert became["excess"] == 0, f"{page} scrolls sideways on a phone"
        assert became["wrong"] == [], f"{page}: TeX that MathJax refuses"
        assert became["unset"] == [], f"{page}: formulas that were not set"
        assert became["blank"] == [], f"{page}: images that do not load"
        assert became["dead"] == 0, f"{page}: widgets that do not live"
        assert became["loads_widgets"] == became["has_widgets"], page
        assert opened.elsewhere == [], f"{page} asks other hosts"
        assert opened.errors == [], page
        formulas += became["formulas"]
    assert formulas > 100
