"""What the benchmark measures: each row is our way of doing a work, and somebody else's.

A row first checks that both compute the same, on the very data that is then timed, and raises
AssertionError if not.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import peers
import torch
from bench_clock import Result, Slice, Timer, compete, quartiles, timer
from bench_memory import peak
from torch import Tensor, nn
from torch.nn import functional as F

from transformer import (
    Tokenizer,
    Transformer,
    TransformerConfig,
    beam_search,
    encode_pairs,
    greedy_search,
    sliding_window_attention,
)
from transformer.attention import attention, attention_weights, causal_mask
from transformer.decoding import CachedDecoder
from transformer.loss import translation_loss
from transformer.sliding_window import window_mask
from transformer.tokens import BOS, EOS, PAD, pad
from transformer.training import token_batches


@dataclass(frozen=True)
class Setting:
    """Where and how thoroughly to measure."""

    device: torch.device
    quick: bool = False  # toy sizes: shows that the rows work, measures nothing
    tatoeba: Path | None = None
    budget: float = 20.0  # seconds after which a row of two quick works is done, clean or not

    def timer(self, work: Callable[[], object]) -> Timer:
        """Time calls of `work` on the device."""
        return timer(work, torch.cuda.synchronize if self.device.type == "cuda" else bool)

    def compete(self, works: dict[str, Timer], rounds: int = 9, share: float = 1.0) -> Result:
        """Time the works in turns; slow ones get more than their `share` 1 of the budget."""
        if self.quick:
            return compete(works, 1, 0.0, 0.0)
        return compete(works, rounds, 0.3, share * self.budget)

    def small(self, **sizes: Any) -> TransformerConfig:
        """d 128, h 4, 2 + 2 layers, V 2,000."""
        config = TransformerConfig(2000, d_model=128, heads=4, d_ff=512, layers=2, max_len=256)
        return self.shrink(replace(config, **sizes))

    def base(self, **sizes: Any) -> TransformerConfig:
        """The paper's base model, with V 8,000."""
        return self.shrink(replace(TransformerConfig.base(8000), **sizes))

    def large(self) -> TransformerConfig:
        """The paper's base model with its own vocabulary."""
        return self.shrink(TransformerConfig.base())

    def shrink(self, config: TransformerConfig) -> TransformerConfig:
        """The configuration, or a toy with its name if this is a quick run."""
        if not self.quick:
            return config
        return replace(config, vocab_size=50, d_model=16, heads=2, d_ff=32, layers=1)

    def size(self, number: int, toy: int) -> int:
        """The number, or the toy's."""
        return toy if self.quick else number


class Skipped(Exception):
    """A row that this machine cannot measure, and why."""


@dataclass
class Measured:
    """What came out of a row."""

    ratio: tuple[float, float, float]  # quartiles of theirs / ours, or of the row's own number
    ours: float | None = None  # seconds
    theirs: float | None = None
    rounds: int = 0
    dropped: int = 0
    clean: bool = True
    same: str = ""  # what was compared before the clock ran, and how equal it was
    facts: dict[str, float] = field(default_factory=dict)


def measured(result: Result, same: str = "", **facts: float) -> Measured:
    """Of two works, the second relative to the first."""
    (ours, theirs), (ratio,) = result.seconds.values(), result.ratios.values()
    return Measured(
        ratio, ours, theirs, result.rounds, result.dropped, result.clean, same, dict(facts)
    )


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- training -------------------------------------------------------------------------------------

Loss = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, int]]  # model, source, target


def random_ids(setting: Setting, config: TransformerConfig, rows: int, length: int) -> Tensor:
    """Real tokens only: no PAD, BOS or EOS (rows, length)."""
    generator = torch.Generator().manual_seed(rows * length)
    ids = torch.randint(4, config.vocab_size, (rows, length), generator=generator)
    return ids.to(setting.device)


def teacher_batch(
    setting: Setting, config: TransformerConfig, rows: int, length: int
) -> tuple[Tensor, Tensor]:
    """Sources (B, T) and framed targets (B, T + 1), so that T labels are predicted."""
    source = random_ids(setting, config, rows, length)
    target = random_ids(setting, config, rows, length + 1)
    target[:, 0], target[:, -1] = BOS, EOS
    return source, target


