"""The chapters keep the rules, and what checks them would notice if they did not."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import execute
import guard
import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parent.parent
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><path d="M 0 0"/></svg>'


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_keeps_the_rules(path: Path) -> None:
    assert guard.problems(path) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_is_stored_in_canonical_form(path: Path) -> None:
    """As tools/execute.py writes it: an editor's own metadata would be a diff for the next one."""
    stored = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(stored, as_version=4)
    assert nbformat.writes(execute.canonical(notebook)) + "\n" == stored


def test_ignored_outputs_are_few_and_exist() -> None:
    assert len(guard.IGNORED_OUTPUTS) <= 9
    assert {stem for stem, _ in guard.IGNORED_OUTPUTS} == {"15_end_to_end"}
    for (stem, cell_id), reason in guard.IGNORED_OUTPUTS.items():
        notebook = nbformat.read(ROOT / "chapters" / f"{stem}.ipynb", as_version=4)
        assert cell_id in [cell.id for cell in notebook.cells]
        assert len(reason.split()) > 3


# --- the guard: a small chapter that passes, and every way to break it


def printed(source: str, text: str, **metadata: object) -> NotebookNode:
    return new_code_cell(
        source, metadata=metadata, outputs=[new_output("stream", name="stdout", text=text)]
    )


def drawn(source: str, alt: str) -> NotebookNode:
    data = {"image/svg+xml": SVG, "text/plain": "<Figure size 300x200 with 1 Axes>"}
    metadata = {"mystnb": {"image": {"alt": alt}}}
    return new_code_cell(source, metadata=metadata, outputs=[new_output("display_data", data=data)])


def chapter() -> NotebookNode:
    """Everything that the guard asks for; cell 6 prints 3."""
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# Sums\n\n> How to add.\n\nWhat is one and two?"),
            new_code_cell("import figures"),
            drawn("figures.architecture('sums')", "The map of the model, sums lit"),
            new_code_cell("#| default_exp sums"),
            new_code_cell(
                '#| export\ndef add(a: int, b: int) -> int:\n    """a + b."""\n    return a + b'
            ),
            new_code_cell("assert add(1, 2) == 3"),
            printed("print(add(1, 2))", "3\n"),
            new_markdown_cell(
                "## What we built\n\nA sum.\n\n## What was checked\n\n"
                "| what | against |\n|---|---|\n| add | by hand |\n\n## Exercises\n\n1. Subtract."
            ),
        ]
    )
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, 1):
        cell.execution_count = count
    return notebook


def judged(notebook: NotebookNode, folder: Path) -> str:
    path = folder / "01_sums.ipynb"
    nbformat.write(notebook, path)
    return "\n".join(guard.problems(path))


def test_the_small_chapter_passes(tmp_path: Path) -> None:
    assert judged(chapter(), tmp_path) == ""


