"""The package is what the chapters export: no more, no less, byte for byte."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
MODULES = sorted((ROOT / "transformer").glob("*.py"))
# written by nbdev beside the modules, and not committed
INDEX = "_modidx.py"
# imported by name or run, so their place in the order of chapters means nothing
ENTRANCES = ("__init__", "__main__")


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def export(folder: Path) -> subprocess.CompletedProcess[str]:
    return run([str(Path(sys.executable).parent / "nbdev-export")], folder)


def modules(folder: Path) -> dict[str, bytes]:
    found = (folder / "transformer").rglob("*.py")
    return {path.name: path.read_bytes() for path in found if path.name != INDEX}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the export reads, without any module."""
    (tmp_path / "chapters").mkdir()
    for path in CHAPTERS:
        shutil.copy(path, tmp_path / "chapters")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_package_is_what_the_chapters_export(tree: Path) -> None:
    said = export(tree)
    assert "Warning" not in said.stdout + said.stderr  # a chapter without a module only warns
    exported, committed = modules(tree), modules(ROOT)
    assert exported.keys() == committed.keys(), "a module without a chapter, or not yet exported"
    differing = [name for name in exported if exported[name] != committed[name]]
    assert not differing, "edited by hand, or not exported: run `make export`"
    # every module imports, from the freshly exported copy, and has the names it promises
    names = [f"transformer.{name.removesuffix('.py')}" for name in sorted(exported)]
    check = f"""
import importlib
for name in {names}:
    module = importlib.import_module(name.removesuffix(".__init__"))
    missing = [each for each in module.__all__ if not hasattr(module, each)]
    assert not missing, (name, missing)
    print(module.__file__)
"""
    files = run([sys.executable, "-c", check], tree).stdout.split()
    assert len(files) == len(exported)
    assert all(file.startswith(str(tree)) for file in files)


def test_exporting_again_changes_nothing(tree: Path) -> None:
    export(tree)
    first = modules(tree)
    export(tree)
    assert modules(tree) == first
    assert len(first) > 1


def test_export_leaves_the_project_file_alone(tree: Path) -> None:
    export(tree)
    assert (tree / "pyproject.toml").read_bytes() == (ROOT / "pyproject.toml").read_bytes()


def imported(source: str) -> set[str]:
    """Modules of the package that this source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = f"transformer.{node.module or ''}" if node.level else node.module or ""
            names = (
                [base]
                if base.strip(".") != "transformer"
                else [f"transformer.{alias.name}" for alias in node.names]
            )
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("transformer.")}
        found |= {"__init__" for name in names if name == "transformer"}
    return found


def later_imports(order: list[str], sources: dict[str, str]) -> list[str]:
    """Imports that do not come from an earlier chapter."""
    wrong = []
    for name, source in sources.items():
        earlier = order if name in ENTRANCES else order[: order.index(name)]
        wrong += [f"{name} imports {other}" for other in sorted(imported(source) - set(earlier))]
    return wrong


ORDER = [path.stem.split("_", 1)[1] for path in CHAPTERS if path.stem[:2].isdigit()]


def test_modules_import_only_earlier_chapters() -> None:
    sources = {
        path.stem: path.read_text(encoding="utf-8") for path in MODULES if path.name != INDEX
    }
    assert len(sources) > 1
    assert later_imports(ORDER, sources) == []


@pytest.mark.parametrize(
    "line",
    [
        "from .decoder import Decoder",
        "from transformer.decoder import Decoder",
        "from transformer import decoder",
        "import transformer.decoder",
        "from . import decoder",
        "import transformer",
        "from transformer.attention import attention",  # itself
        "def f():\n    from .decoder import Decoder",
    ],
)
def test_an_import_from_a_later_chapter_is_seen(line: str) -> None:
    order = ["tokens", "attention", "decoder"]
    assert later_imports(order, {"attention": line})
    assert not later_imports(order, {"attention": "import torch\nfrom .tokens import PAD"})
    assert not later_imports(order, {"__init__": "from .decoder import Decoder"})


@pytest.mark.parametrize("mutate", ["edit", "stale", "missing"])
def test_a_package_that_differs_is_seen(tree: Path, mutate: str) -> None:
    """The comparison of the first test fails where it should."""
    export(tree)
    right = modules(tree)
    module = next(path for path in (tree / "transformer").glob("*.py") if path.name[0] != "_")
    if mutate == "edit":
        module.write_text(module.read_text(encoding="utf-8") + "\nX = 1\n", encoding="utf-8")
    elif mutate == "stale":
        shutil.copy(module, module.with_name("stale.py"))
    else:
        module.unlink()
    assert modules(tree) != right
