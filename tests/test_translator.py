"""The live translator: the page computes what the package computes, and loads nothing unasked.

Measured over the forty sentences: logits at most 8e-6 apart, attention weights 1.1e-6.
"""

import base64
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import ROOT, Visit, module_of, widget_of
from playwright.sync_api import Page, expect
from test_widgets import BEYOND, CONTRAST, OVERFLOW

from book.model_ext import page_script
from transformer import attention_maps, beam_search, greedy_search, load, read_pairs, translate
from transformer.decoding import CachedDecoder
from transformer.tokens import BOS, EOS, pad

PAGE = "chapters/translator.html"
FOLDER = ROOT / "book" / "model"
SENTENCES: list[str] = widget_of("translator").sentences  # type: ignore[attr-defined]
LIMIT = 50  # tokens past the length of the source


@cache
def trained() -> tuple[Any, Any]:
    return load(FOLDER)


# --- what ships -----------------------------------------------------------------------------------


def test_the_model_is_small_and_the_package_reads_it() -> None:
    model, tokenizer = trained()
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    files = ["config.json", "vocabulary.json", "weights.safetensors"]
    assert sum((FOLDER / name).stat().st_size for name in files) <= 4_000_000
    assert len(page_script().encode()) <= 4_000_000
    pairs = read_pairs(ROOT / "data" / "zh-en" / "test.tsv")[:100]
    found = translate(model, tokenizer, [source for source, _ in pairs], beam=1)
    assert sum(f == wanted for f, (_, wanted) in zip(found, pairs)) >= 98


