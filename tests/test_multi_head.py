"""transformer.multi_head: a loop over heads, nn.MultiheadAttention, counted cost, symmetry."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transformer.attention import attention, attention_weights, causal_mask, padding_mask
from transformer.multi_head import MultiHeadAttention, attention_maps, join_heads, split_heads

IDS = torch.tensor([[5, 7, 9, 4, 6], [6, 8, 0, 0, 0]])


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


def layer(d_model=16, heads=4, seed=0, **options) -> MultiHeadAttention:
    """A layer in float64 whose biases are not zero."""
    torch.manual_seed(seed)
    made = MultiHeadAttention(d_model, heads, **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


def by_loop(m: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    """Equation 5.1 head by head, for one sentence: x (T, d), memory (S, d)."""
    (hk, hv), h = m.sizes, m.heads
    d_k, d_v = hk // h, hv // h
    w_k, w_v = m.w_kv.weight[:hk], m.w_kv.weight[hk:]
    b_k, b_v = m.w_kv.bias[:hk], m.w_kv.bias[hk:]
    y = m.w_o.bias.expand(x.size(0), -1)
    for r in range(h):
        a, b = slice(r * d_k, (r + 1) * d_k), slice(r * d_v, (r + 1) * d_v)
        q = x @ m.w_q.weight[a].T + m.w_q.bias[a]
        k, v = memory @ w_k[a].T + b_k[a], memory @ w_v[b].T + b_v[b]
        scores = q @ k.T / d_k**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        y = y + scores.softmax(-1) @ v @ m.w_o.weight[:, b].T
    return y


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_split_and_join_are_inverse(batch, heads, length, width):
    x = torch.randn(batch, length, heads * width)
    split = split_heads(x, heads)
    assert split.shape == (batch, heads, length, width)
    assert torch.equal(join_heads(split), x)
    for t, r in itertools.product(range(length), range(heads)):
        assert torch.equal(split[:, r, t], x[:, t, r * width : (r + 1) * width])


def test_plain_reshape_is_not_a_split():
    x = torch.randn(1, 3, 4)
    assert split_heads(x, 2).shape == x.reshape(1, 2, 3, 2).shape
    assert not torch.equal(split_heads(x, 2), x.reshape(1, 2, 3, 2))


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6),
    st.booleans(), st.integers(0, 2**31 - 1),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_equals_the_loop(heads, d_k, d_v, queries, keys, masked, seed):
    m = layer(7, heads, d_k=d_k, d_v=d_v, seed=seed)
    x = torch.randn(1, queries, 7, dtype=torch.float64)
    memory = torch.randn(1, keys, 7, dtype=torch.float64)
    mask = None
    if masked:
        mask = torch.rand(queries, keys) < 0.5
        mask[:, 0] = True
    close(m(x, memory, mask)[0], by_loop(m, x[0], memory[0], mask))


def copied(m: MultiHeadAttention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(
        m.w_o.out_features, m.heads, batch_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.w_q.weight, m.w_kv.weight]))
        theirs.in_proj_bias.copy_(torch.cat([m.w_q.bias, m.w_kv.bias]))
        theirs.out_proj.weight.copy_(m.w_o.weight)
        theirs.out_proj.bias.copy_(m.w_o.bias)
    return theirs


@pytest.mark.parametrize("causal", [False, True])
def test_equals_torch_with_padding_outputs_weights_and_gradients(causal):
    """Case M3: one keep-mask; PyTorch's layer wants its negation."""
    ours = layer()
    theirs = copied(ours)
    x = torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
    mask = padding_mask(IDS) & causal_mask(5) if causal else padding_mask(IDS)
    y = ours(x, mask=mask)
    z, weights = theirs(
        x, x, x, key_padding_mask=IDS == 0, attn_mask=~causal_mask(5) if causal else None,
        average_attn_weights=False,
    )  # fmt: skip
    close(y, z)
    close(ours.weights(x, mask=mask), weights)
    target = torch.randn_like(y)
    ours_grad = torch.autograd.grad((y * target).sum(), [x, *ours.parameters()])
    theirs_grad = torch.autograd.grad((z * target).sum(), [x, *theirs.parameters()])
    dx, dwq, dbq, dwkv, dbkv, dwo, dbo = ours_grad
    for a, b in zip(
        (dx, torch.cat([dwq, dwkv]), torch.cat([dbq, dbkv]), dwo, dbo), theirs_grad, strict=True
    ):
        close(a, b)


