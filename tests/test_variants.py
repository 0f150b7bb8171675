"""transformer.variants: masks and leaks, nn.TransformerEncoder, both models learning a toy."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer.attention import causal_mask, padding_mask
from transformer.decoder import DecoderLayer
from transformer.encoder import EncoderLayer, TransformerConfig
from transformer.sliding_window import sliding_window_attention
from transformer.tokens import BOS, PAD, UNK
from transformer.variants import DecoderOnly, EncoderOnly

BOTH = pytest.mark.parametrize("kind", [EncoderOnly, DecoderOnly])
ORDERS = pytest.mark.parametrize("norm_first", [False, True])
IDS = torch.tensor([[1, 9, 5, 7, 12, 6, 2], [1, 8, 4, 2, 0, 0, 0]])


def tiny(**sizes):
    config = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 2, "dropout": 0.0, "max_len": 40}
    return TransformerConfig(20, **(config | sizes))


def moved(model, position, ids=IDS[:1]):
    """Positions whose logits move with the token at `position`, the random numbers the same."""
    other = ids.clone()
    other[0, position] = 13
    logits = []
    for tokens in (ids, other):
        torch.manual_seed(0)  # the same dropout
        with torch.no_grad():
            logits.append(model(tokens))
    return (logits[0] != logits[1]).any(-1)[0].nonzero().flatten().tolist()


# --- who reads whom


@ORDERS
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("position", range(7))
def test_decoder_only_does_not_look_ahead(training, position, norm_first):
    model = DecoderOnly(tiny(norm_first=norm_first, dropout=0.1)).train(training)
    assert moved(model, position) == list(range(position, 7))


@ORDERS
@pytest.mark.parametrize("training", [True, False])
def test_encoder_only_reads_both_ways(training, norm_first):
    model = EncoderOnly(tiny(norm_first=norm_first, dropout=0.1)).train(training)
    assert moved(model, 6) == moved(model, 0) == list(range(7))


def test_masks():
    """Case M6: causal and padding together, and padding alone."""
    ids = torch.tensor([[1, 5, 6, 0]])
    causal = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]
    assert DecoderOnly(tiny()).mask(ids)[0, 0].int().tolist() == causal
    assert EncoderOnly(tiny()).mask(ids).tolist() == [[[[True, True, True, False]]]]


@BOTH
def test_padding_and_neighbours_in_the_batch_change_nothing(kind):
    model = kind(tiny()).double()
    alone = model(IDS[1:, :4])
    torch.testing.assert_close(model(IDS)[1:, :4], alone, atol=1e-12, rtol=0)
    assert model(IDS).isfinite().all()


@BOTH
def test_a_row_of_padding_alone_stays_finite(kind):
    """Case M1(a)."""
    model = kind(tiny())
    logits = model(torch.tensor([[5, 6, 7], [PAD, PAD, PAD]]))
    assert logits.isfinite().all()
    logits.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# --- the same parts


def test_only_the_mask_differs():
    encoder, decoder = EncoderOnly(tiny()), DecoderOnly(tiny())
    shapes = [{n: p.shape for n, p in m.named_parameters()} for m in (encoder, decoder)]
    assert shapes[0] == shapes[1]
    encoder.load_state_dict(decoder.state_dict())
    embedded = encoder.positions(encoder.embedding(IDS))
    mask = causal_mask(7) & padding_mask(IDS)
    assert torch.equal(encoder.embedding.logits(encoder.stack(embedded, mask)), decoder(IDS))
    assert not torch.equal(encoder(IDS), decoder(IDS))


def test_a_decoder_layer_without_cross_attention_is_an_encoder_layer():
    config = tiny(norm_first=True)
    decoder, encoder = DecoderLayer(config), EncoderLayer(config)
    nn.init.zeros_(decoder.cross_attention.w_o.weight)
    nn.init.zeros_(decoder.cross_attention.w_o.bias)
    encoder.self_attention.load_state_dict(decoder.self_attention.state_dict())
    encoder.feed_forward.load_state_dict(decoder.feed_forward.state_dict())
    x, memory = torch.randn(2, 7, 16), torch.randn(2, 5, 16)
    assert torch.equal(decoder(x, memory, causal_mask(7)), encoder(x, causal_mask(7)))


@ORDERS
@BOTH
def test_equals_nn_transformer_encoder(kind, norm_first):
    model = kind(tiny(norm_first=norm_first)).double()
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    norm = nn.LayerNorm(16, dtype=torch.float64) if norm_first else None
    oracle = nn.TransformerEncoder(layer, 2, norm=norm, enable_nested_tensor=False)
    with torch.no_grad():
        for mine, theirs in zip(model.stack.layers, oracle.layers):
            attend, feed = mine.self_attention, mine.feed_forward
            for name in ("weight", "bias"):
                values = [getattr(p, name) for p in (attend.w_q, attend.w_kv)]
                getattr(theirs.self_attn, f"in_proj_{name}").copy_(torch.cat(values))
                getattr(theirs.self_attn.out_proj, name).copy_(getattr(attend.w_o, name))
                getattr(theirs.linear1, name).copy_(getattr(feed.w_1, name))
                getattr(theirs.linear2, name).copy_(getattr(feed.w_2, name))
        x = F.embedding(IDS, model.embedding.weight) * 4 + model.positions.encoding[:7]
        hidden_from = None if kind is EncoderOnly else ~causal_mask(7)
        expected = oracle(x, mask=hidden_from, src_key_padding_mask=IDS == PAD)
        expected = expected @ model.embedding.weight.T
        real = IDS != PAD
        torch.testing.assert_close(model(IDS)[real], expected[real], atol=1e-12, rtol=0)


@BOTH
def test_the_output_layer_is_the_embedding(kind):
    model = kind(tiny())
    assert [p.shape for p in model.parameters()].count((20, 16)) == 1
    expected = model.hidden(IDS) @ model.embedding.weight.T
    torch.testing.assert_close(model(IDS), expected, atol=1e-6, rtol=0)


# --- with a window


def test_a_causal_window_makes_a_local_language_model():
    attend = partial(sliding_window_attention, window=3, causal=True)
    assert moved(EncoderOnly(tiny(), attend), 1) == [1, 2, 3, 4, 5]  # two layers, two steps each
    assert moved(EncoderOnly(tiny(layers=1), attend), 1) == [1, 2, 3]


def test_a_window_as_wide_as_the_sentence_is_decoder_only():
    attend = partial(sliding_window_attention, window=7, causal=True)
    local, decoder = EncoderOnly(tiny(), attend).double(), DecoderOnly(tiny()).double()
    local.load_state_dict(decoder.state_dict())
    real = IDS != PAD
    torch.testing.assert_close(local(IDS)[real], decoder(IDS)[real], atol=1e-12, rtol=0)


def test_decoder_only_hands_the_window_a_mask_that_it_refuses():
    model = DecoderOnly(tiny(), partial(sliding_window_attention, window=3))
    with pytest.raises(ValueError, match="need a padding mask"):
        model(IDS)


# --- what is refused


@BOTH
def test_bad_ids_are_refused(kind):
    model = kind(tiny(max_len=6))
    with pytest.raises(ValueError, match="token id 20 is outside the vocabulary of 20"):
        model(torch.tensor([[20]]))
    with pytest.raises(ValueError, match="sequence of 7 positions is past the limit max_len = 6"):
        model(IDS)
    with pytest.raises(ValueError, match="empty batch"):
        model(torch.empty(0, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"token ids are torch\.float32"):
        model(torch.ones(1, 3))


# --- they learn


def runs(count, length=8):
    """Sequences that count upwards in a circle of ten tokens, from a random start."""
    start = torch.randint(10, (count, 1))
    return torch.cat([torch.full((count, 1), BOS), 4 + (start + torch.arange(length)) % 10], 1)


def fit(model, loss, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, runs(32)).backward()
        optimizer.step()
    return model.eval()


def test_decoder_only_learns_to_go_on():
    def loss(model, ids):
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    model = fit(DecoderOnly(tiny(norm_first=True)), loss, 150)
    ids = runs(50)
    with torch.no_grad():
        guess = model(ids[:, :-1])
    assert (guess[:, 1:].argmax(-1) == ids[:, 2:]).double().mean() > 0.95
    # Nothing announces the first token: no model can be surer of it than 1 in 10.
    assert F.cross_entropy(guess[:, 0], ids[:, 1]).item() == pytest.approx(2.303, abs=0.4)


def test_encoder_only_learns_to_fill_a_gap():
    def gapped(ids):
        where = torch.randint(1, ids.size(1), (len(ids), 1))
        return ids.scatter(1, where, UNK), where

    def loss(model, ids):
        question, where = gapped(ids)
        rows = torch.arange(len(ids))
        return F.cross_entropy(model(question)[rows, where[:, 0]], ids.gather(1, where)[:, 0])

    model = fit(EncoderOnly(tiny(norm_first=True)), loss, 250)
    ids = runs(100)
    question, where = gapped(ids)
    with torch.no_grad():
        guess = model(question)[torch.arange(100), where[:, 0]].argmax(-1)
    assert (guess == ids.gather(1, where)[:, 0]).double().mean() > 0.95


def test_without_the_causal_mask_the_next_token_is_copied():
    """Random tokens cannot be foretold, yet the loss falls: the answer stands in the input."""

    def loss(model, ids):
        return F.cross_entropy(model(ids[:, :-1])[:, :-1].flatten(0, 1), ids[:, 1:-1].flatten())

    def noise():
        return torch.randint(4, 14, (32, 10))

    found = {}
    for kind in (EncoderOnly, DecoderOnly):
        torch.manual_seed(0)
        model = kind(tiny(norm_first=True, layers=1, d_model=32))
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(200):
            optimizer.zero_grad()
            loss(model, noise()).backward()
            optimizer.step()
        found[kind] = loss(model, noise()).item()
    assert found[EncoderOnly] < 1.0
    assert found[DecoderOnly] > 2.25  # ln 10 is 2.303
