"""Execute chapters and write them back in one canonical form.

    python tools/execute.py          every chapter whose inputs changed since it was last executed
    python tools/execute.py 04 05    these chapters, whether or not anything changed
    python tools/execute.py widgets  none, but store the present scripts and styles of the widgets

A chapter may be written as MyST Markdown in drafts/NN_name.md: where that file is newer than
chapters/NN_name.ipynb, it is the source. After each chapter the package is exported, because
the next chapter imports it. A chapter that fails is left on disk as it was.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
TRANSIENT = ("ExecuteTime", "collapsed", "editable", "execution", "jupyter", "trusted")


class ChapterError(Exception):
    """A chapter that cannot be written: the message names the chapter and the cell."""


def main(arguments: list[str]) -> int:
    """Execute the chapters named by number, or those whose inputs changed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in conftest.py
    try:
        if arguments == ["widgets"]:
            renew_widgets()
            return 0
        for name in select(arguments) or all_chapters():
            stamp = ROOT / "_build" / "executed" / name
            if not arguments and stamp.exists() and stamp.read_text() == inputs(name):
                print(f"{name}: nothing changed since it was executed")
                continue
            start = time.perf_counter()
            changed = execute(name)
            subprocess.run([Path(sys.executable).parent / "nbdev-export"], cwd=ROOT, check=True)
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(inputs(name))
            outcome = "written" if changed else "the same as before"
            print(f"{name}: executed in {time.perf_counter() - start:.0f} s, {outcome}", flush=True)
    except ChapterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def all_chapters() -> list[str]:
    """Names of the chapters (04_attention), in order, from notebooks and drafts."""
    paths = [*(ROOT / "chapters").glob("*_*.ipynb"), *(ROOT / "drafts").glob("*_*.md")]
    return sorted({path.stem for path in paths})


def select(numbers: list[str]) -> list[str]:
    """Names of the chapters with these numbers; 4 and 04 are the same."""
    chosen = []
    for number in numbers:
        found = [name for name in all_chapters() if name.split("_")[0] == number.zfill(2)]
        if not found:
            raise ChapterError(f"no chapter {number}: there are {', '.join(all_chapters())}")
        chosen += found
    return chosen


def inputs(name: str) -> str:
    """Fingerprint of all that decides a chapter's outputs, and of the outputs themselves."""
    earlier = {other.split("_", 1)[1] for other in all_chapters() if other < name} | {"__init__"}
    package = [p for p in (ROOT / "transformer").glob("*.py") if p.stem in earlier]
    data = [p for p in (ROOT / "data").rglob("*") if p.is_file()]
    own = [ROOT / "chapters" / f"{name}.ipynb", ROOT / "drafts" / f"{name}.md"]
    shared = [ROOT / "chapters" / "figures.py", ROOT / "requirements.txt"]
    text = "".join(path.read_text(encoding="utf-8") for path in own if path.exists())
    for widget in sorted(set(re.findall(r"from widgets\.(\w+)", text))):
        shared += sorted((ROOT / "book" / "widgets").glob(f"{widget}*"))
        shared += sorted((ROOT / "book" / "widgets").glob("frame.*"))
        shared += sorted((ROOT / "book" / "model").glob("*.*"))  # the translator runs it
    digest = hashlib.sha256()
    for path in [*own, *shared, *sorted(package), *sorted(data)]:
        digest.update(path.read_bytes() if path.exists() else b"-")
        digest.update(b"\0")
    return digest.hexdigest()


def execute(name: str) -> bool:
    """Run one chapter from its own folder and replace the file; True when the text changed."""
    target = ROOT / "chapters" / f"{name}.ipynb"
    notebook = read(name)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=3600,
        extra_arguments=["--IPKernelApp.log_level=40"],
        resources={"metadata": {"path": target.parent}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise ChapterError(f"{name}: a cell failed\n{error}") from None
    refuse_stderr(name, notebook)
    return write(target, notebook)


def write(target: Path, notebook: NotebookNode) -> bool:
    """Replace the file by the notebook in its canonical form; True when the text changed."""
    text = nbformat.writes(canonical(notebook)) + "\n"
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return False
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, target)
    return True


def read(name: str) -> NotebookNode:
    """The newer of draft and notebook."""
    target, draft = ROOT / "chapters" / f"{name}.ipynb", ROOT / "drafts" / f"{name}.md"
    if draft.exists() and not (target.exists() and target.stat().st_mtime > draft.stat().st_mtime):
        print(f"{name}: from drafts/{draft.name}", flush=True)
        return jupytext.read(draft, as_version=4)
    return nbformat.read(target, as_version=4)