def test_cross_attention_equals_torch():
    ours = layer()
    x, memory = (torch.randn(2, n, 16, dtype=torch.float64) for n in (3, 5))
    z, weights = copied(ours)(
        x, memory, memory, key_padding_mask=IDS == 0, average_attn_weights=False
    )
    close(ours(x, memory, padding_mask(IDS)), z)
    assert weights.shape == (2, 4, 3, 5)
    close(ours.weights(x, memory, padding_mask(IDS)), weights)


def test_base_is_eight_heads_of_64():
    base = MultiHeadAttention(512, 8)
    k, v = base.project_kv(torch.zeros(1, 3, 512))
    assert base.project_q(torch.zeros(1, 2, 512)).shape == (1, 8, 2, 64)
    assert k.shape == v.shape == (1, 8, 3, 64)


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_cost_does_not_depend_on_the_number_of_heads(heads):
    def plain(q, k, v, mask):
        return attention_weights(q, k, mask) @ v

    d, length = 64, 10
    m = MultiHeadAttention(d, heads, attention=plain)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        m(torch.randn(1, length, d))
    assert sum(p.numel() for p in m.parameters()) == 4 * d * d + 4 * d
    assert counter.get_total_flops() == 8 * length * d * d + 4 * length * length * d


def test_glorot_bound_of_each_block():
    """Keys and values are drawn as two d × d blocks, not as one of d × 2d."""
    m = MultiHeadAttention(128, 4)
    bound = (6 / 256) ** 0.5
    for block in (m.w_q.weight, *m.w_kv.weight.split(m.sizes), m.w_o.weight):
        assert 0.99 * bound < block.abs().max().item() <= bound
    assert all((linear.bias == 0).all() for linear in (m.w_q, m.w_kv, m.w_o))


def in_order(m: MultiHeadAttention, order) -> MultiHeadAttention:
    rows = torch.arange(m.sizes[0]).view(m.heads, -1)[list(order)].flatten()
    both = torch.cat([rows, m.sizes[0] + rows])
    new = MultiHeadAttention(m.w_o.out_features, m.heads).double()
    new.load_state_dict(
        {
            "w_q.weight": m.w_q.weight[rows],
            "w_q.bias": m.w_q.bias[rows],
            "w_kv.weight": m.w_kv.weight[both],
            "w_kv.bias": m.w_kv.bias[both],
            "w_o.weight": m.w_o.weight[:, rows],
            "w_o.bias": m.w_o.bias,
        }
    )
    return new


def test_heads_are_exchangeable():
    m = layer()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    for order in itertools.permutations(range(4)):
        close(in_order(m, order)(x), m(x))
    with torch.no_grad():  # the slices of W_O must move with the heads
        kept = in_order(m, (1, 0, 2, 3))
        kept.w_o.weight.copy_(m.w_o.weight)
        assert (kept(x) - m(x)).abs().max() > 1e-3


def test_equal_heads_get_equal_gradients():
    m = in_order(layer(), (0, 0, 0, 0))
    m(torch.randn(2, 5, 16, dtype=torch.float64)).pow(2).sum().backward()
    gradients = m.w_q.weight.grad.unflatten(0, (4, -1))
    assert gradients.abs().max() > 1e-3
    close(gradients, gradients[:1].expand_as(gradients))


