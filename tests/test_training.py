"""transformer.training: batches, schedule, Adam, accumulation, checkpoints, resuming."""

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer import Tokenizer, Trainer, TrainingConfig, Transformer, TransformerConfig
from transformer import training as tr
from transformer.tokens import frame, pad

PAIRS = [([4 + i % 9, 5 + i % 7], frame([4 + i % 9] * (1 + i % 5))) for i in range(60)]


def tiny_model(dropout=0.1, seed=0, vocab_size=14):
    torch.manual_seed(seed)
    return Transformer(
        TransformerConfig(
            vocab_size, d_model=16, heads=2, d_ff=32, layers=1, dropout=dropout, max_len=16
        )
    )


def tiny_trainer(folder=None, **changes):
    recipe = TrainingConfig(epochs=2, max_tokens=30, warmup=5, save_every=10_000)
    return Trainer(tiny_model(), PAIRS, replace(recipe, **changes), folder, progress=False)


# Batches


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=200),
    st.integers(31, 200),
    st.integers(0, 100),
    st.integers(1, 10),
)
@settings(max_examples=100, deadline=None)
def test_batches_hold_each_pair_once_and_keep_the_limit(sizes, max_tokens, seed, pool):
    pairs = [([5] * source, frame([5] * (target - 1))) for source, target in sizes]
    batches = tr.token_batches(pairs, max_tokens, seed, pool)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    for batch in batches:
        assert batch
        assert len(batch) * max(len(pairs[i][0]) for i in batch) <= max_tokens
        assert len(batch) * max(len(pairs[i][1]) - 1 for i in batch) <= max_tokens
    assert batches == tr.token_batches(pairs, max_tokens, seed, pool)


def test_batches_differ_between_seeds_and_waste_little():
    lengths = torch.randint(1, 40, (5000,), generator=torch.Generator().manual_seed(0)).tolist()
    pairs = [([5] * n, frame([5] * n)) for n in lengths]
    batches = tr.token_batches(pairs, 1000, seed=0)
    assert batches != tr.token_batches(pairs, 1000, seed=1)
    real = sum(lengths[i] for batch in batches for i in batch)
    filled = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    assert real / filled > 0.95


def test_batches_do_not_come_in_order_of_length():
    pairs = [([5] * n, frame([5] * n)) for n in range(1, 40)]
    widths = [len(pairs[batch[-1]][0]) for batch in tr.token_batches(pairs, 50)]
    assert widths != sorted(widths)
    assert sum(a < b for a, b in itertools.pairwise(widths)) < 0.7 * len(widths)


def test_batches_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"longest of 6 tokens.*max_tokens 5"):
        tr.token_batches([([5] * 6, frame([5]))], 5)
    with pytest.raises(ValueError, match="0 pairs"):
        tr.token_batches([], 5)
    with pytest.raises(ValueError, match="pool is 0"):
        tr.token_batches(PAIRS, 50, pool=0)


# The schedule


def test_schedule_values_of_the_paper():
    """Case T6."""
    for step, rate in ((1, 1.746928e-07), (4000, 6.987712e-04), (16_000, 3.493856e-04)):
        assert tr.noam_rate(step, 512, 4000) == pytest.approx(rate, rel=1e-6)
    rates = [tr.noam_rate(step, 512, 400) for step in range(1, 2000)]
    assert rates.index(max(rates)) + 1 == 400


@pytest.mark.parametrize(("step", "warmup"), [(0, 4000), (-1, 4000), (1, 0)])
def test_schedule_refuses_step_zero(step, warmup):
    """Case T6."""
    with pytest.raises(ValueError, match=f"step {step} and warmup {warmup}"):
        tr.noam_rate(step, 512, warmup)
    with pytest.raises(ValueError, match="d_model is 0"):
        tr.noam_rate(1, 0)


# One update


