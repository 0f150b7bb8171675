"""The package against outside oracles: nn.Transformer, Marian, exhaustive search, the cache's twin.

The parts have such tests in their own files; here stand the whole model and its decoding.
"""

import pytest
import torch
from peers import (
    PyTorchTransformer,
    copy,
    gradient,
    marian,
    marian_generate,
    marian_logits,
    marian_values,
    pytorch_values,
)

from transformer import (
    Transformer,
    TransformerConfig,
    beam_search,
    decoding,
    greedy_search,
)
from transformer.decoding import CachedDecoder
from transformer.loss import translation_loss
from transformer.positional_encoding import sinusoidal_encoding
from transformer.tokens import BOS, EOS, PAD, pad

PRECISION = {torch.float64: 1e-12, torch.float32: 1e-5}
SOURCE = torch.tensor([
    [4, 5, 6, 7, 8, 9, 10],
    [9, 4, 5, PAD, PAD, PAD, PAD],
    [11, PAD, PAD, PAD, PAD, PAD, PAD],
])  # fmt: skip
TARGET = torch.tensor([
    [BOS, 5, 6, 7, 8, EOS],
    [BOS, 7, EOS, PAD, PAD, PAD],
    [BOS, 4, 4, 9, EOS, PAD],
])  # fmt: skip


