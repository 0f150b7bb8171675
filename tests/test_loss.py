"""transformer.loss: the worked numbers, float64, PyTorch's layers; padding; the paper's Table 3."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer.decoder import shift_right
from transformer.encoder import TransformerConfig
from transformer.loss import Transformer, count_parameters, cross_entropy, translation_loss
from transformer.tokens import BOS, EOS, PAD, frame, pad

LABELS = torch.tensor([4, 5, 6, 2])  # Xiaoming starts working <eos>
GIVEN = [0.6, 0.5, 0.25, 0.8]


def log_probabilities():
    """(4, 10): the given probability at each label, the rest shared evenly."""
    rows = [[(1 - p) / 9] * 10 for p in GIVEN]
    for row, label, p in zip(rows, LABELS.tolist(), GIVEN):
        row[label] = p
    return torch.tensor(rows, dtype=torch.float64).log()


def small(**changes):
    """A small model in float64 whose biases and norms are no longer 0 and 1."""
    torch.manual_seed(0)
    config = TransformerConfig(
        **{"vocab_size": 12, "d_model": 16, "heads": 2, "d_ff": 32, "layers": 2, "max_len": 20}
        | {"dropout": 0.0}
        | changes
    )
    model = Transformer(config)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.double()


def random_ids(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, 12, shape, generator=generator)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


# --- cross-entropy -------------------------------------------------------------------------------


def test_worked_example():
    expected = -sum(map(math.log, GIVEN)) / 4
    assert round(expected, 4) == 0.7034
    assert cross_entropy(log_probabilities(), LABELS).item() == pytest.approx(expected, abs=1e-14)
    total = cross_entropy(log_probabilities(), LABELS, reduction="sum").item()
    assert total == pytest.approx(4 * expected, abs=1e-14)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_by_formula_and_finite_differences(smoothing):
    z = log_probabilities().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(z, LABELS, smoothing), z)
    for t, label in enumerate(LABELS.tolist()):
        for v in range(10):
            wanted = (1 - smoothing) * (v == label) + smoothing / 10
            p = GIVEN[t] if v == label else (1 - GIVEN[t]) / 9
            assert gradient[t, v].item() == pytest.approx((p - wanted) / 4, abs=1e-14)
    if not smoothing:
        assert gradient[0, 4].item() == pytest.approx(-0.1, abs=1e-14)
    assert torch.autograd.gradcheck(lambda z: cross_entropy(z, LABELS, smoothing), z)


def test_smoothing_of_the_handed_case():
    """Case T1, the convention ε/V: V = 6, PAD = 0, ε = 0.2."""
    labels = torch.tensor([3, 0, 5])
    logits = 2.0 * nn.functional.one_hot(labels, 6).double()
    lse = math.log(math.exp(2) + 5)
    by_hand = 0.8 * (lse - 2) + 0.2 * (lse - 2 / 6)  # each of the two that count
    assert 2 * by_hand == pytest.approx(1.700294, abs=5e-7)
    total = cross_entropy(logits, labels, 0.2, reduction="sum").item()
    assert total == pytest.approx(2 * by_hand, abs=1e-13)
    mean = cross_entropy(logits, labels, 0.2).item()
    assert mean == pytest.approx(0.850147, abs=5e-7)


def test_smoothing_with_a_vocabulary_of_two():
    """Case T1: ε/V needs no V − 2."""
    by_hand = 0.9 * math.log(2) + 0.1 * math.log(2)
    loss = cross_entropy(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([1]), 0.2)
    assert loss.item() == pytest.approx(by_hand, abs=1e-14)


@given(
    st.integers(2, 12), st.integers(1, 6), st.floats(0.0, 0.9), st.integers(0, 2**31 - 1),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_equals_the_definition_label_by_label(V, T, smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, T, V, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, V, (2, T), generator=generator)
    labels[0, 0] = 1
    total = 0.0
    for row, label in zip(logits.flatten(0, 1).tolist(), labels.flatten().tolist()):
        if label != PAD:
            lse = math.log(sum(math.exp(z) for z in row))
            wanted = [(1 - smoothing) * (v == label) + smoothing / V for v in range(V)]
            total += sum(q * (lse - z) for q, z in zip(wanted, row))
    summed = cross_entropy(logits, labels, smoothing, reduction="sum").item()
    assert summed == pytest.approx(total, rel=1e-12)
    count = int((labels != PAD).sum())
    mean = cross_entropy(logits, labels, smoothing).item()
    assert mean == pytest.approx(total / count, rel=1e-12)


@pytest.mark.parametrize("V", [2, 10, 1000])
def test_smoothed_loss_is_lowest_at_the_entropy_of_the_wanted_distribution(V):
    wanted = torch.full((1, V), 0.1 / V, dtype=torch.float64)
    wanted[0, 1] += 0.9
    entropy = -(wanted * wanted.log()).sum()
    logits = wanted.log().requires_grad_()
    loss = cross_entropy(logits, torch.tensor([1]), 0.1)
    close(loss.detach(), entropy)
    close(torch.autograd.grad(loss, logits)[0], torch.zeros(1, V, dtype=torch.float64))
    sharper = (3 * wanted.log()).log_softmax(-1)
    assert cross_entropy(sharper, torch.tensor([1]), 0.1) > entropy > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_changes_neither_loss_nor_gradient(smoothing):
    z = log_probabilities().requires_grad_()
    padded = torch.cat([z, torch.randn(3, 10, dtype=torch.float64)])
    labels = torch.cat([LABELS, torch.zeros(3, dtype=torch.long)])
    for reduction in ("sum", "mean"):
        alone = cross_entropy(z, LABELS, smoothing, reduction)
        together = cross_entropy(padded, labels, smoothing, reduction)
        close(alone, together)
        close(torch.autograd.grad(alone, z)[0], torch.autograd.grad(together, z)[0])


def test_a_probability_that_rounds_to_zero_costs_a_finite_price():
    """Case T1: softmax(0, 200) is exactly (0, 1) in float32."""
    logits = torch.tensor([[0.0, 0.0, 200.0]])
    assert cross_entropy(logits, torch.tensor([1])).item() == pytest.approx(200.0)
    assert cross_entropy(logits, torch.tensor([1]), 0.1).isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_and_float64_is_kept(dtype):
    logits = torch.randn(5, 40_000).to(dtype)
    labels = torch.tensor([1, 2, 3, 4, 5])
    loss = cross_entropy(logits, labels, 0.1)
    assert loss.dtype == torch.float32
    exact = cross_entropy(logits.double(), labels, 0.1)
    assert exact.dtype == torch.float64
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


def test_bad_input_is_refused():
    logits, labels = torch.zeros(2, 3, 10), torch.full((2, 3), 4)
    with pytest.raises(ValueError, match=r"all 6 labels are PAD"):
        cross_entropy(logits, torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"logits \(2, 3, 10\) do not fit labels \(2, 4\)"):
        cross_entropy(logits, torch.full((2, 4), 4))
    for smoothing in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="need 0 ≤ smoothing < 1"):
            cross_entropy(logits, labels, smoothing)
    for label in (10, -1, -100):
        with pytest.raises(ValueError, match=f"token id {label} is outside the vocabulary of 10"):
            cross_entropy(logits, torch.full((2, 3), label))
    with pytest.raises(TypeError, match=r"token ids are torch.float32"):
        cross_entropy(logits, labels.float())
    with pytest.raises(TypeError, match="labels are a list, need a tensor"):
        cross_entropy(logits, labels.tolist())
    assert cross_entropy(logits, labels.int()) == cross_entropy(logits, labels)


# --- the model -----------------------------------------------------------------------------------


def test_the_three_tables_are_one_tensor_and_count_once():
    model = small()
    assert model.source_embedding is model.target_embedding is model.output
    tables = [name for name, p in model.named_parameters() if p.shape == (12, 16)]
    assert tables == ["source_embedding.weight"]
    untied = small(tied=False)
    assert len({id(e.weight) for e in (untied.source_embedding, untied.target_embedding,
                                       untied.output)}) == 3  # fmt: skip
    assert count_parameters(untied) - count_parameters(model) == 2 * 12 * 16


def test_the_tied_table_gathers_gradient_from_all_three_places():
    """Its gradient equals the sum of the three tables' gradients of an untied twin."""
    tied, untied = small(), small(tied=False)
    state = tied.state_dict()
    table = state["source_embedding.weight"]
    untied.load_state_dict({name: state.get(name, table) for name in untied.state_dict()})
    source, target = random_ids(2, 5), torch.tensor([[1, 5, 6, 2, 0], [1, 7, 5, 6, 2]])
    for model in (tied, untied):
        translation_loss(model, source, target)[0].backward()
    parts = (untied.source_embedding, untied.target_embedding, untied.output)
    close(tied.source_embedding.weight.grad, sum(part.weight.grad for part in parts))
    assert all(part.weight.grad.abs().max() > 1e-3 for part in parts)