def test_first_update_is_adam_with_the_scheduled_rate():
    """The first Adam step is rate · g / (|g| + ε) for each parameter, whatever its size."""
    trainer = tiny_trainer(clip=1e9)
    trainer.model = tiny_model(dropout=0.0).double()
    trainer.__post_init__()
    before = {n: w.detach().clone() for n, w in trainer.model.named_parameters()}
    source, target = pad([PAIRS[0][0]]), pad([PAIRS[0][1]])
    loss, tokens = tr.translation_loss(trainer.model, source, target, 0.1)
    gradients = torch.autograd.grad(loss / tokens, list(trainer.model.parameters()))
    reported = trainer.update([[0]])
    assert reported == pytest.approx(loss.item() / tokens, abs=1e-12)
    rate = tr.noam_rate(1, 16, 5, trainer.config.factor)
    for (name, weight), g in zip(trainer.model.named_parameters(), gradients):
        expected = before[name] - rate * g / (g.abs() + 1e-9)
        torch.testing.assert_close(weight.detach(), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("clip", [1e9, 0.2])
def test_two_updates_are_adam_by_hand(clip):
    """β = (0.9, 0.98), ε = 1e-9 (§5.3), the rate of step 1 and then of step 2; means clipped."""
    trainer = tiny_trainer(clip=clip)
    trainer.model = tiny_model(dropout=0.0).double()
    trainer.__post_init__()
    weights = list(trainer.model.parameters())
    expected = [w.detach().clone() for w in weights]
    m, v = ([torch.zeros_like(w) for w in expected] for _ in range(2))
    norms = []
    for t, i in enumerate((0, 7), 1):
        source, target = pad([PAIRS[i][0]]), pad([PAIRS[i][1]])
        loss, tokens = tr.translation_loss(trainer.model, source, target, 0.1)
        rate = tr.noam_rate(t, 16, 5, trainer.config.factor)
        gradients = torch.autograd.grad(loss / tokens, weights)
        norm = sum(g.pow(2).sum() for g in gradients).sqrt().item()
        norms.append(norm)
        for k, g in enumerate(gradients):
            g = g * min(1.0, clip / (norm + 1e-6))
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.98 * v[k] + 0.02 * g**2
            step = m[k] / (1 - 0.9**t) / ((v[k] / (1 - 0.98**t)).sqrt() + 1e-9)
            expected[k] = expected[k] - rate * step
        trainer.update([[i]])
        for weight, wanted in zip(weights, expected):
            torch.testing.assert_close(weight.detach(), wanted, atol=1e-11, rtol=0)
    if clip < 1:  # both are clipped, by different factors: Adam would hide a common one
        assert min(norms) > clip and max(norms) > 1.1 * min(norms)


def test_an_update_is_made_in_training_mode():
    losses = []
    for dropout in (0.0, 0.5):
        trainer = tiny_trainer()
        trainer.model = tiny_model(dropout=dropout).eval()
        trainer.__post_init__()
        losses.append(trainer.update([[0, 1, 2, 3]]))
        assert trainer.model.training
    assert losses[0] != losses[1]


def test_every_epoch_has_batches_of_its_own():
    trainer = tiny_trainer()
    first = trainer.updates()
    assert trainer.updates() == first
    trainer.epoch = 1
    assert trainer.updates() != first


def test_accumulation_equals_the_joined_batch():
    weights = []
    for group in ([[0, 1, 2], [3, 4, 9, 14]], [[0, 1, 2, 3, 4, 9, 14]]):
        trainer = tiny_trainer(clip=0.1)
        trainer.model = tiny_model(dropout=0.0).double()
        trainer.__post_init__()
        trainer.update(group)
        weights.append(torch.cat([w.detach().flatten() for w in trainer.model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-9, rtol=0)


def test_accumulation_groups_the_batches():
    one, three = tiny_trainer().updates(), tiny_trainer(accumulate=3).updates()
    assert [batch for group in three for batch in group] == [group[0] for group in one]
    assert {len(group) for group in three[:-1]} == {3}


def test_an_update_that_breaks_off_leaves_no_gradient_behind(monkeypatch):
    """Ctrl-C after the backward pass; the next update is as if it had been the first."""
    broken, whole = (
        Trainer(tiny_model(dropout=0.0), PAIRS, TrainingConfig(), progress=False) for _ in range(2)
    )

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tr.nn.utils, "clip_grad_norm_", interrupt)
        with pytest.raises(KeyboardInterrupt):
            broken.update([[9, 10]])
    assert broken.step == 0
    assert broken.update([[0, 1]]) == whole.update([[0, 1]])
    for a, b in zip(broken.model.parameters(), whole.model.parameters()):
        assert torch.equal(a, b)


def test_a_gradient_that_is_not_finite_stops_although_the_loss_is():
    trainer = tiny_trainer()
    before = [w.detach().clone() for w in trainer.model.parameters()]
    trainer.model.output.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(ValueError, match=r"loss is \d.* at update 1, the norm of its gradient inf"):
        trainer.update([[0, 1]])
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters()))
    assert trainer.step == 0


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([], ValueError, "no pairs to train on"),
        ([("我 爱 你", "I love you")], TypeError, "pair 1 is text, need token ids"),
        ([([4], [1, 5, 2]), ([], [1, 5, 2])], ValueError, "pair 2: 0 source and 3 target ids"),
        ([([4], [1])], ValueError, "pair 1: 1 source and 1 target ids"),
        ([([4] * 17, [1, 2])], ValueError, "pair 1: 17 tokens are past the limit max_len = 16"),
        ([([4], [1] * 18)], ValueError, "pair 1: 17 tokens are past the limit max_len = 16"),
        ([([14], [1, 2])], ValueError, "pair 1: token id 14 is outside the vocabulary of 14"),
        ([([4], [1, -1, 2])], ValueError, "pair 1: token id -1 is outside the vocabulary"),
    ],
)
def test_bad_pairs_are_refused_before_the_first_update(pairs, error, message):
    with pytest.raises(error, match=message):
        Trainer(tiny_model(), pairs, progress=False)
    Trainer(tiny_model(), [([4] * 16, [1] * 17)], progress=False)  # exactly at the limit


