"""transformer.sliding_window: masked dense attention, loops in Python, costs, receptive fields."""

import math
import time
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer.attention import attention, causal_mask, padding_mask
from transformer.encoder import Encoder, TransformerConfig
from transformer.multi_head import MultiHeadAttention
from transformer.sliding_window import sliding_window_attention, window_mask


def random_qkv(length, batch=2, heads=2, d_k=4, d_v=4, dtype=torch.float64):
    q, k = torch.randn(2, batch, heads, length, d_k, dtype=dtype).unbind(0)
    v = torch.randn(batch, heads, length, d_v, dtype=dtype)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


# --- the mask


def test_the_window_counts_the_current_token():
    """Case M18: row sums 1, 2, 3, 3, 3, not 1, 2, 3, 4, 4."""
    mask = window_mask(5, 3)
    assert mask.sum(1).tolist() == [1, 2, 3, 3, 3]
    assert torch.equal(window_mask(5, 1), torch.eye(5, dtype=torch.bool))
    assert torch.equal(window_mask(5, 1, causal=False), torch.eye(5, dtype=torch.bool))
    for window in (5, 6, 100):
        assert torch.equal(window_mask(5, window), causal_mask(5))
        assert window_mask(5, window, causal=False).all()
    with pytest.raises(ValueError, match="window is 0, need at least 1"):
        window_mask(5, 0)


@given(st.integers(1, 12), st.integers(1, 15), st.booleans())
def test_every_cell_of_the_mask(length, window, causal):
    mask = window_mask(length, window, causal).tolist()
    for i in range(length):
        for j in range(length):
            near = j in range(i - window + 1, i + 1 if causal else i + window)
            assert mask[i][j] == near


@pytest.mark.parametrize("window", [0, -1])
def test_windows_below_one_are_refused(window):
    q, k, v = random_qkv(3)
    with pytest.raises(ValueError, match=f"window is {window}, need at least 1"):
        sliding_window_attention(q, k, v, window=window)


@pytest.mark.parametrize("window", [2.0, True, "3"])
def test_windows_that_are_no_integers_are_refused(window):
    with pytest.raises(TypeError, match="need an integer"):
        window_mask(5, window)


# --- the computation


@given(
    length=st.integers(1, 40),
    window=st.integers(1, 45),
    causal=st.booleans(),
    padded=st.sampled_from(["none", "right", "random", "all"]),
    d_v=st.integers(1, 6),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=200)