def test_forward_is_decode_after_encode():
    model, source, inputs = small(), random_ids(2, 5), random_ids(2, 3, seed=1)
    memory = model.encode(source)
    hidden = model.decode(inputs, memory, source)
    assert memory.shape == (2, 5, 16) and hidden.shape == (2, 3, 16)
    close(model(source, inputs), hidden @ model.output.weight.T)


def copy_attention(mine, other):
    other.in_proj_weight.copy_(torch.cat([mine.w_q.weight, mine.w_kv.weight]))
    other.in_proj_bias.copy_(torch.cat([mine.w_q.bias, mine.w_kv.bias]))
    copy_affine(mine.w_o, other.out_proj)


def copy_affine(mine, other):
    other.weight.copy_(mine.weight)
    other.bias.copy_(mine.bias)


@torch.no_grad()
def pytorch_twin(model):
    """The same model from nn.TransformerEncoder and nn.TransformerDecoder, weights copied."""
    c = model.config
    sizes = {"d_model": c.d_model, "nhead": c.heads, "dim_feedforward": c.d_ff, "dropout": 0.0}
    options = {"batch_first": True, "norm_first": c.norm_first, "dtype": torch.float64}
    norms = [
        nn.LayerNorm(c.d_model, dtype=torch.float64) if c.norm_first else None for _ in range(2)
    ]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**sizes, **options), c.layers, norms[0],
        enable_nested_tensor=False,
    )  # fmt: skip
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(**sizes, **options), c.layers, norms[1]
    )
    for mine, other in [
        *zip(model.encoder.layers, encoder.layers),
        *zip(model.decoder.layers, decoder.layers),
    ]:
        copy_attention(mine.self_attention, other.self_attn)
        if hasattr(mine, "cross_attention"):
            copy_attention(mine.cross_attention, other.multihead_attn)
        copy_affine(mine.feed_forward.w_1, other.linear1)
        copy_affine(mine.feed_forward.w_2, other.linear2)
        for number, residual in enumerate(mine.residuals, 1):
            copy_affine(residual.norm, getattr(other, f"norm{number}"))
    if c.norm_first:
        copy_affine(model.encoder.norm, encoder.norm)
        copy_affine(model.decoder.norm, decoder.norm)
    return encoder, decoder


