"""transformer.decoding: searches against tables and brute force, cache against the full pass."""

import itertools
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer import (
    Tokenizer,
    Transformer,
    TransformerConfig,
    beam_search,
    bleu,
    greedy_search,
    translate,
)
from transformer.decoding import CachedDecoder, length_penalty
from transformer.tokens import BOS, EOS, PAD, pad

A, B = 4, 5


class Table:
    """Next-token probabilities by last token, or by (step, row) when `script` is given."""

    def __init__(self, rows):
        self.log_probs, self.steps = torch.tensor(rows).log(), 0

    def step(self, tokens):
        self.steps += 1
        return self.log_probs[tokens]

    def select(self, rows):
        pass


class Script:
    """Row r emits script[r][t] at step t with certainty, whatever it is fed; counts its steps."""

    def __init__(self, script, vocab_size=6):
        self.script, self.vocab_size, self.steps = torch.tensor(script), vocab_size, 0

    def step(self, tokens):
        assert len(tokens) == len(self.script)
        logits = torch.full((len(tokens), 1, self.vocab_size), -30.0)
        chosen = self.script[:, min(self.steps, self.script.size(1) - 1)]
        self.steps += 1
        return logits.scatter(2, chosen[:, None, None], 30.0)

    def select(self, rows):
        self.script = self.script[rows.flatten()]


GARDEN = [
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.1, 0.0, 0.5, 0.4],
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.4, 0.0, 0.35, 0.25],
    [0.0, 0.0, 0.9, 0.0, 0.05, 0.05],
]


def random_rows(seed, words=2):
    size = 4 + words
    rows = torch.rand(size, size, generator=torch.Generator().manual_seed(seed))
    rows[:, [PAD, BOS]] = 0
    return (rows / rows.sum(1, keepdim=True)).tolist()


def small_model(seed=0, norm_first=False, vocab_size=12, max_len=32):
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size,
        d_model=16,
        heads=2,
        d_ff=32,
        layers=2,
        dropout=0.1,
        norm_first=norm_first,
        max_len=max_len,
    )
    return Transformer(config).eval()


def random_sources(lengths, vocab_size=12, seed=0):
    rng = random.Random(seed)
    return pad([[rng.randrange(4, vocab_size) for _ in range(n)] for n in lengths])


# Greedy


def test_greedy_stops_at_eos_and_pads():
    """Case D1: row 1 emits A EOS B B, row 2 A A A EOS; four steps, PAD after EOS."""
    script = Script([[A, EOS, B, B, B], [A, A, A, EOS, B]])
    found = greedy_search(script, batch=2, limit=20)
    assert found.tolist() == [[A, EOS, PAD, PAD], [A, A, A, EOS]]
    assert script.steps == 4


def test_text_holds_no_special_tokens():
    """Case D1."""
    tokenizer = Tokenizer.train(["a b"])
    assert tokenizer.decode([BOS, 4, EOS, PAD, PAD]) == tokenizer.decode([4])


def test_greedy_stops_at_the_limit_without_eos():
    script = Script([[A]])
    assert greedy_search(script, 1, limit=3).tolist() == [[A, A, A]]
    assert script.steps == 3


def test_pad_and_bos_are_never_chosen():
    rows = torch.full((6, 6), 0.01)
    rows[:, PAD], rows[:, BOS], rows[:, B] = 0.5, 0.4, 0.06
    assert greedy_search(Table(rows.tolist()), 1, limit=2).tolist() == [[B, B]]


# Beam


def test_garden_path():
    """Case D2."""
    assert greedy_search(Table(GARDEN), 1, limit=9).tolist() == [[A, EOS]]
    one = beam_search(Table(GARDEN), 1, limit=9, beam=1, alpha=0.0)[0]
    assert [h.ids for h in one] == [(A,)]
    assert one[0].log_prob == pytest.approx(-1.609438, abs=1e-6)
    two = beam_search(Table(GARDEN), 1, limit=9, beam=2, alpha=0.0, n_best=2)[0]
    assert [h.ids for h in two] == [(B,), (A,)]
    assert two[0].log_prob == pytest.approx(-1.021651, abs=1e-6)