def small(dtype=torch.float32, **changes):
    """A small model whose biases and norms are no longer 0 and 1."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "d_model": 32, "heads": 4, "d_ff": 48, "layers": 3, "max_len": 40}
    model = Transformer(TransformerConfig(**{"dropout": 0.0} | sizes | changes)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def close(a, b, tolerance):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


def mean_loss(model):
    loss, count = translation_loss(model, SOURCE, TARGET)
    return loss / count


# --- nn.Transformer -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_nn_transformer_logits_loss_and_all_gradients(tied, norm_first, training, dtype):
    """Padding and causal masks; real positions only, for the fast path zeroes the others."""
    ours = small(dtype, norm_first=norm_first, tied=tied).train(training)
    theirs = PyTorchTransformer(ours).train(training)
    inputs = TARGET[:, :-1]
    real = inputs != PAD
    with torch.no_grad():  # in eval mode this takes the fast path
        close(ours(SOURCE, inputs)[real], theirs(SOURCE, inputs)[real], PRECISION[dtype])
    losses = mean_loss(ours), mean_loss(theirs)
    close(*losses, PRECISION[dtype])
    for loss in losses:
        loss.backward()
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    found = pytorch_values(ours, gradient)
    assert found.keys() == expected.keys()
    for name, mine in found.items():
        assert expected[name].abs().max() > 1e-4 or "in_proj_bias" in name
        close(mine, expected[name], PRECISION[dtype])


def parts(ours, theirs):
    """Pairs of modules that must give the same, by name."""
    for stack in ("encoder", "decoder"):
        mine, other = getattr(ours, stack), getattr(theirs.core, stack)
        yield stack, mine, other
        for i, (a, b) in enumerate(zip(mine.layers, other.layers, strict=True)):
            yield f"{stack} layer {i}", a, b
            yield f"{stack} {i} self-attention", a.self_attention, b.self_attn
            if stack == "decoder":
                yield f"{stack} {i} cross-attention", a.cross_attention, b.multihead_attn
            for number, residual in enumerate(a.residuals, 1):
                yield f"{stack} {i} norm {number}", residual.norm, getattr(b, f"norm{number}")


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
def test_every_part_of_nn_transformer(norm_first, dtype):
    """Stacks, layers, attentions and norms inside the whole model, one output each."""
    ours = small(dtype, norm_first=norm_first)
    theirs = PyTorchTransformer(ours)
    seen = {}

    def keep(key):
        def hook(module, inputs, output):
            seen[key] = output[0] if isinstance(output, tuple) else output

        return hook

    names = []
    for name, mine, other in parts(ours, theirs):
        names.append(name)
        mine.register_forward_hook(keep(("ours", name)))
        other.register_forward_hook(keep(("theirs", name)))
    inputs = TARGET[:, :-1]
    ours(SOURCE, inputs)
    theirs(SOURCE, inputs)
    assert len(names) == 2 + 3 * (1 + 1 + 2) + 3 * (1 + 2 + 3)
    for name in names:
        real = (SOURCE if name.startswith("encoder") else inputs) != PAD
        close(seen["ours", name][real], seen["theirs", name][real], PRECISION[dtype])


def test_the_comparison_finds_a_wrong_weight():
    ours = small(torch.float64)
    theirs = PyTorchTransformer(ours)
    with torch.no_grad():
        theirs.core.decoder.layers[1].multihead_attn.in_proj_weight[0, 0] += 1e-6
    difference = (ours(SOURCE, TARGET) - theirs(SOURCE, TARGET))[TARGET != PAD].abs().max()
    assert difference > 1e-10


def test_copying_refuses_other_names_shapes_and_head_widths():
    ours = small()
    values = pytorch_values(ours)
    with pytest.raises(ValueError, match="names differ"):
        copy(PyTorchTransformer(small(tied=False)), values)
    with pytest.raises(ValueError, match="does not fit"):
        copy(PyTorchTransformer(small(vocab_size=13)), values)
    with pytest.raises(ValueError, match="d_k is 5, the peers know d / h = 8"):
        PyTorchTransformer(small(d_k=5))


# --- Marian ---------------------------------------------------------------------------------------


@pytest.fixture
def transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers", reason="Marian is a part of `transformers`")


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_marian_logits_and_all_gradients(training, dtype):
    ours = small(dtype).train(training)
    theirs = marian(ours)
    assert theirs.training == training
    inputs, labels = TARGET[:, :-1], TARGET[:, 1:]
    real = inputs != PAD
    a, b = ours(SOURCE, inputs), marian_logits(theirs, SOURCE, inputs)
    close(a[real], b[real], PRECISION[dtype])
    counted = labels != PAD
    for logits in (a, b):
        torch.nn.functional.cross_entropy(logits[counted], labels[counted]).backward()
    expected = {n: p.grad for n, p in theirs.named_parameters() if p.requires_grad}
    found = marian_values(ours, gradient)
    assert found.keys() == expected.keys()
    for name, mine in found.items():
        close(mine, expected[name], PRECISION[dtype])


@pytest.mark.usefixtures("transformers")
def test_marian_has_our_positions_sines_first():
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    table = MarianSinusoidalPositionalEmbedding(50, 16).create_weight()
    ours = sinusoidal_encoding(50, 16)
    close(torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=1), table, 1e-6)


@pytest.mark.usefixtures("transformers")
def test_marian_refuses_what_it_is_not():
    for changes in ({"norm_first": True}, {"tied": False}):
        with pytest.raises(ValueError, match="Marian is Post-LN and tied"):
            marian(small(**changes))


LIMIT = 48  # no sentence below comes so far: all end by EOS


@pytest.fixture(scope="module")
def translators():
    """A random model whose sentences end, 64 random sources of 1 to 20 tokens, and its Marian.

    All is random but one row: EOS's is fitted so that its score climbs along the sentence and
    passes that of the words a little after the length of the source. Small word vectors let the
    positions be heard. In float64 no rounding decides between two words.
    """
    pytest.importorskip("transformers", reason="Marian is a part of `transformers`")
    torch.manual_seed(0)
    config = TransformerConfig(40, d_model=64, heads=4, d_ff=128, layers=2, max_len=64)
    model = Transformer(config).double().eval()
    lengths = torch.arange(64) % 20 + 1
    source = pad([torch.randint(4, 40, (n,)).tolist() for n in lengths.tolist()])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        model.output.weight *= 0.25
        model.decoder.layers[-1].residuals[-1].norm.weight *= 8
        prefix = torch.randint(4, 40, (64, LIMIT))
        prefix[:, 0] = BOS
        hidden = model.decode(prefix, model.encode(source), source)
        overdue = torch.arange(LIMIT) - lengths[:, None] - 4
        wanted = model.logits(hidden)[..., 4:].amax(-1) + overdue
        fit = torch.linalg.lstsq(hidden.flatten(0, 1), wanted.flatten()[:, None])
        model.output.weight[EOS] = fit.solution[:, 0]
    return model, source, marian(model)


def words(row):
    """The ids of a row without BOS, EOS and PAD, and whether EOS came."""
    ids = row.tolist()
    return tuple(i for i in ids if i not in (BOS, EOS, PAD)), EOS in ids


def test_marian_greedy_is_ours(translators):
    model, source, theirs = translators
    ours = greedy_search(CachedDecoder(model, source), 64, LIMIT)
    other = marian_generate(theirs, source, LIMIT)
    assert torch.equal(other[:, 1:], ours)  # theirs repeats BOS; PAD after EOS in both
    found = [words(row) for row in ours]
    assert all(ended for _, ended in found)
    assert len({len(ids) for ids, _ in found}) > 12  # lengths: 0 to about 30
    assert len(set(found)) > 30  # not one sentence over and over


def test_marian_at_the_limit(translators):
    """Cut off after 9 tokens; if told to, Marian puts EOS in the last place."""
    model, source, theirs = translators
    ours = greedy_search(CachedDecoder(model, source), 64, 9)
    assert torch.equal(marian_generate(theirs, source, 9)[:, 1:], ours)
    cut = torch.tensor([not words(row)[1] for row in ours])
    assert 10 < cut.sum() < 54
    expected = torch.where(cut & (torch.arange(9) == 8)[:, None], EOS, ours.T).T
    assert torch.equal(marian_generate(theirs, source, 9, forced_eos_token_id=EOS)[:, 1:], expected)


def marian_best(theirs, source, alpha, limit, **options):
    """Marian's four best of each source: (words, score)."""
    found = marian_generate(
        theirs, source, limit, beam=4, num_return_sequences=4, length_penalty=alpha,
        return_dict_in_generate=True, output_scores=True, **options,
    )  # fmt: skip
    best = [words(row)[0] for row in found.sequences]
    scores = found.sequences_scores.tolist()
    return [[*zip(best[i : i + 4], scores[i : i + 4])] for i in range(0, len(best), 4)]