def test_keys_and_values_can_be_projected_once():
    m = layer()
    x, memory = (torch.randn(2, n, 16, dtype=torch.float64) for n in (4, 5))
    k, v = m.project_kv(memory)
    whole = m(x, memory, padding_mask(IDS))
    for t in range(4):
        close(m.attend(x[:, t : t + 1], k, v, padding_mask(IDS)), whole[:, t : t + 1])


def test_the_attention_function_is_an_argument():
    seen = []

    def spy(q, k, v, mask):
        seen.append((q.shape, mask))
        return attention(q, k, v, mask)

    m, mask = layer(attention=spy), causal_mask(5)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    y = m(x, mask=mask)
    assert seen == [((2, 4, 5, 4), mask)]
    m.attention = attention
    assert torch.equal(m(x, mask=mask), y)


def test_padding_content_does_not_reach_words():
    m = layer()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    y = x.clone()
    y[1, 2:] = 1e3 * torch.randn(3, 16, dtype=torch.float64)
    close(m(y, mask=padding_mask(IDS))[1, :2], m(x, mask=padding_mask(IDS))[1, :2])
    assert (m(y)[1, :2] - m(x)[1, :2]).abs().max() > 1e-3  # without the mask it does


def test_a_sentence_of_padding_only_gives_the_bias():
    """Case M1: it reads nothing, so the heads are zero and only W_O's bias remains."""
    m = layer()
    y = m(torch.randn(1, 3, 16, dtype=torch.float64), mask=padding_mask(torch.zeros(1, 3).long()))
    close(y, m.w_o.bias.expand(1, 3, 16))


def test_attention_maps_by_name_and_hooks_removed():
    model = nn.Sequential(layer(), layer(seed=1))
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    maps = attention_maps(model, x)
    assert list(maps) == ["0", "1"]
    close(maps["0"], model[0].weights(x))
    close(maps["1"], model[1].weights(model[0](x)))
    assert not any(m._forward_pre_hooks for m in model)
    assert not maps["0"].requires_grad


def test_attention_maps_see_the_mask_given_by_keyword():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer()

        def forward(self, x):
            return self.inner(x, mask=padding_mask(IDS))

    weights = attention_maps(Model(), torch.randn(2, 5, 16, dtype=torch.float64))["inner"]
    assert (weights[1, :, :, 2:] == 0).all()
    assert (weights[1, :, :, :2] > 0).all()


def test_attention_maps_remove_their_hooks_when_the_model_raises():
    model = nn.Sequential(layer(), nn.Linear(3, 3))
    with pytest.raises(RuntimeError):
        attention_maps(model, torch.randn(2, 5, 16, dtype=torch.float64))
    assert not model[0]._forward_pre_hooks


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"d_model": 512, "heads": 7}, "d_model 512 is not a multiple of heads 7"),
        ({"d_model": 512, "heads": 7, "d_k": 64}, "d_model 512 is not a multiple of heads 7"),
        ({"d_model": 8, "heads": 0}, "heads is 0, need at least 1"),
        ({"d_model": 0, "heads": 1}, "d_model is 0, need at least 1"),
        ({"d_model": 8, "heads": 2, "d_k": 0}, "d_k is 0, need at least 1"),
        ({"d_model": 8, "heads": 2, "d_v": -1}, "d_v is -1, need at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**sizes)


@pytest.mark.parametrize("heads", [0, 3])
def test_a_width_that_does_not_split_is_refused(heads):
    with pytest.raises(ValueError, match=f"width 16 does not split into {heads} heads"):
        split_heads(torch.zeros(1, 2, 16), heads)


def test_wrong_masks_are_refused():
    m = layer()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    for call in (m, m.weights):
        with pytest.raises(TypeError, match=r"mask is torch.float32, need torch.bool"):
            call(x, mask=torch.ones(5, 5))
        with pytest.raises(ValueError, match=r"does not broadcast to \(2, 4, 5, 5\)"):
            call(x, mask=torch.ones(5, 4, dtype=torch.bool))
