"""transformer.attention: hand values, float64, PyTorch; masks; rows with nothing to read."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer.attention import (
    attention,
    attention_weights,
    causal_mask,
    check_mask,
    padding_mask,
)

X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
WEIGHTS = [[0.4011, 0.1978, 0.4011], [0.1400, 0.2840, 0.5760], [0.0501, 0.1017, 0.8482]]


def random_qkv(shape=(2, 3, 5, 8), dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()
        for _ in range(3)
    ]


def test_worked_example():
    torch.testing.assert_close(
        attention_weights(X, X), torch.tensor(WEIGHTS, dtype=torch.float64), atol=5e-5, rtol=0
    )
    output = attention(X, X, X)[2]
    torch.testing.assert_close(
        output, torch.tensor([0.8983, 1.7981], dtype=torch.float64), atol=5e-5, rtol=0
    )


def test_every_row_by_python_arithmetic():
    for i, q in enumerate(X.tolist()):
        scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(2) for k in X.tolist()]
        total = sum(map(math.exp, scores))
        weights = [math.exp(score) / total for score in scores]
        for j, weight in enumerate(weights):
            assert attention_weights(X, X)[i, j].item() == pytest.approx(weight, abs=1e-14)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**31 - 1))
@settings(max_examples=60, deadline=None)
def test_fused_equals_plain_for_random_shapes_and_masks(queries, keys, seed):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(2, 2, queries, 4, dtype=torch.float64, generator=generator)
    k = torch.randn(2, 2, keys, 4, dtype=torch.float64, generator=generator)
    v = torch.randn(2, 2, keys, 6, dtype=torch.float64, generator=generator)
    mask = torch.rand(2, 1, queries, keys, generator=generator) < 0.5
    plain = attention_weights(q, k, mask) @ v
    torch.testing.assert_close(attention(q, k, v, mask), plain, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 3e-2), (torch.float16, 3e-3)],
)
def test_empty_row_gives_zeros_and_finite_gradients(dtype, tolerance):
    q, k, v = random_qkv(dtype=dtype)
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[0, 0, 2] = False
    fused, plain = attention(q, k, v, mask), attention_weights(q, k, mask) @ v
    for output in (fused, plain):
        assert torch.equal(output[0, :, 2], torch.zeros(3, 8, dtype=dtype))
        gradients = torch.autograd.grad(output.float().pow(2).sum(), (q, k, v), retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert torch.equal(gradients[0][0, :, 2], torch.zeros(3, 8, dtype=dtype))
    torch.testing.assert_close(fused, plain, atol=tolerance, rtol=0)


def test_hidden_keys_get_nothing_however_low_the_others_score():
    """A fill of −100 or −1e9 is only large until scores are larger."""
    q = torch.tensor([[-1e12]], dtype=torch.float64)
    k = torch.tensor([[1.0], [1.0], [1.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    assert attention_weights(q, k, mask).tolist() == [[0.5, 0.5, 0.0]]


def test_weights_are_shares_and_hidden_keys_get_exactly_none():
    q, k, _ = random_qkv()
    weights = attention_weights(q, k, causal_mask(5))
    torch.testing.assert_close(
        weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64), atol=1e-12, rtol=0
    )
    assert (weights.triu(1) == 0).all()
    assert (weights.tril() > 0).sum() == 2 * 3 * 15


def test_polarity_is_the_opposite_of_multihead_attention():
    """Case M3: True means read here, and ignore in nn.MultiheadAttention."""
    keep = torch.tensor([[True, True, False]])
    layer = nn.MultiheadAttention(2, 1, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(2).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(2))
        expected, weights = layer(X[None], X[None], X[None], key_padding_mask=~keep)
    assert weights[0, :, 2].tolist() == [0.0, 0.0, 0.0]
    mask = keep[:, None, None, :]
    torch.testing.assert_close(attention(X[None, None], X[None, None], X[None, None], mask)[0],
                               expected, atol=1e-12, rtol=0)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8])
def test_masks_that_are_not_boolean_are_refused(dtype):
    """Case M3: added to the scores, a mask of 0s and 1s would hide nothing."""
    mask = torch.tensor([1, 1, 0], dtype=dtype)
    for call in (lambda: attention(X, X, X, mask), lambda: attention_weights(X, X, mask)):
        with pytest.raises(TypeError, match=f"mask is {dtype}, need torch.bool"):
            call()


@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 4), (2, 3, 3), (1, 1, 1, 3)])
def test_masks_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"does not broadcast to \(3, 3\)"):
        check_mask(torch.ones(shape, dtype=torch.bool), X, X)


def test_masks_that_are_no_tensor_are_refused():
    for call in (lambda m: attention(X, X, X, m), lambda m: attention_weights(X, X, m)):
        with pytest.raises(TypeError, match=r"mask is list, need torch\.bool"):
            call([[True, True, False]])


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3)])
def test_ids_without_a_batch_axis_have_no_padding_mask(shape):
    with pytest.raises(ValueError, match=r"token ids of shape .*, need \(B, S\)"):
        padding_mask(torch.ones(shape, dtype=torch.long))


def test_padding_mask_lies_on_the_keys():
    """Case M4."""
    mask = padding_mask(torch.tensor([[5, 7, 0, 0]]))
    assert mask.shape == (1, 1, 1, 4)
    assert mask.expand(1, 1, 4, 4)[0, 0].tolist() == [[True, True, False, False]] * 4


def test_causal_and_padding_mask_together():
    """Case M6."""
    both = causal_mask(4) & padding_mask(torch.tensor([[1, 5, 6, 0]]))
    assert both[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]


def test_cross_attention_is_rectangular():
    """Case M6: seven keys, three queries."""
    q, k = torch.randn(2, 3, 3, 8), torch.randn(2, 3, 7, 8)
    ids = torch.tensor([[4, 5, 6, 7, 8, 9, 4], [4, 5, 6, 0, 0, 0, 0]])
    weights = attention_weights(q, k, padding_mask(ids))
    assert weights.shape == (2, 3, 3, 7)
    assert (weights[1, :, :, 3:] == 0).all()
    assert attention(q, k, k, padding_mask(ids)).shape == (2, 3, 3, 8)


def test_causality_by_perturbation():
    q, k, v = random_qkv()
    before = attention(q, k, v, causal_mask(5))
    with torch.no_grad():
        k[:, :, 3] += 1.0
        v[:, :, 3] += 1.0
    after = attention(q, k, v, causal_mask(5))
    assert torch.equal(before[:, :, :3], after[:, :, :3])
    assert (before[:, :, 3:] - after[:, :, 3:]).abs().amax(-1).min() > 1e-3


def test_gradients_by_finite_differences():
    q, k, v = random_qkv((1, 1, 3, 4))
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    assert torch.autograd.gradcheck(lambda *t: attention(*t, mask), (q, k, v))


@pytest.mark.parametrize("keys", [7, 1100], ids=["plain", "fused"])
def test_bfloat16_is_near_float64_with_gradients(keys):
    """Both roads that bfloat16 takes on a CPU; row 0 of the mask is empty."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, n, 8, dtype=torch.float64) for n in (5, keys, keys)]
    mask = torch.rand(1, 1, 5, keys) < 0.5
    mask[..., 0, :] = False
    results = []
    for dtype in (torch.float64, torch.bfloat16):
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        out = attention(*leaves, mask)
        gradients = torch.autograd.grad(out.float().square().sum(), leaves)
        assert out.dtype == dtype and not out[:, :, 0].any()
        results.append([x.double() for x in (out, *gradients)])
    for exact, rough in zip(*results):
        assert (exact - rough).norm() < 0.03 * exact.norm()
