"""transformer.feed_forward: hand values, convolutions, positions apart, counted cost."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer.feed_forward import FeedForward


def by_hand(w_1, w_2, b_1=None, b_2=None) -> FeedForward:
    """A network with these matrices, written as in the paper: x W₁ and not W x."""
    w_1, w_2 = torch.tensor(w_1), torch.tensor(w_2)
    network = FeedForward(*w_1.shape)
    zeros = {"b_1": torch.zeros(w_1.size(1)), "b_2": torch.zeros(w_2.size(1))}
    network.load_state_dict(
        {
            "w_1.weight": w_1.T,
            "w_1.bias": zeros["b_1"] if b_1 is None else torch.tensor(b_1),
            "w_2.weight": w_2.T,
            "w_2.bias": zeros["b_2"] if b_2 is None else torch.tensor(b_2),
        }
    )
    return network


def network(d_model=8, d_ff=32, dtype=torch.float64) -> FeedForward:
    torch.manual_seed(0)
    made = FeedForward(d_model, d_ff).to(dtype)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


def test_worked_example():
    half = by_hand([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [0.0, 0.5]])
    assert half(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 0.5]
    assert half(torch.tensor([1.0, -1.0])).tolist() == [0.5, 0.0]


def test_all_four_parameters_by_hand():
    # hidden max(0, [2·3 − 4 + 1, −2·3 + 4 + 1]) = [3, 0]; output 3·[5, 6] + [10, 20]
    made = by_hand([[2.0, -2.0], [-1.0, 1.0]], [[5.0, 6.0], [7.0, 8.0]], [1.0, 1.0], [10.0, 20.0])
    assert made(torch.tensor([3.0, 4.0])).tolist() == [25.0, 38.0]


def test_exactly_one_of_two_needs_the_bend():
    made = by_hand([[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [-2.0, 0.0]], [0.0, -1.0])
    corners = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert made(corners)[:, 0].tolist() == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(length=st.integers(2, 6), at=st.integers(0, 5), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=40, deadline=None)
def test_changing_one_position_moves_no_other(dtype, length, at, seed):
    made, at = network(dtype=dtype), at % length
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, length, 8, generator=generator).to(dtype)
    y = x.clone()
    y[:, at] += 1.0
    equal = (made(x) == made(y)).all(-1)
    others = [t for t in range(length) if t != at]
    assert equal[:, others].all()
    assert not equal[:, at].any()


def test_no_gradient_crosses_positions():
    x = torch.randn(4, 8, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(network(), x)  # (T, d, T, d)
    sizes = jacobian.abs().amax((1, 3))
    assert (sizes - sizes.diag().diag()).max() == 0
    assert sizes.diag().min() > 0.01


def test_equals_two_convolutions_of_size_one():
    made = network()
    wide, narrow = nn.Conv1d(8, 32, 1).double(), nn.Conv1d(32, 8, 1).double()
    with torch.no_grad():
        for convolution, linear in ((wide, made.w_1), (narrow, made.w_2)):
            convolution.weight.copy_(linear.weight[:, :, None])
            convolution.bias.copy_(linear.bias)
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    ours, theirs = made(x), narrow(wide(x.transpose(1, 2)).relu()).transpose(1, 2)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    target = torch.randn_like(ours)
    a, b = (torch.autograd.grad((y * target).sum(), x)[0] for y in (ours, theirs))
    torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def test_gradients_by_finite_differences():
    made = network(3, 5)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert (made.w_1(x).abs() > 1e-3).all()  # no hidden number sits on the bend
    assert torch.autograd.gradcheck(made, x)


def test_base_size_and_cost():
    made = FeedForward(512, 2048)
    assert sum(p.numel() for p in made.parameters()) == 2 * 512 * 2048 + 2048 + 512 == 2_099_712
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        made(torch.randn(1, 10, 512))
    assert counter.get_total_flops() == 4 * 10 * 512 * 2048


def test_initialisation_is_glorot_with_zero_biases():
    made = FeedForward(64, 256)
    bound = (6 / 320) ** 0.5
    for linear in (made.w_1, made.w_2):
        assert 0.99 * bound < linear.weight.abs().max().item() <= bound
        assert (linear.bias == 0).all()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [((0, 4), "d_model is 0"), ((4, 0), "d_ff is 0"), ((4, -2), "d_ff is -2")],
)
def test_sizes_below_one_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message + ", need at least 1"):
        FeedForward(*sizes)
