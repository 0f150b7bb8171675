"""transformer.embedding: one-hot products, gradients by hand, scale, tying, ids that are none."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from transformer.embedding import Embedding, check_ids


def embedding(vocab_size=7, d_model=4):
    torch.manual_seed(0)
    return Embedding(vocab_size, d_model)


@given(st.integers(1, 40), st.integers(1, 16), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_lookup_is_the_one_hot_product_bit_for_bit(vocab_size, d_model, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = Embedding(vocab_size, d_model)
    ids = torch.randint(vocab_size, (2, 3), generator=generator)
    product = F.one_hot(ids, vocab_size).float() @ layer.weight
    assert torch.equal(layer(ids), product * math.sqrt(d_model))


def test_equals_nn_embedding_times_the_root():
    layer = embedding()
    reference = nn.Embedding(7, 4)
    reference.load_state_dict(layer.state_dict())
    ids = torch.tensor([[4, 5, 6], [1, 4, 0]])
    torch.testing.assert_close(layer(ids), 2 * reference(ids), atol=0, rtol=0)
    torch.testing.assert_close(layer(ids.int()), layer(ids), atol=0, rtol=0)


def test_gradient_by_hand():
    """Rows that were not looked up get zero, one that was looked up twice gets both."""
    layer = embedding()
    arriving = torch.arange(12.0).reshape(1, 3, 4)
    layer(torch.tensor([[4, 6, 4]])).backward(arriving)
    expected = torch.zeros(7, 4)
    expected[4] = 2 * (arriving[0, 0] + arriving[0, 2])
    expected[6] = 2 * arriving[0, 1]
    assert torch.equal(layer.weight.grad, expected)


def test_gradients_by_finite_differences():
    layer = embedding().double()
    ids = torch.tensor([[4, 6, 4]])

    def loss(weight):
        hidden = torch.func.functional_call(layer, {"weight": weight}, (ids,)).tanh()
        return F.linear(hidden, weight).logsumexp(-1).sum()

    assert torch.autograd.gradcheck(loss, layer.weight)


@pytest.mark.parametrize("d_model", [16, 64, 512])
def test_scale_at_the_start(d_model):
    """Coordinates of a looked-up vector, and scores of a normalised one, have variance 1."""
    layer = embedding(5000, d_model)
    vectors = layer(torch.arange(5000)[None])
    assert vectors.std().item() == pytest.approx(1, abs=0.02)
    assert vectors.mean().item() == pytest.approx(0, abs=0.02)
    hidden = F.layer_norm(torch.randn(200, d_model), (d_model,))
    assert layer.logits(hidden).std().item() == pytest.approx(1, abs=0.05)


def test_first_loss_is_near_that_of_a_guess():
    layer = embedding(1000, 512)
    hidden = F.layer_norm(torch.randn(2000, 512), (512,))
    loss = F.cross_entropy(layer.logits(hidden), torch.randint(1000, (2000,)))
    assert loss.item() == pytest.approx(math.log(1000) + 0.5, abs=0.1)


def test_logits_are_dot_products_with_the_rows():
    layer = embedding().double()
    hidden = torch.randn(2, 3, 4, dtype=torch.float64)
    scores = layer.logits(hidden)
    assert scores.shape == (2, 3, 7)
    for v, row in enumerate(layer.weight):
        torch.testing.assert_close(scores[..., v], (hidden * row).sum(-1), atol=1e-14, rtol=0)


def test_both_uses_are_one_parameter_and_its_gradient_is_their_sum():
    layer = embedding().double()
    twin = copy.deepcopy(layer)
    ids, labels = torch.tensor([[4, 5, 6]]), torch.tensor([5, 6, 2])

    def loss(source, output):
        return F.cross_entropy(output.logits(source(ids).tanh())[0], labels)

    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    (tied,) = torch.autograd.grad(loss(layer, layer), [layer.weight])
    parts = torch.autograd.grad(loss(layer, twin), [layer.weight, twin.weight])
    torch.testing.assert_close(tied, sum(parts), atol=1e-15, rtol=0)
    assert parts[0].any(1).tolist() == [False] * 4 + [True] * 3
    assert parts[1].any(1).all()
    torch.optim.SGD(layer.parameters(), lr=1.0).step()  # no gradient stored: nothing moves
    assert torch.equal(layer.weight, twin.weight)


@pytest.mark.parametrize("bad", [7, 100, -1])
def test_ids_outside_the_vocabulary_are_refused(bad):
    with pytest.raises(ValueError, match=f"token id {bad} is outside the vocabulary of 7"):
        embedding()(torch.tensor([[4, bad, 0]]))
    check_ids(torch.tensor([[0, 6]]), 7)  # both ends are inside


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int16, torch.uint8])
def test_ids_that_are_no_integers_of_full_width_are_refused(dtype):
    with pytest.raises(TypeError, match=f"token ids are {dtype}, need torch.int64 or torch.int32"):
        embedding()(torch.tensor([[1, 0]]).to(dtype))


@pytest.mark.parametrize("ids", [[[1, 2]], (1, 2), "12", None])
def test_ids_that_are_no_tensor_are_refused(ids):
    with pytest.raises(TypeError, match=f"token ids are {type(ids).__name__}, need torch.int64"):
        embedding()(ids)


@pytest.mark.parametrize(("vocab_size", "d_model"), [(0, 4), (-1, 4), (7, 0)])
def test_sizes_below_one_are_refused(vocab_size, d_model):
    message = f"vocab_size {vocab_size} and d_model {d_model} must be at least 1"
    with pytest.raises(ValueError, match=message):
        Embedding(vocab_size, d_model)


def test_empty_batches_are_refused():
    for shape in ((0, 3), (2, 0)):
        with pytest.raises(ValueError, match=rf"empty batch of token ids, shape \({shape[0]}, "):
            embedding()(torch.zeros(shape, dtype=torch.int64))
