"""The same model made of other people's parts, weights copied: PyTorch's layers and Marian.

Both are oracles of the tests and opponents of the benchmark. They compute our function exactly:

- `nn.Transformer` closes even a Post-LN stack with a norm (taken off here), drops attention weights
  and inner activations too (set to 0 here), and in eval mode may give zeros at padded positions.
- Marian's positions are [sines | cosines] (our table is put in their place), and it knows Post-LN
  and one shared table only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from transformer import MultiHeadAttention, Transformer
from transformer.attention import causal_mask
from transformer.tokens import BOS, EOS, PAD

Value = Callable[[nn.Parameter], Tensor]


def weight(parameter: nn.Parameter) -> Tensor:
    """What is copied."""
    return parameter.detach()


def gradient(parameter: nn.Parameter) -> Tensor:
    """What is compared after a backward pass."""
    assert parameter.grad is not None
    return parameter.grad


def check(model: Transformer) -> None:
    """Raise ValueError for a head width that the peers do not have."""
    c = model.config
    for name in ("d_k", "d_v"):
        width = getattr(c, name)
        if width not in (None, c.d_model // c.heads):
            raise ValueError(f"{name} is {width}, the peers know d / h = {c.d_model // c.heads}")


def affine(name: str, module: nn.Module, value: Value) -> Iterator[tuple[str, Tensor]]:
    """A linear map or a norm."""
    for part, parameter in module.named_parameters():
        yield f"{name}.{part}", value(parameter)


def projections(attention: MultiHeadAttention, part: str, value: Value) -> Tensor:
    """Queries, keys and values of "weight" or "bias", one below the other."""
    modules = [module for name, module in attention.named_children() if name != "w_o"]
    return torch.cat([value(getattr(module, part)) for module in modules])


def copy(theirs: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy into every trainable parameter; ValueError unless the names are the same."""
    parameters = {name: p for name, p in theirs.named_parameters() if p.requires_grad}
    if parameters.keys() != values.keys():
        raise ValueError(f"names differ: {sorted(parameters.keys() ^ values.keys())[:3]} …")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != values[name].shape:
                raise ValueError(f"{name}: {values[name].shape} does not fit {parameter.shape}")
            parameter.copy_(values[name])


# --- PyTorch --------------------------------------------------------------------------------------


class PyTorchTransformer(nn.Module):
    """`nn.Transformer` between embedding and output layer, with the methods of `Transformer`."""

    positions: Tensor

    def __init__(self, model: Transformer):
        super().__init__()
        check(model)
        c = self.config = model.config
        with warnings.catch_warnings():  # Pre-LN has no fast path in eval mode, and says so
            warnings.simplefilter("ignore", UserWarning)
            self.core = nn.Transformer(
                c.d_model, c.heads, c.layers, c.layers, c.d_ff, c.dropout,
                batch_first=True, norm_first=c.norm_first,
            )  # fmt: skip
        if not c.norm_first:
            self.core.encoder.norm = self.core.decoder.norm = None
        for layer in [*self.core.encoder.layers, *self.core.decoder.layers]:
            layer.dropout.p = layer.self_attn.dropout = 0.0
            if isinstance(layer, nn.TransformerDecoderLayer):
                layer.multihead_attn.dropout = 0.0
        self.source_embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.target_embedding = self.source_embedding
        self.output = nn.Linear(c.d_model, c.vocab_size, bias=False)
        if c.tied:
            self.output.weight = self.source_embedding.weight
        else:
            self.target_embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.dropout = nn.Dropout(c.dropout)
        self.register_buffer("positions", model.positions.encoding.clone())
        self.to(next(model.parameters()).dtype)
        copy(self, pytorch_values(model))

    def embed(self, ids: Tensor, embedding: nn.Embedding) -> Tensor:
        """Map ids (B, T) to (B, T, d)."""
        x = embedding(ids) * math.sqrt(self.config.d_model) + self.positions[: ids.size(1)]
        return self.dropout(x)

    def encode(self, source: Tensor) -> Tensor:
        """Map source ids (B, S) to memory (B, S, d)."""
        x = self.embed(source, self.source_embedding)
        return self.core.encoder(x, src_key_padding_mask=source == PAD)

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Map decoder inputs (B, T), memory (B, S, d) and its ids (B, S) to hidden (B, T, d)."""
        return self.core.decoder(
            self.embed(target, self.target_embedding),
            memory,
            tgt_mask=~causal_mask(target.size(1), target.device),
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Map hidden (…, d) to scores (…, V)."""
        return self.output(hidden)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Map source ids (B, S) and decoder inputs (B, T) to logits (B, T, V)."""
        hidden = self.core(
            self.embed(source, self.source_embedding),
            self.embed(target, self.target_embedding),
            tgt_mask=~causal_mask(target.size(1), target.device),
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return self.logits(hidden)


def pytorch_attention(
    name: str, mine: MultiHeadAttention, value: Value
) -> Iterator[tuple[str, Tensor]]:
    """By the names of `nn.MultiheadAttention`."""
    for part in ("weight", "bias"):
        yield f"{name}.in_proj_{part}", projections(mine, part, value)
    yield from affine(f"{name}.out_proj", mine.w_o, value)


def pytorch_stack(name: str, mine: Any, value: Value) -> Iterator[tuple[str, Tensor]]:
    """An `Encoder` or `Decoder` by the names of PyTorch's."""
    for i, layer in enumerate(mine.layers):
        here = f"{name}.layers.{i}"
        yield from pytorch_attention(f"{here}.self_attn", layer.self_attention, value)
        if hasattr(layer, "cross_attention"):
            yield from pytorch_attention(f"{here}.multihead_attn", layer.cross_attention, value)
        yield from affine(f"{here}.linear1", layer.feed_forward.w_1, value)
        yield from affine(f"{here}.linear2", layer.feed_forward.w_2, value)
        for number, residual in enumerate(layer.residuals, 1):
            yield from affine(f"{here}.norm{number}", residual.norm, value)
    yield from affine(f"{name}.norm", mine.norm, value)  # Post-LN: nothing