@given(
    st.integers(0, 10**6), st.sampled_from([0.0, 0.6, 1.0]), st.integers(1, 4), st.integers(1, 3)
)
@settings(max_examples=150, deadline=None)
def test_wide_beam_equals_exhaustive_search(seed, alpha, limit, words):
    rows = random_rows(seed, words)
    p = torch.tensor(rows).log()
    alphabet = [3, *range(4, 4 + words)]  # UNK is a word like any other
    scored = []
    for n in range(limit):
        for sentence in itertools.product(alphabet, repeat=n):
            steps = zip((BOS, *sentence), (*sentence, EOS))
            log_prob = sum(p[a, b].item() for a, b in steps)
            scored.append((log_prob / ((5 + n + 1) / 6) ** alpha, sentence))
    scored.sort(reverse=True)
    best = min(3, len(scored))
    found = beam_search(Table(rows), 1, limit, beam=300, alpha=alpha, n_best=best)[0]
    for hypothesis, (score, _) in zip(found, scored):
        assert hypothesis.finished
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
    assert len({h.ids for h in found}) == best


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([0.0, 0.6, 1.0]))
@settings(max_examples=100, deadline=None)
def test_n_best_is_sorted_distinct_and_true(seed, beam, alpha):
    rows = random_rows(seed)
    p = torch.tensor(rows).log()
    found = beam_search(Table(rows), 1, 6, beam=beam, alpha=alpha, n_best=beam)[0]
    assert len({h.ids for h in found}) == len(found) <= beam
    finished = [h.score for h in found if h.finished]
    assert finished == sorted(finished, reverse=True)
    for h in found:
        path = (BOS, *h.ids, EOS) if h.finished else (BOS, *h.ids)
        log_prob = sum(p[a, b].item() for a, b in itertools.pairwise(path))
        assert h.log_prob == pytest.approx(log_prob, abs=1e-4)
        assert h.score == pytest.approx(h.log_prob / length_penalty(len(path) - 1, alpha))


@given(st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_beam_one_is_greedy(seed):
    rows = random_rows(seed)
    greedy = [i for i in greedy_search(Table(rows), 1, 8)[0].tolist() if i not in (EOS, PAD)]
    assert [*beam_search(Table(rows), 1, 8, beam=1, alpha=0.0)[0][0].ids] == greedy


def test_stops_as_soon_as_nothing_alive_can_win():
    table = Table([[0, 0, 0.98, 0, 0.01, 0.01]] * 6)
    beam_search(table, 1, limit=50, beam=2, alpha=0.0)
    assert table.steps == 1


def test_a_long_hypothesis_may_overtake_a_finished_one():
    """EOS at once has 0.3; A A A A EOS has 0.25 and wins once length is paid for."""
    rows = [[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] for _ in range(9)]
    rows[BOS] = [0.0, 0.0, 0.3, 0.0, 0.7, 0.0, 0.0, 0.0, 0.0]
    rows[4] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.7, 0.3, 0.0, 0.0]
    rows[5] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    rows[7] = [0.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6]
    short = beam_search(Table(rows), 1, 9, beam=4, alpha=0.0)[0][0]
    long = beam_search(Table(rows), 1, 9, beam=4, alpha=1.0)[0][0]
    assert short.ids == ()
    assert long.ids == (4, 5, 7, 8)


def test_unfinished_hypotheses_rank_last():
    found = beam_search(Table([[0, 0, 0.1, 0, 0.9, 0]] * 6), 1, 3, beam=3, alpha=0.0, n_best=3)[0]
    assert [h.finished for h in found] == [True, True, True]
    found = beam_search(Table([[0, 0, 0.0, 0, 0.9, 0.1]] * 6), 1, 3, beam=2, alpha=0.0, n_best=2)[0]
    assert [h.finished for h in found] == [False, False]
    assert found[0].ids == (4, 4, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 2, "n_best": 3}, "n_best is 3"),
        ({"beam": 2, "n_best": 0}, "n_best is 0"),
        ({"beam": 0}, "beam = 0"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"alpha": math.nan}, "alpha is nan"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        beam_search(Table(GARDEN), 1, 5, **options)


