"""The list of mutants: each still applies, and the tool tells a caught one from a survivor."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import MUTANTS, ROOT, TESTS, Mutant, copy_project, main, table


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.module}: {m.fault}")
def test_each_mutant_applies_once_and_changes_what_python_sees(mutant):
    source = (ROOT / "transformer" / f"{mutant.module}.py").read_text(encoding="utf-8")
    broken = mutant.apply(source)
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(source))


def test_the_list_is_long_and_names_nothing_twice():
    assert len(MUTANTS) >= 45
    assert len({(m.module, m.fault) for m in MUTANTS}) == len(MUTANTS)
    assert len({(m.module, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert {m.module for m in MUTANTS} <= set(TESTS)
    for name in TESTS:
        assert (ROOT / "tests" / f"test_{name}.py").is_file()


@pytest.mark.parametrize(("old", "times"), [("nowhere", 0), ("a", 2)])
def test_a_text_that_is_not_there_once_is_refused(old, times):
    with pytest.raises(ValueError, match=f"m, fault: old text {times} times"):
        Mutant("m", "fault", old, "b").apply("a + a")


def test_the_table_names_the_test_that_noticed():
    rows = [(MUTANTS[0], "tests/test_x.py::test_y", 3.4)]
    assert f"| {MUTANTS[0].fault} | `tests/test_x.py::test_y` | 3 |" in table(rows)


TRIAL = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import mutants
folder = Path(sys.argv[2])
for new in ("VALUE = 2; OTHER = 1", "VALUE = 1; OTHER = 2", "VALUE =", "while True: pass"):
    mutants.TIMEOUT_S = 6 if "while" in new else 100
    mutant = mutants.Mutant("m", "fault", "VALUE = 1; OTHER = 1", new)
    try:
        print(mutants.try_mutant(folder, mutant, ()))
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


def test_caught_survived_broken_and_endless(tmp_path):
    """The package of the folder is tested, not the installed one; afterwards it is sound again."""
    for name in ("transformer", "tests", "tools"):
        (tmp_path / name).mkdir()
    module = tmp_path / "transformer" / "m.py"
    module.write_text("VALUE = 1; OTHER = 1\n")
    (tmp_path / "tests" / "conftest.py").write_text(
        "from hypothesis import settings\n\nsettings.register_profile('book')\n"
    )
    (tmp_path / "tests" / "test_m.py").write_text(
        "from transformer import m\n\ndef test_value():\n    assert m.VALUE == 1\n"
    )
    command = [sys.executable, "-c", TRIAL, str(ROOT / "tools"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "tests/test_m.py::test_value",
        "None",
        "m, fault: pytest ended with 2",
        "(no end)",
    ]
    assert module.read_text() == "VALUE = 1; OTHER = 1\n"


def test_the_copy_is_the_package_that_its_tests_import(tmp_path):
    copy_project(tmp_path)
    code = "import transformer.attention as a; print(a.__file__)"
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()) == tmp_path / "transformer" / "attention.py"


@pytest.mark.parametrize("arguments", [["nowhere"], ["--write", "attention"]])
def test_wrong_arguments_are_refused(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mutants.py", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "no such module, or --write for a part of the list" in capsys.readouterr().err
