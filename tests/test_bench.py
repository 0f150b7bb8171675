"""The benchmark: how it takes time, that it compares like with like, and what it writes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import bench
import bench_clock
import bench_growth
import bench_rows
import peers
import pytest
import torch
from bench_clock import Slice, Timer, compete, timer
from bench_memory import peak
from bench_rows import Setting
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer import Transformer
from transformer.tokens import BOS, EOS, PAD

RUNS = Path(__file__).parent.parent / "data" / "runs"
QUICK = Setting(torch.device("cpu"), quick=True)


def scripted(slices: list[tuple[float, float]]) -> Timer:
    """A timer that returns these (seconds, foreign) after two calls that do not count."""
    left = [(1.0, 9.0), (1.0, 9.0), *slices]
    return lambda calls: Slice(*left.pop(0), 1.0)


# --- the clock ------------------------------------------------------------------------------------


def test_the_ratio_is_the_median_of_clean_rounds() -> None:
    ours = scripted([(1.0, 0.0), (2.0, 0.0), (9.0, 0.5), (1.0, 0.0)])
    theirs = scripted([(2.0, 0.0), (6.0, 0.0), (9.0, 0.0), (5.0, 0.05)])
    result = compete({"ours": ours, "theirs": theirs}, rounds=3, slice_seconds=0.1, budget=9)
    assert result.ratios == {"theirs": (2.5, 3.0, 4.0)}  # quartiles of 2, 3 and 5
    assert result.seconds == {"ours": 1.0, "theirs": 5.0}
    assert (result.rounds, result.dropped, result.clean) == (3, 1, True)


def test_a_machine_that_is_never_ours_is_named() -> None:
    busy = [(1.0, 0.9), (1.0, 0.2), (1.0, 0.3)]
    slow = iter([1.0, 1.0, 4.0, 2.0, 3.0])
    theirs: Timer = lambda calls: (time.sleep(0.05), Slice(next(slow), 0.0, 1.0))[1]  # noqa: E731
    result = compete(
        {"ours": scripted(busy), "theirs": theirs}, rounds=3, slice_seconds=0.1, budget=0.14
    )
    assert not result.clean and result.rounds == 3 and result.dropped == 0


def test_works_take_turns_in_both_orders() -> None:
    order: list[str] = []

    def note(name: str) -> Timer:
        return lambda calls: (order.append(f"{name}{calls}"), Slice(0.1, 0.0, 0.3))[1]

    compete({"a": note("a"), "b": note("b")}, rounds=3, slice_seconds=0.3, budget=9)
    assert order == ["a1", "a1", "b1", "b1", "a3", "b3", "b3", "a3", "a3", "b3"]


def test_foreign_cpu_time_is_seen() -> None:
    burn = "import time\nend = time.time() + 3\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", burn]) as other:
        time.sleep(0.3)
        seen = timer(lambda: time.sleep(0.5))(1)
        other.kill()
    assert seen.foreign > 0.2 and not seen.clean


def test_our_own_cpu_time_is_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_clock, "busy_cpu", time.process_time)  # we alone are busy
    slice_ = timer(lambda: sum(range(1_000_000)))(10)
    assert slice_.clean and slice_.foreign < 0.02 < slice_.wall
    assert slice_.seconds == pytest.approx(slice_.wall / 10)


# --- like with like -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(2, 5), (3, 8)])
def test_the_flops_of_a_step_are_those_pytorch_counts(size: tuple[int, int]) -> None:
    config = QUICK.base(dropout=0.0)
    model = Transformer(config)
    source, target = bench_rows.teacher_batch(QUICK, config, *size)
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        loss, _ = bench_rows.our_loss(0.1)(model, source, target)
        loss.backward()
    counted = counter.get_total_flops()
    expected = bench_rows.step_flops(config, *size)
    assert counted == expected


def test_the_endless_model_never_ends() -> None:
    config = QUICK.small()
    model = bench_rows.endless(config, torch.device("cpu"))
    source = bench_rows.random_ids(QUICK, config, 3, 6)
    logits = model(source, source)
    assert torch.equal(logits[..., [PAD, BOS, EOS]], torch.full((3, 6, 3), -50.0))
    assert logits[..., 3:].min() > -49
    outputs = bench_rows.our_greedy(model, source, 6)
    assert [len(ids) for ids in outputs] == [6, 6, 6]
    assert len({tuple(ids) for ids in outputs}) == 3, "the comparison needs outputs that differ"


def test_a_peer_that_computes_something_else_is_refused() -> None:
    config = QUICK.small()
    model = Transformer(config)
    theirs = peers.PyTorchTransformer(model)
    batch = bench_rows.teacher_batch(QUICK, config, 2, 5)
    losses = bench_rows.our_loss(0.1), bench_rows.pytorch_loss
    assert bench_rows.same_loss(model, theirs, *losses, *batch) == "loss"
    with torch.no_grad():
        theirs.core.encoder.layers[0].linear1.weight.mul_(1.1)
    with pytest.raises(AssertionError, match="losses differ"):
        bench_rows.same_loss(model, theirs, *losses, *batch)
    with pytest.raises(AssertionError, match="1 of 2 outputs equal"):
        bench_rows.same_ids([[4, 5], [6, 7]], [[4, 5], [6, 8]], 2)
    with pytest.raises(AssertionError, match="lengths differ"):
        bench_rows.same_ids([[4, 5]], [[4]], 2)


def test_plain_pytorch_has_dropout_everywhere_a_user_gets_it() -> None:
    theirs = bench_rows.plain_pytorch(Transformer(QUICK.small(dropout=0.25)))
    rates = [m.p for m in theirs.modules() if isinstance(m, torch.nn.Dropout)]
    rates += [m.dropout for m in theirs.modules() if isinstance(m, torch.nn.MultiheadAttention)]
    assert set(rates) == {0.25} and len(rates) == 1 + 3 + 4 + 3


def test_random_batches_hold_each_pair_once_within_the_limit() -> None:
    pairs = [([4] * (1 + i % 7), [1, *[4] * (i % 5), 2]) for i in range(50)]
    batches = bench_rows.random_batches(pairs, 20)
    assert sorted(i for batch in batches for i in batch) == list(range(50))
    for batch in batches:
        widest = max(max(len(pairs[i][0]), len(pairs[i][1]) - 1) for i in batch)
        assert widest * len(batch) <= 20


# --- memory and growth ----------------------------------------------------------------------------


def test_peak_memory_is_what_was_allocated() -> None:
    held = torch.ones(2**20)  # from before: does not count

    def prepare() -> Callable[[], None]:
        kept = torch.ones(2**18)  # 1 MiB

        def work() -> None:
            first = kept + held[: 2**18]
            second = torch.cat([first, kept])  # 1 + 1 + 2 MiB
            del first, second
            torch.ones(2**19)  # 1 + 2 MiB

        return work

    assert peak(prepare, torch.device("cpu")) == 4 * 2**20


def test_each_sweep_changes_one_size() -> None:
    plain = bench_growth.case("batch", bench_growth.ROWS)
    assert plain == (bench_growth.CONFIG, 8, 64)
    assert bench_growth.case("length", 128) == (bench_growth.CONFIG, 1, 128)
    changed = {
        "width": ("d_model", "d_ff"),
        "layers": ("layers",),
        "vocabulary": ("vocab_size",),
    }
    for sweep, names in changed.items():
        config, *size = bench_growth.case(sweep, 512)
        assert size == [8, 64]
        assert getattr(config, names[0]) == 512
        for name, value in vars(bench_growth.CONFIG).items():
            assert name in names or getattr(config, name) == value


# --- what is written ------------------------------------------------------------------------------


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run `bench.py` here."""
    monkeypatch.setattr(sys, "argv", ["bench.py", *arguments])
    bench.main()