def ours_best(model, source, alpha, limit):
    """The same of ours, in order of score."""
    found = beam_search(CachedDecoder(model, source), 64, limit, beam=4, alpha=alpha, n_best=4)
    return [[(h.ids, h.score) for h in sorted(best, key=lambda h: -h.score)] for best in found]


def compare(ours, theirs):
    """All 64 lists equal in words, order and score."""
    assert [[ids for ids, _ in best] for best in ours] == [[i for i, _ in best] for best in theirs]
    scores = [torch.tensor([[s for _, s in best] for best in lists]) for lists in (ours, theirs)]
    close(*scores, 1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_marian_beam_is_ours(translators, alpha, monkeypatch):
    """The four best of 64 sources, where the two searches differ and how that is switched off.

    - Marian divides by n^α, we by ((5 + n) / 6)^α; both count EOS. Ours is replaced by n^α.
    - Marian by default stops at a guess of what the living can still reach.
      `early_stopping="never"` takes the bound at the limit, which is ours.
    - Marian's own models force EOS at the limit: `forced_eos_token_id` is None here.
    - For Marian a hypothesis cut off by the limit is as good as its score; ours come after all
      that ended. Here none is cut off.
    """
    model, source, theirs = translators
    monkeypatch.setattr(decoding, "length_penalty", lambda length, alpha: length**alpha)
    ours = ours_best(model, source, alpha, LIMIT)
    compare(ours, marian_best(theirs, source, alpha, LIMIT, early_stopping="never"))
    assert len({len(best[0][0]) for best in ours}) > 12
    assert len({best[0][0] for best in ours}) > 24


def test_marian_beam_at_the_limit(translators):
    """After 9 tokens, α = 0: what ended is ours too; what was cut off has a better score than ours.

    Or is ours, where nothing ended at all.
    """
    model, source, theirs = translators
    ours = beam_search(CachedDecoder(model, source), 64, 9, beam=4, alpha=0.0)
    other = marian_best(theirs, source, 0.0, 9)
    longer = 0
    for (mine,), ((ids, score), *_) in zip(ours, other):
        if mine.ids == ids:
            assert mine.log_prob == pytest.approx(score, abs=1e-5)
        else:
            longer += 1
            assert mine.finished and mine.score < score
            assert len(ids) == 9
    assert 0 < longer < 16


def test_marian_differs_where_nothing_is_switched(translators):
    """So the penalty and the guess above are no idle switches: each changes answers."""
    model, source, theirs = translators
    never = marian_best(theirs, source, 1.0, LIMIT, early_stopping="never")
    guess = marian_best(theirs, source, 1.0, LIMIT)
    for other in (ours_best(model, source, 1.0, LIMIT), guess):
        assert any([i for i, _ in a] != [i for i, _ in b] for a, b in zip(other, never))