def test_the_sentences_are_held_out_and_every_word_is_explained() -> None:
    assert len(set(SENTENCES)) == 40
    assert SENTENCES[:3] == ["小明 开始 工作", "我 爱 中国", "我 把 猫 抱 起来 ， 它 很 乖"]
    held_out, taught = (
        [source for source, _ in read_pairs(ROOT / "data" / "zh-en" / f"{part}.tsv")]
        for part in ("test", "train")
    )
    assert set(SENTENCES) <= set(held_out) and not set(SENTENCES) & set(taught)
    words = [word for _, word, _ in widget_of("translator").words]  # type: ignore[attr-defined]
    assert len(set(words)) == len(words) == 300
    assert set(words) == {word for source in taught for word in source.split()}


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("sentence", "我 爱 鲸鱼", "'鲸鱼' is not among the 300 words"),
        ("sentence", "  ", "0 words, need 1 to 40"),
        ("sentence", "我 " * 41, "41 words, need 1 to 40"),
        ("beam", 9, "beam is 9, need 1 to 8"),
        ("layer", 2, "layer is 2, need 0 to 1"),
        ("head", -2, "head is -2, need -1 to 3"),
    ],
)
def test_values_beyond_the_limits_are_refused(trait: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setattr(widget_of("translator"), trait, value)


def test_python_shows_what_the_package_finds() -> None:
    widget: Any = widget_of("translator")
    assert widget.text().startswith("小明 开始 工作 → Xiaoming starts working\ngreedy,")
    widget.sentence, widget.beam, widget.reading, widget.head = SENTENCES[2], 4, "encoder", 1
    found = widget.values()
    assert found["text"] == translate(*trained(), [SENTENCES[2]], beam=4)[0]
    source = pad([trained()[1].encode(SENTENCES[2])])
    maps = attention_maps(trained()[0], source, pad([[BOS]]))
    wanted = maps["encoder.layers.1.self_attention"][0, 1]
    torch.testing.assert_close(found["weights"], wanted)
    assert len(found["tokens"]) == len(found["best"]) and found["tokens"][-1] == "end"


# --- the engine against the package ---------------------------------------------------------------

# Everything the page knows of one translation; its numbers one after the other, in base64.
TRACE = """([sentences, beam]) => module.loadModel().then((model) => sentences.map((sentence) => {
  const source = sentence.split(" ").map((word) => model.ids.get(word));
  const { steps, encoder, ids, text, finished, logProb, score } = model.translate(source, beam);
  const flat = (value) => value instanceof Float32Array ? [...value] : value.flatMap(flat);
  const bytes = (values) => btoa(Array.from(new Uint8Array(Float32Array.from(flat(values)).buffer),
    (byte) => String.fromCharCode(byte)).join(""));
  return { source, ids, text, finished, logProb, score, logits: bytes(steps.map((s) => s.logits)),
    encoder: bytes(encoder), self: bytes(steps.map((s) => s.self)),
    cross: bytes(steps.map((s) => s.cross)) };
}))"""


def numbers(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32)


def check_segmentation(page: Page) -> None:
    """Words are found by longest match, and what is left over is named."""
    words = [word for _, word, _ in widget_of("translator").words]  # type: ignore[attr-defined]
    cut = "([text, words]) => module.segment(text, new Map(words.map((word) => [word, ''])))"
    for sentence in SENTENCES:
        found = page.evaluate(cut, [sentence.replace(" ", ""), words])
        assert found == {"words": sentence.split(), "unknown": []}
    for text, known, unknown in [
        ("我 爱 鲸鱼", ["我", "爱", "鱼"], ["鲸"]),
        ("他tired吗?", ["他", "吗", "？"], ["tired"]),
        ("猫，<unk>", ["猫", "，"], ["<unk>"]),
        (" \u3000", [], []),
    ]:
        assert page.evaluate(cut, [text, words]) == {"words": known, "unknown": unknown}


@torch.inference_mode()
def test_the_page_computes_what_the_package_computes(
    widgets: Path, visit: Callable[..., Visit]
) -> None:
    model, tokenizer = trained()
    page = module_of(visit(widgets, PAGE).alive().page)
    check_segmentation(page)
    furthest: dict[str, float] = {}
    for beam in (1, 4):
        for sentence, got in zip(SENTENCES, page.evaluate(TRACE, [SENTENCES, beam]), strict=True):
            source = pad([tokenizer.encode(sentence)])
            assert got["source"] == source[0].tolist()
            decoder, limit = CachedDecoder(model, source), source.size(1) + LIMIT
            if beam == 1:
                ids = [i for i in greedy_search(decoder, 1, limit)[0].tolist() if i != EOS]
            else:
                (best,) = beam_search(decoder, 1, limit, beam)[0]
                ids = list(best.ids)
                assert got["logProb"] == pytest.approx(best.log_prob, abs=1e-4)
                assert got["score"] == pytest.approx(best.score, abs=1e-4)
            assert got["ids"] == ids, sentence
            assert got["text"] == tokenizer.decode(ids) and got["finished"]
            target = pad([[BOS, *ids]])
            maps = attention_maps(model, source, target)
            layers = range(model.config.layers)
            encoder, own, cross = (
                torch.stack([maps[f"{name}_attention"][0] for name in names])  # (L, h, T, S)
                for names in (
                    [f"encoder.layers.{i}.self" for i in layers],
                    [f"decoder.layers.{i}.self" for i in layers],
                    [f"decoder.layers.{i}.cross" for i in layers],
                )
            )
            steps = range(target.size(1))
            past = [own[:, :, t, : t + 1].flatten() for t in steps]  # what lies ahead is not there
            for name, wanted in {
                "logits": model(source, target),
                "encoder": encoder,
                "cross": cross.movedim(2, 0),
                "self": torch.cat(past),
            }.items():
                found = numbers(got[name])
                assert found.numel() == wanted.numel() > 0
                apart = (found - wanted.flatten()).abs().max().item()
                furthest[name] = max(furthest.get(name, 0.0), apart)
    assert len(furthest) == 4 and furthest.pop("logits") < 1e-4
    assert max(furthest.values()) < 1e-5


# --- the page -------------------------------------------------------------------------------------

MODEL_ASKED_FOR = "() => !!document.querySelector('script[src*=\"translator/model\"]')"


SHARES = "cells => cells.map((cell) => Number(cell.style.getPropertyValue('--share')))"


def shown(page: Page) -> str:
    """The translation as it stands on the page, joined as the package joins words."""
    tokens = page.locator(".tt-token:visible").all_inner_texts()
    return " ".join(tokens).replace(" ,", ",").replace(" ?", "?")


@pytest.mark.parametrize(("local", "beam"), [(False, 1), (True, 4)])
def test_forty_sentences_typed_into_the_page(
    local: bool, beam: int, widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, PAGE, local=local, reduced_motion="reduce").alive()
    page = opened.page
    assert not page.evaluate(MODEL_ASKED_FOR) and page.locator(".tt-result").is_hidden()
    field = page.locator(".tt-field")
    assert field.input_value() == SENTENCES[0]
    page.get_by_role("button", name="Translate").click()
    page.locator(".tt-token").first.wait_for()
    assert page.evaluate(MODEL_ASKED_FOR)
    if beam > 1:
        page.locator(".tt-search select").select_option(f"beam of {beam}")
    wanted = translate(*trained(), SENTENCES, beam=beam)
    for sentence, translation in zip(SENTENCES, wanted, strict=True):
        field.fill(sentence.replace(" ", "") if local else sentence)
        field.press("Enter")
        assert shown(page) == f"{translation} end"
    assert opened.errors == [] and opened.elsewhere == []
    assert page.evaluate("() => document.querySelectorAll('script[src*=translator]').length") == 1


def test_what_it_does_not_know_it_says(widgets: Path, visit: Callable[..., Visit]) -> None:
    opened = visit(widgets, PAGE).alive()
    page = opened.page
    field, alert = page.locator(".tt-field"), page.locator(".tt-ask ~ [role=alert]")
    for text, words in {
        "我爱鲸": "“鲸”: not among the 300 words that this model was taught.",
        "": "Type a sentence, or choose one.",
        "我" * 41: "41 words: at most 40 fit here.",
    }.items():
        field.fill(text)
        field.press("Enter")
        assert alert.inner_text() == words
        assert field.get_attribute("aria-invalid") == "true"
    assert not page.evaluate(MODEL_ASKED_FOR)
    field.fill("我爱")
    assert alert.inner_text() == "" and field.get_attribute("aria-invalid") == "false"

    # a model that does not come is an error in words, and may be asked for again
    page.route("**/translator/model.js", lambda route: route.abort())
    field.press("Enter")
    expect(alert).to_have_text("The model does not load: translator/model.js is missing.")
    page.unroute("**/translator/model.js")
    page.locator(".tw-reset").click()
    assert field.input_value() == SENTENCES[0] and alert.inner_text() == ""
    field.press("Enter")
    expect(page.locator(".tw-spoken")).to_contain_text("Xiaoming starts working")


def test_it_answers_the_hand(widgets: Path, visit: Callable[..., Visit]) -> None:
    opened = visit(widgets, PAGE, reduced_motion="reduce").alive()
    page = opened.page
    page.get_by_role("button", name=SENTENCES[1]).click()
    page.locator(".tt-token").first.wait_for()
    spoken = page.locator(".tw-spoken")
    expect(spoken).to_contain_text("我 爱 中国: I love China. Word 2: love ")

    # five likeliest of the word chosen, by arrow keys
    widget: Any = widget_of("translator")
    widget.sentence = SENTENCES[1]

    def likely() -> list[str]:
        rows = page.locator(".tt-likely tr").all()
        return [" ".join(row.inner_text().split()) for row in rows]

    def by_python(t: int) -> list[str]:
        return [f"{word} {100 * p:.1f} %" for word, p in widget.values()["best"][t]]

    assert likely() == by_python(1)
    page.get_by_role("radio", name="love").press("ArrowRight")
    assert likely() == by_python(2) and likely()[0].startswith("China 9")
    expect(spoken).to_contain_text("Word 3: China")

    # each attention, layer and head, and what its cells say
    reading, layer, head = page.locator(".tt-parts select").all()
    names = {"cross": 0, "encoder": 1, "decoder": 2}
    for kind, index in names.items():
        for level in (0, 1):
            for h in (-1, 0, 3):
                reading.select_option(index=index)
                layer.select_option(index=level)
                head.select_option(index=h + 1)
                widget.reading, widget.layer, widget.head = kind, level, h
                weights = widget.values()["weights"]
                got = torch.tensor(page.locator(".tt-grid tbody td").evaluate_all(SHARES))
                torch.testing.assert_close(got.view_as(weights), weights, atol=1e-4, rtol=0)
    assert page.locator(".tt-hidden").count() == 6  # above the diagonal of 4 × 4

    # the table by arrow keys, its cells in words
    reading.select_option(index=0)
    cell = page.locator(".tt-grid td[tabindex='0']")
    cell.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    share = widget_weight(widget, "cross", 1, 3, 1, 1)
    assert page.locator(".tt-said").inner_text() == f"writing love reads 爱 (love): {share}"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # the edge
    assert "writing love reads 我 (I)" in page.locator(".tt-said").inner_text()

    # a beam, with what else it finished
    page.locator(".tt-search select").select_option("beam of 4")
    best = page.locator(".tt-found li").all_inner_texts()
    assert best[0].startswith("I love China") and len(best) >= 2

    # words to choose from
    page.locator(".tt-vocabulary summary").click()
    page.locator(".tt-field").fill("")
    for word in ("我 I", "喜欢 like", "猫 cat"):
        page.get_by_role("button", name=word, exact=True).click()
    page.get_by_role("button", name="Translate").click()
    assert shown(page) == "I like cats end"

    # it fits, and can be read
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        contrast, text = page.evaluate(CONTRAST)
        assert contrast >= 4.5, (theme, text)
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name=SENTENCES[2]).click()
    assert page.evaluate(OVERFLOW) == 0 and page.evaluate(BEYOND) == []
    assert opened.errors == []