def test_equals_masked_dense_attention(length, window, causal, padded, d_v, seed):
    torch.manual_seed(seed)
    q, k, v = random_qkv(length, d_v=d_v)
    mask = {
        "none": None,
        "right": torch.arange(length) < torch.tensor([[[[length]]], [[[length // 3]]]]),
        "random": torch.rand(2, 1, 1, length) < 0.5,
        "all": torch.zeros(1, 1, 1, length, dtype=torch.bool),
    }[padded]
    band = window_mask(length, window, causal)
    local = sliding_window_attention(q, k, v, mask, window=window, causal=causal)
    dense = attention(q, k, v, band if mask is None else band & mask)
    torch.testing.assert_close(local, dense, atol=1e-12, rtol=0)
    weights = torch.randn_like(dense)
    for a, b in zip(
        torch.autograd.grad((local * weights).sum(), (q, k, v)),
        torch.autograd.grad((dense * weights).sum(), (q, k, v)),
    ):
        assert a.isfinite().all()
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 9])
def test_equals_arithmetic_in_python(window, causal):
    q, k, v = (t.detach() for t in random_qkv(7, batch=1, heads=1, d_k=2, d_v=3))
    local = sliding_window_attention(q, k, v, window=window, causal=causal)[0, 0]
    queries, keys, values = (t[0, 0].tolist() for t in (q, k, v))
    for i in range(7):
        near = [j for j in range(7) if abs(i - j) < window and (j <= i or not causal)]
        shares = [
            math.exp(sum(a * b for a, b in zip(queries[i], keys[j])) / math.sqrt(2)) for j in near
        ]
        for c in range(3):
            mean = sum(s * values[j][c] for s, j in zip(shares, near)) / sum(shares)
            assert local[i, c].item() == pytest.approx(mean, abs=1e-13)


def test_gradients_by_finite_differences():
    q, k, v = random_qkv(5, batch=1, heads=1, d_k=2, d_v=2)
    mask = torch.tensor([True, False, False, True, True])[None, None, None]
    local = partial(sliding_window_attention, mask=mask, window=2)
    assert torch.autograd.gradcheck(local, (q, k, v))


def test_a_window_that_slid_into_the_padding():
    """Case M1(b): 16 positions, causal window 4, the last 12 keys are PAD."""
    q, k, v = random_qkv(16)
    mask = (torch.arange(16) < 4)[None, None, None]
    padded = sliding_window_attention(q, k, v, mask, window=4)
    alone = sliding_window_attention(q[:, :, :4], k[:, :, :4], v[:, :, :4], window=4)
    assert padded.isfinite().all()
    torch.testing.assert_close(padded[:, :, :4], alone, atol=1e-12, rtol=0)
    assert (padded[:, :, 7:] == 0).all()  # position 7 reads 4 to 7
    assert (padded[:, :, :7] != 0).all()  # position 6 reads 3 to 6
    gradients = torch.autograd.grad(padded.pow(2).sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[:, :, 7:] == 0).all() for gradient in gradients)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 3e-2)])
def test_other_precisions(dtype, tolerance):
    q, k, v = random_qkv(33, dtype=dtype)
    mask = torch.rand(2, 1, 1, 33) < 0.7
    local = sliding_window_attention(q, k, v, mask, window=6)
    assert local.dtype == dtype
    dense = attention(q.double(), k.double(), v.double(), window_mask(33, 6) & mask)
    torch.testing.assert_close(local.double(), dense, atol=tolerance, rtol=0)


def test_causality_by_perturbation():
    q, k, v = random_qkv(9)
    before = sliding_window_attention(q, k, v, window=3)
    with torch.no_grad():
        k[:, :, 4] += 1.0
        v[:, :, 4] += 1.0
    moved = (before - sliding_window_attention(q, k, v, window=3)).abs().amax((0, 1, 3))
    assert [bool(size > 0) for size in moved] == [i in (4, 5, 6) for i in range(9)]


# --- what is refused


