"""`python -m transformer`: files, standard streams, exit codes."""

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from transformer.__main__ import run

NAMES = {"小明": "Xiaoming", "小红": "Xiaohong", "爸爸": "Dad"}
VERBS = {"工作": "works", "睡觉": "sleeps", "唱歌": "sings"}
LINES = [f"{n} {v}\t{NAMES[n]} {VERBS[v]}" for n in NAMES for v in VERBS]


def call(*words, stdin=b""):
    """The command line in this process, on byte streams as a shell gives them."""
    saved = sys.argv, sys.stdin, sys.stdout, sys.stderr
    streams = [io.BytesIO(stdin), io.BytesIO(), io.BytesIO()]
    sys.argv = ["transformer", *map(str, words)]
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(s, "utf-8") for s in streams)
    code = 0
    try:
        run()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        out, err = streams[1].getvalue(), streams[2].getvalue()
        sys.argv, sys.stdin, sys.stdout, sys.stderr = saved
    return SimpleNamespace(returncode=code, stdout=out, stderr=err)


def call_process(*words, stdin=b"", **environment):
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "transformer", *map(str, words)],
        input=stdin, capture_output=True, env=os.environ | environment, timeout=120,
    )  # fmt: skip


def error_of(result):
    """The one line that a user sees; exit code 2, nothing on stdout."""
    assert result.returncode == 2, result.stderr.decode()
    assert result.stdout == b""
    return result.stderr.decode("utf-8").strip().splitlines()[-1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    data = folder / "pairs.tsv"
    data.write_text("\n".join(LINES * 4) + "\n", encoding="utf-8")
    result = call("train", "--data", data, "--run", folder / "run", "--epochs", 60)
    assert result.returncode == 0, result.stderr.decode()
    assert "36 pairs" in result.stdout.decode()
    return folder


def test_translate_keeps_lines_and_order(trained):
    """Case V5: blank lines stay, also those of U+3000 and spaces."""
    text = "小明 工作\n\n\u3000  \n爸爸 唱歌\n"
    result = call("translate", "--run", trained / "run", stdin=text.encode())
    assert result.stdout.decode() == "Xiaoming works\n\n\nDad sings\n"


def test_translate_words_on_the_command_line(trained):
    result = call("translate", "--run", trained / "run", "--beam", 1, "小明", "工作")
    assert result.stdout.decode() == "Xiaoming works\n"


def test_utf8_whatever_the_locale(trained):
    """Case V6: an ASCII locale changes nothing, nor does a byte-order mark."""
    text = "\ufeff小明 工作\n".encode()
    words = "translate", "--run", trained / "run"
    result = call_process(*words, stdin=text, LC_ALL="C", PYTHONUTF8="0")
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.decode() == "Xiaoming works\n"


def test_evaluate(trained):
    result = call("evaluate", "--run", trained / "run", "--data", trained / "pairs.tsv")
    assert result.stdout.decode().startswith("exact match 1.0000")
    assert "tok:13a" in result.stdout.decode()


def test_resume_goes_on_from_the_checkpoint(trained):
    data, run = trained / "pairs.tsv", trained / "resumed"
    assert call("train", "--data", data, "--run", run, "--epochs", 1).returncode == 0
    first = call("train", "--data", data, "--run", run, "--epochs", 2, "--resume")
    assert first.returncode == 0, first.stderr.decode()
    whole = call("train", "--data", data, "--run", trained / "whole", "--epochs", 2)
    assert whole.stdout.decode().splitlines()[1].split(";")[0] == (
        first.stdout.decode().splitlines()[1].split(";")[0]
    )
    weights = [trained / name / "weights.safetensors" for name in ("resumed", "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"one column\n", "line 1: 1 columns, need 2"),
        (b"\xff\xfe\n", "not UTF-8 (byte 0 is 0xff)"),
        (b"<!DOCTYPE html><html>404</html>", "an HTML page, not a text corpus"),
        (b"a\0b\tc\n", "NUL in line 1"),
    ],
)
def test_bad_corpora(tmp_path, content, message):
    """Case V9 and its kin."""
    (tmp_path / "bad.tsv").write_bytes(content)
    result = call("train", "--data", tmp_path / "bad.tsv", "--run", tmp_path / "run")
    assert message in error_of(result)
    assert "bad.tsv" in error_of(result)
    assert len(result.stderr.splitlines()) == 1


def test_missing_and_damaged_models(tmp_path, trained):
    assert "does not exist" in error_of(call("translate", "--run", tmp_path / "none", "a"))
    assert "no config.json" in error_of(call("translate", "--run", tmp_path, "a"))
    assert "nothing to resume" in error_of(
        call("train", "--data", trained / "pairs.tsv", "--run", tmp_path, "--resume")
    )
    assert "--preset" in error_of(
        call("train", "--data", trained / "pairs.tsv", "--run", tmp_path, "--preset", "huge")
    )


def test_input_that_is_not_utf8(trained):
    result = call("translate", "--run", trained / "run", stdin=b"\xff\n")
    assert "UTF-8" in error_of(result)


def test_errors_in_a_process_of_its_own(tmp_path):
    assert "no config.json" in error_of(call_process("translate", "--run", tmp_path, "a"))


def test_help_lists_the_commands():
    text = call("--help").stdout.decode()
    assert all(name in text for name in ("train", "translate", "evaluate"))
