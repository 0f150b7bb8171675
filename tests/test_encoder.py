"""transformer.encoder: the worked example, nn.TransformerEncoder, padding, configuration."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer.attention import attention, padding_mask
from transformer.encoder import Encoder, EncoderLayer, TransformerConfig

SMALL = TransformerConfig(100, d_model=32, heads=4, d_ff=64, layers=6, dropout=0.0)
PRE = dataclasses.replace(SMALL, norm_first=True)
X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
IDS = torch.tensor([[5, 7, 9, 4, 6], [6, 8, 3, 0, 0]])


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


def encoder(config=SMALL, seed=0, dtype=torch.float64) -> Encoder:
    """An encoder whose biases, scales and shifts are not those of the start."""
    torch.manual_seed(seed)
    made = Encoder(config).to(dtype)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


def embedded(*shape, dtype=torch.float64, seed=1) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


# --- the worked example -------------------------------------------------------------------------


def worked_encoder(layers: int) -> Encoder:
    config = TransformerConfig(3, d_model=2, heads=1, d_ff=2, layers=layers, dropout=0.0)
    made, eye = Encoder(config).double(), torch.eye(2)
    with torch.no_grad():
        for layer in made.layers:
            layer.self_attention.w_q.weight.copy_(eye)
            layer.self_attention.w_kv.weight.copy_(torch.cat([eye, eye]))
            layer.self_attention.w_o.weight.copy_(eye)
            layer.feed_forward.w_1.weight.copy_(eye)
            layer.feed_forward.w_2.weight.copy_(0.5 * eye)
            for residual in layer.residuals:
                residual.norm.eps = 1e-12
    return made


def test_worked_example_every_step():
    layer = worked_encoder(1).layers[0]
    seen = {}

    def keep(name):
        def hook(module, inputs, output):
            seen[name] = output[0].detach()

        return hook

    layer.self_attention.register_forward_hook(keep("A"))
    layer.residuals[0].register_forward_hook(keep("U"))
    layer.feed_forward.register_forward_hook(keep("F"))
    h1 = layer(X[None])[0]
    expected = {
        "A": [[0.8022, 1.0], [0.7160, 1.4359], [0.8983, 1.7981]],
        "U": [[1, -1], [-1, 1], [-1, 1]],
        "F": [[0.5, 0], [0, 0.5], [0, 0.5]],
    }
    for name, rows in expected.items():
        close(seen[name], torch.tensor(rows, dtype=torch.float64), 1e-4)
    close(h1, torch.tensor([[1, -1], [-1, 1], [-1, 1]], dtype=torch.float64), 1e-9)


def test_worked_example_is_a_fixed_point_of_the_second_layer():
    h2 = worked_encoder(2)(X[None])[0]
    close(h2, torch.tensor([[1, -1], [-1, 1], [-1, 1]], dtype=torch.float64), 1e-9)


# --- PyTorch ------------------------------------------------------------------------------------


def flat(ours: Encoder, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters (or their gradients), by PyTorch's names."""
    out = {}
    names = {
        "self_attention.w_o": "self_attn.out_proj",
        "feed_forward.w_1": "linear1",
        "feed_forward.w_2": "linear2",
        "residuals.0.norm": "norm1",
        "residuals.1.norm": "norm2",
    }
    for kind in ("weight", "bias"):
        for i in range(len(ours.layers)):
            a = f"layers.{i}.self_attention"
            out[f"layers.{i}.self_attn.in_proj_{kind}"] = torch.cat(
                [values[f"{a}.w_q.{kind}"], values[f"{a}.w_kv.{kind}"]]
            )
            for mine, theirs in names.items():
                out[f"layers.{i}.{theirs}.{kind}"] = values[f"layers.{i}.{mine}.{kind}"]
        if f"norm.{kind}" in values:
            out[f"norm.{kind}"] = values[f"norm.{kind}"]
    return out


def copied(ours: Encoder, c: TransformerConfig) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        c.d_model, c.heads, c.d_ff, 0.0, batch_first=True, norm_first=c.norm_first
    )
    norm = nn.LayerNorm(c.d_model) if c.norm_first else None
    theirs = nn.TransformerEncoder(layer, c.layers, norm, enable_nested_tensor=False).double()
    theirs.load_state_dict(flat(ours, dict(ours.named_parameters())))
    return theirs


