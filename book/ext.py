"""The book's one Sphinx extension.

It turns notebook faults that Sphinx would publish into warnings (the build makes warnings errors),
hides nbdev's directives from readers and marks the cells that become the package,
puts a still picture where a widget will live,
and writes the API page from whatever modules `transformer/` holds.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx_codeautolink.extension.block import CodeBlockAnalyser

logger = logging.getLogger(__name__)

DIRECTIVE = re.compile(r"#\s*\|")
EXPORT = re.compile(r"#\s*\|\s*(default_exp|exports?i?)\b\s*([\w.]*)")
NBDEV_HEADER = re.compile(r"File to edit: \.\./(\S+?)\.ipynb")
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


# --- notebooks: faults that must fail the build -------------------------------------------------


def notebook_faults(path: Path) -> Iterator[str]:
    """Each fault in a stored notebook that the built page would show to a reader."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    models = notebook["metadata"].get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        tags = cell["metadata"].get("tags", [])
        image = cell["metadata"].get("mystnb", {}).get("image", {})
        for output in cell["outputs"]:
            where = f"cell {number} (id {cell.get('id', 'none')})"
            if output["output_type"] == "error" and "raises-exception" not in tags:
                yield (
                    f"{where} stores the error {output['ename']}: {output['evalue']}; "
                    "run it again, or tag it raises-exception"
                )
            shown = not {"remove-output", "remove-cell"} & set(tags)
            kinds = output.get("data", {})
            if WIDGET in kinds and kinds[WIDGET]["model_id"] not in models:
                yield f"{where} shows a widget whose state is not stored: run tools/execute.py"
            if shown and any(kind.startswith("image/") for kind in kinds) and not image.get("alt"):
                yield f"{where} shows an image without alt text (metadata mystnb.image.alt)"


