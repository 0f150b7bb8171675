"""The package against outside oracles: nn.Transformer, Marian, exhaustive search, the cache's twin.

The parts have such tests in their own files; here stand the whole model and its decoding.
"""

import itertools
import math
import random
from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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
    EncoderOnly,
    MultiHeadAttention,
    Transformer,
    TransformerConfig,
    beam_search,
    decoding,
    greedy_search,
    sliding_window_attention,
)
from transformer.attention import attention, attention_weights, padding_mask
from transformer.decoder import Decoder
from transformer.decoding import CachedDecoder
from transformer.encoder import Encoder
from transformer.loss import cross_entropy, translation_loss
from transformer.positional_encoding import sinusoidal_encoding
from transformer.tokens import BOS, EOS, PAD, UNK, frame, pad

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
    model = Transformer(TransformerConfig(**{"dropout": 0.0} | sizes | changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.to(dtype)


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


# --- beam search against exhaustive search --------------------------------------------------------


class Tree:
    """Random log-probabilities after every prefix of every sentence, as a stepper over a batch.

    Each prefix has a row of its own, so a search that mixes up its rows finds other numbers.
    """

    def __init__(self, seed, words, batch=1):
        self.seed, self.size, self.steps = seed, 4 + words, Counter()
        self.alphabet = [EOS, UNK, *range(4, self.size)]  # all but PAD and BOS
        self.rows = [(sentence, ()) for sentence in range(batch)]

    def logits(self, sentence, prefix):
        rng = random.Random(f"{self.seed} {sentence} {prefix}")
        return [1.5 * rng.gauss(0, 1) for _ in range(self.size)]

    def log_probs(self, sentence, prefix):
        """What a search may choose from; the share of PAD and BOS is lost, not dealt out again."""
        logits = self.logits(sentence, prefix)
        total = math.log(sum(map(math.exp, logits)))
        return {word: logits[word] - total for word in self.alphabet}

    def step(self, tokens):
        tokens = tokens.reshape(-1).tolist()
        self.rows = [
            (sentence, (*prefix, token)) for (sentence, prefix), token in zip(self.rows, tokens)
        ]
        self.steps.update({sentence for sentence, _ in self.rows})
        assert all(prefix[0] == BOS for _, prefix in self.rows)
        return torch.tensor([[self.logits(s, prefix[1:])] for s, prefix in self.rows])

    def select(self, rows):
        self.rows = [self.rows[i] for i in rows.reshape(-1).tolist()]


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def exhaustive(tree, sentence, limit, alpha):
    """Every sentence that ends within the limit, best first, then every one that does not."""
    ended, cut = [], []
    for n in range(limit + 1):
        for ids in itertools.product(tree.alphabet[1:], repeat=n):
            total = sum(tree.log_probs(sentence, ids[:i])[word] for i, word in enumerate(ids))
            if n < limit:
                whole = total + tree.log_probs(sentence, ids)[EOS]
                ended.append((whole / penalty(n + 1, alpha), ids, True))
            else:
                cut.append((total / penalty(limit, alpha), ids, False))
    return sorted(ended, reverse=True) + sorted(cut, reverse=True)


def agree(found, expected):
    assert [(h.ids, h.finished) for h in found] == [(ids, ended) for _, ids, ended in expected]
    for h, (score, _, _) in zip(found, expected):
        assert h.score == pytest.approx(score, abs=1e-5)


ALPHA = st.sampled_from([0.0, 0.6, 1.0])


@given(st.integers(0, 10**6), ALPHA, st.integers(1, 4), st.integers(0, 2), st.integers(1, 3))
@settings(max_examples=300)
def test_a_wide_beam_is_exhaustive_search(seed, alpha, limit, words, batch):
    """All that ends, in order; and what the limit cuts off, where n_best leaves room for it."""
    for n_best in (1, 3, 150):
        tree = Tree(seed, words, batch)
        found = beam_search(tree, batch, limit, beam=150, alpha=alpha, n_best=n_best)
        for sentence in range(batch):
            agree(found[sentence], exhaustive(tree, sentence, limit, alpha)[:n_best])


def plain_beam(tree, sentence, limit, beam, alpha, n_best):
    """Beam search on lists that never stops early; and after how many steps it could have."""
    living, ended, needed = [(0.0, ())], [], limit
    for n in range(1, limit + 1):
        candidates = sorted(
            (
                (total + log_prob, (*ids, word))
                for total, ids in living
                for word, log_prob in tree.log_probs(sentence, ids).items()
            ),
            reverse=True,
        )
        ended += [
            (total / penalty(n, alpha), ids[:-1], True)
            for total, ids in candidates[:beam]
            if ids[-1] == EOS
        ]
        living = [(total, ids) for total, ids in candidates[: 2 * beam] if ids[-1] != EOS][:beam]
        ended.sort(reverse=True)
        reach = living[0][0] / penalty(limit, alpha)
        if needed == limit and len(ended) >= n_best and reach <= ended[n_best - 1][0]:
            needed = n
    cut = [(total / penalty(limit, alpha), ids, False) for total, ids in living]
    return (ended + cut)[:n_best], needed


@given(
    st.integers(0, 10**6), ALPHA, st.integers(1, 8), st.integers(0, 4), st.integers(1, 4),
    st.integers(1, 4), st.data(),
)  # fmt: skip
@settings(max_examples=300)
def test_a_narrow_beam_is_the_one_that_never_stops(seed, alpha, limit, words, batch, beam, data):
    """What ended is kept, and each sentence is left at the first step at which none can win."""
    n_best = data.draw(st.integers(1, beam))
    tree = Tree(seed, words, batch)
    found = beam_search(tree, batch, limit, beam=beam, alpha=alpha, n_best=n_best)
    for sentence in range(batch):
        expected, needed = plain_beam(tree, sentence, limit, beam, alpha, n_best)
        agree(found[sentence], expected)
        assert len({(h.ids, h.finished) for h in found[sentence]}) == len(found[sentence])
        assert tree.steps[sentence] == needed


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 4), st.integers(1, 5))
@settings(max_examples=200)
def test_greedy_takes_the_likeliest_word_of_each_row(seed, limit, words, batch):
    tree = Tree(seed, words, batch)
    for sentence, row in enumerate(greedy_search(tree, batch, limit).tolist()):
        ids = ()
        while len(ids) < limit and EOS not in ids:
            log_probs = tree.log_probs(sentence, ids)
            ids += (max(log_probs, key=log_probs.get),)
        assert row == [*ids, *[PAD] * (len(row) - len(ids))]
        assert tree.steps[sentence] == len(ids)


