"""The site: what must fail its build does, and its pages ask for nothing from elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from filelock import FileLock
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
BUILD = [str(BIN / "jupyter-book"), "build", "--builder", "html", "-W", "-n", "--keep-going"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
LOOPBACK = 'ip link set lo up && exec "$@"'
OFFLINE = ["unshare", "--map-root-user", "--net", "sh", "-c", LOOPBACK, "sh"]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAG7buVgAAAABJRU5ErkJggg=="


# --- a book of two pages, with the real configuration, extension and style ------------------------


def build(folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of the project's build command."""
    command = [*BUILD, *options, str(folder)]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=folder)
    return run.returncode, re.sub(r"\x1b\[[\d;]*m", "", run.stdout + run.stderr)


def two_pages(folder: Path, *cells: nbformat.NotebookNode) -> Path:
    shutil.copy(ROOT / "_config.yml", folder)
    shutil.copytree(ROOT / "book", folder / "book", ignore=shutil.ignore_patterns("__pycache__"))
    chapters = folder / "chapters"
    chapters.mkdir()
    (folder / "_toc.yml").write_text(
        "format: jb-book\nroot: chapters/00_preface\n"
        "parts:\n  - numbered: 2\n    chapters:\n      - file: chapters/01_page\n",
        encoding="utf-8",
    )
    (chapters / "00_preface.md").write_text("# Preface\n\nText.\n", encoding="utf-8")
    book = new_notebook(
        cells=[new_markdown_cell("# Page"), *cells],
        metadata={"language_info": {"name": "python", "pygments_lexer": "ipython3"}},
    )
    nbformat.write(book, chapters / "01_page.ipynb")
    return folder


def code(
    source: str, *outputs: nbformat.NotebookNode, tags: tuple[str, ...] = (), **mystnb: object
) -> nbformat.NotebookNode:
    metadata = {"tags": list(tags), "mystnb": mystnb}
    return new_code_cell(source, metadata=metadata, outputs=list(outputs), execution_count=1)


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
    "a widget": (code("slider", WIDGET), "carries no widget scripts"),
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


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book as built from the stored chapters; one build, whichever worker comes first."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    html = shared / "site" / "_build" / "html"
    with FileLock(shared / "site.lock"):
        if not html.exists():
            status, output = build(ROOT, "--path-output", str(shared / "site"))
            assert status == 0, output
    return html


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

# Loads every page into a frame of a phone's width and reports what it became.
PROBE = """<!doctype html><body><script>
const settle = ms => new Promise(done => setTimeout(done, ms));
async function probe(page) {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width:390px;height:844px;border:0";
  frame.src = page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const view = frame.contentWindow, doc = view.document;
  const formulas = [...doc.querySelectorAll(".math")];
  if (formulas.length) {
    for (let i = 0; i < 200 && !view.MathJax?.startup?.promise; i++) await settle(50);
    await view.MathJax?.startup?.promise;
  }
  await doc.fonts.ready;
  await settle(100);
  const requests = view.performance.getEntriesByType("resource");
  const page_itself = view.performance.getEntriesByType("navigation");
  const report = {
    page,
    excess: doc.scrollingElement.scrollWidth - doc.scrollingElement.clientWidth,
    formulas: formulas.length,
    unset: formulas.filter(e => !e.querySelector("mjx-container")).map(e => e.textContent),
    wrong: [...doc.querySelectorAll("mjx-merror, [data-mjx-error]")].map(e => e.textContent),
    blank: [...doc.images].filter(image => !image.naturalWidth).map(image => image.src),
    bytes: [...requests, ...page_itself].reduce((sum, e) => sum + e.decodedBodySize, 0),
    hosts: [...new Set(requests.map(e => new URL(e.name).host))],
  };
  frame.remove();
  return report;
}
(async () => {
  const reports = [];
  for (const page of PAGES) reports.push(await probe(page));
  await fetch("/report", {method: "POST", body: JSON.stringify(reports)});
})();
</script>"""


def browse(site: Path) -> None:
    """Serve the site, open its pages in a browser, print what came of it; run with no network."""
    pages = [f"/chapters/{path.name}" for path in sorted((site / "chapters").glob("*.html"))]
    reported, missing, reports = threading.Event(), [], []

    class Server(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/probe":
                return super().do_GET()
            body = PROBE.replace("PAGES", json.dumps(pages)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            reports.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            reported.set()

        def send_error(self, status: int, *details: str | None) -> None:
            if not self.path.endswith("favicon.ico"):
                missing.append(self.path)
            super().send_error(status, *details)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        command = [*chromium(profile), "--remote-debugging-port=0"]
        address = f"http://127.0.0.1:{server.server_port}/probe"
        with subprocess.Popen([*command, address], stderr=subprocess.DEVNULL) as browser:
            done = reported.wait(150)
            browser.terminate()
    server.shutdown()
    print(json.dumps({"done": done, "missing": missing, "reports": reports}))


def chromium(profile: str) -> list[str]:
    """A browser without a window that tries nothing on its own."""
    flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"]
    flags += ["disable-background-networking", "disable-component-update", "disable-sync"]
    return [str(BROWSER), f"--user-data-dir={profile}", *(f"--{flag}" for flag in flags)]


@pytest.fixture(scope="module")
def offline() -> Iterator[list[str]]:
    """The start of a command line that runs the rest without any network."""
    if not BROWSER:
        pytest.skip("no chromium on this machine")
    allowed = shutil.which("unshare") and shutil.which("ip")
    if not allowed or subprocess.run([*OFFLINE, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us run a process without network (unshare --net)")
    yield OFFLINE


def test_every_page_works_in_a_browser_without_network(site: Path, offline: list[str]) -> None:
    command = [*offline, sys.executable, __file__, str(site)]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=200)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["done"], "the browser did not report"
    assert seen["missing"] == []
    assert len(seen["reports"]) == len(list((site / "chapters").glob("*.html"))) >= 20
    for report in seen["reports"]:
        page = report["page"]
        assert report["excess"] == 0, f"{page} scrolls sideways on a phone"
        assert report["wrong"] == [], f"{page}: TeX that MathJax refuses"
        assert report["unset"] == [], f"{page}: formulas that were not set"
        assert report["blank"] == [], f"{page}: images that do not load"
        assert len(report["hosts"]) == 1, f"{page} asks {report['hosts']}"
    assert sum(report["formulas"] for report in seen["reports"]) > 100


def test_formulas_are_set_from_the_file_system_too(
    site: Path, offline: list[str], tmp_path: Path
) -> None:
    page = site / "chapters" / "04_attention.html"
    command = [*offline, *chromium(str(tmp_path)), "--enable-logging=stderr"]
    command += ["--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=100)
    formulas = page.read_text(encoding="utf-8").count('class="math ')
    assert run.stdout.count("<mjx-container") == formulas > 10
    assert "ERR_" not in run.stderr and "Failed to load" not in run.stderr, run.stderr


if __name__ == "__main__":
    browse(Path(sys.argv[1]))