@pytest.mark.parametrize("config", [SMALL, PRE], ids=["post", "pre"])
def test_six_layers_equal_torch_outputs_and_all_gradients(config):
    ours = encoder(config)
    theirs = copied(ours, config)
    x = embedded(2, 5, 32).requires_grad_()
    real = IDS != 0
    y = ours(x, padding_mask(IDS))[real]
    z = theirs(x, src_key_padding_mask=~real)[real]
    close(y, z)
    target = embedded(*y.shape, seed=2)
    dx = []
    for out, model in ((y, ours), (z, theirs)):
        model.zero_grad()
        (gradient,) = torch.autograd.grad((out * target).sum(), x, retain_graph=True)
        dx.append(gradient)
        (out * target).sum().backward()
    close(*dx)
    mine = flat(ours, {name: p.grad for name, p in ours.named_parameters()})
    other = {name: p.grad for name, p in theirs.named_parameters()}
    assert mine.keys() == other.keys()
    for name, gradient in mine.items():  # relative: sums over many layers
        torch.testing.assert_close(gradient, other[name], atol=1e-12, rtol=1e-11)


@pytest.mark.parametrize("config", [SMALL, PRE], ids=["post", "pre"])
def test_evaluation_equals_torch_on_real_positions(config):
    """PyTorch's fast path zeroes padded rows; only real ones mean anything."""
    ours = encoder(config).eval()
    theirs = copied(ours, config).eval()
    x, real = embedded(2, 5, 32), IDS != 0
    with torch.no_grad():
        close(ours(x, padding_mask(IDS))[real], theirs(x, src_key_padding_mask=~real)[real])


def test_the_paper_is_post_ln():
    base = TransformerConfig.base(10)
    assert not base.norm_first
    made = encoder()
    assert isinstance(made.norm, nn.Identity)
    layer, x = made.layers[0], embedded(1, 3, 32)
    r1, r2 = layer.residuals
    u = nn.functional.layer_norm(
        x + layer.self_attention(x), (32,), r1.norm.weight, r1.norm.bias, 1e-5
    )
    h = nn.functional.layer_norm(u + layer.feed_forward(u), (32,), r2.norm.weight, r2.norm.bias)
    close(layer(x), h)


def test_pre_ln_has_a_closing_norm():
    made = encoder(PRE)
    with torch.no_grad():
        made.norm.weight.fill_(1.0)
        made.norm.bias.fill_(0.0)
    z = made(100 * embedded(2, 5, 32))
    close(z.mean(-1), torch.zeros(2, 5, dtype=torch.float64), 1e-9)
    close(z.std(-1, correction=0), torch.ones(2, 5, dtype=torch.float64), 1e-4)


# --- padding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [SMALL, PRE], ids=["post", "pre"])
@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**31 - 1))
@settings(max_examples=15, deadline=None)
def test_padding_never_changes_real_positions(config, words, padding, seed):
    made = encoder(config)
    x = embedded(1, words, 32, seed=seed)
    ids = torch.tensor([[5] * words + [0] * padding])
    alone = made(x)
    for scale in (0.0, 1.0, 1e3):
        noise = scale * embedded(1, padding, 32, seed=seed + 1)
        z = made(torch.cat([x, noise], 1), padding_mask(ids))
        close(z[:, :words], alone)


def test_no_gradient_reaches_padding():
    x = embedded(2, 5, 32).requires_grad_()
    z = encoder()(x, padding_mask(IDS))
    (dx,) = torch.autograd.grad((z[IDS != 0] * embedded(8, 32)).sum(), x)
    assert (dx[IDS == 0] == 0).all()
    assert (dx[IDS != 0].abs().amax(-1) > 1e-3).all()


def test_without_the_mask_padding_does_change_words():
    made = encoder()
    x = embedded(1, 5, 32)
    assert (made(x)[:, :3] - made(x[:, :3])).abs().max() > 1e-2