def test_an_update_without_a_batch_is_refused():
    for group, message in (([], "no batch in this update"), ([[]], "empty batch")):
        with pytest.raises(ValueError, match=message):
            tiny_trainer().update(group)


def test_not_a_number_stops_and_keeps_the_weights():
    trainer = tiny_trainer()
    with torch.no_grad():
        trainer.model.output.weight[5] = math.nan
    before = [w.detach().clone() for w in trainer.model.parameters()]
    with pytest.raises(ValueError, match="loss is nan at update 1"):
        trainer.update([[0, 1]])
    for old, new in zip(before, trainer.model.parameters()):
        assert torch.equal(old.nan_to_num(7), new.detach().nan_to_num(7))


def test_bfloat16_keeps_float32_weights_and_a_close_loss():
    a = tiny_trainer().update([[0, 1, 2, 3]])  # each trainer seeds dropout when it is made
    mixed = tiny_trainer(precision="bfloat16")
    b = mixed.update([[0, 1, 2, 3]])
    assert a != b
    assert a == pytest.approx(b, rel=0.02)
    assert all(w.dtype == torch.float32 and w.isfinite().all() for w in mixed.model.parameters())


# Checkpoints


def test_resuming_is_bit_identical_in_the_same_process(tmp_path):
    """Case T12, in the middle of an epoch and at its end."""
    whole = tiny_trainer()
    losses = whole.fit()
    per_epoch = len(whole.updates())
    for stop in (3, per_epoch):
        killed = tiny_trainer(tmp_path)
        for group in killed.updates()[:stop]:
            killed.losses.append(killed.update(group))
            killed.batch += 1
        if stop == per_epoch:
            killed.epoch, killed.batch = 1, 0
        killed.save()
        torch.manual_seed(12345)
        resumed = tiny_trainer(tmp_path)
        resumed.resume()
        assert resumed.fit() == losses
        for a, b in zip(whole.model.parameters(), resumed.model.parameters()):
            assert torch.equal(a, b)


CHILD = """
import json, sys
sys.path.insert(0, {tests!r})
import test_training as t
from pathlib import Path
trainer = t.tiny_trainer(Path({folder!r}))
if {resume}:
    trainer.resume()
updates = trainer.updates()
for group in updates[trainer.batch:{until}]:
    trainer.losses.append(trainer.update(group)); trainer.batch += 1
trainer.save()
print(json.dumps(trainer.losses))
"""


