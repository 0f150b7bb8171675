"""`python -m transformer`: files, standard streams, exit codes."""

import io
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from transformer import Tokenizer
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
    [line] = result.stderr.decode("utf-8").splitlines()
    assert line.startswith("error: ")
    return line


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
        (b"one\t\n\ttwo\n", "no pair with text on both sides"),
    ],
)
def test_bad_corpora(tmp_path, content, message):
    """Case V9 and its kin."""
    (tmp_path / "bad.tsv").write_bytes(content)
    result = call("train", "--data", tmp_path / "bad.tsv", "--run", tmp_path / "run")
    assert message in error_of(result)
    assert "bad.tsv" in error_of(result)
    assert not (tmp_path / "run").exists()


def test_missing_and_damaged_models(tmp_path, trained):
    assert "does not exist" in error_of(call("translate", "--run", tmp_path / "none", "a"))
    assert "no config.json" in error_of(call("translate", "--run", tmp_path, "a"))
    assert "nothing to resume" in error_of(
        call("train", "--data", trained / "pairs.tsv", "--run", tmp_path, "--resume")
    )
    assert "--preset" in error_of(
        call("train", "--data", trained / "pairs.tsv", "--run", tmp_path, "--preset", "huge")
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing command"),
        (("teach",), "No such command 'teach'"),
        (("train",), "Missing option '--data'"),
        (("train", "--data", "{data}", "--run", "{new}", "--preset", "huge"), "'huge' is not"),
        (("train", "--data", "{data}", "--run", "{new}", "--tokens", "odd"), "'odd' is not"),
        (("train", "--data", "{data}", "--run", "{new}", "--vocab-size", 4), "vocab_size is 4"),
        (("train", "--data", "{data}", "--run", "{new}", "--epochs", 0), "0 is not in the range"),
        (("train", "--data", "{empty}", "--run", "{new}"), "train.tsv"),
        (("train", "--data", "{data}", "--run", "{data}"), "pairs.tsv"),
        (("train", "--data", "{data}", "--run", "{run}"), "holds a run; go on with --resume"),
        (("translate", "--run", "{data}", "a"), "no config.json"),
        (("translate", "--run", "{run}", "--beam", 0, "a"), "0 is not in the range"),
        (("translate", "--run", "{run}"), "standard input is empty"),
        (("translate", "--run", "{run}", "小明 " * 300), "sentence 1: 300 tokens are past"),
        (("evaluate", "--run", "{run}", "--data", "{empty}"), "Is a directory"),
        (("evaluate", "--run", "{run}", "--data", "{new}"), "does not exist"),
    ],
)
def test_every_error_is_one_line(trained, tmp_path, words, message):
    (tmp_path / "empty").mkdir()
    names = {"data": trained / "pairs.tsv", "run": trained / "run", "new": tmp_path / "new",
             "empty": tmp_path / "empty"}  # fmt: skip
    weights = (trained / "run" / "weights.safetensors").read_bytes()
    assert message in error_of(call(*(str(word).format(**names) for word in words)))
    assert (trained / "run" / "weights.safetensors").read_bytes() == weights


def test_a_line_past_the_limit_is_named(trained):
    text = "小明 工作\n\n" + "工作 " * 10_000 + "\n小明 工作\n"
    error = error_of(call("translate", "--run", trained / "run", stdin=text.encode()))
    assert error == "error: sentence 3: 10000 tokens are past the limit max_len = 256"


def test_a_pair_past_the_limit_stops_before_anything_is_written(tmp_path):
    data = tmp_path / "pairs.tsv"
    data.write_text("one\ttwo\none\ttwo" + " two" * 300 + "\n", encoding="utf-8")
    error = error_of(call("train", "--data", data, "--run", tmp_path / "run"))
    assert error == "error: pair 2: 302 tokens are past the limit max_len = 256"
    assert not (tmp_path / "run").exists()


def test_only_blank_lines(trained):
    """Case V5."""
    result = call("translate", "--run", trained / "run", stdin="\n \n\u3000\n".encode())
    assert result.stdout == b"\n\n\n"


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(trained, tmp_path):
    tmp_path.chmod(0o500)
    words = "train", "--data", trained / "pairs.tsv", "--run", tmp_path / "run"
    assert "Permission denied" in error_of(call(*words))


def test_resuming_with_other_data_or_another_preset(trained, tmp_path):
    data, other, run = trained / "pairs.tsv", tmp_path / "other.tsv", tmp_path / "run"
    other.write_text("\n".join(LINES * 3) + "\n", encoding="utf-8")
    assert call("train", "--data", data, "--run", run, "--epochs", 1).returncode == 0
    words = "train", "--run", run, "--epochs", 2, "--resume", "--data"
    assert "another data set" in error_of(call(*words, other))
    assert "another configuration" in error_of(call(*words, data, "--preset", "base"))
    Tokenizer.train(["工作 works"]).save(run / "vocabulary.json")
    assert "written by a run with another" in error_of(call(*words, data))
    (run / "vocabulary.json").unlink()
    assert "vocabulary.json" in error_of(call(*words, data))


def test_a_dropped_pair_is_one_line_too(trained, tmp_path):
    data = tmp_path / "pairs.tsv"
    data.write_text("\n".join([*LINES, "\tnobody"]) + "\n", encoding="utf-8")
    result = call_process("train", "--data", data, "--run", tmp_path / "run", "--epochs", 1)
    assert result.returncode == 0
    assert result.stderr.decode() == f"warning: {data}: dropped 1 pairs with a blank side\n"


def test_ctrl_c_leaves_a_run_that_goes_on(trained, tmp_path):
    data, run = trained / "pairs.tsv", tmp_path / "run"
    words = [sys.executable, "-m", "transformer", "train", "--data", str(data), "--run", str(run)]

    def hear_ctrl_c():  # what a shell starts in the background ignores it, and so do its children
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        [*words, "--epochs", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_ctrl_c,
    ) as process:
        try:
            for _ in range(600):
                if (run / "checkpoint.safetensors").exists():
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert stderr.decode().strip() == "interrupted"
    result = call("train", "--data", data, "--run", run, "--epochs", 1, "--resume")
    assert result.returncode == 0, result.stderr.decode()
    assert "updates, last loss" in result.stdout.decode()


def test_chinese_out_in_and_as_an_argument_whatever_the_locale(tmp_path):
    """Case V6: the target side is Chinese, and the terminal claims to know ASCII only."""
    data, run = tmp_path / "pairs.tsv", tmp_path / "run"
    data.write_text("works\t工作\n工作\t工作\n" * 20, encoding="utf-8")
    assert call("train", "--data", data, "--run", run, "--epochs", 30).returncode == 0
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in (["works"], ["工作"]):
        result = call_process("translate", "--run", run, *words, **ascii_only)
        assert result.returncode == 0, result.stderr.decode()
        assert result.stdout.decode("utf-8") == "工作\n"
    result = call_process("translate", "--run", run, stdin=b"works\n", PYTHONIOENCODING="cp1252")
    assert result.stdout.decode("utf-8").split() == ["工作"]


def test_input_that_is_not_utf8(trained):
    result = call("translate", "--run", trained / "run", stdin=b"\xff\n")
    assert "UTF-8" in error_of(result)


def test_errors_in_a_process_of_its_own(tmp_path):
    assert "no config.json" in error_of(call_process("translate", "--run", tmp_path, "a"))


def test_help_lists_the_commands():
    text = call("--help").stdout.decode()
    assert all(name in text for name in ("train", "translate", "evaluate"))