# --- the model behind the search ------------------------------------------------------------------


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def sources_of(lengths, seed=0):
    rng = random.Random(seed)
    return pad([[rng.randrange(3, 12) for _ in range(n)] for n in lengths])


@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@given(LENGTHS, st.integers(0, 3), st.randoms(use_true_random=False), ALPHA)
@settings(max_examples=15)
def test_neither_batch_nor_order_nor_padding_matter(norm_first, lengths, extra, rng, alpha):
    model = small(torch.float64, norm_first=norm_first).eval()
    source = sources_of(lengths)
    alone = [
        beam_search(CachedDecoder(model, row[None, :n]), 1, 8, beam=3, alpha=alpha, n_best=3)[0]
        for row, n in zip(source, lengths)
    ]
    order = rng.sample(range(len(lengths)), len(lengths))
    wider = torch.nn.functional.pad(source[order], (0, extra), value=PAD)
    together = beam_search(
        CachedDecoder(model, wider), len(lengths), 8, beam=3, alpha=alpha, n_best=3
    )
    greedy = greedy_search(CachedDecoder(model, wider), len(lengths), 8).tolist()
    for i, found, row in zip(order, together, greedy):
        assert [(h.ids, h.finished) for h in found] == [(h.ids, h.finished) for h in alone[i]]
        for a, b in zip(found, alone[i]):
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-5)
        one = greedy_search(CachedDecoder(model, source[i : i + 1, : lengths[i]]), 1, 8)[0].tolist()
        assert row == one + [PAD] * (len(row) - len(one))


@given(LENGTHS, st.integers(0, 99), ALPHA)
@settings(max_examples=25)
def test_n_best_is_sorted_distinct_and_re_scored_by_the_model(lengths, seed, alpha):
    model, source = small(vocab_size=12).eval(), sources_of(lengths, seed)
    decoder = CachedDecoder(model, source)
    results = beam_search(decoder, len(lengths), 7, beam=4, alpha=alpha, n_best=4)
    assert len(results) == len(lengths)
    for row, found in zip(source, results):
        assert len({(h.ids, h.finished) for h in found}) == 4
        assert found == sorted(found, key=lambda h: (not h.finished, -h.score))
        for h in found:
            path = frame(h.ids) if h.finished else [BOS, *h.ids]
            with torch.no_grad():
                log_probs = model(row[None], torch.tensor([path[:-1]]))[0].log_softmax(-1)
            total = log_probs[range(len(path) - 1), path[1:]].sum().item()
            assert h.log_prob == pytest.approx(total, abs=1e-5)
            assert h.score == pytest.approx(total / penalty(len(path) - 1, alpha), abs=1e-5)