def our_loss(smoothing: float) -> Loss:
    """The package's."""
    return lambda model, source, target: translation_loss(model, source, target, smoothing)  # type: ignore[arg-type]


def pytorch_loss(model: nn.Module, source: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """What one writes around `nn.Transformer`."""
    logits, labels = model(source, target[:, :-1]), target[:, 1:]
    loss = F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=PAD,
        label_smoothing=0.1,
        reduction="sum",
    )
    return loss, int((labels != PAD).sum())


def marian_loss(model: nn.Module, source: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """Marian's own, from labels; it has no label smoothing."""
    labels = target[:, 1:]
    tokens = int((labels != PAD).sum())
    loss = model(
        input_ids=source,
        attention_mask=(source != PAD).long(),
        decoder_input_ids=target[:, :-1],
        labels=labels.masked_fill(labels == PAD, -100),
        use_cache=False,
    ).loss
    return loss * tokens, tokens


class Steps:
    """Training steps of one model: forward, backward, clip, Adam."""

    def __init__(self, model: nn.Module, loss: Loss, precision: torch.dtype = torch.float32):
        self.model, self.loss, self.precision = model.train(), loss, precision
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
        )

    def __call__(self, source: Tensor, target: Tensor) -> int:
        """One update; the number of real target tokens."""
        self.optimizer.zero_grad(set_to_none=True)
        cast = (
            nullcontext()
            if self.precision == torch.float32
            else torch.autocast(source.device.type, self.precision)
        )
        with cast:
            loss, tokens = self.loss(self.model, source, target)
        (loss / tokens).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return tokens


def same_loss(ours: nn.Module, theirs: nn.Module, mine: Loss, other: Loss, *batch: Tensor) -> str:
    """Both losses of one batch in eval mode, where no dropout hides a difference."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's, about its fast path in eval mode
        a = mine(ours.eval(), *batch)[0].item()
        b = other(theirs.eval(), *batch)[0].item()
    assert abs(a - b) <= 1e-4 * abs(a), f"losses differ: {a} and {b}"
    return "loss"


def train_against(
    setting: Setting,
    config: TransformerConfig,
    rows: int,
    length: int,
    peer: Callable[[Transformer], nn.Module],
    other: Loss,
    smoothing: float = 0.1,
) -> Measured:
    """Training steps of our model and of a peer's with the same weights."""
    torch.manual_seed(0)
    model = Transformer(config).to(setting.device)
    theirs, mine = optional(peer, model), our_loss(smoothing)
    batch = teacher_batch(setting, config, setting.size(rows, 3), setting.size(length, 5))
    same = same_loss(model, theirs, mine, other, *batch)
    a, b = Steps(model, mine), Steps(theirs, other)
    works = {"ours": setting.timer(partial(a, *batch)), "theirs": setting.timer(partial(b, *batch))}
    return measured(setting.compete(works), same, tokens=batch[1][:, 1:].numel())


def plain_pytorch(model: Transformer) -> nn.Module:
    """`nn.Transformer` as a user finds it: it drops attention weights and inner activations too."""
    theirs = peers.PyTorchTransformer(model)
    for module in theirs.core.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = model.config.dropout
        elif isinstance(module, nn.Dropout):
            module.p = model.config.dropout
    return theirs


def optional(peer: Callable[[Transformer], nn.Module], model: Transformer) -> nn.Module:
    """The peer with our weights; Skipped where it is not installed."""
    try:
        return peer(model).to(next(model.parameters()).device)
    except ImportError as error:
        raise Skipped(f"not installed: {error.name}") from None


def step_flops(config: TransformerConfig, rows: int, length: int) -> int:
    """FLOPs of the matrix products of one training step, sources and targets of T tokens.

    A product of (n, k) by (k, m) is 2nkm; backward costs twice as much as forward.
    """
    d, tokens = config.d_model, rows * length
    projections = 4 * d * d  # of one attention, a token
    feed_forward = 2 * d * config.d_ff
    reads = 2 * length * d  # QKᵀ and weights times V, a token; masked entries are computed too
    encoder = projections + reads + feed_forward
    decoder = 2 * (projections + reads) + feed_forward
    forward = 2 * tokens * (config.layers * (encoder + decoder) + d * config.vocab_size)
    return 3 * forward