def test_resuming_in_a_new_process_with_another_hash_seed(tmp_path):
    """Case T12: 6 updates against 3 + save + new process + 3."""

    def child(folder, resume, until, hash_seed):
        folder.mkdir(exist_ok=True)
        code = CHILD.format(
            tests=str(tr.Path(__file__).parent), folder=str(folder), resume=resume, until=until
        )
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": hash_seed, "PATH": "", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        return json.loads(result.stdout)

    whole = child(tmp_path / "a", False, 6, "0")
    assert len(whole) == 6
    assert child(tmp_path / "b", False, 3, "1") == whole[:3]
    assert child(tmp_path / "b", True, 6, "2") == whole
    a, _ = tr.read_tensors(tmp_path / "a" / "checkpoint.safetensors")
    b, _ = tr.read_tensors(tmp_path / "b" / "checkpoint.safetensors")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_checkpoint_holds_nothing_pickled(tmp_path):
    """Case T13: only tensors and JSON, whatever torch.load's default is."""
    trainer = tiny_trainer(tmp_path)
    trainer.update([[0]])
    trainer.save()
    raw = (tmp_path / "checkpoint.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    assert json.loads(header["__metadata__"]["facts"])["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_foreign_and_damaged_checkpoints_are_refused(tmp_path):
    trainer = tiny_trainer(tmp_path)
    trainer.save()
    with pytest.raises(ValueError, match="another configuration"):
        tiny_trainer(tmp_path, seed=7).resume()
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged"):
        tiny_trainer(tmp_path).resume()
    path.write_text("<html>404</html>")
    with pytest.raises(ValueError, match="damaged"):
        tiny_trainer(tmp_path).resume()
    path.unlink()
    with pytest.raises(ValueError, match="no such file"):
        tiny_trainer(tmp_path).resume()


def test_a_checkpoint_of_another_model_or_other_data_is_refused(tmp_path):
    tiny_trainer(tmp_path).save()
    recipe = tiny_trainer().config
    for model, pairs, name in (
        (tiny_model(dropout=0.2), PAIRS, "model"),
        (tiny_model(), PAIRS[1:], "data set"),
        (tiny_model(), PAIRS[::-1], "data set"),
    ):
        with pytest.raises(ValueError, match=f"written by a run with another {name}"):
            Trainer(model, pairs, recipe, tmp_path).resume()
    tr.save(tiny_model(vocab_size=6), Tokenizer.train(["a b"]), tmp_path)
    (tmp_path / "weights.safetensors").rename(tmp_path / "checkpoint.safetensors")
    with pytest.raises(ValueError, match="another configuration, None"):
        tiny_trainer(tmp_path).resume()


def test_a_trainer_without_folder_has_no_checkpoint():
    for call in (tiny_trainer().save, tiny_trainer().resume):
        with pytest.raises(ValueError, match="no folder for a checkpoint"):
            call()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_save_that_dies_leaves_the_old_checkpoint(tmp_path, monkeypatch, stop):
    trainer = tiny_trainer(tmp_path)
    trainer.update([[0, 1]])
    trainer.save()
    old = trainer.checkpoint().read_bytes()
    trainer.update([[2, 3]])

    def half(tensors, path, metadata):
        path.write_bytes(b"half")
        raise stop

    monkeypatch.setattr(tr, "save_file", half)
    with pytest.raises(type(stop) if isinstance(stop, Exception) else stop):
        trainer.save()
    assert trainer.checkpoint().read_bytes() == old
    again = tiny_trainer(tmp_path)
    again.resume()
    assert again.step == 1


def test_what_the_library_cannot_write_is_an_error_of_the_system(tmp_path):
    (tmp_path / "w.safetensors.partial").mkdir()
    with pytest.raises(OSError, match=r"w\.safetensors: "):
        tr.write_tensors(tmp_path / "w.safetensors", {"x": torch.zeros(3)}, {})


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "w.safetensors"
    tr.write_tensors(path, {"x": torch.zeros(3)}, {})

    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tr, "save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        tr.write_tensors(path, {"x": torch.ones(3)}, {})
    assert torch.equal(tr.read_tensors(path)[0]["x"], torch.zeros(3))


# Models on disk


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_save_load_same_logits(tmp_path, tied, norm_first):
    tokenizer = Tokenizer.train(["我 爱 中国 I love China you"])
    config = TransformerConfig(
        len(tokenizer), d_model=16, heads=2, d_ff=32, layers=2, tied=tied, norm_first=norm_first
    )
    model = Transformer(config).eval()
    tr.save(model, tokenizer, tmp_path / "m")
    again, vocabulary = tr.load(tmp_path / "m")
    source, target = pad([tokenizer.encode("我 爱 中国")]), pad([frame([4, 5])])
    assert torch.equal(model(source, target), again(source, target))
    assert again.config == config
    assert not again.training
    assert vocabulary.decode(vocabulary.encode("I love China")) == "I love China"
    assert (again.output is again.source_embedding) == tied


def test_load_names_what_is_missing_or_damaged(tmp_path):
    tokenizer = Tokenizer.train(["a b"])
    tr.save(tiny_model(vocab_size=len(tokenizer)), tokenizer, tmp_path)
    for name in ("config.json", "vocabulary.json", "weights.safetensors"):
        good = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(good[: len(good) // 2])
        with pytest.raises(ValueError, match=name):
            tr.load(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(ValueError, match=f"no {name}"):
            tr.load(tmp_path)
        (tmp_path / name).write_bytes(good)
    tr.load(tmp_path)


def saved(folder, words, seed=0):
    """A translator of two words in `folder`; the vocabularies are of one size."""
    tokenizer = Tokenizer.train([words])
    model = tiny_model(vocab_size=len(tokenizer), seed=seed)
    tr.save(model, tokenizer, folder)
    return model, tokenizer


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_save_that_dies_is_the_old_model_or_the_new_or_none(tmp_path, monkeypatch, renames):
    """Killed before the first, second, third rename of three; never new words on old weights."""
    old, _ = saved(tmp_path, "a b")
    done, replace = [], tr.os.replace

    def mortal(source, target):
        inside = tr.Path(target).parent == tmp_path  # the three files, not their parts beside
        if inside and len(done) == renames:
            raise KeyboardInterrupt
        done.extend([target] * inside)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(tr.os, "replace", mortal)
        if renames < 3:
            with pytest.raises(KeyboardInterrupt):
                saved(tmp_path, "c d", seed=1)
        else:
            saved(tmp_path, "c d", seed=1)
    assert {path.name for path in tmp_path.iterdir()} == set(tr.PARTS)
    if renames in (0, 1):  # the configurations are equal, so one rename changes nothing
        model, tokenizer = tr.load(tmp_path)
        assert tokenizer.tokens("a") == ["a"]
        assert torch.equal(model.output.weight, old.output.weight)
    elif renames == 2:
        with pytest.raises(ValueError, match="weights were saved with another config.json or voc"):
            tr.load(tmp_path)
    else:
        assert tr.load(tmp_path)[1].tokens("c") == ["c"]


@pytest.mark.parametrize("name", ["config.json", "vocabulary.json", "weights.safetensors"])
def test_parts_of_two_models_are_no_model(tmp_path, name):
    saved(tmp_path / "a", "a b")
    tokenizer = Tokenizer.train(["c d"])
    other = replace(tiny_model(vocab_size=6).config, heads=4)  # the same shapes
    tr.save(Transformer(other), tokenizer, tmp_path / "c")
    (tmp_path / "a" / name).write_bytes((tmp_path / "c" / name).read_bytes())
    with pytest.raises(ValueError, match="another config.json or vocabulary.json"):
        tr.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "argument after"),
        ("null", "argument after"),
        ('"text"', "argument after"),
        ('{"kind": "word"}', "unexpected keyword argument 'kind'"),
        ("{}", "missing 1 required positional argument"),
        ('{"vocab_size": "6"}', "vocab_size is '6'"),
        ('{"vocab_size": -6}', "vocab_size is -6"),
        ('{"vocab_size": 6, "d_model": 16.0}', r"d_model is 16\.0"),
        ('{"vocab_size": 6, "dropout": "0.1"}', r"dropout is '0\.1'"),
        ('{"vocab_size": 6, "dropout": null}', "dropout is None"),
        ('{"vocab_size": 6, "tied": "no"}', "tied is 'no'"),
        ('{"vocab_size": 6, "heads": 7}', "not a multiple of heads 7"),
        ("<html>404</html>", "Expecting value"),
        (b"\xff", "codec can't decode"),
    ],
)
def test_a_configuration_that_is_none_is_named(tmp_path, content, message):
    saved(tmp_path, "a b")
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "config.json").write_bytes(raw)
    with pytest.raises(ValueError, match=rf"config\.json: not a model configuration .*{message}"):
        tr.load(tmp_path)


