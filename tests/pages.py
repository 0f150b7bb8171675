"""Small books built with the real configuration, and a browser without network to open them in.

The fixtures are made known to all tests by conftest.py.
"""

import importlib
import mimetypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import execute
import nbformat
import pytest
from filelock import FileLock
from ipywidgets.embed import dependency_state
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import Browser, Page, Route, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
BUILD = [str(BIN / "jupyter-book"), "build", "--builder", "html", "-W", "-n", "--keep-going"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
LOOPBACK = 'ip link set lo up && exec "$@"'
OFFLINE = ["unshare", "--map-root-user", "--net", "sh", "-c", LOOPBACK, "sh"]
FLAGS = ["no-sandbox", "disable-gpu", "disable-quic", "no-first-run"]
FLAGS += ["disable-background-networking", "disable-component-update", "disable-sync"]
HOST = "http://book.test"
WIDGETS = sorted(p.stem for p in (ROOT / "book" / "widgets").glob("*.py") if p.stem != "frame")


# --- books ---------------------------------------------------------------------------------------


def build(folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of the project's build command."""
    command = [*BUILD, *options, str(folder)]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=folder)
    return run.returncode, re.sub(r"\x1b\[[\d;]*m", "", run.stdout + run.stderr)


def small_book(folder: Path, **pages: nbformat.NotebookNode) -> Path:
    """A book of a preface and these pages, with the real configuration, extension and style."""
    shutil.copy(ROOT / "_config.yml", folder)
    shutil.copytree(ROOT / "book", folder / "book", ignore=shutil.ignore_patterns("__pycache__"))
    chapters = folder / "chapters"
    chapters.mkdir()
    (folder / "_toc.yml").write_text(
        "format: jb-book\nroot: chapters/00_preface\nparts:\n  - numbered: 2\n    chapters:\n"
        + "".join(f"      - file: chapters/{name}\n" for name in pages),
        encoding="utf-8",
    )
    (chapters / "00_preface.md").write_text("# Preface\n\nText.\n", encoding="utf-8")
    for name, notebook in pages.items():
        nbformat.write(notebook, chapters / f"{name}.ipynb")
    return folder


def two_pages(folder: Path, *cells: nbformat.NotebookNode, **metadata: object) -> Path:
    """A book of a preface and one page with these cells."""
    metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    page = new_notebook(cells=[new_markdown_cell("# Page"), *cells], metadata=metadata)
    return small_book(folder, **{"01_page": page})


def code(
    source: str, *outputs: nbformat.NotebookNode, tags: tuple[str, ...] = (), **mystnb: object
) -> nbformat.NotebookNode:
    metadata = {"tags": list(tags), "mystnb": mystnb}
    return new_code_cell(source, metadata=metadata, outputs=list(outputs), execution_count=1)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Make a folder once for all workers: whichever comes first does the work."""

    def made(name: str, make: Callable[[Path], None]) -> Path:
        shared = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            shared = shared.parent
        folder, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def site(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The book as built from the stored chapters."""

    def make(folder: Path) -> None:
        status, output = build(ROOT, "--path-output", str(folder))
        assert status == 0, output

    return once("site", make) / "_build" / "html"


# --- widgets -------------------------------------------------------------------------------------


def widget_of(module: str) -> Any:
    """A new widget of the one class that a module of book/widgets defines."""
    from widgets.frame import Widget

    found = vars(importlib.import_module(f"widgets.{module}")).values()
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, Widget)]
    (kind,) = [kind for kind in kinds if kind.__module__ == f"widgets.{module}"]
    return kind()


def widget_notebook(widget: Any) -> nbformat.NotebookNode:
    """A chapter that shows one widget, as tools/execute.py stores it, without the kernel."""
    bundle, _ = widget._repr_mimebundle_()
    states = dependency_state(widget, drop_defaults=False)
    state = {"state": states, "version_major": 2, "version_minor": 0}
    name = type(widget).__name__
    cell = code(
        name,
        new_output("execute_result", data=bundle, execution_count=1),
        image={"alt": "The widget as a picture"},
        figure={"caption": "The widget.", "name": f"fig-{name}"},
    )
    return execute.canonical(
        new_notebook(
            cells=[new_markdown_cell(f"# {name}\n\nA formula, $x$."), cell],
            metadata={"widgets": {execute.WIDGET_STATE: state}},
        )
    )