# The model behind the search


@pytest.mark.parametrize("norm_first", [False, True])
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 7), st.integers(0, 999))
@settings(max_examples=25, deadline=None)
def test_cache_equals_full_pass(norm_first, lengths, cut, seed):
    """Case D6: one token at a time, and in two pieces; sources of different lengths."""
    model = small_model(norm_first=norm_first)
    sources = random_sources(lengths, seed=seed)
    targets = torch.cat([torch.full((len(lengths), 1), BOS), random_sources([7] * len(lengths))], 1)
    with torch.no_grad():
        full = model(sources, targets)
        for pieces in ([1] * 8, [cut, 8 - cut]):
            decoder = CachedDecoder(model, sources)
            got = torch.cat([decoder.step(piece) for piece in targets.split(pieces, dim=1)], dim=1)
            torch.testing.assert_close(got, full, atol=1e-5, rtol=0)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 999))
def test_select_takes_any_prefixes_of_any_sentences(sentences, first, then, seed):
    """Each selection names sentences in any order, some twice, and of each any of its prefixes."""
    model, dice = small_model(max_len=64), torch.Generator().manual_seed(seed)
    source, prefix = random_sources([3, 5, 4][:sentences]), torch.full((sentences, 1), BOS)
    decoder, width = CachedDecoder(model, source), 1
    with torch.no_grad():
        decoder.step(prefix)
        for size in (first, then):
            chosen = torch.randint(len(source) // width, (4, 1), generator=dice)
            rows = chosen * width + torch.randint(width, (4, size), generator=dice)
            decoder.select(rows)
            new = torch.randint(4, 10, (4 * size, 20), generator=dice)  # past the room
            source, width = source[rows.flatten()], size
            prefix = torch.cat([prefix[rows.flatten()], new], dim=1)
            full = model(source, prefix)[:, -20:]
            torch.testing.assert_close(decoder.step(new), full, atol=1e-5, rtol=0)


def slow_greedy(model, source, limit):
    """No cache, no batch: the whole prefix again at every step."""
    prefix = [BOS]
    with torch.no_grad():
        memory = model.encode(source)
        while len(prefix) <= limit and prefix[-1] != EOS:
            hidden = model.decode(torch.tensor([prefix]), memory, source)
            logits = model.logits(hidden[0, -1])
            logits[[PAD, BOS]] = -torch.inf
            prefix.append(int(logits.argmax()))
    return prefix[1:]


def test_greedy_of_a_batch_equals_one_by_one_without_cache():
    model, lengths = small_model(seed=3), [4, 9, 1, 6, 2]
    sources = random_sources(lengths)
    found = greedy_search(CachedDecoder(model, sources), 5, 12).tolist()
    for row, source, n in zip(found, sources, lengths):
        expected = slow_greedy(model, source[None, :n], 12)
        assert row == expected + [PAD] * (len(row) - len(expected))


def test_beam_does_not_depend_on_the_batch():
    model, lengths = small_model(seed=3), [4, 9, 1, 6, 2]
    sources = random_sources(lengths)
    together = beam_search(CachedDecoder(model, sources), 5, 10, beam=3, n_best=3)
    order = [3, 0, 4, 2, 1]
    shuffled = beam_search(CachedDecoder(model, sources[order]), 5, 10, beam=3, n_best=3)
    for place, i in enumerate(order):
        decoder = CachedDecoder(model, sources[i : i + 1, : lengths[i]])
        alone = beam_search(decoder, 1, 10, beam=3, n_best=3)
        for found in (shuffled[place], alone[0]):
            assert [h.ids for h in found] == [h.ids for h in together[i]]
            for a, b in zip(found, together[i]):
                assert a.log_prob == pytest.approx(b.log_prob, abs=1e-4)


def test_log_probabilities_stand_re_scoring_by_the_model():
    model, sources = small_model(seed=5), random_sources([4, 6])
    for i, found in enumerate(beam_search(CachedDecoder(model, sources), 2, 8, beam=3, n_best=3)):
        for h in found:
            path = [BOS, *h.ids, EOS] if h.finished else [BOS, *h.ids]
            with torch.no_grad():
                logits = model(sources[i : i + 1], torch.tensor([path[:-1]]))[0]
            log_prob = logits.log_softmax(-1)[range(len(path) - 1), path[1:]].sum().item()
            assert h.log_prob == pytest.approx(log_prob, abs=1e-4)


def test_eval_twice_is_bit_identical_and_training_mode_comes_back():
    """Case M14."""
    tokenizer = Tokenizer.train(["a b c d e f g h"])
    model = small_model(vocab_size=len(tokenizer)).train()
    first = translate(model, tokenizer, ["a b c", "h g"])
    assert first == translate(model, tokenizer, ["a b c", "h g"])
    assert model.training


@pytest.mark.parametrize("beam", [1, 3])
def test_translate_keeps_order_and_blank_lines(beam):
    """Case V5."""
    tokenizer = Tokenizer.train(["a b c d e f g h"])
    model = small_model(vocab_size=len(tokenizer))
    lines = ["a b", "", "  \u3000 ", "c d e f g", "a"]
    together = translate(model, tokenizer, lines, beam=beam, batch_size=2)
    assert together[1] == together[2] == ""
    assert together == [translate(model, tokenizer, [line], beam=beam)[0] for line in lines]


@pytest.mark.parametrize("beam", [1, 2])
def test_decoding_stops_at_the_models_limit(beam):
    """Case M10: positions 0 to max_len − 1 exist; the search ends there without an error."""
    model = small_model(max_len=5)
    with torch.no_grad():
        model.output.weight[EOS] = -10 * model.output.weight.sum(0).sign()  # EOS never wins
    tokenizer = Tokenizer.train(["a b c d e f g h"])
    found = translate(model, tokenizer, ["a b c d e"], beam=beam)[0]
    assert len(tokenizer.encode(found)) <= 5
    with pytest.raises(ValueError, match="sentence 2: 6 tokens are past the limit max_len = 5"):
        translate(model, tokenizer, ["a", "a b c d e f"], beam=beam)


def test_translate_refuses_bad_options():
    tokenizer = Tokenizer.train(["a"])
    with pytest.raises(ValueError, match="beam 0"):
        translate(small_model(), tokenizer, ["a"], beam=0)
    with pytest.raises(ValueError, match="batch_size 0"):
        translate(small_model(), tokenizer, ["a"], batch_size=0)
    with pytest.raises(ValueError, match="alpha is -1"):
        translate(small_model(vocab_size=5), tokenizer, ["a"], alpha=-1)


def test_translate_refuses_one_string_and_a_foreign_vocabulary():
    tokenizer = Tokenizer.train(["a b c d e f g h"])
    with pytest.raises(TypeError, match="sentences is one string"):
        translate(small_model(), tokenizer, "a b")
    with pytest.raises(TypeError):
        translate(small_model(), tokenizer, [["a", "b"]])
    assert translate(small_model(), tokenizer, []) == []
    for other in (["a b"], ["a b c d e f g h i"]):
        message = rf"a vocabulary of 12, the tokenizer one of {4 + len(other[0].split())}"
        with pytest.raises(ValueError, match=message):
            translate(small_model(), Tokenizer.train(other), ["a"])


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (torch.tensor([[1], [12]]), ValueError, "token id 12 is outside the vocabulary of 12"),
        (torch.tensor([[1], [-1]]), ValueError, "token id -1 is outside"),
        (torch.tensor([[1.0], [1.0]]), TypeError, "token ids are torch.float32"),
        (torch.tensor([1, 1]), ValueError, r"tokens of shape \(2,\), need \(2, t\)"),
        (torch.ones(3, 1).long(), ValueError, r"tokens of shape \(3, 1\), need \(2, t\)"),
        (torch.ones(2, 0).long(), ValueError, "empty batch of token ids"),
        (torch.ones(2, 33).long(), ValueError, "sequence of 33 positions is past .* = 32"),
        ([[1], [1]], TypeError, "token ids are list"),
    ],
)
@torch.no_grad()
def test_the_cached_decoder_refuses_bad_tokens_and_stays_as_it_was(tokens, error, message):
    model, sources = small_model(), random_sources([3, 5])
    decoder, first = CachedDecoder(model, sources), torch.tensor([[BOS], [BOS]])
    with pytest.raises(error, match=message):
        decoder.step(tokens)
    torch.testing.assert_close(decoder.step(first), model(sources, first), atol=1e-5, rtol=0)