def test_a_configuration_with_a_size_left_out_is_not_filled_up(tmp_path):
    """Without "heads" the default would fit the weights, and be another model."""
    model, _ = saved(tmp_path, "a b")
    sizes = {"vocab_size": 6, "d_model": 16, "d_ff": 32, "layers": 1, "max_len": 16}
    assert Transformer(TransformerConfig(**sizes)).config.heads != model.config.heads
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    with pytest.raises(ValueError, match=r"another config\.json"):
        tr.load(tmp_path)


def test_a_vocabulary_of_another_size_is_not_saved(tmp_path):
    saved(tmp_path, "a b")
    with pytest.raises(ValueError, match="a vocabulary of 6, the tokenizer one of 7"):
        tr.save(tiny_model(vocab_size=6), Tokenizer.train(["a b c"]), tmp_path)
    assert len(tr.load(tmp_path)[1]) == 6


def test_weights_of_another_model_are_refused():
    weights = tr.named_weights(tiny_model())
    with pytest.raises(ValueError, match=r"shape \(14, 16\), need \(15, 16\)"):
        tr.load_weights(tiny_model(vocab_size=15), weights)
    other, untouched = tiny_model(seed=1), tiny_model(seed=1)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):  # of the last: none may be copied
        tr.load_weights(other, weights | {list(weights)[-1]: torch.zeros(3)})
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), untouched.parameters()))
    weights.pop("source_embedding.weight")
    with pytest.raises(ValueError, match="do not fit"):
        tr.load_weights(tiny_model(), weights)


