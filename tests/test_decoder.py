"""transformer.decoder: shift, masks, leaks; PyTorch's decoder with copied weights."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer.attention import attention_weights, causal_mask, padding_mask
from transformer.decoder import Decoder, DecoderLayer, shift_right
from transformer.encoder import TransformerConfig
from transformer.tokens import BOS, EOS, PAD, frame, pad

SIZES = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 2}


def decoder(**changes):
    """A small decoder in float64 whose biases and norms are no longer 0 and 1."""
    torch.manual_seed(0)
    made = Decoder(TransformerConfig(**{"vocab_size": 10, "dropout": 0.0, **SIZES, **changes}))
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made.double()


def vectors(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, 16, dtype=torch.float64, generator=generator)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


# --- shift ---------------------------------------------------------------------------------------


def test_shift_of_a_padded_batch():
    """Case T9: EOS is a label, PAD is never counted."""
    inputs, labels = shift_right(torch.tensor([[1, 5, 2, 0, 0], [1, 5, 6, 7, 2]]))
    assert inputs.tolist() == [[1, 5, 2, 0], [1, 5, 6, 7]]
    assert labels.tolist() == [[5, 2, 0, 0], [5, 6, 7, 2]]
    assert int((labels != PAD).sum()) == 6


def test_shift_of_the_running_example():
    inputs, labels = shift_right(torch.tensor([frame([4, 5, 6])]))  # Xiaoming starts working
    assert list(zip(inputs[0].tolist(), labels[0].tolist())) == [
        (BOS, 4), (4, 5), (5, 6), (6, EOS),
    ]  # fmt: skip


@given(st.lists(st.lists(st.integers(4, 20), min_size=1, max_size=6), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_each_label_is_the_next_input_and_every_word_is_predicted_once(sentences):
    inputs, labels = shift_right(pad([frame(sentence) for sentence in sentences]))
    assert torch.equal(inputs[:, 1:], labels[:, :-1])
    for sentence, row in zip(sentences, labels.tolist()):
        assert [i for i in row if i != PAD] == [*sentence, EOS]
    assert int((labels != PAD).sum()) == sum(map(len, sentences)) + len(sentences)


@pytest.mark.parametrize("shape", [(5,), (2, 1), (2, 0), (1, 2, 3)])
def test_shift_refuses_what_has_nothing_to_predict(shape):
    with pytest.raises(ValueError, match=r"target of shape \(.*\), need \(B, T \+ 1\)"):
        shift_right(torch.ones(shape, dtype=torch.long))


def test_shift_refuses_what_is_no_tensor():
    with pytest.raises(TypeError, match="target is a list, need a tensor"):
        shift_right([[1, 5, 2]])


# --- the function --------------------------------------------------------------------------------


def simple_attention(layer, x, memory, mask):
    """Multi-head attention head by head, on slices of the projection matrices."""
    heads, (width_k, width_v) = layer.heads, (size // layer.heads for size in layer.sizes)
    w_k, w_v = layer.w_kv.weight.split(layer.sizes)
    b_k, b_v = layer.w_kv.bias.split(layer.sizes)
    outputs = []
    for r in range(heads):
        of_k, of_v = slice(r * width_k, (r + 1) * width_k), slice(r * width_v, (r + 1) * width_v)
        q = x @ layer.w_q.weight[of_k].T + layer.w_q.bias[of_k]
        k, v = memory @ w_k[of_k].T + b_k[of_k], memory @ w_v[of_v].T + b_v[of_v]
        outputs.append(attention_weights(q, k, mask) @ v)
    return torch.cat(outputs, -1) @ layer.w_o.weight.T + layer.w_o.bias


def simple_norm(norm, x):
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    return norm.weight * centred / (variance + norm.eps).sqrt() + norm.bias


def simple_layer(layer, x, memory, self_mask, cross_mask):
    """§3.1 written out, masks (B, T, T) and (B, 1, S)."""
    parts = (
        lambda x: simple_attention(layer.self_attention, x, x, self_mask),
        lambda x: simple_attention(layer.cross_attention, x, memory, cross_mask),
        lambda x: layer.feed_forward.w_2(layer.feed_forward.w_1(x).clamp(min=0)),
    )
    for part, residual in zip(parts, layer.residuals):
        if residual.norm_first:
            x = x + part(simple_norm(residual.norm, x))
        else:
            x = simple_norm(residual.norm, x + part(x))
    return x


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("d_k", "d_v"), [(None, None), (3, 5)])
def test_equals_the_equations_written_out(norm_first, d_k, d_v):
    model = decoder(norm_first=norm_first, d_k=d_k, d_v=d_v)
    x, memory = vectors(2, 4), vectors(2, 7, seed=2)
    target = torch.tensor([[BOS, 4, 5, 6], [BOS, 4, PAD, PAD]])
    source = torch.tensor([[4, 5, 6, 7, 8, 9, 4], [4, 5, 6, PAD, PAD, PAD, PAD]])
    self_mask, cross_mask = causal_mask(4) & padding_mask(target), padding_mask(source)
    plain = x
    for layer in model.layers:
        plain = simple_layer(layer, plain, memory, self_mask[:, 0], cross_mask[:, 0])
    if norm_first:
        plain = simple_norm(model.norm, plain)
    close(model(x, memory, self_mask, cross_mask), plain)


def correspondence(ours, theirs):
    """Pairs: one parameter of nn.TransformerDecoder, and those of ours that it consists of."""
    for a, b in zip(ours.layers, theirs.layers):
        for mine, other in ((a.self_attention, b.self_attn), (a.cross_attention, b.multihead_attn)):
            yield other.in_proj_weight, (mine.w_q.weight, mine.w_kv.weight)
            yield other.in_proj_bias, (mine.w_q.bias, mine.w_kv.bias)
            yield other.out_proj.weight, (mine.w_o.weight,)
            yield other.out_proj.bias, (mine.w_o.bias,)
        modules = [(a.feed_forward.w_1, b.linear1), (a.feed_forward.w_2, b.linear2)]
        modules += zip([r.norm for r in a.residuals], (b.norm1, b.norm2, b.norm3))
        for mine, other in modules:
            yield other.weight, (mine.weight,)
            yield other.bias, (mine.bias,)
    if theirs.norm is not None:
        yield theirs.norm.weight, (ours.norm.weight,)
        yield theirs.norm.bias, (ours.norm.bias,)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("length", [1, 4, 9])
def test_equals_pytorch_outputs_and_gradients(norm_first, length):
    ours = decoder(norm_first=norm_first)
    theirs = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(
            16, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
        ),
        num_layers=2,
        norm=nn.LayerNorm(16, dtype=torch.float64) if norm_first else None,
    )
    for other, mine in correspondence(ours, theirs):
        other.data = torch.cat([parameter.data for parameter in mine])
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())

    x, memory = vectors(3, length), vectors(3, 7, seed=2)
    target, source = torch.full((3, length), 5), torch.full((3, 7), 5)
    target[1, 1:], source[2, 4:] = PAD, PAD  # S ≠ T, padding on both sides
    mine_in = x.clone().requires_grad_(), memory.clone().requires_grad_()
    other_in = x.clone().requires_grad_(), memory.clone().requires_grad_()
    a = ours(*mine_in, causal_mask(length) & padding_mask(target), padding_mask(source))
    b = theirs(
        *other_in,
        tgt_mask=~causal_mask(length),
        tgt_key_padding_mask=target == PAD,
        memory_key_padding_mask=source == PAD,
    )
    close(a, b)
    upstream = vectors(3, length, seed=3)
    a.backward(upstream)
    b.backward(upstream)
    for one, two in zip(mine_in, other_in):
        close(one.grad, two.grad)
    for other, mine in correspondence(ours, theirs):
        close(torch.cat([parameter.grad for parameter in mine]), other.grad)


def test_every_layer_reads_the_same_memory_with_weights_of_its_own():
    model, seen = decoder(layers=3), []
    for layer in model.layers:
        layer.cross_attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    memory = vectors(2, 3, seed=2)
    model(vectors(2, 4), memory)
    assert len(seen) == 3 and all(one is memory for one in seen)
    keys = [layer.cross_attention.project_kv(memory)[0] for layer in model.layers]
    assert all(not torch.allclose(a, b) for a, b in itertools.combinations(keys, 2))


def test_cross_attention_weights_are_rectangular():
    """Case M6: seven source positions, three target positions."""
    layer, source = decoder().layers[0], torch.tensor([[4, 5, 6, 7, 8, PAD, PAD]])
    weights = layer.cross_attention.weights(
        vectors(1, 3), vectors(1, 7, seed=2), padding_mask(source)
    )
    assert weights.shape == (1, 2, 3, 7)
    close(weights.sum(-1), torch.ones(1, 2, 3, dtype=torch.float64))
    assert (weights[..., 5:] == 0).all()


def test_the_self_attention_can_be_replaced_and_the_cross_attention_stays():
    def nothing(q, k, v, mask):
        return torch.zeros_like(v)

    layer = DecoderLayer(TransformerConfig(10, **SIZES), nothing)
    assert layer.self_attention.attention is nothing
    assert layer.cross_attention.attention is not nothing


# --- leaks ---------------------------------------------------------------------------------------


def moved(model, target, split=shift_right):
    """(T, T): does output t move when label u is replaced?"""
    table = vectors(30, seed=4)

    def outputs(target):
        inputs, _ = split(target)
        torch.manual_seed(3)  # the same dropout in every run
        mask = causal_mask(inputs.size(1)) & padding_mask(inputs)
        return model(table[inputs], vectors(1, 3, seed=2), mask)[0]

    columns, before = [], outputs(target)
    for u in range(1, target.size(1)):
        other = target.clone()
        other[0, u] = 29
        columns.append((outputs(other) - before).abs().amax(-1) > 1e-12)
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("length", [1, 2, 5, 16])
def test_no_output_depends_on_its_label_or_a_later_one(norm_first, training, dropout, length):
    """Case M6: and all later outputs do depend on it."""
    model = decoder(norm_first=norm_first, dropout=dropout).train(training)
    target = torch.tensor([frame(range(4, 4 + length - 1))])
    assert torch.equal(moved(model, target), torch.ones(length, length, dtype=torch.bool).tril(-1))


def test_the_leak_test_finds_a_mask_used_only_in_training():
    class Faulty(Decoder):
        def forward(self, x, memory, self_mask=None, cross_mask=None):
            return super().forward(x, memory, self_mask if self.training else None, cross_mask)

    torch.manual_seed(0)
    model = Faulty(TransformerConfig(10, **SIZES, dropout=0.0)).double()
    target = torch.tensor([frame([4, 5, 6])])
    assert not moved(model.train(), target).triu().any()
    assert moved(model.eval(), target)[:, :3].all()


def test_the_leak_test_finds_unshifted_labels():
    """Case T9: a model whose input is its label learns to copy."""
    leaks = moved(decoder(), torch.tensor([frame([4, 5, 6])]), lambda t: (t[:, 1:], t[:, 1:]))
    assert leaks.diagonal().all()


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 2**31 - 1))
@settings(max_examples=25, deadline=None)
def test_one_pass_equals_a_pass_over_each_prefix(length, source_length, seed):
    model = decoder().eval()
    x, memory = vectors(1, length, seed=seed), vectors(1, source_length, seed=seed + 1)
    whole = model(x, memory, causal_mask(length))
    for t in range(1, length + 1):
        close(model(x[:, :t], memory, causal_mask(t))[:, -1], whole[:, t - 1])


def test_gradient_of_an_output_reaches_no_later_input_and_all_of_the_source():
    x, memory = vectors(1, 5).requires_grad_(), vectors(1, 3, seed=2).requires_grad_()
    output = decoder()(x, memory, causal_mask(5))
    of_x, of_memory = torch.autograd.grad(output[0, 2].pow(3).sum(), (x, memory))
    assert (of_x[0, 3:] == 0).all()
    assert (of_x[0, :3].abs().sum(-1) > 0).all()
    assert (of_memory[0].abs().sum(-1) > 0).all()


# --- batches, padding, modes ---------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_and_batch_change_no_real_position(norm_first):
    """Case M1: one source is all padding; its neighbours do not notice."""
    model = decoder(norm_first=norm_first).eval()
    x, memory = vectors(3, 6), vectors(3, 5, seed=2)
    target = torch.tensor([[BOS, 4, 5, PAD, PAD, PAD], [BOS, 4, 5, 6, 7, 8], [BOS, 4, 5, 6, 7, 8]])
    source = torch.tensor([[4, 5, 6, PAD, PAD], [4, 5, 6, 7, 8], [PAD] * 5])
    together = model(x, memory, causal_mask(6) & padding_mask(target), padding_mask(source))
    assert together.isfinite().all()
    for row, (length, source_length) in enumerate([(3, 3), (6, 5)]):
        alone = model(
            x[row : row + 1, :length], memory[row : row + 1, :source_length], causal_mask(length)
        )
        close(together[row : row + 1, :length], alone)


def test_right_padding_is_hidden_from_words_by_the_causal_mask_alone():
    model, x, memory = decoder().eval(), vectors(1, 4), vectors(1, 3, seed=2)
    with_padding = model(x, memory, causal_mask(4) & padding_mask(torch.tensor([[1, 5, 6, 0]])))
    without = model(x, memory, causal_mask(4))
    close(with_padding[:, :3], without[:, :3])
    assert (with_padding[:, 3] - without[:, 3]).abs().max() > 1e-3


def test_dropout_works_in_training_and_is_off_in_evaluation():
    """Case M14."""
    model, x, memory = decoder(dropout=0.5), vectors(1, 4), vectors(1, 3, seed=2)
    model.eval()
    assert torch.equal(model(x, memory, causal_mask(4)), model(x, memory, causal_mask(4)))
    model.train()
    assert not torch.equal(model(x, memory, causal_mask(4)), model(x, memory, causal_mask(4)))


def test_masks_of_the_wrong_kind_are_refused():
    model, x, memory = decoder(), vectors(2, 4), vectors(2, 3, seed=2)
    with pytest.raises(TypeError, match=r"mask is torch.float32, need torch.bool"):
        model(x, memory, causal_mask(4).float())
    with pytest.raises(ValueError, match=r"does not broadcast to \(2, 2, 4, 4\)"):
        model(x, memory, causal_mask(5))
    with pytest.raises(ValueError, match=r"does not broadcast to \(2, 2, 4, 3\)"):
        model(x, memory, causal_mask(4), padding_mask(torch.ones(2, 4, dtype=torch.long)))