@pytest.mark.parametrize("norm_first", [False, True])
def test_whole_model_equals_one_made_of_pytorch_layers(norm_first):
    model = small(norm_first=norm_first)
    encoder, decoder = pytorch_twin(model)
    source = torch.tensor([[4, 5, 6, 7, 8], [9, 4, 5, PAD, PAD]])
    inputs = torch.tensor([[BOS, 5, 6], [BOS, 7, PAD]])
    table = model.output.weight

    def embed(ids):
        d, length = 16, ids.size(1)
        position = torch.tensor([
            [(math.cos if i % 2 else math.sin)(p / 10_000 ** ((i - i % 2) / d)) for i in range(d)]
            for p in range(length)
        ], dtype=torch.float64)  # fmt: skip
        return table[ids] * math.sqrt(d) + position

    memory = encoder(embed(source), src_key_padding_mask=source == PAD)
    hidden = decoder(
        embed(inputs), memory,
        tgt_mask=torch.ones(3, 3, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=inputs == PAD, memory_key_padding_mask=source == PAD,
    )  # fmt: skip
    close(model(source, inputs), hidden @ table.T, 1e-6)  # our sines are stored in float32


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_logits_depend_on_no_later_token(training, dropout):
    """Case M6, on the whole model."""
    model = small(dropout=dropout).train(training)
    source, inputs = random_ids(1, 7), random_ids(1, 6, seed=1)

    def logits(inputs):
        torch.manual_seed(5)
        return model(source, inputs)[0]

    before = logits(inputs)
    for t in range(6):
        other = inputs.clone()
        other[0, t] = 11 if inputs[0, t] != 11 else 10
        change = (logits(other) - before).abs().amax(-1)
        assert (change[:t] <= 1e-12).all() and (change[t:] > 1e-9).all()


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_a_sentence_gets_the_same_logits_in_any_batch(sizes):
    model = small().eval()
    sources = [random_ids(s, seed=i).tolist() for i, (s, _) in enumerate(sizes)]
    inputs = [[BOS, *random_ids(t, seed=99 + i).tolist()] for i, (_, t) in enumerate(sizes)]
    together = model(pad(sources), pad(inputs))
    for row, (source, prefix) in enumerate(zip(sources, inputs)):
        alone = model(torch.tensor([source]), torch.tensor([prefix]))
        close(together[row, : len(prefix)], alone[0])


def test_a_source_of_padding_alone_hurts_nobody():
    """Case M1."""
    model = small().eval()
    source, inputs = torch.tensor([[4, 5, 6], [PAD] * 3]), torch.tensor([[1, 5, 6], [1, 5, 6]])
    together = model(source, inputs)
    assert together.isfinite().all()
    close(together[:1], model(source[:1], inputs[:1]))


def test_evaluation_is_repeatable_and_training_is_not():
    """Case M14."""
    model, source, inputs = small(dropout=0.5), random_ids(2, 5), random_ids(2, 4, seed=1)
    model.eval()
    assert torch.equal(model(source, inputs), model(source, inputs))
    model.train()
    assert not torch.equal(model(source, inputs), model(source, inputs))


def test_length_limit():
    """Case M10: max_len works, one more is refused, on both sides."""
    model = small(max_len=5)
    short, exact, long = random_ids(1, 2), random_ids(1, 5), random_ids(1, 6)
    assert model(exact, exact).shape == (1, 5, 12)
    for source, inputs in ((long, short), (short, long)):
        with pytest.raises(ValueError, match=r"sequence of 6 positions is past .* max_len = 5"):
            model(source, inputs)


def test_model_refuses_what_does_not_belong_together():
    model, source, inputs = small(), random_ids(2, 5), random_ids(3, 4)
    with pytest.raises(ValueError, match="2 sources but 3 targets"):
        model(source, inputs)
    with pytest.raises(ValueError, match="1 sources but 3 targets"):  # would broadcast in silence
        translation_loss(model, source[:1], inputs)
    with pytest.raises(ValueError, match=r"memory \(2, 5, 16\) does not fit ids \(2, 4\)"):
        model.decode(inputs[:2], model.encode(source), source[:, :4])
    with pytest.raises(ValueError, match="token id 12 is outside the vocabulary of 12"):
        model(torch.tensor([[12]]), torch.tensor([[1]]))
    with pytest.raises(ValueError, match=r"memory \(2, 5, 8\) does not fit"):
        model.decode(inputs[:2], torch.zeros(2, 5, 8), source)


@pytest.mark.parametrize("max_len", [5, 64])  # 64: long enough to take d for a length
def test_ids_without_a_batch_axis_are_refused(max_len):
    model, source, inputs = small(max_len=max_len), random_ids(2, 5), random_ids(2, 4)
    for ids in ((source[0], inputs[0]), (source[0], inputs), (source, inputs[0])):
        with pytest.raises(ValueError, match=r"token ids of shape \(\d,\), need \(B, S\)"):
            model(*ids)
    with pytest.raises(ValueError, match=r"token ids of shape \(1, 2, 5\)"):
        model.encode(source[None])


def test_ids_that_are_no_tensor_of_integers_are_refused():
    model, source, inputs = small(), random_ids(2, 5), random_ids(2, 4)
    for ids in ((source.tolist(), inputs), (source, inputs.tolist()), (source.float(), inputs)):
        with pytest.raises(TypeError, match=r"token ids are .*, need torch\.int64 or"):
            model(*ids)
    for ids in ((source[:0], inputs[:0]), (source, inputs[:, :0])):
        with pytest.raises(ValueError, match="empty batch of token ids"):
            model(*ids)
    with pytest.raises(ValueError, match="token id 99 is outside the vocabulary of 12"):
        translation_loss(model, source, torch.tensor([[1, 5, 2], [1, 5, 99]]))


# --- sum and count -------------------------------------------------------------------------------


def batch():
    return pad([[4, 5, 6], [7, 9], [8]]), pad([frame([4, 5, 6, 7]), frame([8]), frame([5, 6])])


def test_translation_loss_counts_labels_and_sums_them():
    model, (source, target) = small(), batch()
    loss, count = translation_loss(model, source, target, smoothing=0.1)
    assert count == 5 + 2 + 3
    inputs, labels = shift_right(target)
    close(loss, cross_entropy(model(source, inputs), labels, 0.1, reduction="sum"))


def test_gradients_of_parts_add_up_to_the_gradient_of_the_batch():
    model, (source, target) = small(), batch()
    loss, count = translation_loss(model, source, target)
    loss.backward()
    whole = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    parts = [translation_loss(model, source[i : i + 1], target[i : i + 1]) for i in range(3)]
    for part, _ in parts:
        part.backward()
    assert sum(n for _, n in parts) == count
    close(sum(part for part, _ in parts), loss)
    for parameter, gradient in zip(model.parameters(), whole):
        close(parameter.grad, gradient, 1e-11)


def test_every_parameter_gets_gradient_except_the_biases_of_keys():
    model, (source, target) = small(), batch()
    translation_loss(model, source, target)[0].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 1e-8, name
    layer = model.decoder.layers[0].cross_attention
    of_keys, of_values = layer.w_kv.bias.grad.split(layer.sizes)
    assert of_keys.abs().max() < 1e-12 < of_values.abs().max()


def test_a_batch_without_a_label_is_refused():
    with pytest.raises(ValueError, match="labels are PAD"):
        translation_loss(small(), torch.tensor([[4]]), torch.tensor([[1, 0, 0]]))


def test_one_sentence_is_learnt_to_the_floor():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(10, d_model=32, heads=4, d_ff=64, layers=1, dropout=0.0))
    source, target = torch.tensor([[7, 8, 9]]), torch.tensor([[BOS, 4, 5, 6, EOS]])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        loss, count = translation_loss(model, source, target)
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    floor = -0.91 * math.log(0.91) - 9 * 0.01 * math.log(0.01)
    assert -1e-6 < loss.item() / count - floor < 5e-3
    inputs, labels = shift_right(target)
    assert torch.equal(model(source, inputs).argmax(-1), labels)