def pytorch_values(model: Transformer, value: Value = weight) -> dict[str, Tensor]:
    """Our weights or gradients by the names of `PyTorchTransformer`."""
    values = {
        **dict(pytorch_stack("core.encoder", model.encoder, value)),
        **dict(pytorch_stack("core.decoder", model.decoder, value)),
        "source_embedding.weight": value(model.source_embedding.weight),
    }
    if not model.config.tied:
        values["target_embedding.weight"] = value(model.target_embedding.weight)
        values["output.weight"] = value(model.output.weight)
    return values


# --- Marian ---------------------------------------------------------------------------------------


def marian(model: Transformer) -> Any:
    """A `MarianMTModel` with our weights, in our mode; ImportError without `transformers`."""
    from transformers import MarianConfig, MarianMTModel

    check(model)
    c = model.config
    if c.norm_first or not c.tied:
        raise ValueError(f"norm_first {c.norm_first}, tied {c.tied}: Marian is Post-LN and tied")
    theirs: Any = MarianMTModel(
        MarianConfig(
            vocab_size=c.vocab_size,
            d_model=c.d_model,
            encoder_layers=c.layers,
            decoder_layers=c.layers,
            encoder_attention_heads=c.heads,
            decoder_attention_heads=c.heads,
            encoder_ffn_dim=c.d_ff,
            decoder_ffn_dim=c.d_ff,
            dropout=c.dropout,
            max_position_embeddings=c.max_len,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )
    theirs.to(next(model.parameters()).dtype)
    copy(theirs, marian_values(model))
    with torch.no_grad():
        for stack in (theirs.model.encoder, theirs.model.decoder):
            stack.embed_positions.weight.copy_(model.positions.encoding)
    return theirs.train(model.training)


def marian_attention(
    name: str, mine: MultiHeadAttention, value: Value
) -> Iterator[tuple[str, Tensor]]:
    """By the names of `MarianAttention`."""
    for part in ("weight", "bias"):
        for letter, block in zip("qkv", projections(mine, part, value).chunk(3)):
            yield f"{name}.{letter}_proj.{part}", block
    yield from affine(f"{name}.out_proj", mine.w_o, value)


def marian_stack(name: str, mine: Any, value: Value) -> Iterator[tuple[str, Tensor]]:
    """An `Encoder` or `Decoder` by Marian's names."""
    for i, layer in enumerate(mine.layers):
        here, (first, *middle, last) = f"{name}.layers.{i}", [r.norm for r in layer.residuals]
        yield from marian_attention(f"{here}.self_attn", layer.self_attention, value)
        yield from affine(f"{here}.self_attn_layer_norm", first, value)
        for norm in middle:
            yield from marian_attention(f"{here}.encoder_attn", layer.cross_attention, value)
            yield from affine(f"{here}.encoder_attn_layer_norm", norm, value)
        yield from affine(f"{here}.fc1", layer.feed_forward.w_1, value)
        yield from affine(f"{here}.fc2", layer.feed_forward.w_2, value)
        yield from affine(f"{here}.final_layer_norm", last, value)


def marian_values(model: Transformer, value: Value = weight) -> dict[str, Tensor]:
    """Our weights or gradients by the names of `MarianMTModel`."""
    return {
        **dict(marian_stack("model.encoder", model.encoder, value)),
        **dict(marian_stack("model.decoder", model.decoder, value)),
        "model.shared.weight": value(model.source_embedding.weight),
    }


def marian_logits(theirs: Any, source: Tensor, target: Tensor) -> Tensor:
    """Source ids (B, S) and decoder inputs (B, T) to logits (B, T, V)."""
    return theirs(
        input_ids=source,
        attention_mask=(source != PAD).long(),
        decoder_input_ids=target,
        decoder_attention_mask=(target != PAD).long(),
        use_cache=False,
    ).logits


def marian_generate(theirs: Any, source: Tensor, limit: int, beam: int = 1, **options: Any) -> Any:
    """Marian's own greedy (`beam` 1) or beam search of at most `limit` tokens: ids, BOS first.

    `suppress_tokens`: like ours, it never chooses PAD or BOS. `options` go to `generate`.
    """
    return theirs.generate(
        input_ids=source,
        attention_mask=(source != PAD).long(),
        max_new_tokens=limit,
        num_beams=beam,
        do_sample=False,
        suppress_tokens=[PAD, BOS],
        **options,
    )