def matrix_product(setting: Setting, dtype: torch.dtype) -> tuple[Callable[[], object], float]:
    """The square matrix product that this machine does fastest, and its FLOPs."""
    best: tuple[float, int] = (0.0, 0)
    if setting.quick:
        sizes = [64]
    else:
        sizes = [4096, 8192] if setting.device.type == "cuda" else [512, 1024, 2048]
    works = {}
    for n in sizes:
        a, b = (torch.randn(n, n, device=setting.device, dtype=dtype) for _ in range(2))
        works[n] = partial(torch.mm, a, b, out=torch.empty_like(a))
        measure = setting.timer(works[n])
        measure(2)
        best = max(best, (2 * n**3 / min(measure(3).seconds for _ in range(3)), n))
    n = best[1]
    return works[n], 2 * n**3


def matrix_share(setting: Setting, config: TransformerConfig, rows: int, length: int,
                 precision: torch.dtype) -> Measured:  # fmt: skip
    """FLOPs a second of training steps as a share of those of a plain matrix product."""
    torch.manual_seed(0)
    rows, length = setting.size(rows, 2), setting.size(length, 5)
    batch = teacher_batch(setting, config, rows, length)
    step = Steps(Transformer(config).to(setting.device), our_loss(0.1), precision)
    product, flops = matrix_product(setting, precision)
    works = {"ours": setting.timer(partial(step, *batch)), "product": setting.timer(product)}
    result = setting.compete(works)
    ratio = step_flops(config, rows, length) / flops  # steps are worth so many products
    low, middle, high = (ratio * r for r in result.ratios["product"])
    seconds = result.seconds
    return Measured(
        (low, middle, high), seconds["ours"], None, result.rounds, result.dropped, result.clean,
        facts={"step_tflops": step_flops(config, rows, length) / 1e12,
               "matrix_tflops_per_s": flops / seconds["product"] / 1e12},
    )  # fmt: skip


def train_bfloat16(setting: Setting, config: TransformerConfig, rows: int, length: int) -> Measured:
    """Training steps in bfloat16 autocast against float32, both ours."""
    if setting.device.type == "cpu" and not bfloat16_products():
        raise Skipped("the processor has no bfloat16 matrix products")
    batch = teacher_batch(setting, config, setting.size(rows, 3), setting.size(length, 5))
    steps = {}
    for precision in (torch.bfloat16, torch.float32):
        torch.manual_seed(0)
        steps[precision] = Steps(Transformer(config).to(setting.device), our_loss(0.1), precision)
    half, single = (steps[p] for p in (torch.bfloat16, torch.float32))
    with torch.no_grad():
        expected = our_loss(0.1)(single.model.eval(), *batch)[0].item()
        with torch.autocast(setting.device.type, torch.bfloat16):
            found = our_loss(0.1)(half.model.eval(), *batch)[0].item()
    half.model.train(), single.model.train()
    assert abs(found - expected) <= 0.01 * expected, f"losses differ: {found} and {expected}"
    works = {
        "ours": setting.timer(partial(half, *batch)),
        "theirs": setting.timer(partial(single, *batch)),
    }
    return measured(setting.compete(works), "loss to 1 %")