# --- size ----------------------------------------------------------------------------------------

TABLE_3 = {  # changes to the base model: parameters of the paper in millions (Table 3)
    "base": ({}, 65),
    "B 16": ({"d_k": 16}, 58),
    "B 32": ({"d_k": 32}, 60),
    "N 2": ({"layers": 2}, 36),
    "N 4": ({"layers": 4}, 50),
    "N 8": ({"layers": 8}, 80),
    "d 256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
    "d 1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    "d_ff 1024": ({"d_ff": 1024}, 53),
    "d_ff 4096": ({"d_ff": 4096}, 90),
    "big": ({"d_model": 1024, "d_ff": 4096, "heads": 16}, 213),
}


def counted(vocab_size=37_000, **changes):
    with torch.device("meta"):
        return count_parameters(Transformer(replace(TransformerConfig(vocab_size), **changes)))


@pytest.mark.parametrize("row", TABLE_3)
def test_count_equals_the_formula(row):
    c = replace(TransformerConfig.base(), **TABLE_3[row][0])
    d, h = c.d_model, c.heads
    k, v = c.d_k or d // h, c.d_v or d // h
    attention = 2 * (d * h * k + h * k) + (d * h * v + h * v) + (h * v * d + d)
    network = 2 * d * c.d_ff + c.d_ff + d
    assert counted(**TABLE_3[row][0]) == 37_000 * d + c.layers * (
        3 * attention + 2 * network + 5 * 2 * d
    )