def test_a_dense_mask_is_refused():
    q, k, v = random_qkv(6)
    for mask in (causal_mask(6), window_mask(6, 2)[None, None], torch.ones(6, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"need a padding mask \(2, 1, 1, 6\)"):
            sliding_window_attention(q, k, v, mask, window=2)


def test_a_mask_for_another_batch_is_refused():
    q, k, v = random_qkv(6)
    mask = torch.ones(3, 1, 1, 6, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"\(3, 1, 1, 6\), need a padding mask \(2, 1, 1, 6\)"):
        sliding_window_attention(q, k, v, mask, window=2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_mask_that_is_not_boolean_is_refused(dtype):
    """Case M3."""
    q, k, v = random_qkv(6)
    with pytest.raises(TypeError, match=f"mask is {dtype}, need torch.bool"):
        sliding_window_attention(q, k, v, torch.ones(2, 1, 1, 6, dtype=dtype), window=2)


def test_cross_attention_is_refused():
    q, k, v = random_qkv(6)
    for keys, values in ((k[:, :, :5], v[:, :, :5]), (k, v[:, :, :5]), (k[:, :1], v[:, :1])):
        with pytest.raises(ValueError, match="a window needs self-attention"):
            sliding_window_attention(q, keys, values, window=2)


@pytest.mark.parametrize("shape", [(6, 4), (2, 6, 4), (2, 2, 0, 4)])
def test_queries_of_the_wrong_shape_are_refused(shape):
    x = torch.randn(shape)
    with pytest.raises(ValueError, match=r"need \(B, h, T, d_k\) with T at least 1"):
        sliding_window_attention(x, x, x, window=2)


# --- what it costs


def flops(call):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def bytes_kept(call):
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = (tensor, tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        call()
    return sum(size for _, size in kept.values())


def exponent(count, run, short=1024, long=4096):
    q = {length: torch.randn(1, 1, length, 16, requires_grad=True) for length in (short, long)}
    ratio = count(lambda: run(q[long])) / count(lambda: run(q[short]))
    return math.log(ratio) / math.log(long / short)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [64, 128])
@pytest.mark.parametrize("count", [flops, bytes_kept])
def test_cost_grows_with_the_length(count, window, causal):
    local = partial(sliding_window_attention, window=window, causal=causal)
    assert exponent(count, lambda q: local(q, q, q)) < 1.1


@pytest.mark.parametrize("count", [flops, bytes_kept])
def test_cost_grows_with_the_window(count):
    q = torch.randn(1, 1, 4096, 16, requires_grad=True)
    small, large = (
        count(lambda w=w: sliding_window_attention(q, q, q, window=w)) for w in (128, 512)
    )
    assert 1.5 < large / small < 4.2  # keys and values do not depend on w


def test_cost_of_the_masked_dense_one_grows_with_the_square():
    for count in (flops, bytes_kept):
        slope = exponent(count, lambda q: attention(q, q, q, window_mask(q.size(2), 64)))
        assert 1.8 < slope < 2.1


def test_faster_than_dense_with_a_band():
    q, mask = torch.randn(1, 2, 4096, 64), window_mask(4096, 64)

    def seconds(call):
        taken = []
        for _ in range(3):
            start = time.process_time()
            call()
            taken.append(time.process_time() - start)
        return min(taken)

    dense = seconds(lambda: attention(q, q, q, mask))
    assert dense > 3 * seconds(lambda: sliding_window_attention(q, q, q, window=64))


# --- in the model


@pytest.mark.parametrize("norm_first", [True, False])
def test_plugs_into_the_encoder(norm_first):
    config = TransformerConfig(
        20, d_model=16, heads=2, d_ff=32, layers=3, dropout=0.0, norm_first=norm_first
    )
    local = Encoder(config, partial(sliding_window_attention, window=3, causal=False)).double()
    dense = Encoder(config).double()
    assert [n for n, _ in local.named_parameters()] == [n for n, _ in dense.named_parameters()]
    dense.load_state_dict(local.state_dict())
    ids = torch.tensor([[5, 6, 7, 8, 9, 4, 6, 5, 7], [5, 6, 7, 8, 0, 0, 0, 0, 0]])
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    band = window_mask(9, 3, causal=False) & padding_mask(ids)
    torch.testing.assert_close(local(x, padding_mask(ids)), dense(x, band), atol=1e-12, rtol=0)


def test_multi_head_attention_refuses_a_dense_mask():
    layer = MultiHeadAttention(8, 2, attention=partial(sliding_window_attention, window=2))
    with pytest.raises(ValueError, match="need a padding mask"):
        layer(torch.randn(1, 5, 8), mask=causal_mask(5))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_receptive_field(window, layers, causal):
    config = TransformerConfig(5, d_model=16, heads=2, d_ff=32, layers=layers, dropout=0.0)
    local = partial(sliding_window_attention, window=window, causal=causal)
    encoder = Encoder(config, local).double()
    x = torch.randn(1, 25, 16, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder(x)[0, 12].sin().sum(), x)
    felt = (gradient[0] != 0).any(-1).nonzero().flatten().tolist()
    reach = layers * (window - 1)
    assert felt == list(range(12 - reach, 13 if causal else 13 + reach))