def bfloat16_products() -> bool:
    """Whether the processor multiplies bfloat16 in hardware."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


# --- decoding -------------------------------------------------------------------------------------


def endless(config: TransformerConfig, device: torch.device) -> Transformer:
    """A random model that never ends: its logits of PAD, BOS and EOS are −50, through weights only.

    The last norm writes a constant 1 into coordinate 0, which no other token reads. So all
    sentences have the length of the limit, in any implementation with these weights.
    """
    torch.manual_seed(0)
    model = Transformer(config)
    with torch.no_grad():
        norm: Any = model.decoder.get_submodule(f"layers.{config.layers - 1}.residuals.2.norm")
        norm.weight[0], norm.bias[0] = 0.0, 1.0
        table = model.source_embedding.weight
        table[:, 0] = 0.0
        table[[PAD, BOS, EOS]] = 0.0
        table[[PAD, BOS, EOS], 0] = -50.0
    return model.to(device).eval()


class Uncached:
    """A stepper that reads the whole prefix again at each step."""

    def __init__(self, model: Transformer, source: Tensor):
        self.model, self.source = model, source
        self.memory = model.encode(source)
        self.prefix = torch.empty((source.size(0), 0), dtype=torch.long, device=source.device)

    def step(self, tokens: Tensor) -> Tensor:
        """Logits (N, 1, V) after the last of `tokens` (N, t)."""
        self.prefix = torch.cat([self.prefix, tokens], 1)
        hidden = self.model.decode(self.prefix, self.memory, self.source)
        return self.model.logits(hidden[:, -1:])

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        rows = rows.flatten()
        self.source, self.memory = self.source[rows], self.memory[rows]
        self.prefix = self.prefix[rows]


@torch.inference_mode()
def our_greedy(model: Transformer, source: Tensor, limit: int, cached: bool = True) -> list[Any]:
    """Ids of our greedy search."""
    decoder = CachedDecoder(model, source) if cached else Uncached(model, source)
    return greedy_search(decoder, source.size(0), limit, source.device).tolist()


@torch.inference_mode()
def our_beam(model: Transformer, source: Tensor, limit: int, beam: int) -> list[Any]:
    """Ids of the best hypothesis of our beam search."""
    found = beam_search(
        CachedDecoder(model, source), source.size(0), limit, beam, device=source.device
    )
    return [list(best[0].ids) for best in found]


def marian_search(theirs: Any, source: Tensor, limit: int, beam: int) -> list[Any]:
    """Ids of Marian's `generate`, cache on."""
    found = theirs.generate(
        input_ids=source,
        attention_mask=(source != PAD).long(),
        max_new_tokens=limit,
        num_beams=beam,
        do_sample=False,
        use_cache=True,
    )
    return found[:, 1:].tolist()


def same_ids(ours: list[Any], theirs: list[Any], limit: int) -> str:
    """How many sentences are equal, token for token; all must have the length of the limit."""
    assert {len(ids) for ids in [*ours, *theirs]} == {limit}, "lengths differ"
    equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
    # two roundings of one sum may break a tie each its own way
    assert equal >= 0.95 * len(ours), f"{equal} of {len(ours)} outputs equal"
    return f"{equal} of {len(ours)} outputs"


def search_marian(setting: Setting, config: TransformerConfig, rows: int, beam: int) -> Measured:
    """Greedy (`beam` 1) or beam search, 40 tokens from 40, against Marian."""
    model = endless(config, setting.device)
    theirs = optional(peers.marian, model)
    limit, rows = setting.size(40, 4), setting.size(rows, min(rows, 3))
    source = random_ids(setting, config, rows, limit)
    if beam == 1:
        ours = partial(our_greedy, model, source, limit)
    else:
        ours = partial(our_beam, model, source, limit, beam)
    other = partial(marian_search, theirs, source, limit, beam)
    same = same_ids(ours(), other(), limit)
    works = {"ours": setting.timer(ours), "theirs": setting.timer(other)}
    return measured(setting.compete(works, rounds=7), same)


def search_uncached(setting: Setting, config: TransformerConfig) -> Measured:
    """Greedy, 64 sentences, 40 tokens from 40, against the same model without a cache."""
    model = endless(config, setting.device)
    limit = setting.size(40, 4)
    source = random_ids(setting, config, setting.size(64, 3), limit)
    ours = partial(our_greedy, model, source, limit)
    other = partial(our_greedy, model, source, limit, cached=False)
    same = same_ids(ours(), other(), limit)
    works = {"ours": setting.timer(ours), "theirs": setting.timer(other)}
    return measured(setting.compete(works, rounds=3, share=3), same)