@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_searches_refuse_an_empty_batch_and_no_step(search):
    for batch, limit in ((0, 5), (1, 0), (1, -1)):
        with pytest.raises(ValueError, match=f"batch {batch} and limit {limit} must be at least 1"):
            search(Table(GARDEN), batch, limit)
    with pytest.raises(ValueError, match=r"tokens of shape \(3, 1\), need \(2, t\)"):
        search(CachedDecoder(small_model(), random_sources([3, 5])), 3, 5)


# BLEU


def test_bleu_of_chinese_needs_its_tokeniser():
    """Case V7."""
    assert bleu(["今天天气很好"], ["今天天气很好"])[0] == 0.0
    assert bleu(["今天天气很好"], ["今天天气很好"], "zh")[0] == pytest.approx(100)
    score, signature = bleu(["今天天气很好。"], ["今天天气真好。"], "zh")
    assert score == pytest.approx(48.8923, abs=1e-4)
    assert bleu(["今天天气很好。"], ["今天天气真好。"], "char")[0] == pytest.approx(score)
    assert "tok:zh" in signature
    assert "version:" in signature


def test_bleu_by_hand():
    """7 of 7 words minus one: precisions 5/6, 3/5, 2/4, 1/3 and no brevity penalty."""
    score, _ = bleu(["the cat sat on a mat"], ["the cat sat on the mat"])
    expected = 100 * math.exp(sum(map(math.log, (5 / 6, 3 / 5, 2 / 4, 1 / 3))) / 4)
    assert score == pytest.approx(expected, abs=1e-6)