@pytest.mark.parametrize("config", [SMALL, PRE], ids=["post", "pre"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_sentence_of_padding_only_is_finite_and_harmless(config, dtype, tolerance):
    """Case M1: outputs and gradients finite, the other sentence as if alone."""
    made = encoder(config, dtype=dtype)
    x = embedded(2, 3, 32, dtype=dtype).requires_grad_()
    z = made(x, padding_mask(torch.tensor([[5, 7, 9], [0, 0, 0]])))
    close(z[:1], made(x[:1]), tolerance)
    z.pow(2).sum().backward()
    assert z.isfinite().all()
    assert all(p.grad.isfinite().all() for p in made.parameters())
    assert x.grad.isfinite().all()


def test_a_batch_is_its_sentences():
    made, x = encoder(), embedded(4, 5, 32)
    close(made(x), torch.cat([made(row[None]) for row in x]))


def test_dropout_in_training_only():
    """Case M14: bit-identical in evaluation, different in training."""
    made = encoder(dataclasses.replace(SMALL, dropout=0.5))
    x = embedded(2, 5, 32)
    assert not torch.equal(made(x), made(x))
    made.eval()
    assert torch.equal(made(x), made(x))


# --- structure ----------------------------------------------------------------------------------


def test_positions_do_not_wait_and_layers_do():
    made, x = encoder(), embedded(1, 4, 32)
    layer, after = made.layers[0], made.layers[1]
    k, v = layer.self_attention.project_kv(x)
    for t in range(4):  # output t without any other output
        row = layer.residuals[0](x[:, t : t + 1], lambda q: layer.self_attention.attend(q, k, v))
        close(layer.residuals[1](row, layer.feed_forward), layer(x)[:, t : t + 1])
    h1 = layer(x)
    changed = h1.clone()
    changed[:, 0] += embedded(32)
    assert ((after(h1) - after(changed)).abs().amax(-1) > 1e-3).all()


def test_reordered_words_give_reordered_memory():
    made, x, order = encoder(), embedded(2, 5, 32), torch.tensor([3, 0, 4, 1, 2])
    close(made(x[:, order]), made(x)[:, order])


def test_layers_do_not_share_parameters():
    made = Encoder(SMALL)
    assert len(made.layers) == 6
    assert len({p.data_ptr() for p in made.parameters()}) == len(list(made.parameters()))
    assert not torch.equal(made.layers[0].feed_forward.w_1.weight,
                           made.layers[1].feed_forward.w_1.weight)  # fmt: skip


def test_base_encoder_parameters():
    with torch.device("meta"):
        made = Encoder(TransformerConfig.base())
    per_layer = 4 * (512 * 512 + 512) + (512 * 2048 + 2048) + (2048 * 512 + 512) + 4 * 512
    assert sum(p.numel() for p in made.parameters()) == 6 * per_layer == 18_914_304
    assert made.layers[0].self_attention.heads == 8


def test_attention_is_passed_to_every_layer():
    calls = []

    def spy(q, k, v, mask):
        calls.append(q.shape)
        return attention(q, k, v, mask)

    Encoder(SMALL, attention=spy)(torch.randn(2, 3, 32))
    assert calls == [(2, 4, 3, 8)] * 6


def test_head_widths_of_their_own():
    made = EncoderLayer(dataclasses.replace(SMALL, heads=3, d_k=5, d_v=7))
    assert made.self_attention.w_q.weight.shape == (15, 32)
    assert made.self_attention.w_o.weight.shape == (32, 21)
    assert made(torch.randn(1, 2, 32)).shape == (1, 2, 32)


# --- configuration ------------------------------------------------------------------------------


def test_base_and_big_are_the_papers():
    """Vaswani et al. 2017, Table 3 and §5.4."""
    base, big = TransformerConfig.base(), TransformerConfig.big()
    fields = ("layers", "d_model", "d_ff", "heads", "d_k", "d_v", "dropout", "norm_first")
    assert [getattr(base, f) for f in fields] == [6, 512, 2048, 8, None, None, 0.1, False]
    assert [getattr(big, f) for f in fields] == [6, 1024, 4096, 16, None, None, 0.3, False]


def test_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.layers = 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size is 0, need an integer of at least 1"),
        ({"layers": -1}, "layers is -1"),
        ({"d_ff": 2.5}, "d_ff is 2.5"),
        ({"heads": "4"}, "heads is '4'"),
        ({"max_len": 0}, "max_len is 0"),
        ({"d_k": 0}, "d_k is 0"),
        ({"d_v": 1.5}, "d_v is 1.5"),
        ({"dropout": 1.0}, "dropout is 1.0, need 0 ≤ dropout < 1"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"dropout": "0.1"}, "dropout is '0.1'"),
        ({"dropout": None}, "dropout is None"),
        ({"layers": True}, "layers is True"),
        ({"norm_first": "no"}, "norm_first is 'no', need True or False"),
        ({"tied": None}, "tied is None, need True or False"),
        ({"d_model": 30}, "d_model 30 is not a multiple of heads 4"),
        ({"d_model": 30, "d_k": 8}, "d_model 30 is not a multiple of heads 4"),
    ],
)
def test_wrong_sizes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


def test_wrong_masks_are_refused():
    made, x = encoder(), embedded(2, 5, 32)
    with pytest.raises(TypeError, match=r"need torch\.bool"):
        made(x, torch.ones(5))
    with pytest.raises(ValueError, match=r"does not broadcast to \(2, 4, 5, 5\)"):
        made(x, IDS[:, None, None, :4] != 0)
