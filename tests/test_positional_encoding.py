"""transformer.positional_encoding: hand values, complex exponentials, identities, limits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.positional_encoding import PositionalEncoding, sinusoidal_encoding


def test_values_by_hand():
    expected = [[0.0, 1.0, 0.0, 1.0], [0.841471, 0.540302, 0.0099998, 0.99995]]
    torch.testing.assert_close(sinusoidal_encoding(2, 4), torch.tensor(expected), atol=1e-6, rtol=0)


@given(st.integers(1, 300), st.integers(1, 130), st.sampled_from([10.0, 100.0, 10_000.0]))
@settings(max_examples=40, deadline=None)
def test_every_entry_by_python_arithmetic(length, d_model, base):
    encoding = sinusoidal_encoding(length, d_model, base)
    assert encoding.shape == (length, d_model)
    assert encoding.dtype == torch.float32
    for p in {0, length // 2, length - 1}:
        for column in range(d_model):
            angle = p / base ** (2 * (column // 2) / d_model)
            value = math.cos(angle) if column % 2 else math.sin(angle)
            assert encoding[p, column].item() == pytest.approx(value, abs=1e-7)


def test_full_precision_far_out():
    """A complex exponential, in float64, at places where float32 arithmetic loses four digits."""
    d_model, length = 512, 20_000
    omega = 10_000.0 ** (-np.arange(0, d_model, 2) / d_model)
    hand = np.exp(1j * np.arange(length)[:, None] * omega)
    encoding = sinusoidal_encoding(length, d_model).numpy()
    np.testing.assert_allclose(encoding[:, 0::2], hand.imag, atol=1e-7)
    np.testing.assert_allclose(encoding[:, 1::2], hand.real, atol=1e-7)


def test_odd_width():
    """Case M8: three coordinates, the last hand without its cosine."""
    expected = torch.tensor([[0.0, 1.0, 0.0], [0.841471, 0.540302, 0.002154]])
    torch.testing.assert_close(sinusoidal_encoding(2, 3), expected, atol=5e-7, rtol=0)
    assert sinusoidal_encoding(3, 1)[:, 0].tolist() == pytest.approx([0, math.sin(1), math.sin(2)])
    assert PositionalEncoding(3, 2)(torch.zeros(1, 2, 3)).shape == (1, 2, 3)


@given(st.integers(0, 900), st.integers(-60, 60), st.sampled_from([2, 8, 64, 128]))
@settings(max_examples=60, deadline=None)
def test_dot_product_depends_on_the_distance_alone(p, k, d_model):
    encoding = sinusoidal_encoding(1_000, d_model).double()
    other = min(max(p + k, 0), 999)
    expected = sum(
        math.cos((other - p) * 10_000 ** (-2 * i / d_model)) for i in range(d_model // 2)
    )
    assert (encoding[p] @ encoding[other]).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("k", [1, 3, 50])
def test_one_linear_map_shifts_every_place(k):
    """Fitted by least squares on every seventh place, it must hold at all the others."""
    encoding = sinusoidal_encoding(1_000 + k, 16).double().numpy()
    before, after = encoding[:1_000], encoding[k:]
    matrix, *_ = np.linalg.lstsq(before[::7], after[::7], rcond=None)
    np.testing.assert_allclose(before @ matrix, after, atol=1e-4)


def test_no_two_places_look_alike():
    encoding = sinusoidal_encoding(2_000, 64).double()
    distances = torch.cdist(encoding, encoding).fill_diagonal_(torch.inf)
    assert distances.min() > 0.9


def test_it_is_added_and_batch_rows_get_the_same():
    x = torch.randn(3, 7, 10)
    layer = PositionalEncoding(10, 20).eval()
    assert torch.equal(layer(x), x + sinusoidal_encoding(7, 10))
    assert torch.equal(layer(x[1:2]), layer(x)[1:2])


@pytest.mark.parametrize("chunks", [[1] * 7, [4, 3], [7]])
def test_start_is_the_place_of_the_first_token(chunks):
    """Case D6: seven tokens fed one by one, or four and three, stand where they stood together."""
    x = torch.randn(2, 7, 8)
    layer = PositionalEncoding(8, 7).eval()
    pieces, start = [], 0
    for size in chunks:
        pieces.append(layer(x[:, start : start + size], start))
        start += size
    assert torch.equal(torch.cat(pieces, dim=1), layer(x))


def test_the_limit_is_a_length_that_works():
    """Case M10: five places pass, six are refused, wherever they begin."""
    layer = PositionalEncoding(4, 5)
    assert layer(torch.zeros(1, 5, 4)).shape == (1, 5, 4)
    assert layer(torch.zeros(1, 1, 4), start=4).shape == (1, 1, 4)
    message = "sequence of 6 positions is past the limit max_len = 5"
    with pytest.raises(ValueError, match=message):
        layer(torch.zeros(1, 6, 4))
    with pytest.raises(ValueError, match=message):
        layer(torch.zeros(1, 1, 4), start=5)


def test_bad_input_is_refused_by_name():
    layer = PositionalEncoding(4, 5)
    with pytest.raises(ValueError, match="start is -1, must be at least 0"):
        layer(torch.zeros(1, 1, 4), start=-1)
    with pytest.raises(ValueError, match="vectors of width 1, need d_model = 4"):
        layer(torch.zeros(1, 2, 1))
    with pytest.raises(ValueError, match="length 0 and d_model 4 must be at least 1"):
        sinusoidal_encoding(0, 4)
    with pytest.raises(ValueError, match="length 3 and d_model 0 must be at least 1"):
        sinusoidal_encoding(3, 0)
    for base in (0.0, -2.0, math.nan):
        with pytest.raises(ValueError, match=f"base is {base}, must be positive"):
            sinusoidal_encoding(3, 4, base)


def test_dropout_in_training_only():
    layer = PositionalEncoding(64, 50, dropout=0.5)
    x = torch.ones(4, 50, 64)
    torch.manual_seed(0)
    dropped = layer(x) == 0
    assert 0.45 < dropped.float().mean() < 0.55
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    assert torch.equal(layer(x), x + sinusoidal_encoding(50, 64))


def test_nothing_to_learn_and_nothing_to_save():
    layer = PositionalEncoding(8, 20)
    assert list(layer.parameters()) == []
    assert layer.state_dict() == {}
    assert dict(layer.named_buffers())["encoding"].shape == (20, 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_output_keeps_the_dtype_of_the_input(dtype):
    layer = PositionalEncoding(8, 20).eval()
    assert layer(torch.zeros(1, 20, 8, dtype=dtype)).dtype == dtype