def test_a_quick_run_writes_record_and_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["train-share", "greedy-small-uncached", "window-forward", "import", "buckets"]
    rows += ["large-pytorch", "large-share", "dense-backward"]  # a GPU's, in toy size
    command(monkeypatch, "--quick", *rows, "--output", str(tmp_path / "here.json"))
    record = json.loads((tmp_path / "here.json").read_text(encoding="utf-8"))
    check_record(record, set(rows))
    assert record["quick"] and record["rows"]["buckets"]["skipped"] == "needs --tatoeba FOLDER"
    greedy = record["rows"]["greedy-small-uncached"]
    low, middle, high = greedy["ratio"]
    assert low <= middle <= high and greedy["same"] == "3 of 3 outputs"
    assert middle == pytest.approx(greedy["theirs"] / greedy["ours"])  # one round
    table = (tmp_path / "here.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out == table
    assert table.count("\n| ") == len(rows) + 1
    assert "| own without cache |" in table and "needs --tatoeba FOLDER" in table


def check_record(record: dict[str, object], rows: set[str]) -> None:
    """The record names its machine and has these rows, each measured or skipped for a reason."""
    facts, lines = record["machine"], record["rows"]
    assert isinstance(facts, dict) and isinstance(lines, dict)
    assert facts["cores"] >= 1 and facts["threads"] >= 1 and facts["torch"] and facts["processor"]
    assert all(rate > 0.001 for rate in facts["matrix_tflops_per_s"].values())
    assert str(record["date"]).startswith("20") and set(lines) == rows
    for line in lines.values():
        assert line["work"] and line["versus"]
        if "skipped" not in line:
            assert len(line["ratio"]) == 3 and line["rounds"] >= 1 and line["dropped"] >= 0


def test_a_quick_growth_writes_its_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command(monkeypatch, "growth", "--quick", "--output", str(tmp_path / "growth.json"))
    record = json.loads((tmp_path / "growth.json").read_text(encoding="utf-8"))
    small, large = record["steps"]["batch"]
    assert (small["value"], large["value"]) == (1, 2)
    assert 2**16 < small["peak_bytes"] <= large["peak_bytes"]
    assert record["attention"]["window"][0]["seconds"] > 0


def test_a_missing_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(model: Transformer) -> None:
        raise ImportError("No module named 'transformers'", name="transformers")

    monkeypatch.setattr(peers, "marian", missing)
    record = bench.measure(bench.ROWS["greedy-small"], QUICK)
    assert record["skipped"] == "not installed: transformers"
    assert "| not installed: transformers |" in bench.line(record)
    monkeypatch.setattr(bench_rows, "find_spec", lambda name: None)
    record = bench.measure(bench.ROWS["greedy-ceiling-1"], QUICK)
    assert record["skipped"] == "not installed: ctranslate2"


def test_an_unknown_row_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command(monkeypatch, "grredy")
    assert "no row begins with 'grredy'" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="^no CUDA device here: nothing measured$"):
        command(monkeypatch, "--device", "cuda")


