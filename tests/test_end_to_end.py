"""The whole path: text in, trained model on disk, text out; and what chapter 15 may use for it."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from transformer import (
    Tokenizer,
    Trainer,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    encode_pairs,
    load,
    read_pairs,
    save,
    translate,
)

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "data" / "zh-en"
CHAPTER = ROOT / "chapters" / "15_end_to_end.ipynb"


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def imported(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def test_chapter_15_writes_no_model_code():
    source = "\n".join(code_cells(CHAPTER))
    outside = set(imported(source)) - set(sys.stdlib_module_names)
    assert outside <= {"transformer", "figures", "widgets", "torch"}  # two of them only show
    assert not [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)]
    assert "nn." not in source


@pytest.mark.parametrize("path", sorted(ROOT.glob("chapters/*.ipynb")), ids=lambda path: path.stem)
def test_chapters_fetch_nothing(path):
    """Case V9: data ships with the book; no retired library, no download."""
    for source in code_cells(path):
        plain = "\n".join(line for line in source.splitlines() if line[:1] not in "%!")
        found = set(imported(plain))
        assert not found & {"torchtext", "urllib", "requests", "httpx", "datasets", "wget", "gdown"}


@pytest.fixture(scope="module")
def translator():
    pairs = read_pairs(CORPUS / "train.tsv")[:1500]
    tokenizer = Tokenizer.train(side for pair in pairs for side in pair)
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(len(tokenizer), 32, 4, 64, 1, dropout=0.0))
    recipe = TrainingConfig(epochs=2, warmup=20, max_tokens=800, factor=0.5)
    trainer = Trainer(model, encode_pairs(tokenizer, pairs), recipe, progress=False)
    return trainer.fit(), model, tokenizer, pairs


def test_training_on_the_corpus_lowers_the_loss(translator):
    losses, _, tokenizer, _ = translator
    assert losses[0] > 0.9 * torch.tensor(float(len(tokenizer))).log()
    assert sum(losses[-10:]) / 10 < 0.75 * losses[0]


def test_a_saved_translator_says_the_same_in_another_process(translator, tmp_path):
    _, model, tokenizer, pairs = translator
    lines = [source for source, _ in pairs[:6]]
    expected = translate(model, tokenizer, lines)
    save(model, tokenizer, tmp_path)
    code = (
        "import sys, json; from transformer import load, translate;"
        "sys.stdout.reconfigure(encoding='utf-8');"
        "model, tokenizer = load(sys.argv[1]);"
        "print(json.dumps(translate(model, tokenizer, json.loads(sys.argv[2]))))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), json.dumps(lines)],
        capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert json.loads(result.stdout) == expected
    again, vocabulary = load(tmp_path)
    assert translate(again, vocabulary, lines) == expected


def test_an_unknown_word_does_not_stop_the_translation(translator):
    _, model, tokenizer, _ = translator
    assert len(translate(model, tokenizer, ["鲸鱼 工作", "工作"])) == 2