@contextmanager
def ctranslate2(setting: Setting, rows: int) -> Iterator[tuple[list[Any], Timer]]:
    """CTranslate2 in a process of its own: its greedy outputs, and a timer of them."""
    for package in ("ctranslate2", "transformers"):  # the second writes what the first converts
        if not find_spec(package):
            raise Skipped(f"not installed: {package}")
    order = {"quick": setting.quick, "rows": rows}
    script = Path(__file__).with_name("bench_ctranslate2.py")
    with subprocess.Popen(
        [sys.executable, str(script), json.dumps(order)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        questions, answers = process.stdin, process.stdout

        def measure(calls: int) -> Slice:
            print(calls, file=questions, flush=True)
            return Slice(**json.loads(answers.readline()))

        yield json.loads(answers.readline()), measure
        questions.close()


def ceiling_case(setting: Setting, rows: int) -> tuple[Transformer, Tensor, int]:
    """Model, sources and limit, the same in both processes."""
    limit = setting.size(40, 4)
    config = setting.small()
    return endless(config, setting.device), random_ids(setting, config, rows, limit), limit


def search_ceiling(setting: Setting, rows: int) -> Measured:
    """Greedy, small, one thread, against CTranslate2 in float32."""
    model, source, limit = ceiling_case(setting, rows)
    ours = partial(our_greedy, model, source, limit)
    with threads(1), ctranslate2(setting, rows) as (outputs, theirs):
        same = same_ids(ours(), outputs, limit)
        return measured(setting.compete({"ours": setting.timer(ours), "theirs": theirs}), same)


# --- batches --------------------------------------------------------------------------------------


def random_batches(pairs: list[tuple[list[int], list[int]]], max_tokens: int) -> list[list[int]]:
    """Batches in random order, each as full as `max_tokens` positions a side allow."""
    order = list(range(len(pairs)))
    random.Random(0).shuffle(order)
    batches: list[list[int]] = [[]]
    widest = 0
    for i in order:
        width = max(len(pairs[i][0]), len(pairs[i][1]) - 1)
        if batches[-1] and (len(batches[-1]) + 1) * max(widest, width) > max_tokens:
            batches.append([])
            widest = 0
        batches[-1].append(i)
        widest = max(widest, width)
    return batches


def buckets(setting: Setting) -> Measured:
    """Small model, real target tokens a second: token-bucketed batches against random order."""
    if not setting.tatoeba:
        raise Skipped("needs --tatoeba FOLDER")
    lines = (setting.tatoeba / "cmn.txt").read_text(encoding="utf-8-sig").splitlines()
    texts = [(chinese, english) for english, chinese, *_ in (line.split("\t") for line in lines)]
    tokenizer = Tokenizer.train((side for pair in texts for side in pair), "bpe", 8000)
    config = setting.small()
    pairs = [  # the lengths are what counts; the ids are folded into the model's vocabulary
        ([4 + i % (config.vocab_size - 4) for i in source],
         [BOS, *(4 + i % (config.vocab_size - 4) for i in target[1:-1]), EOS])
        for source, target in encode_pairs(tokenizer, texts)
    ]  # fmt: skip
    torch.manual_seed(0)
    step = Steps(Transformer(config).to(setting.device), our_loss(0.1))
    budget = 1500  # positions a batch, each side, as in the package's recipe for this model
    works, tokens, shares = {}, {}, {}
    for name, batches in (
        ("ours", token_batches(pairs, budget, pool=100)),
        ("theirs", random_batches(pairs, budget)),
    ):
        chosen = batches[: setting.size(40, 1)]
        tensors = [
            tuple(pad([pairs[i][side] for i in batch]).to(setting.device) for side in (0, 1))
            for batch in chosen
        ]
        tokens[name] = sum(int((target[:, 1:] != PAD).sum()) for _, target in tensors)
        shares[name] = tokens[name] / sum(target[:, 1:].numel() for _, target in tensors)
        works[name] = setting.timer(partial(epoch, step, tensors))
    every = [i for batch in token_batches(pairs, budget, pool=100) for i in batch]
    assert sorted(every) == list(range(len(pairs))), "a pair is missing or twice in the batches"
    result = measured(
        setting.compete(works, rounds=5), "pairs, each once",
        real_share_ours=shares["ours"], real_share_theirs=shares["theirs"],
    )  # fmt: skip
    assert result.ours and result.theirs
    worth = tokens["ours"] / tokens["theirs"]  # tokens of one pass against the other's
    low, middle, high = (ratio * worth for ratio in result.ratio)
    per_token = result.ours / tokens["ours"], result.theirs / tokens["theirs"]
    return replace(
        result, ratio=(low, middle, high), ours=1000 * per_token[0], theirs=1000 * per_token[1]
    )


def epoch(step: Steps, batches: list[tuple[Tensor, ...]]) -> None:
    """One update for each batch."""
    for source, target in batches:
        step(source, target)


# --- long sequences -------------------------------------------------------------------------------

WINDOW = 128


def long_input(setting: Setting, length: int) -> list[Tensor]:
    """q, k, v (1, 8, T, 64)."""
    generator = torch.Generator().manual_seed(length)
    size = (1, setting.size(8, 2), length, setting.size(64, 8))
    return [torch.randn(size, generator=generator).to(setting.device) for _ in range(3)]


@torch.no_grad()
def forward(attend: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """The output."""
    return [attend(*inputs)]


def backward(attend: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Output and gradients of q, k and v."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = attend(*leaves)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]


def window_dense(setting: Setting, run: Callable[..., list[Tensor]]) -> Measured:
    """Sliding window 128 at T 8,192 against dense attention under a band mask built beforehand."""
    length, window = setting.size(8192, 64), setting.size(WINDOW, 8)
    inputs = long_input(setting, length)
    band = window_mask(length, window, device=setting.device)
    ours = partial(run, partial(sliding_window_attention, window=window), inputs)
    theirs = partial(run, partial(attention, mask=band), inputs)
    for mine, other in zip(ours(), theirs()):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    works = {"ours": setting.timer(ours), "theirs": setting.timer(theirs)}
    return measured(setting.compete(works, rounds=5, share=2), "output to 1e-4")


def dense_written(setting: Setting, run: Callable[..., list[Tensor]]) -> Measured:
    """Causal attention in bfloat16 at T 8,192: the fused kernel against softmax(QKᵀ)V written out.

    Both are compared in float32 first.
    """
    length = setting.size(8192, 64)
    inputs, mask = long_input(setting, length), causal_mask(length, setting.device)
    works = attention, written_out
    for mine, other in zip(*(run(partial(work, mask=mask), inputs) for work in works)):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-3)
    half = [x.bfloat16() for x in inputs]
    ours, theirs = (setting.timer(partial(run, partial(w, mask=mask), half)) for w in works)
    return measured(setting.compete({"ours": ours, "theirs": theirs}), "output to 1e-3")


def written_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention that stores its weights."""
    return attention_weights(q, k, mask) @ v


def window_time(setting: Setting) -> Measured:
    """Exponent of the time of window 128, forward and backward, from T 2,048 to 16,384."""
    lengths = [setting.size(2048, 64), setting.size(16384, 256)]
    works = {
        str(length): setting.timer(window_step(setting, length)) for length in reversed(lengths)
    }
    result = setting.compete(works, rounds=7)
    (ratio,) = result.ratios.values()  # the short one's time as a share of the long one's
    growth = math.log(lengths[1] / lengths[0])
    low, middle, high = sorted(-math.log(r) / growth for r in ratio)
    seconds = {f"seconds_{length}": result.seconds[str(length)] for length in lengths}
    return Measured(
        (low, middle, high), rounds=result.rounds, dropped=result.dropped, clean=result.clean,
        facts=seconds,
    )  # fmt: skip


def window_step(setting: Setting, length: int) -> Callable[[], object]:
    """Window 128, forward and backward, ready to run."""
    window = partial(sliding_window_attention, window=setting.size(WINDOW, 8))
    return partial(backward, window, long_input(setting, length))


def window_memory(setting: Setting) -> Measured:
    """Exponent of the peak memory of the same."""
    lengths = [setting.size(2048, 64), setting.size(16384, 256)]
    short, long = (
        peak(partial(window_step, setting, length), setting.device) for length in lengths
    )
    exponent = math.log(long / short) / math.log(lengths[1] / lengths[0])
    return Measured((exponent,) * 3, rounds=1, facts={"bytes_short": short, "bytes_long": long})


# --- start ----------------------------------------------------------------------------------------

IMPORT = """
import time, torch
start = time.process_time()
import transformer
print(time.process_time() - start)
"""


def import_time(setting: Setting) -> Measured:
    """CPU seconds that `import transformer` adds to `import torch`."""
    runs = [
        float(
            subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True).stdout
        )
        for _ in range(setting.size(7, 2))
    ]
    return Measured(quartiles(runs), rounds=len(runs))