def test_average_is_the_mean():
    a, b = tr.named_weights(tiny_model(seed=0)), tr.named_weights(tiny_model(seed=1))
    mean = tr.average_weights([a, b])
    for name in a:
        torch.testing.assert_close(mean[name], (a[name] + b[name]) / 2)
    with pytest.raises(ValueError, match="no checkpoints"):
        tr.average_weights([])
    x, y = torch.zeros(2), torch.zeros(3)
    for other in ({"a": y}, {"b": x}, {"a": x, "b": x}, {}):
        with pytest.raises(ValueError, match="different models"):
            tr.average_weights([{"a": x}, other])


def test_exact_match():
    assert tr.exact_match(["a", "b", "c"], ["a", "b", "d"]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="1 hypotheses for 2 references"):
        tr.exact_match(["a"], ["a", "b"])
    with pytest.raises(TypeError, match="not one string"):
        tr.exact_match("abc", "abd")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"precision": "float16"}, "precision is 'float16'"),
        ({"epochs": 1.5}, "epochs is 1.5, need an integer of at least 1"),
        ({"epochs": "3"}, "epochs is '3'"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"accumulate": True}, "accumulate is True"),
        ({"warmup": -1}, "warmup is -1"),
        ({"save_every": 0}, "save_every is 0"),
        ({"seed": -1}, "seed is -1, need an integer of at least 0"),
        ({"smoothing": 1.0}, "smoothing is 1.0, need 0 ≤ smoothing < 1"),
        ({"smoothing": -0.1}, "smoothing is -0.1"),
        ({"clip": 0.0}, "clip is 0.0, need more than 0"),
        ({"clip": -1.0}, "clip is -1.0"),  # it would climb
        ({"factor": -1.0}, "factor is -1.0"),
        ({"factor": math.nan}, "factor is nan"),
    ],
)
def test_configuration_is_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes)


def test_training_learns():
    trainer = tiny_trainer(epochs=8, factor=0.5)
    losses = trainer.fit()
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