class Checked:
    """A `CachedDecoder` that compares each step with the whole model run on the whole prefix."""

    def __init__(self, model, source):
        self.model, self.source, self.inner = model, source, CachedDecoder(model, source)
        self.prefix, self.steps = source[:, :0], 0

    def step(self, tokens):
        logits = self.inner.step(tokens)
        self.prefix = torch.cat([self.prefix, tokens], dim=1)
        self.steps += 1
        close(logits, self.model(self.source, self.prefix)[:, -tokens.size(1) :], 1e-5)
        return logits

    def select(self, rows):
        self.inner.select(rows)
        rows = rows.reshape(-1)
        self.source, self.prefix = self.source[rows], self.prefix[rows]


@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@given(LENGTHS, st.integers(0, 99))
@settings(max_examples=15)
def test_the_cache_changes_no_step_of_either_search(norm_first, lengths, seed):
    model = small(norm_first=norm_first).eval()
    source = sources_of(lengths, seed)
    decoder = Checked(model, source)
    length = greedy_search(decoder, len(lengths), 12).size(1)
    assert decoder.steps == length == decoder.prefix.size(1)
    decoder = Checked(model, source)
    beam_search(decoder, len(lengths), 12, beam=3, alpha=0.6)
    assert decoder.steps == decoder.prefix.size(1) >= 1


@given(st.integers(1, 12), st.integers(1, 14), st.integers(0, 10**6))
@settings(max_examples=50)
def test_a_window_over_a_cache_is_the_window(length, window, seed):
    """One token at a time, of which the last `window` keys are kept, through two layers."""
    torch.manual_seed(seed)
    sizes = TransformerConfig(12, d_model=16, heads=2, d_ff=32, layers=2, dropout=0.0)
    local = Encoder(sizes, partial(sliding_window_attention, window=window))
    dense = Encoder(sizes)
    dense.load_state_dict(local.state_dict())
    x = torch.randn(2, length, 16)
    whole = local(x)
    past = [(torch.empty(2, 2, 0, 8),) * 2 for _ in range(2)]
    for t in range(length):
        y = x[:, t : t + 1]
        for i, layer in enumerate(dense.layers):
            new = layer.self_attention.project_kv(y)
            past[i] = tuple(torch.cat(kv, 2)[:, :, -window:] for kv in zip(past[i], new))
            y = layer.residuals[0](
                y, lambda y, i=i: dense.layers[i].self_attention.attend(y, *past[i])
            )
            y = layer.residuals[1](y, layer.feed_forward)
        close(y, whole[:, t : t + 1], 1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_a_windowed_decoder_is_refused_by_the_cache_not_misread(training):
    """`CachedDecoder` hands the layers dense keys; a window says that it cannot read them."""
    model = small().train(training)
    model.decoder = Decoder(model.config, partial(sliding_window_attention, window=3))
    with pytest.raises(ValueError, match="need a padding mask"):
        model(SOURCE, TARGET)
    decoder = CachedDecoder(model, SOURCE)
    with torch.no_grad(), pytest.raises(ValueError, match="a window needs self-attention"):
        for _ in range(2):
            decoder.step(TARGET[:, :1])


# --- leaks, padding, rows that may read nothing ---------------------------------------------------


def ids(*shape):
    return torch.randint(3, 12, shape)


SHAPES = (st.integers(1, 3), st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**6))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@given(*SHAPES)
@settings(max_examples=20)
def test_no_logits_depend_on_a_later_token(norm_first, training, B, S, T, seed):
    model = small(torch.float64, layers=2, dropout=0.3, norm_first=norm_first).train(training)
    torch.manual_seed(seed)
    source, inputs = ids(B, S), ids(B, T)

    def logits(inputs):
        torch.manual_seed(7)  # the same dropout
        return model(source, inputs)

    before = logits(inputs)
    for t in range(T):
        other = inputs.clone()
        other[:, t] = (inputs[:, t] - 2) % 9 + 3
        change = (logits(other) - before).abs().amax(-1)
        assert (change[:, :t] <= 1e-12).all()
        assert (change[:, t:] > 1e-9).all()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@given(*SHAPES, st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=20)
def test_padding_changes_neither_logits_nor_gradients(
    norm_first, training, B, S, T, seed, extra_s, extra_t
):
    model = small(torch.float64, layers=2, norm_first=norm_first).train(training)
    torch.manual_seed(seed)
    source, target = ids(B, S), torch.cat([torch.full((B, 1), BOS), ids(B, T)], dim=1)
    seen = []
    for right_s, right_t in ((0, 0), (extra_s, extra_t)):
        wide_s = torch.nn.functional.pad(source, (0, right_s), value=PAD)
        wide_t = torch.nn.functional.pad(target, (0, right_t), value=PAD)
        loss, count = translation_loss(model, wide_s, wide_t)
        gradients = torch.autograd.grad(loss / count, list(model.parameters()))
        seen.append([model(wide_s, wide_t)[:, : T + 1].detach(), loss, *gradients])
        assert count == B * T
    for a, b in zip(*seen):
        close(a, b, 1e-12)