def refuse_stderr(name: str, notebook: NotebookNode) -> None:
    """A warning must not slip into a page."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            hidden = "remove-stderr" in cell.metadata.get("tags", [])
            if output.get("name") == "stderr" and not hidden:
                raise ChapterError(
                    f"{name}: a cell writes to stderr (tag it remove-stderr if that is meant)\n"
                    f"{cell.source}\n--\n{output.text}"
                )


def canonical(notebook: NotebookNode) -> NotebookNode:
    """The same notebook with everything removed or renamed that differs from run to run."""
    stored = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python", "pygments_lexer": "ipython3"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    taken: set[str] = set()
    count = 0
    for cell in notebook.cells:
        for key in TRANSIENT:
            cell.metadata.pop(key, None)
        cell.id = unique(cell_id(cell), taken)
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        kept = [output for output in cell.outputs if not is_progress_bar(output)]
        cell.outputs = [canonical_output(output, count) for output in joined(kept)]
    keep_widgets(notebook, stored)
    nbformat.validate(notebook)
    return notebook


def keep_widgets(notebook: NotebookNode, stored: dict[str, NotebookNode]) -> None:
    """Store the state of the widgets shown and of what they refer to, under ids that stay.

    A widget is named after the cell that shows it, a part of it after the widget and the trait.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()

    def name(model: str, wanted: str) -> None:
        if model in names or model not in stored:
            return
        names[model] = unique(wanted, taken)
        for trait, value in sorted(stored[model].state.items()):
            for part in re.findall(r"IPY_MODEL_([\w-]+)", json.dumps(value)):
                name(part, f"{names[model]}-{trait}")
            if trait == "outputs":  # of an Output widget; another widget may stand in it
                for view in shown(value):
                    name(view.model_id, f"{names[model]}-shown")

    def shown(outputs: list[NotebookNode]) -> list[NotebookNode]:
        return [output.data[WIDGET] for output in outputs if WIDGET in output.get("data", {})]

    views = []
    for cell in notebook.cells:
        for view in shown(cell.get("outputs", [])):
            name(view.model_id, f"widget-{cell.id}")
            views.append(view)
    if not names:
        return
    for model in names:
        state = stored[model].state
        views += shown(state.get("outputs", []))
        if "Layout" in stored[model].model_name:  # null is its default, forty times
            stored[model].state = {k: v for k, v in state.items() if v is not None}
    for view in views:
        view.model_id = names.get(view.model_id, view.model_id)
    kept = json.dumps({stable: stored[model] for model, stable in names.items()})
    for model, stable in names.items():
        kept = kept.replace(f'"IPY_MODEL_{model}"', f'"IPY_MODEL_{stable}"')
    notebook.metadata.widgets = nbformat.from_dict(
        {WIDGET_STATE: {"state": json.loads(kept), "version_major": 2, "version_minor": 0}}
    )


def renew_widgets() -> None:
    """Bring the JavaScript and CSS that chapters store with their widgets up to date."""
    sys.path.insert(0, str(ROOT / "chapters"))
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        stored = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
        for model in stored.values():
            module, _, kind = model.state.get("_anywidget_id", "").rpartition(".")
            if module.startswith("widgets."):
                widget = getattr(importlib.import_module(module), kind)
                model.state.update(_esm=str(widget._esm), _css=str(widget._css))
        if stored and write(path, notebook):
            print(f"{path.stem}: widgets renewed")


def cell_id(cell: NotebookNode) -> str:
    """What an exported cell defines first; for any other cell a hash of its text."""
    if cell.cell_type == "code" and cell.source.startswith("#| export\n"):
        # the guard reports an exported cell that is not Python; here it only keeps its hash
        with contextlib.suppress(SyntaxError):
            for statement in ast.parse(cell.source).body:
                if isinstance(statement, ast.ClassDef | ast.FunctionDef):
                    return statement.name
                target = None
                if isinstance(statement, ast.Assign):
                    target = statement.targets[0]
                elif isinstance(statement, ast.AnnAssign):
                    target = statement.target
                if isinstance(target, ast.Name):
                    return target.id
    return hashlib.sha1(cell.source.encode()).hexdigest()[:8]


def unique(wanted: str, taken: set[str]) -> str:
    """The wanted id, numbered from its second use on."""
    found, number = wanted, 1
    while found in taken:
        number += 1
        found = f"{wanted}-{number}"
    taken.add(found)
    return found


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Consecutive pieces of one stream as one output, of a progress bar only its last state.

    Where a stream broke and how often a bar was drawn is chance.
    """
    result: list[NotebookNode] = []
    for output in outputs:
        last = result[-1] if result else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            result.append(output)
    for output in result:
        if output.output_type == "stream":
            output.text = re.sub(r"^.*\r(?=[^\n])", "", output.text, flags=re.MULTILINE)
    return result


def is_progress_bar(output: NotebookNode) -> bool:
    """A tqdm bar: for whoever runs the cell, not for the page."""
    return "it/s]" in output.get("data", {}).get("text/plain", "") and len(output.data) == 2


def canonical_output(output: NotebookNode, count: int) -> NotebookNode:
    """One output without addresses of this run."""
    if output.output_type == "execute_result":
        output.execution_count = count
    if output.output_type == "error":
        # the frames name files and colours of one machine
        output.traceback = [f"{output.ename}: {output.evalue}"]
    svg = output.get("data", {}).get("image/svg+xml")
    if svg:
        output.data["image/svg+xml"] = canonical_svg(svg)
    return output


def canonical_svg(svg: str) -> str:
    """matplotlib salts the ids of markers and clip paths and writes the date."""
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    salted = dict.fromkeys(re.findall(r'(?:id="|url\(#|href="#)([mph][0-9a-f]{10})(?=["\)])', svg))
    for number, old in enumerate(salted, 1):
        svg = svg.replace(old, f"{old[0]}{number:010d}")
    return "\n".join(line.rstrip() for line in svg.split("\n"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