def source(index: int, text: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells[index].update(source=text)


def replaced(index: int, old: str, new: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        assert old in notebook.cells[index].source
        notebook.cells[index].source = notebook.cells[index].source.replace(old, new)

    return change


def output(**fields: object) -> Callable[[NotebookNode], None]:
    kind = str(fields.pop("kind"))
    return lambda notebook: notebook.cells[6].update(outputs=[new_output(kind, **fields)])


def shown(**data: str) -> Callable[[NotebookNode], None]:
    return output(kind="display_data", data={k.replace("__", "/"): v for k, v in data.items()})


def tagged(*tags: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells[6].metadata.update(tags=list(tags))


BREAKS: dict[str, tuple[Callable[[NotebookNode], None], str]] = {
    "no space": (replaced(4, "#| export", "#|export"), "not a directive"),
    "misspelt": (replaced(4, "#| export", "#| exprt"), "not a directive"),
    "two spaces": (replaced(4, "#| export", "#|  export"), "not a directive"),
    "trailing space": (replaced(4, "#| export", "#| export "), "not a directive"),
    "space before the bar": (replaced(4, "#| export", "# | export"), "not a directive"),
    "no bar": (replaced(4, "#| export", "# export"), "not a directive"),
    "indented": (replaced(4, "#| export", " #| export"), "not a directive"),
    "other kind": (replaced(4, "#| export", "#| exporti"), "not a directive"),
    "second line": (replaced(4, "#| export", "# a sum\n#| export"), "on the first line"),
    "below the code": (source(6, "print(3)\n#| export"), "on the first line"),
    "wrong module": (source(3, "#| default_exp sum"), "must name sums"),
    "no module": (source(3, "import math"), "go together"),
    "misspelt module line": (source(3, "#| defualt_exp sums"), "not a directive"),
    "code under the module line": (source(3, "#| default_exp sums\nx = 1"), "alone in its cell"),
    "magic in an exported cell": (replaced(4, "def", "%time\ndef"), "no magics"),
    "not executed": (lambda nb: nb.cells[6].update(execution_count=None), "execution count None"),
    "out of order": (lambda nb: nb.cells[6].update(execution_count=9), "execution count 9"),
    "empty cell": (source(6, " "), "empty"),
    "no output": (lambda nb: nb.cells[6].update(outputs=[]), "nothing is compared"),
    "output of spaces": (output(kind="stream", name="stdout", text=" \n"), "nothing is compared"),
    "name of a figure": (shown(text__plain="<Figure size 9x9 with 2 Axes>"), "nothing is compared"),
    "None": (shown(text__plain="None"), "nothing is compared"),
    "assigned": (lambda nb: nb.cells[5].update(source="x = add(1, 2)"), "nothing is compared"),
    "assert True": (source(5, "assert True"), "nothing is compared"),
    "uncalled assertion": (
        source(5, "def f(): assert add(1, 2) == 3\nx = f"),
        "nothing is compared",
    ),
    "assertion in a lambda": (source(5, "f = lambda: assert_close(1, 2)"), "nothing is compared"),
    "stderr": (output(kind="stream", name="stderr", text="Warning"), "stderr"),
    "error": (output(kind="error", ename="E", evalue="bad", traceback=["E"]), "stored error E"),
    "promised error": (tagged("raises-exception"), "raises nothing"),
    "unknown tag": (tagged("nbval-skip"), "unknown tag"),
    "unlisted ignored output": (tagged("nbval-ignore-output"), "IGNORED_OUTPUTS"),
    "nbval comment": (source(6, "# NBVAL_IGNORE_OUTPUT\nprint(3)"), "by tags"),
    "nbval skip comment": (source(6, "# NBVAL_SKIP\nprint(3)"), "by tags"),
    "semicolon": (source(6, "print(3);"), "ends with ';'"),
    "address": (shown(text__plain="<f at 0x7f3a5c1d2e30>"), "next machine"),
    "kernel's file": (shown(text__plain="in ipykernel_123/1.py"), "next machine"),
    "home folder": (shown(text__plain="/home/me/book"), "next machine"),
    "widget": (shown(**{"application__vnd.jupyter.widget-view+json": "x"}), "widget"),
    "path": (source(6, "import sys\nsys.path.append('..')\nprint(3)"), "no place"),
    "torchtext": (source(6, "import torchtext\nprint(3)"), "no place"),
    "download": (source(6, "from urllib.request import urlopen\nprint(3)"), "no place"),
    "figure without text": (lambda nb: nb.cells[2].metadata.clear(), "alternative text"),
    "figure named by a hash": (
        lambda nb: nb.cells[2].update(drawn("figures.architecture()", f"a b c {'0a' * 16}.svg")),
        "alternative text|execution",
    ),
    "no map": (source(2, "figures.heatmap()"), "no map"),
    "no question": (replaced(0, "?", "."), "opening question"),
    "no summary": (replaced(0, "> ", ""), "summary"),
    "no title": (replaced(0, "# Sums", "Sums"), "Title"),
    "nothing built": (replaced(7, "## What we built", "## Built"), "What we built"),
    "nothing checked": (replaced(7, "|---|---|", ""), "no table"),
    "no exercise": (replaced(7, "1. Subtract.", ""), "Exercises"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_guard_notices(name: str, tmp_path: Path) -> None:
    change, message = BREAKS[name]
    notebook = chapter()
    change(notebook)
    assert re.search(message, judged(notebook, tmp_path)), judged(notebook, tmp_path)


def test_a_notebook_of_vacuous_cells_fails(tmp_path: Path) -> None:
    notebook = chapter()
    notebook.cells[5:7] = [
        new_code_cell("x = 1", execution_count=5),
        new_code_cell("assert 'always'", execution_count=6),
        new_code_cell("for i in range(3): pass", execution_count=7),
    ]
    found = judged(notebook, tmp_path).split("\n")
    assert len(found) == 3
    assert all("nothing is compared" in line for line in found)


# --- nbval: what it must pass, what it must fail


def executed(folder: Path, *cells: str | NotebookNode) -> Path:
    notebook = new_notebook(
        cells=[new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    )
    NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    path = folder / "tiny.ipynb"
    nbformat.write(execute.canonical(notebook), path)
    return path


def nbval(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    options = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", str(ROOT / "nbval.cfg")]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            *options,
            path.name,
        ],
        cwd=path.parent,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def test_a_changed_number_is_caught_and_a_changed_picture_is_not(tmp_path: Path) -> None:
    svg = f"from IPython.display import SVG\nSVG({SVG!r})"
    path = executed(tmp_path, "print(0.7034)", "[1, 1 + 1]", svg)
    passed = nbval(path)
    assert passed.returncode == 0 and "3 passed" in passed.stdout, passed.stdout
    notebook = nbformat.read(path, as_version=4)
    for cell, old, new in [(0, "0.7034", "0.7035"), (1, "2]", "3]"), (2, "M 0 0", "M 9 9")]:
        stored = json.dumps(notebook.cells[cell].outputs)
        assert old in stored
        notebook.cells[cell].outputs = nbformat.from_dict(json.loads(stored.replace(old, new)))
    nbformat.write(notebook, path)
    failed = nbval(path)
    assert failed.returncode == 1 and "2 failed, 1 passed" in failed.stdout, failed.stdout


def test_what_false_alarms_are_made_of(tmp_path: Path) -> None:
    """Case B5: the same page under two hash seeds, in the forms that the guard asks for."""
    path = executed(
        tmp_path,
        "_ = object()",  # not the bare object, whose repr holds an address
        "sorted({'工作', '开始', '小明'})",  # not the set
        "print(f'{2 ** 0.5:.4f}')",  # not the unrounded float
        "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])",  # not the list of lines
        "import sys\nfrom tqdm import tqdm\n"
        "for _ in tqdm(range(50), file=sys.stdout, ncols=40, bar_format='{l_bar}{bar}|'): pass",
        "import torch\n_ = torch.manual_seed(0)\nprint(torch.rand(2))",
        new_code_cell("raise ValueError('6 > 5')", metadata={"tags": ["raises-exception"]}),
    )
    for seed in ("0", "1"):
        passed = nbval(path, PYTHONHASHSEED=seed)
        assert passed.returncode == 0 and "7 passed" in passed.stdout, passed.stdout


def test_what_changes_from_run_to_run_fails(tmp_path: Path) -> None:
    path = executed(tmp_path, "object()", "import time\ntime.time()", "print(id(object()))")
    failed = nbval(path)
    assert failed.returncode == 1 and "3 failed" in failed.stdout, failed.stdout


# --- execution


def test_executing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    cells = [
        "import matplotlib_inline.backend_inline as inline\ninline.set_matplotlib_formats('svg')\n"
        "from matplotlib.figure import Figure\nfigure = Figure()\n"
        "axes = figure.subplots()\n_ = axes.plot([1, 2], [3, 4], marker='o')\nfigure",
        "print('a', flush=True)\nprint('b')",
        new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
        "from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): print('c')",
    ]
    first = executed(tmp_path, *cells).read_bytes()
    assert executed(tmp_path, *cells).read_bytes() == first
    figure, streams, error, bar = nbformat.reads(first.decode(), as_version=4).cells
    assert "<svg" in figure.outputs[0].data["image/svg+xml"]
    assert "date>" not in figure.outputs[0].data["image/svg+xml"]
    assert [output.text for output in streams.outputs] == ["a\nb\n"]
    assert error.outputs[0].traceback == ["ZeroDivisionError: division by zero"]
    assert [output.text for output in bar.outputs] == ["c\nc\nc\n"]


def test_ids_are_names_or_hashes_and_unique() -> None:
    sources = [
        "#| export\nPAD = 0",
        "#| export\n@d\nclass A:\n    x = 1",
        "1",
        "1",
        "#| export\n%x",
    ]
    notebook = execute.canonical(new_notebook(cells=[new_code_cell(text) for text in sources]))
    names = [cell.id for cell in notebook.cells]
    assert names[:2] == ["PAD", "A"]
    assert names[3] == f"{names[2]}-2"
    assert len(set(names)) == 5


def small_book(folder: Path, monkeypatch: pytest.MonkeyPatch, draft: str) -> Path:
    monkeypatch.setattr(execute, "ROOT", folder)
    (folder / "chapters").mkdir()
    (folder / "drafts").mkdir()
    (folder / "drafts" / "01_sums.md").write_text(draft, encoding="utf-8")
    return folder / "chapters" / "01_sums.ipynb"


DRAFT = """\
# Sums

```{code-cell} python3
---
tags: [hide-input]
mystnb:
  image: {alt: "What 小明 sees"}
  figure: {caption: "Sums of $x$.", name: fig-sums}
---
print("小明")
```
"""


def test_a_draft_becomes_an_executed_chapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = small_book(tmp_path, monkeypatch, DRAFT)
    assert execute.execute("01_sums") is True
    title, cell = nbformat.read(target, as_version=4).cells
    assert title.source == "# Sums"
    assert cell.outputs[0].text == "小明\n"
    assert cell.metadata == {
        "tags": ["hide-input"],
        "mystnb": {
            "image": {"alt": "What 小明 sees"},
            "figure": {"caption": "Sums of $x$.", "name": "fig-sums"},
        },
    }
    assert execute.execute("01_sums") is False  # nothing new, and the file is not touched


@pytest.mark.parametrize(
    "line", ["1 / 0", "import warnings\nwarnings.warn('careful')"], ids=["error", "warning"]
)
def test_a_failing_chapter_is_not_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = small_book(tmp_path, monkeypatch, DRAFT)
    execute.execute("01_sums")
    before = target.read_bytes()
    draft = tmp_path / "drafts" / "01_sums.md"
    draft.write_text(DRAFT.replace('print("小明")', line), encoding="utf-8")
    later = target.stat().st_mtime + 10
    os.utime(draft, (later, later))
    with pytest.raises(execute.ChapterError, match="01_sums"):
        execute.execute("01_sums")
    assert target.read_bytes() == before
    assert os.listdir(target.parent) == [target.name]


def test_no_such_chapter() -> None:
    with pytest.raises(execute.ChapterError, match="no chapter 99"):
        execute.select(["99"])


def test_a_chapter_runs_in_its_own_folder_with_nothing_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case B10: the package is found because it is installed, not because of the folder."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    path = ROOT / "chapters" / "04_attention.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(new_code_cell("import transformer\nprint(transformer.__file__)"))
    client = NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    )
    client.execute()
    assert notebook.cells[-1].outputs[0].text.strip() == str(ROOT / "transformer" / "__init__.py")