def widget_weight(widget: Any, reading: str, layer: int, head: int, row: int, column: int) -> str:
    widget.reading, widget.layer, widget.head = reading, layer, head
    return f"{100 * widget.values()['weights'][row, column]:.1f} %"


def test_tokens_appear_one_by_one(widgets: Path, visit: Callable[..., Visit]) -> None:
    page = visit(widgets, PAGE).alive().page
    page.clock.install()
    page.get_by_role("button", name="Translate").click()
    page.locator(".tt-token").first.wait_for()
    for count in range(1, 5):
        assert page.locator(".tt-token:visible").count() == count
        assert page.locator(".tt-grid tbody th:visible").count() == count
        page.clock.run_for(450)
    assert shown(page) == "Xiaoming starts working end"
    page.locator(".tw-reset").click()
    assert page.locator(".tt-result").is_hidden()


def test_in_jupyter_the_kernel_sends_the_model(
    widgets: Path, visit: Callable[..., Visit], monkeypatch: pytest.MonkeyPatch
) -> None:
    widget: Any = widget_of("translator")
    sent: list[Any] = []
    monkeypatch.setattr(type(widget), "send", lambda self, *message: sent.append(message))
    widget._answer(widget, {"want": "other"}, [])
    widget._answer(widget, {"want": "model"}, [])
    ((content, buffers),) = sent
    page = module_of(visit(widgets, PAGE).alive().page)
    text = page.evaluate(
        """([content, parts]) => {
          delete document.documentElement.dataset.content_root;
          let heard, wanted;
          const widget = { on: (_, call) => { heard = call; }, send: (what) => { wanted = what; } };
          const loaded = module.loadModel(widget);
          heard({ have: "another" }, []);
          heard(content, parts.map((part) =>
            new DataView(Uint8Array.from(atob(part), (sign) => sign.charCodeAt(0)).buffer)));
          return loaded.then((model) => [wanted.want, model.translate(
            ["我", "爱", "中国"].map((word) => model.ids.get(word)), 4).text]);
        }""",
        [content, [base64.b64encode(part).decode() for part in buffers]],
    )
    assert text == ["model", "I love China"]


def test_no_other_page_asks_for_it(widgets: Path) -> None:
    pages = [path for path in widgets.rglob("*.html") if path.name != "translator.html"]
    assert len(pages) >= 3
    for path in pages:
        assert "translator/model.js" not in path.read_text(encoding="utf-8")
    assert (widgets / "translator" / "model.js").stat().st_size <= 4_000_000