def check_notebooks(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Look at every notebook in every build: an unchanged fault must fail a second build too."""
    for docname in sorted(env.found_docs):
        path = Path(env.doc2path(docname))
        if path.suffix == ".ipynb":
            for fault in notebook_faults(path):
                logger.warning(fault, location=docname, type="book", subtype="notebook")


def forget_failed_build(app: Sphinx, exception: Exception | None) -> None:
    """Drop the saved environment of a build that warned, or the next one would pass unread."""
    if exception or app._warncount:
        Path(app.doctreedir, "environment.pickle").unlink(missing_ok=True)


# --- cells that become the package --------------------------------------------------------------


class ExportedCells(SphinxTransform):
    """Strip nbdev's `#|` lines from shown code; mark exported cells with the file they go into."""

    default_priority = 400

    def apply(self) -> None:
        module = ""
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") != "cell_code":
                continue
            for source in list(cell.findall(nodes.literal_block)):
                if source.parent.get("nb_element") != "cell_code_source":
                    continue
                lines = source.astext().split("\n")
                head = [line for line in lines if DIRECTIVE.match(line)]
                if not head:
                    continue
                target = ""
                for line in head:
                    if match := EXPORT.match(line):
                        if match[1] == "default_exp":
                            module = match[2]
                        else:
                            target = match[2] or module
                code = "\n".join(line for line in lines if not DIRECTIVE.match(line)).strip("\n")
                if not code:
                    cell.parent.remove(cell)
                    break
                source.rawsource = code
                source[:] = [nodes.Text(code)]
                if target:
                    cell["classes"].append("exported")
                    name = f"transformer/{target.replace('.', '/')}.py"
                    note = nodes.paragraph(
                        "", "goes into ", nodes.literal("", name), classes=["exported-into"]
                    )
                    note["module"] = f"transformer.{target}"
                    source.parent.insert(0, note)


def link_exported_cells(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Let the note above an exported cell lead to the module's place on the API page."""
    modules = app.env.get_domain("py").modules
    for note in doctree.findall(nodes.paragraph):
        entry = modules.get(note.get("module", ""))
        if entry:
            uri = app.builder.get_relative_uri(docname, entry.docname)
            link = nodes.reference("", "", *note[1:], internal=True)
            link["refuri"] = f"{uri}#{entry.node_id}"
            note[1:] = [link]


# --- widgets --------------------------------------------------------------------------------------


class WidgetStills(SphinxPostTransform):
    """Keep a widget's picture and text with its script: they show until it lives."""

    default_priority = 3  # before myst-nb keeps one kind of output and drops the others
    builders = ("html",)

    def run(self, **kwargs: object) -> None:
        for bundle in list(self.document.findall(nodes.container)):
            kinds = {child.get("mime_type"): child for child in bundle.children}
            if bundle.get("nb_element") != "mime_bundle" or WIDGET not in kinds:
                continue
            still = [
                node
                for kind in ("image/svg+xml", "text/plain")
                if kind in kinds
                for node in kinds[kind].children
            ]
            view = kinds[WIDGET]
            view[:] = [
                nodes.container("", *still, classes=["widget-still"], is_div=True),
                *view.children,
            ]


# --- formulas in running text ---------------------------------------------------------------------

OPENING = re.compile(r"\S*[(\[“‘（「]$")
CLOSING = re.compile(r"[^\s\w(\[“‘（「]+")


class FormulasKeepPunctuation(SphinxTransform):
    """Join a formula to the punctuation that touches it: browsers would break the line there."""

    default_priority = 410

    def apply(self) -> None:
        for formula in list(self.document.findall(nodes.math)):
            parent, index = formula.parent, formula.parent.index(formula)
            group: list[nodes.Node] = [formula]
            before = parent[index - 1] if index else None
            after = parent[index + 1] if index + 1 < len(parent) else None
            if isinstance(before, nodes.Text) and (match := OPENING.search(before)):
                parent[index - 1] = nodes.Text(before[: match.start()])
                group.insert(0, nodes.Text(match[0]))
            if isinstance(after, nodes.Text) and (match := CLOSING.match(after)):
                parent[index + 1] = nodes.Text(after[match.end() :])
                group.append(nodes.Text(match[0]))
            if len(group) > 1:
                parent[index] = nodes.inline("", "", *group, classes=["nobreak"])


# --- the API page -------------------------------------------------------------------------------

API_PAGE = "chapters/api"
API_PLACEHOLDER = "<!-- modules -->"


def package_modules(root: Path) -> list[tuple[str, str]]:
    """(public module, document it is exported from), in chapter order."""
    found = []
    for path in (root / "transformer").glob("*.py"):
        origin = NBDEV_HEADER.search(path.read_text(encoding="utf-8"))
        if origin and not path.stem.startswith("_"):
            found.append((origin[1], path.stem))
    return [(f"transformer.{stem}", document) for document, stem in sorted(found)]


def write_api_page(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != API_PAGE:
        return
    parts = []
    for module, document in package_modules(Path(app.srcdir)):
        chapter = Path(document).name
        number = chapter.split("_")[0].lstrip("0")
        place = f"chapter {number}" if number.isdigit() else "the appendix"
        parts.append(
            f"## {module}\n\nWritten in {place}, {{doc}}`{chapter}`.\n\n"
            f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n   :undoc-members:\n"
            "   :exclude-members: training\n```\n"
        )
    source[0] = source[0].replace(API_PLACEHOLDER, "\n".join(parts))


def reread_api_page(app: Sphinx, env: BuildEnvironment, *_changes: set[str]) -> list[str]:
    """The API page depends on the package's list of files, which Sphinx does not watch."""
    return [API_PAGE] if API_PAGE in env.found_docs else []


def readable_defaults(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Write defaults that have no literal so that the signature parses: `attention`, `...`."""
    if not signature:
        return None
    signature = re.sub(r"<function (\w+)[^<>]*>", r"\1", signature)
    return signature.replace("<factory>", "..."), returns


CODE_SPAN = re.compile(r"(``.+?``|`[^`]+`)")


def plain_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are prose: only backticks are markup, and indented lines keep their breaks."""
    shown: list[str] = []
    for line in lines:
        pieces = CODE_SPAN.split(line.rstrip())
        pieces[::2] = [re.sub(r"([*|\\]|_(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
        text = "".join(pieces)
        if text.startswith(" "):
            text = "| " + text.strip()
        if shown and shown[-1] and text and text.startswith("| ") != shown[-1].startswith("| "):
            shown.append("")
        shown.append(text)
    lines[:] = shown


# --- sphinx-codeautolink ------------------------------------------------------------------------


def depart_section(self: CodeBlockAnalyser, node: nodes.section) -> None:
    """Pop a title only where one was pushed: sphinx-exercise makes sections without a title."""
    if any(type(child) is nodes.title for child in node):
        self.title_stack.pop()


# --- the site's weight --------------------------------------------------------------------------

UNUSED = [
    "scripts/fontawesome.js",
    "vendor/fontawesome",
    "locales",
    "images",
    "*webpack-macros.html",
    "**/*.map",
]


def drop_unused_files(app: Sphinx, exception: Exception | None) -> None:
    """Leave out what the theme brings and no page asks for: source maps, icon fonts, logos."""
    static = Path(app.outdir, "_static")
    for pattern in UNUSED:
        for path in list(static.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    # jupyter-book always sets this; the extension that it is for is not loaded.
    app.add_config_value("comments_config", {}, "")
    CodeBlockAnalyser.depart_section = depart_section
    app.add_transform(ExportedCells)
    app.add_transform(FormulasKeepPunctuation)
    app.add_post_transform(WidgetStills)
    app.connect("env-before-read-docs", check_notebooks)
    app.connect("env-get-outdated", reread_api_page)
    app.connect("source-read", write_api_page)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
    app.connect("autodoc-process-signature", readable_defaults)
    app.connect("doctree-resolved", link_exported_cells)
    app.connect("build-finished", forget_failed_build)
    app.connect("build-finished", drop_unused_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