PATHS = {
    "plain": lambda q, k, v, mask: attention_weights(q, k, mask) @ v,
    "fused": attention,
    "window": partial(sliding_window_attention, window=2),
    "window, both ways": partial(sliding_window_attention, window=2, causal=False),
}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_a_row_that_may_read_nothing_gives_zero_and_finite_gradients(path, dtype):
    """Case M1, on every path; scores are large, so that a fill of -1e9 or -inf would show."""
    q, k, v = ((30 * torch.randn(2, 2, 5, 4)).to(dtype).requires_grad_() for _ in range(3))
    mask = torch.tensor([[True, True, True, False, False], [False] * 5])[:, None, None]
    out = PATHS[path](q, k, v, mask)
    assert out.isfinite().all()
    assert (out[1] == 0).all() and (out[0, :, :3] != 0).any(-1).all()
    if path == "window":
        assert (out[0, :, 4] == 0).all()  # position 4 reads 3 and 4
    gradients = torch.autograd.grad(out.float().pow(2).sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[1] == 0).all() for gradient in gradients)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_a_sentence_of_padding_leaves_only_the_bias(path, dtype):
    """Case M1, through the layer: at once, and by `project_kv` and `attend`, as the cache does."""
    layer = MultiHeadAttention(8, 2, attention=PATHS[path]).to(dtype)
    with torch.no_grad():
        layer.w_o.bias.normal_()
    x, mask = torch.randn(2, 4, 8).to(dtype), padding_mask(torch.tensor([[5, 6, 7, 0], [PAD] * 4]))
    for out in (layer(x, mask=mask), layer.attend(x, *layer.project_kv(x), mask)):
        assert torch.equal(out[1], layer.w_o.bias.expand(4, 8))
        gradients = torch.autograd.grad(out.float().pow(2).sum(), list(layer.parameters()))
        assert all(gradient.isfinite().all() for gradient in gradients)


PADDED = torch.tensor([[4, 5, 6], [PAD, PAD, PAD], [7, PAD, PAD]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
def test_every_precision_trains_and_decodes_beside_a_source_of_padding(norm_first, dtype):
    """Cases M1(a) and T9: loss, gradients and cached steps are finite, neighbours as if alone."""
    model = small(dtype, norm_first=norm_first, layers=2).eval()
    target = torch.tensor([[1, 5, 2, 0, 0], [1, 5, 6, 7, 2], [1, 9, 2, 0, 0]])
    loss, count = translation_loss(model, PADDED, target)
    assert count == 8 and loss.isfinite()
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    exact = translation_loss(small(torch.float64, norm_first=norm_first, layers=2), PADDED, target)
    assert loss.item() == pytest.approx(exact[0].item(), rel=0.01)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    with torch.no_grad():
        full = model(PADDED, target[:, :4])
        decoder = CachedDecoder(model, PADDED)
        steps = torch.cat([decoder.step(target[:, t : t + 1]) for t in range(4)], dim=1)
    assert full.isfinite().all() and steps.isfinite().all()
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 0.1)
    real = target[:, :4] != PAD
    close(steps[real], full[real], tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_precision_survives_a_window_in_the_padding(dtype):
    """Case M1(b): 16 positions, causal window 4, the last 12 are PAD."""
    sizes = TransformerConfig(12, d_model=16, heads=2, d_ff=32, layers=3, dropout=0.0)
    model = EncoderOnly(sizes, partial(sliding_window_attention, window=4)).to(dtype)
    row = torch.cat([ids(1, 4), torch.full((1, 12), PAD)], dim=1)
    logits = model(row)
    assert logits.isfinite().all()
    close(logits[:, :4].double(), model(row[:, :4]).double(), 1e-6 if dtype.itemsize > 2 else 0.05)
    loss = cross_entropy(logits, row, 0.1)
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_every_precision_prices_a_probability_of_zero(smoothing, dtype):
    """Case T1: scores as far apart as float16 can hold; log(softmax) would be -inf."""
    logits = torch.tensor([[0.0, -60_000.0, 60_000.0, 0.0]], dtype=dtype, requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([1]), smoothing)
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()
    z = logits.detach().double()[0]
    by_hand = z[2] - (1 - smoothing) * z[1] - smoothing * z.mean()
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-6)