def test_bleu_punishes_what_is_too_short_not_what_is_too_long():
    """5 of 6 words, all right: exp(1 − 6/5). 6 words for 5: precisions 5/6, 4/5, 3/4, 2/3."""
    short, long = "the cat sat on the", "the cat sat on the mat"
    assert bleu([short], [long])[0] == pytest.approx(100 * math.exp(-0.2), abs=1e-6)
    assert bleu([long], [short])[0] == pytest.approx(100 * (1 / 3) ** 0.25, abs=1e-6)


def test_bleu_refuses_unequal_counts():
    with pytest.raises(ValueError, match="1 hypotheses for 2 references"):
        bleu(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="0 hypotheses"):
        bleu([], [])
    with pytest.raises(TypeError, match="not one string"):
        bleu("abc", "abc")
    with pytest.raises(ValueError, match=r"tokenize is 'chinese', need one of .*'zh'"):
        bleu(["a"], ["a"], "chinese")


def test_translate_leaves_training_mode_as_it_was_even_when_it_fails():
    tokenizer = Tokenizer.train(["a b"])
    model = small_model(vocab_size=len(tokenizer)).train()
    with pytest.raises(ValueError, match="alpha is -1"):
        translate(model, tokenizer, ["a"], alpha=-1)
    assert model.training
    translate(model, tokenizer, ["a"])
    assert model.training


def test_no_gradient_flows_through_the_cache():
    """What is kept is written in place, which a backward pass could not bear."""
    model, sources = small_model(), random_sources([3])
    decoder = CachedDecoder(model, sources)
    for _ in range(3):
        assert not decoder.step(torch.full((1, 1), 5)).requires_grad