@pytest.fixture(scope="session")
def widgets(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A book in which each widget has a page of its own, named after its module."""

    def make(folder: Path) -> None:
        notebooks = {module: widget_notebook(widget_of(module)) for module in WIDGETS}
        status, output = build(small_book(folder, **notebooks))
        assert status == 0, output

    return once("widgets", make) / "_build" / "html"


# --- a browser -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def offline() -> list[str]:
    """The start of a command line that runs the rest without any network."""
    if not BROWSER:
        pytest.skip("no chromium on this machine")
    allowed = shutil.which("unshare") and shutil.which("ip")
    if not allowed or subprocess.run([*OFFLINE, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us run a process without network (unshare --net)")
    return OFFLINE


# One a module, not one a session: while it runs, asyncio in this process belongs to Playwright.
@pytest.fixture(scope="module")
def browser(offline: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium in an empty network namespace."""
    start = tmp_path_factory.mktemp("browser") / "chromium"
    start.write_text(
        f"#!/bin/sh\nexec unshare --map-root-user --net sh -c '{LOOPBACK}' sh {BROWSER} \"$@\"\n",
        encoding="utf-8",
    )
    start.chmod(0o755)
    arguments = [f"--{flag}" for flag in FLAGS]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(start), args=arguments)
        yield launched
        launched.close()


class Visit:
    """One page opened in the browser, with everything it asked for and complained about."""

    def __init__(self, browser: Browser, site: Path, path: str, *, local: bool, **options: object):
        self.context = browser.new_context(**options)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        start = site.as_uri() if local else HOST
        inside = ("data:", f"blob:{'null' if local else HOST}/", "about:", f"{start}/")

        def request(url: str) -> None:
            if not url.startswith(inside):
                self.elsewhere.append(url)

        def failed(url: str, why: str) -> None:
            if "ERR_ABORTED" not in why:  # by going on to the next page
                self.errors.append(f"{why}: {url}")

        def answer(route: Route) -> None:
            file = site / unquote(urlsplit(route.request.url).path).lstrip("/")
            if not file.is_file():
                route.fulfill(status=404, body="")
                return
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            route.fulfill(body=file.read_bytes(), content_type=f"{kind}; charset=utf-8")

        self.page.on("request", lambda sent: request(sent.url))
        self.page.on("requestfailed", lambda sent: failed(sent.url, str(sent.failure)))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console",
            lambda line: self.errors.append(line.text) if line.type == "error" else None,
        )
        self.context.route(f"{HOST}/**", answer)
        self.start = start
        self.go(path)

    def go(self, path: str) -> Page:
        self.page.goto(f"{self.start}/{path}", wait_until="load")
        return self.page

    def alive(self, widgets: int = 1) -> "Visit":
        """Wait until the widgets of the page stand there; fail if it complained on the way."""
        try:
            self.page.wait_for_function(
                f"document.querySelectorAll('.widget-subarea .tw').length === {widgets}",
                timeout=20_000,
            )
        finally:
            assert (self.errors, self.elsewhere) == ([], [])
        return self


def module_of(page: Page) -> Page:
    """Let `module` in page.evaluate be the JavaScript module of the page's widget."""
    page.evaluate(
        """async () => {
          const stored = 'script[type="application/vnd.jupyter.widget-state+json"]';
          const states = JSON.parse(document.querySelector(stored).textContent).state;
          const { state } = Object.values(states).find((model) => model.state._esm);
          const url = URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" }));
          window.module = await import(url);
        }"""
    )
    return page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """visit(site, "chapters/x.html", local=False, …): what new_context takes is passed on."""
    opened: list[Visit] = []

    def go(site: Path, path: str, *, local: bool = False, **options: object) -> Visit:
        opened.append(Visit(browser, site, path, local=local, **options))
        return opened[-1]

    yield go
    for each in opened:
        each.context.close()