def test_sizes_that_the_book_states():
    assert counted() == 63_082_496
    with torch.device("meta"):
        assert count_parameters(Transformer(TransformerConfig.base())) == 63_082_496
        assert count_parameters(Transformer(TransformerConfig.big())) == 214_245_376
    for heads in (1, 4, 16, 32):  # rows (A)
        assert counted(heads=heads, d_k=512 // heads, d_v=512 // heads) == 63_082_496


@pytest.mark.parametrize("row", [row for row in TABLE_3 if row != "big"])
@pytest.mark.parametrize("vocab_size", [40_932, 41_160])
def test_one_vocabulary_fits_every_row_of_the_paper_but_big(row, vocab_size):
    changes, printed = TABLE_3[row]
    assert round(counted(vocab_size, **changes) / 1e6) == printed


def test_each_row_solved_for_its_vocabulary():
    """Counted = body + V·d rounds to the printed millions for V in an interval of 1e6/d."""
    solved = {}
    for row, (changes, printed) in TABLE_3.items():
        d = changes.get("d_model", 512)
        body = counted(1, **changes) - d
        low, high = (printed - 0.5) * 1e6 - body, (printed + 0.5) * 1e6 - body
        solved[row] = math.ceil(low / d), math.floor(high / d)
    all_but_big = [solved[row] for row in TABLE_3 if row != "big"]
    assert max(low for low, _ in all_but_big) == 40_932
    assert min(high for _, high in all_but_big) == 41_160
    assert solved["big"] == (35_296, 36_272)
    assert not any(low <= 37_000 <= high for low, high in all_but_big)


def test_big_fits_another_vocabulary_and_no_vocabulary_fits_it_and_d_1024():
    changes, printed = TABLE_3["big"]
    for vocab_size, fits in ((35_295, False), (35_296, True), (36_272, True), (36_273, False)):
        assert (round(counted(vocab_size, **changes) / 1e6) == printed) == fits
    difference = counted(**changes) - counted(**TABLE_3["d 1024"][0])
    assert difference == 12 * (2 * 1024 * 2048 + 2048)
    assert difference > (213.5 - 167.5) * 1e6


def test_frozen_parameters_are_not_counted():
    model = small()
    model.output.weight.requires_grad_(False)
    assert count_parameters(small()) - count_parameters(model) == 12 * 16
