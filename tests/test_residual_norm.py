"""transformer.residual_norm: hand values, float64, torch.nn, finite differences; both orders."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer.residual_norm import Dropout, LayerNorm, Residual

f64 = torch.float64


def halve_positive(u):
    return 0.5 * u.clamp(min=0)


def by_python_arithmetic(row, weight, bias, eps):
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    return [
        w * (value - mean) / math.sqrt(variance + eps) + b for value, w, b in zip(row, weight, bias)
    ]


def with_random_parameters(norm, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=f64))
    return norm


# --- LayerNorm ----------------------------------------------------------------------------------


def test_worked_example():
    y = LayerNorm(2)(torch.tensor([[1.8983, 3.7981]]))
    torch.testing.assert_close(y, torch.tensor([[-1.0, 1.0]]), atol=1e-5, rtol=0)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
@settings(max_examples=60, deadline=None)
def test_two_numbers_keep_nothing_but_their_order(a, b):
    y = LayerNorm(2).double()(torch.tensor([a, b], dtype=f64))
    variance = (b - a) ** 2 / 4
    size = math.sqrt(variance / (variance + 1e-5))
    expected = [math.copysign(size, a - b), math.copysign(size, b - a)]
    torch.testing.assert_close(y, torch.tensor(expected, dtype=f64), atol=1e-9, rtol=0)


@given(st.integers(1, 9), st.integers(0, 2**31 - 1), st.sampled_from([1e-5, 1e-2, 1.0]))
@settings(max_examples=60, deadline=None)
def test_every_row_by_python_arithmetic(d, seed, eps):
    norm = with_random_parameters(LayerNorm(d, eps).double(), seed)
    x = torch.randn(3, d, dtype=f64, generator=torch.Generator().manual_seed(seed))
    for row, y in zip(x, norm(x)):
        expected = by_python_arithmetic(row.tolist(), norm.weight.tolist(), norm.bias.tolist(), eps)
        assert y.tolist() == pytest.approx(expected, abs=1e-9)


def test_equals_torch_with_copied_parameters():
    ours = with_random_parameters(LayerNorm(16).double())
    theirs = nn.LayerNorm(16).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 5, 16, dtype=f64)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-14, rtol=0)
    assert ours.eps == theirs.eps


def test_the_variance_is_biased():
    """Divided by n − 1, the norm of [1, 3] would be ±0.7071 and not ±1."""
    y = LayerNorm(2).double()(torch.tensor([1.0, 3.0], dtype=f64))
    torch.testing.assert_close(y, torch.tensor([-1.0, 1.0], dtype=f64), atol=1e-5, rtol=0)


def test_gradients_by_finite_differences():
    norm = with_random_parameters(LayerNorm(6).double())
    x = torch.randn(2, 3, 6, dtype=f64, requires_grad=True)
    weight, bias = (p.detach().clone().requires_grad_() for p in (norm.weight, norm.bias))

    def call(x, weight, bias):
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(call, (x, weight, bias))


def test_gradient_by_the_three_terms():
    norm = with_random_parameters(LayerNorm(7).double())
    x = torch.randn(4, 7, dtype=f64, requires_grad=True)
    g = torch.randn(4, 7, dtype=f64)
    dx, dw, db = torch.autograd.grad((norm(x) * g).sum(), (x, norm.weight, norm.bias))
    for r, row in enumerate(x.tolist()):
        ones, zeros = [1.0] * 7, [0.0] * 7
        x_hat = by_python_arithmetic(row, ones, zeros, 1e-5)
        mean = sum(row) / 7
        sigma = math.sqrt(sum((value - mean) ** 2 for value in row) / 7 + 1e-5)
        g_hat = [a * b for a, b in zip(g[r].tolist(), norm.weight.tolist())]
        across = sum(g_hat) / 7
        along = sum(a * b for a, b in zip(g_hat, x_hat)) / 7
        expected = [(gh - across - xh * along) / sigma for gh, xh in zip(g_hat, x_hat)]
        assert dx[r].tolist() == pytest.approx(expected, abs=1e-12)
    x_hat = torch.tensor(
        [by_python_arithmetic(row, [1.0] * 7, [0.0] * 7, 1e-5) for row in x.tolist()], dtype=f64
    )
    torch.testing.assert_close(dw, (g * x_hat).sum(0), atol=1e-12, rtol=0)
    torch.testing.assert_close(db, g.sum(0), atol=1e-12, rtol=0)


def test_two_dimensions_pass_no_gradient():
    x = torch.tensor([[1.8983, 3.7981]], dtype=f64, requires_grad=True)
    (dx,) = torch.autograd.grad(LayerNorm(2).double()(x)[0, 0], x)
    assert 0 < dx.abs().max() < 1e-4


def test_one_position_moves_no_other():
    norm = with_random_parameters(LayerNorm(8).double())
    x = torch.randn(3, 5, 8, dtype=f64)
    y = x.clone()
    y[1, 2] = torch.randn(8, dtype=f64)
    moved = (norm(x) != norm(y)).any(-1)
    assert moved.nonzero().tolist() == [[1, 2]]
    torch.testing.assert_close(norm(x[1:2, 2:3]), norm(x)[1:2, 2:3], atol=1e-14, rtol=0)


def test_blind_to_offset_and_positive_scale():
    norm = LayerNorm(8).double()
    x = torch.randn(4, 8, dtype=f64)
    torch.testing.assert_close(norm(30 * x + 5), norm(30 * x), atol=1e-12, rtol=0)
    torch.testing.assert_close(norm(300 * x), norm(30 * x), atol=1e-6, rtol=0)
    torch.testing.assert_close(norm(-30 * x), -norm(30 * x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.0, 7.0, -256.0])
def test_a_constant_row_gives_the_offset_and_finite_gradients(dtype, value):
    norm = LayerNorm(8).to(dtype)
    x = torch.full((2, 8), value, dtype=dtype, requires_grad=True)
    y = norm(x)
    assert torch.equal(y, torch.zeros_like(y))
    (dx,) = torch.autograd.grad(y.float().square().sum() + y.float().sum(), x)
    assert dx.isfinite().all()


@pytest.mark.parametrize("eps", [0.0, -1e-5, math.nan])
def test_eps_must_be_positive(eps):
    with pytest.raises(ValueError, match=f"eps is {eps}, must be positive"):
        LayerNorm(8, eps)


# --- Residual -----------------------------------------------------------------------------------


def test_post_ln_is_the_paper_and_the_default():
    block = Residual(2).eval()
    read = torch.tensor([[[0.8983, 1.7981]]])
    y = block(torch.tensor([[[1.0, 2.0]]]), lambda _: read)
    torch.testing.assert_close(y, torch.tensor([[[-1.0, 1.0]]]), atol=1e-5, rtol=0)


def test_both_orders_by_python_arithmetic():
    row, ones, zeros = [2.0, 0.0, 1.0, 5.0], [1.0] * 4, [0.0] * 4

    def norm(row):
        return by_python_arithmetic(row, ones, zeros, 1e-5)

    def change(row):
        return [0.5 * max(0.0, value) for value in row]

    post = norm([a + b for a, b in zip(row, change(row))])
    pre = [a + b for a, b in zip(row, change(norm(row)))]
    x = torch.tensor([[row]], dtype=f64)
    for norm_first, expected in ((False, post), (True, pre)):
        block = Residual(4, norm_first=norm_first).double().eval()
        assert block(x, halve_positive)[0, 0].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_sublayer_that_returns_zero(norm_first, training):
    """Pre-LN leaves the path untouched, to the bit; Post-LN normalises it. Dropout spares it."""
    block, x = Residual(16, 0.5, norm_first).train(training), torch.randn(2, 3, 16)
    y = block(x, torch.zeros_like)
    assert torch.equal(y, x if norm_first else nn.LayerNorm(16)(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_what_the_sublayer_reads(norm_first):
    block, x, seen = Residual(16, 0.0, norm_first), 3 + torch.randn(2, 3, 16), []
    block(x, lambda u: seen.append(u) or u)
    assert torch.equal(seen[0], nn.LayerNorm(16)(x) if norm_first else x)


def test_identity_gradient_of_the_pre_ln_path():
    """Through a block whose sub-layer ignores its input, the Jacobian is exactly the identity."""
    block = Residual(5, 0.0, norm_first=True).double()
    jacobian = torch.autograd.functional.jacobian(
        lambda x: block(x, torch.zeros_like), torch.randn(5, dtype=f64)
    )
    assert torch.equal(jacobian, torch.eye(5, dtype=f64))


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_acts_in_training_only(norm_first):
    """Case M14: bit-identical in evaluation, different in training."""
    block, x = Residual(64, dropout=0.5, norm_first=norm_first), torch.randn(2, 5, 64)
    assert not torch.equal(block(x, torch.tanh), block(x, torch.tanh))
    block.eval()
    assert torch.equal(block(x, torch.tanh), block(x, torch.tanh))
    block.dropout.p = 0.0
    block.train()
    plain = block(x, torch.tanh)
    block.dropout.p = 0.5
    block.eval()
    assert torch.equal(block(x, torch.tanh), plain)


def test_dropout_falls_on_the_change_and_keeps_its_mean():
    """Pre-LN shows it bare: the path is kept whole, the change is 0 or divided by 1 − p."""
    block = Residual(1_000, dropout=0.1, norm_first=True)
    x = torch.randn(20, 50, 1_000)
    torch.manual_seed(0)
    change = block(x, torch.ones_like) - x
    kept = change > 0.5
    torch.testing.assert_close(change[kept], torch.full_like(change[kept], 1 / 0.9))
    assert change[~kept].abs().max() < 1e-6
    assert kept.float().mean().item() == pytest.approx(0.9, abs=0.002)  # 6 standard deviations
    assert change.mean().item() == pytest.approx(1.0, abs=0.003)


def test_encoder_layer_of_torch_in_both_orders():
    """Two blocks around torch's own attention and feed-forward equal its encoder layer."""
    torch.manual_seed(0)
    for norm_first in (False, True):
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, norm_first=norm_first, batch_first=True, dtype=f64
        )
        blocks = [Residual(8, 0.0, norm_first).double() for _ in range(2)]
        x = torch.randn(2, 5, 8, dtype=f64)
        y = blocks[0](x, lambda u, layer=layer: layer.self_attn(u, u, u)[0])
        y = blocks[1](y, lambda u, layer=layer: layer.linear2(layer.linear1(u).relu()))
        torch.testing.assert_close(y, layer(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_is_fair_and_independent(p):
    """Shares of single zeros and of pairs, within five standard errors of p and p²."""
    torch.manual_seed(0)
    x = torch.ones(200_003)  # no multiple of four
    out = Dropout(p)(x)
    zeros = (out == 0).double()
    assert abs(zeros.mean() - p) < 5 * (p * (1 - p) / len(x)) ** 0.5
    assert abs(out.mean() - 1) < 5 * (p / (1 - p) / len(x)) ** 0.5
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=1e-3)
    for distance in (1, 2, 3, 4):  # neighbours share a draw
        both = (zeros[distance:] * zeros[:-distance]).mean()
        assert abs(both - p * p) < 5 * (p * p * (1 - p * p) / len(x)) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_keeps_type_and_shape_and_passes_its_factor_to_the_gradient(dtype):
    x = torch.ones(3, 5, 7, dtype=dtype, requires_grad=True)
    out = Dropout(0.3)(x)
    assert out.dtype == dtype and out.shape == x.shape
    out.sum().backward()
    assert torch.equal(x.grad, out)


def test_dropout_of_nearly_everything_is_finite():
    assert Dropout(1 - 1e-9)(torch.ones(1000)).isfinite().all()
    with pytest.raises(ValueError, match=r"p is 1\.0, need 0 ≤ p < 1"):
        Dropout(1.0)