def test_the_committed_tables_hold_every_row() -> None:
    records = sorted(RUNS.glob("bench-*.json"))
    assert records
    for path in records:
        record = json.loads(path.read_text(encoding="utf-8"))
        device = "cuda" if "gpu" in record["machine"] else "cpu"
        check_record(record, {n for n, row in bench.ROWS.items() if row.device in ("", device)})
        assert not record["quick"]
        assert path.with_suffix(".md").read_text(encoding="utf-8") == bench.table(record)


def test_the_committed_growth_holds_every_point() -> None:
    record = json.loads((RUNS / "growth.json").read_text(encoding="utf-8"))
    assert not record["quick"] and record["config"] == vars(bench_growth.CONFIG)
    sweeps = {sweep: [p["value"] for p in points] for sweep, points in record["steps"].items()}
    assert sweeps == bench_growth.SWEEPS
    for points in [
        *record["steps"].values(),
        *(record["attention"][k] for k in ("window", "dense")),
    ]:
        assert all(p["seconds"] > 0 and p["peak_bytes"] > 2**20 for p in points)


def test_the_readme_shows_the_committed_table() -> None:
    readme = (RUNS.parent.parent / "README.md").read_text(encoding="utf-8")
    shown = readme.split("<!-- bench -->")[1].split("<!-- /bench -->")[0].strip()
    table = (RUNS / "bench-amd-epyc-2-cores.md").read_text(encoding="utf-8").strip()
    assert shown == table, "copy the table of data/runs between the README's two marks"
