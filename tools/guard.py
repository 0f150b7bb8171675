"""What every chapter must satisfy and no other tool checks.

    python tools/guard.py        every chapter
    python tools/guard.py 04     one

nbval passes in silence where nothing is compared, nbdev skips what it cannot read. So each code
cell must show something that nbval compares, or assert something; directives must be spelt
exactly; figures must say in words what they show; the sections of a chapter must be there.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent

# The only outputs that nbval runs and does not compare: (chapter, cell id) with the reason.
# Chapter 15 shows what one training run of minutes gave; another processor rounds otherwise and
# ends elsewhere. The cells after these assert what must hold on any.
IGNORED_OUTPUTS: dict[tuple[str, str], str] = {
    ("15_end_to_end", "f2d338db"): "loss and accuracy of each epoch, and a progress bar",
    ("15_end_to_end", "a558b726"): "scores of the trained model, and its errors",
    ("15_end_to_end", "25b5eca1"): "log-probabilities of its beam",
    ("15_end_to_end", "0fdfe27b"): "attention weights of the trained model",
    ("15_end_to_end", "7c48c94b"): "scores and weights after a second training",
    ("15_end_to_end", "fe7832e0"): "cross-attention weights after it",
    ("15_end_to_end", "337d8ab3"): "attention weights by distance",
    ("15_end_to_end", "14704774"): "scores without each head",
    ("15_end_to_end", "169b6048"): "scores on real sentences, and translations",
}

TAGS = (
    "full-width",
    "hide-cell",
    "hide-input",
    "hide-output",
    "margin",
    "nbval-ignore-output",  # listed in IGNORED_OUTPUTS
    "raises-exception",  # the error is the example
    "remove-cell",
    "remove-input",
    "remove-output",
    "remove-stderr",  # what is written to stderr is meant, and not shown
    "setup",  # seeds and drawing settings; one a chapter
)
# chapters whose module has another name
MODULES = {"00_preface": "__init__", "A2_command_line": "__main__"}
# what a chapter must do without: it runs offline, and finds the package because it is installed
FORBIDDEN = re.compile(
    r"\b(sys\.path|(?:import|from) +(?:torchtext|requests|urllib|wget|pickle))\b", re.MULTILINE
)
SECTIONS = ("What we built", "What was checked", "Exercises")
DIRECTIVE = re.compile(r"#\| (export|default_exp [a-z_]+)")
# anything that was probably meant as a directive
LIKE_A_DIRECTIVE = re.compile(r"\s*#\s*(\||!|(export[sid]?|default_exp)\b\s*\w*$)")
NBVAL_COMMENT = re.compile(r"^\s*#+\s*(NBVAL|PYTEST_VALIDATE)_\w+", re.MULTILINE)
LOCAL = re.compile(r" at 0x[0-9a-f]{6,}|ipykernel_\d+|/(?:home|root|Users|tmp|work)/|[A-Z]:\\Users")
IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
EMPTY = re.compile(r"(<[\w .]+( size [\dx.]+ with \d+ Axes| object)?>|None|\s)*")
DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
WIDGET = "application/vnd.jupyter.widget-view+json"


def problems(path: Path) -> list[str]:
    """Everything wrong with one chapter, each as a line that names the cell."""
    notebook = nbformat.read(path, as_version=4)
    first = notebook.cells[0]
    if not (first.cell_type == "markdown" and re.match(r"# \S.*\n+> \S", first.source)):
        return [f"{path.name}: the first cell must be '# Title' and below it '> summary'"]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [f"{path.name}: {problem}" for problem in module_problems(code, path.stem)]
    if re.match(r"(?!00)\d\d_", path.name):  # preface and appendices have other sections
        found += [f"{path.name}: {problem}" for problem in section_problems(notebook)]
    for number, cell in enumerate(code, 1):
        where = f"{path.name}, code cell {number} ({cell.get('id')})"
        found += [f"{where}: {problem}" for problem in one_cell(cell, number, path.stem)]
    return found


def section_problems(notebook: NotebookNode) -> Iterator[str]:
    """Title, opening question, map and closing sections."""
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    if not any(mark in text for text in prose[:2] for mark in "?？"):
        yield "no opening question in the first two text cells"
    if not any(
        "figures.architecture(" in cell.source and any(images(cell)) for cell in notebook.cells
    ):
        yield "no map: figures.architecture(…) must draw where we are"
    sections = re.split(r"^## +(.*?)\s*$", "\n".join(prose), flags=re.MULTILINE)
    bodies = dict(zip(sections[1::2], sections[2::2], strict=True))
    for section in SECTIONS:
        if not bodies.get(section, "").strip():
            yield f"no section '## {section}', or nothing in it"
    if not re.search(r"^\|.*\|\s*\n\|[ :|-]+\|\s*\n\|", bodies.get("What was checked", ""), re.M):
        yield "no table under '## What was checked'"


def module_problems(code: list[NotebookNode], stem: str) -> Iterator[str]:
    """One module a chapter, named like it, and offline."""
    lines = [line for cell in code for line in cell.source.split("\n", 1)[:1]]
    modules = [line.split()[-1] for line in lines if line.startswith("#| default_exp ")]
    name = MODULES.get(stem) or stem.split("_", 1)[1]
    if modules not in ([], [name]):
        yield f"'#| default_exp' must name {name} once, not {modules}"
    if bool(modules) != ("#| export" in lines):
        yield f"'#| export' and '#| default_exp {name}' go together"
    if sum("setup" in cell.metadata.get("tags", []) for cell in code) > 1:
        yield "more than one cell tagged 'setup'"


def one_cell(cell: NotebookNode, number: int, stem: str) -> Iterator[str]:
    """Execution count, tags, directives, comparison, errors and figures of one code cell."""
    tags = cell.metadata.get("tags", [])
    if not cell.source.strip():
        yield "empty"
        return
    if cell.execution_count != number:
        yield f"execution count {cell.execution_count}, not {number}: run tools/execute.py"
    for tag in sorted(set(tags) - set(TAGS)):
        yield f"unknown tag {tag!r}; known are {', '.join(TAGS)}"
    if cell.source.rstrip().endswith(";"):
        yield "ends with ';', which nbval does not honour: assign the value to _ instead"
    forbidden = FORBIDDEN.search(cell.source)
    if forbidden:
        yield f"{forbidden[1]!r} has no place in a chapter"
    if NBVAL_COMMENT.search(cell.source):
        yield "nbval is steered by tags, not by comments"
    ignored = (stem, cell.get("id")) in IGNORED_OUTPUTS
    if ignored != ("nbval-ignore-output" in tags):
        yield "nbval-ignore-output must be a tag and, with its reason, in IGNORED_OUTPUTS"
    yield from directive_problems(cell.source)
    for output in cell.outputs:
        if output.output_type == "error" and "raises-exception" not in tags:
            yield f"stored error {output.ename}"
        if WIDGET in output.get("data", {}):
            yield from widget_problems(cell, output.data)
        if output.get("name") == "stderr" and "remove-stderr" not in tags:
            yield "writes to stderr"
        local = LOCAL.search("\n".join(texts(output)))
        if local:
            yield f"output holds {local.group().strip()!r}, which is another on the next machine"
    if "raises-exception" in tags and not any(o.output_type == "error" for o in cell.outputs):
        yield "tagged raises-exception but raises nothing"
    yield from figure_problems(cell)
    if not (compares(cell) or asserts(cell.source) or ignored or needs_no_check(cell)):
        yield "nothing is compared: show a value, or assert one"


def directive_problems(source: str) -> Iterator[str]:
    """nbdev skips a misspelt or misplaced directive in silence."""
    first, *rest = source.split("\n")
    if LIKE_A_DIRECTIVE.match(first) and not DIRECTIVE.fullmatch(first):
        yield f"not a directive: {first!r}; '#| export' and '#| default_exp name' are"
    for line in rest:
        if LIKE_A_DIRECTIVE.match(line):
            yield f"a directive must be alone on the first line, not {line!r} below it"
    if first == "#| export":
        try:
            ast.parse(source)
        except SyntaxError as error:
            yield f"exported cell is not plain Python (line {error.lineno}): no magics"
    if first.startswith("#| default_exp") and "\n".join(rest).strip():
        yield "'#| default_exp' stands alone in its cell"


def figure_problems(cell: NotebookNode) -> Iterator[str]:
    """Who cannot see a figure reads its alternative text."""
    if not any(images(cell)):
        return
    alt = str(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", ""))
    if len(alt.split()) < 4 or re.search(r"[0-9a-f]{16,}", alt):
        yield f"figure without alternative text: mystnb.image.alt is {alt!r}"


def widget_problems(cell: NotebookNode, data: NotebookNode) -> Iterator[str]:
    """A widget says its values in text, which nbval compares, and has a picture of itself."""
    if EMPTY.fullmatch(data.get("text/plain", "")):
        yield "widget without text: its repr must state its values"
    if "image/svg+xml" not in data:
        yield "widget without a still picture (image/svg+xml), which pages without JavaScript show"
    if not cell.metadata.get("mystnb", {}).get("figure", {}).get("caption"):
        yield "widget without a caption: mystnb.figure.caption"


def images(cell: NotebookNode) -> Iterator[str]:
    """The images a cell shows."""
    for output in cell.outputs:
        data = output.get("data", {})
        yield from (kind for kind in IMAGES if kind in data)
        if "<img" in data.get("text/html", "") or "<svg" in data.get("text/html", ""):
            yield "text/html"


def texts(output: NotebookNode) -> Iterator[str]:
    """The texts of one output that nbval compares."""
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield f"{output.ename}: {output.evalue}"
    else:
        for kind, value in output.data.items():
            if isinstance(value, str) and kind not in IMAGES:
                yield re.sub(r"(?s)<svg.*</svg>", "", value)


def compares(cell: NotebookNode) -> bool:
    """Whether an output holds text with content: not only the name of a figure or a type."""
    return any(not EMPTY.fullmatch(text) for o in cell.outputs for text in texts(o))


def asserts(source: str) -> bool:
    """Whether running the cell asserts something that could be false."""
    pending: list[ast.AST] = list(parse(source).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if str(name).startswith("assert_"):
                return True
        if not isinstance(node, DEFINITION | ast.Lambda):  # an assertion there may never run
            pending += ast.iter_child_nodes(node)
    return False


def needs_no_check(cell: NotebookNode) -> bool:
    """Imports, definitions, exported cells, figures with a text, and the one set-up cell."""
    if cell.source.startswith("#| ") or "setup" in cell.metadata.get("tags", []):
        return True
    return any(images(cell)) or all(
        isinstance(node, ast.Import | ast.ImportFrom | DEFINITION)
        for node in parse(cell.source).body
    )


def parse(source: str) -> ast.Module:
    """The syntax tree of a cell, magics turned into calls."""
    return ast.parse(TransformerManager().transform_cell(source))


def main(arguments: list[str]) -> int:
    """Print what is wrong; 1 if anything is."""
    numbers = {argument.zfill(2) for argument in arguments}
    chapters = sorted((ROOT / "chapters").glob("*.ipynb"))
    chosen = [path for path in chapters if not numbers or path.name.split("_")[0] in numbers]
    if not chosen:
        print(f"no such chapter: {' '.join(arguments) or 'chapters/ is empty'}", file=sys.stderr)
        return 1
    found = [problem for path in chosen for problem in problems(path)]
    print("\n".join([*found, f"{len(chosen)} chapters, {len(found)} problems"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
