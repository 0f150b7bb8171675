"""The commands: what they start, what they do not do twice, and what they say when they cannot.

The programs in .venv/bin are replaced by a script that writes down how it was called.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import check
import pytest

ROOT = Path(__file__).parent.parent
TARGETS = ["bench", "bench-gpu", "book", "chapters", "corpus", "draft", "export", "help"]
TARGETS += ["lab", "mutants", "serve", "test", "train", "translate"]
PROGRAMS = ["python", "jupyter", "jupyter-book", "jupytext", "nbdev-export"]

# Calls, a line each; fails if told to; leaves the model that `make train` waits for.
FAKE = """#!/bin/sh
for word in "$(basename "$0")" "$@"; do printf '%s|' "$word"; done >> calls; echo >> calls
case "$*" in *"${FAIL:-never}"*) exit 3;; esac
case "$*" in *" train "*) mkdir -p runs/tiny; touch runs/tiny/weights.safetensors;; esac
"""
# In place of python3: makes an environment of the fakes.
PYTHON = """#!/bin/sh
case "$1" in
-m) mkdir -p .venv/bin; echo venv >> calls
    for name in {programs}; do cp fake .venv/bin/$name; done;;
-c) exit {too_old};;
--version) echo Python 3.10.1;;
esac
"""

Make = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Run make in a small copy of the tree: exit code, what was printed, new calls."""
    for name in ("Makefile", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("chapters/01_sums.ipynb", "book/book.css", "_config.yml", "_toc.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "data" / "zh-en").mkdir(parents=True)
    (tmp_path / "data" / "zh-en" / "grammar.py").touch()
    programs(tmp_path)

    def run(*arguments: str, **environment: str) -> tuple[int, str, list[str]]:
        log = tmp_path / "calls"
        before = log.read_text().splitlines() if log.exists() else []
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        done = subprocess.run(
            ["make", "PYTHON=./python3", *arguments],
            cwd=tmp_path,
            env={**kept, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
        )
        calls = log.read_text().splitlines() if log.exists() else []
        return done.returncode, done.stdout, calls[len(before) :]

    return run


def programs(folder: Path, too_old: int = 0) -> None:
    (folder / "fake").write_text(FAKE)
    (folder / "python3").write_text(PYTHON.format(programs=" ".join(PROGRAMS), too_old=too_old))
    for name in ("fake", "python3"):
        (folder / name).chmod(0o755)


def touch_later(path: Path) -> None:
    """Newer than anything, whatever the clock's resolution."""
    path.touch()
    later = path.stat().st_mtime + 60
    os.utime(path, (later, later))


def test_help_lists_every_command(make: Make) -> None:
    code, printed, calls = make()
    assert code == 0 and calls == []
    assert sorted(re.findall(r"^make ([\w-]+) +\S", printed, re.M)) == TARGETS
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert phony and sorted(phony[1].split()) == TARGETS
    assert make("help")[1] == printed


def test_book_installs_exports_and_builds_once(make: Make, tmp_path: Path) -> None:
    code, printed, calls = make("book")
    assert code == 0
    started = [" ".join(call.split("|")[:4]) for call in calls]
    assert started[0] == "venv"
    assert [name.split()[0] for name in started[1:]] == [
        *["python"] * 3,
        "nbdev-export",
        "jupyter-book",
    ]
    assert "|-W|-n|--keep-going|" in calls[-1]
    assert "|-r|requirements.txt|" in calls[1] and "|--editable|.|" in calls[2]
    address = f"file://{tmp_path}/_build/html/index.html"
    assert printed.strip().endswith(address)
    code, printed, calls = make("book")
    assert code == 0 and calls == []
    assert printed.strip().endswith(address)


def test_a_changed_chapter_is_exported_and_built_but_nothing_installed(
    make: Make, tmp_path: Path
) -> None:
    make("book")
    touch_later(tmp_path / "chapters" / "01_sums.ipynb")
    calls = make("book")[2]
    assert [call.split("|")[0] for call in calls] == ["nbdev-export", "jupyter-book"]


def test_changed_requirements_are_installed(make: Make, tmp_path: Path) -> None:
    make("export")
    touch_later(tmp_path / "requirements.txt")
    calls = make("export")[2]
    assert "venv" not in calls and any("requirements.txt" in call for call in calls)


@pytest.mark.parametrize("failing", ["requirements.txt", "--editable", "build"])
def test_a_step_that_failed_is_done_again(make: Make, failing: str) -> None:
    code, printed, calls = make("book", FAIL=failing)
    assert code != 0 and failing in calls[-1]
    assert "index.html" not in printed
    code, printed, calls = make("book")
    assert code == 0 and any(failing in call for call in calls)
    assert "index.html" in printed


def test_an_old_python_is_named(make: Make, tmp_path: Path) -> None:
    programs(tmp_path, too_old=1)
    code, printed, calls = make("book")
    assert code != 0 and calls == []
    assert "Python 3.11 or newer is needed" in printed and "Python 3.10.1" in printed
    assert "make PYTHON=" in printed


def test_translate_trains_once_and_passes_the_text_as_it_is(make: Make) -> None:
    text = """他 说 "don't $HOME `x` \\n" -- ； *"""
    code, _, calls = make("translate", f"TEXT={text.replace('$', '$$')}")
    assert code == 0
    assert [call.split("|")[1:4] for call in calls[-2:]] == [
        ["-m", "transformer", "train"],
        ["-m", "transformer", "translate"],
    ]
    assert calls[-1] == f"python|-m|transformer|translate|--run|runs/tiny|--|{text}|"
    calls = make("translate")[2]
    assert calls == ["python|-m|transformer|translate|--run|runs/tiny|--|小明 开始 工作|"]
    code, printed, calls = make("train")
    assert code == 0 and calls == [] and "runs/tiny" in printed


def test_train_that_fails_is_tried_again(make: Make) -> None:
    assert make("train", FAIL=" train ")[0] != 0
    code, _, calls = make("train")
    assert code == 0
    assert calls == ["python|-m|transformer|train|--preset|tiny|--data|data/zh-en|--run|runs/tiny|"]


def test_train_that_was_interrupted_goes_on(make: Make, tmp_path: Path) -> None:
    make("export")
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    (tmp_path / "runs" / "tiny" / "checkpoint.safetensors").touch()
    assert make("train")[2][0].endswith("|--run|runs/tiny|--resume|")


def test_the_others_call_what_they_name(make: Make) -> None:
    make("export")
    assert make("test")[2] == ["python|tools/check.py|"]
    assert make("chapters")[2] == ["python|tools/execute.py|"]
    assert make("chapters", "CHAPTER=04")[2] == ["python|tools/execute.py|04|"]
    assert make("lab")[2] == ["jupyter|lab|chapters|"]
    assert make("corpus")[2] == ["python|data/zh-en/grammar.py|"]
    assert make("corpus")[2] == []
    assert "--output|drafts/01_sums.md|chapters/01_sums.ipynb|" in make("draft", "CHAPTER=01")[2][0]
    assert make("draft")[0] != 0
    assert make("draft", "CHAPTER=77")[0] != 0
    code, printed, calls = make("serve", "PORT=8123")
    assert code == 0 and "http://localhost:8123/" in printed
    assert "|http.server|8123|" in calls[-1]


def test_a_failing_check_reaches_the_exit_code(make: Make) -> None:
    make("export")
    assert make("test", FAIL="check.py")[0] != 0


# --- the checks behind `make test`


def counted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], **steps: str):
    commands = {name: [sys.executable, "-c", code] for name, code in steps.items()}
    monkeypatch.setattr(check, "STEPS", commands)
    code = check.main()
    return code, capfd.readouterr().out.strip().split("\n")[-2:]


def test_checks_are_added_up(monkeypatch, capfd) -> None:
    code, lines = counted(
        monkeypatch, capfd, lint="", tests="print('== 5 passed, 2 skipped, 1 warning in 0.5s ==')"
    )
    assert code == 0
    assert lines[-1].startswith("6 passed, 0 failed, 2 skipped in ")


@pytest.mark.parametrize(
    ("step", "count"),
    [
        ("print('1 failed, 5 passed in 90.10s (0:01:30)'); raise SystemExit(1)", "6 passed, 1"),
        ("print('5 passed, 2 errors in 0.5s'); raise SystemExit(1)", "6 passed, 2"),
        ("print('5 passed in 0.5s'); raise SystemExit(3)", "6 passed, 1"),  # crashed at its end
        ("print('no tests ran in 0.01s'); raise SystemExit(5)", "1 passed, 1"),
        ("import os; os.kill(os.getpid(), 9)", "1 passed, 1"),
    ],
)
def test_one_failing_check_fails_the_whole_and_the_others_still_run(
    step: str, count: str, monkeypatch, capfd
) -> None:
    code, lines = counted(monkeypatch, capfd, broken=step, lint="")
    assert code == 1
    assert lines[0] == "failed: broken"
    assert lines[1].startswith(f"{count} failed, 0 skipped in ")


def test_every_check_is_run() -> None:
    assert list(check.STEPS) == ["lint", "types", "tests", "notebooks", "book"]
    assert "loadfile" in check.STEPS["notebooks"]
