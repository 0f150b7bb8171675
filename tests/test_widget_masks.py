"""The mask explorer: the page's masks are the package's, its words are true, and it answers."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pages import Visit, module_of, widget_of

from transformer.attention import causal_mask, padding_mask
from transformer.decoder import Decoder
from transformer.encoder import Encoder, TransformerConfig
from transformer.sliding_window import window_mask
from transformer.tokens import PAD

NAMES = [
    *("cross", "target", "target_pads", "source", "source_pads", "left", "causal", "padding"),
    *("windowed", "window", "layers", "cell", "target_words", "source_words"),
]


def cases(count: int) -> list[dict[str, Any]]:
    """Random states, with the extremes of every number among them."""
    draw = random.Random(0)
    flags = ("cross", "left", "causal", "padding", "windowed")
    lengths = ("target", "source")
    return [
        {
            **{name: draw.random() < 0.5 for name in flags},
            **{name: draw.choice([1, 2, 3, 5, 10]) for name in lengths},
            **{f"{name}_pads": draw.randint(0, 3) for name in lengths},
            "window": draw.choice([1, 2, 3, 4, 13]),
            "layers": draw.randint(1, 6),
            "cell": [draw.randint(0, 12), draw.randint(0, 12)],
        }
        for _ in range(count)
    ]


def ids(state: dict[str, Any], side: str) -> torch.Tensor:
    words, pads = [5] * state[side], [PAD] * state[f"{side}_pads"]
    return torch.tensor([pads + words if state["left"] else words + pads])


def by_the_package(state: dict[str, Any]) -> torch.Tensor:
    """The mask (T, S) from the functions of chapters 4 and 12."""
    rows, columns = ids(state, "target"), ids(state, "source" if state["cross"] else "target")
    length = rows.size(1)
    mask = torch.ones(length, columns.size(1), dtype=torch.bool)
    if state["padding"]:
        mask = mask & padding_mask(columns)[0, 0]
    if state["windowed"] and not state["cross"]:
        return mask & window_mask(length, state["window"], state["causal"])
    return mask & causal_mask(length) if state["causal"] and not state["cross"] else mask


def widget_in(state: dict[str, Any]) -> Any:
    widget = widget_of("masks")
    for name, value in state.items():
        setattr(widget, name, value)
    return widget


def test_the_masks_are_the_packages() -> None:
    # chapter 9's combined mask, by hand
    assert widget_of("masks").mask().astype(int).tolist() == [
        *([1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0])
    ]
    for state in cases(300):
        assert np.array_equal(widget_in(state).mask(), by_the_package(state).numpy()), state


def test_the_field_is_what_autograd_finds() -> None:
    """Inputs with a gradient at the output in question: encoder layers, or decoder and memory."""
    for state in cases(24):
        widget = widget_in(state)
        i, _ = widget.picked()
        config = TransformerConfig(
            9, d_model=8, heads=2, d_ff=8, layers=state["layers"], dropout=0.0, norm_first=True
        )
        mask = by_the_package(state)
        read = torch.randn(1, mask.size(1), 8, dtype=torch.float64, requires_grad=True)
        if state["cross"]:
            x = torch.randn(1, mask.size(0), 8, dtype=torch.float64)
            alone = torch.eye(mask.size(0), dtype=torch.bool)
            out = Decoder(config).double()(x, read, alone, mask)
        else:
            out = Encoder(config).double()(read, mask)
        (gradient,) = torch.autograd.grad(out[0, i].sin().sum(), read)
        felt = (gradient[0] != 0).any(-1).numpy()
        if not state["cross"]:
            assert np.array_equal(widget.field()[-1], felt), state
        assert f"can depend on {felt.sum()} of {len(felt)}" in widget.hearing()
    # chapter 12: L (w − 1) + 1
    wide = {"target": 10, "target_pads": 0, "windowed": True, "window": 3, "cell": [9, 9]}
    for layers in (1, 2, 3, 4):
        heard = widget_in(wide | {"layers": layers}).field()[-1].sum()
        assert heard == 2 * layers + 1


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("target", 11, "target 11, need 1 to 10"),
        ("source_pads", -1, "source_pads -1, need 0 to 3"),
        ("window", 0, "window 0, need 1 to 13"),
        ("layers", 7, "layers 7, need 1 to 6"),
        ("cell", [0, 13], r"\[0, 13\], need two places from 0 to 12"),
        ("cell", [1], r"\[1\], need two places"),
    ],
)
def test_values_beyond_the_limits_are_refused(trait: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setattr(widget_of("masks"), trait, value)


def test_the_page_agrees_with_the_package_and_answers(
    widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, "chapters/masks.html").alive()
    page = module_of(opened.page)
    drawn = cases(300)
    python = [widget_in(state) for state in drawn]
    states = [{name: getattr(widget, name) for name in NAMES} for widget in python]
    found = page.evaluate("states => states.map(module.explore)", states)
    for state, widget, got in zip(drawn, python, found, strict=True):
        assert got["mask"] == by_the_package(state).tolist(), state
        assert got["verdict"] == widget.verdict()
        assert got["hearing"] == widget.hearing()
        if not state["cross"]:
            assert got["field"] == widget.field().tolist()

    verdict, hearing = page.locator(".tw-verdict"), page.locator(".tw-hearing")

    def open_cells() -> list[str]:
        names = [
            cell.get_attribute("aria-label") for cell in page.locator(".tw-open:visible").all()
        ]
        return [name.removesuffix(": may be read") for name in names if name]

    def why(mask: str) -> list[str]:
        row = page.locator(".tw-why tr", has=page.get_by_role("rowheader", name=mask))
        return row.locator("td").all_inner_texts()

    # it starts on the chapter's example: the answer may not be read
    assert page.locator(".tw-cell:visible").count() == 16 and len(open_cells()) == 9
    assert verdict.inner_text() == (
        "Query 1 (starts) may not read key 2 (working): it stands later."
    )
    assert why("causal") == ["no", "it stands later"]
    assert why("padding") == ["yes", "it is not padding"]
    assert why("window") == ["–", "off"]

    # by arrow keys, up to the edge, and by mouse
    picked = page.locator(".tw-cell[aria-current=true]")
    picked.press("ArrowLeft")
    assert verdict.inner_text() == "Query 1 (starts) may read key 1 (starts)."
    picked.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == (
        "query 2 working, key 1 starts: may be read"
    )
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft"):
        picked.press(key)
    assert verdict.inner_text() == "Query 2 (working) may read key 0 (<bos>)."
    assert page.evaluate("document.activeElement.tabIndex") == 0
    page.get_by_role("button", name="query 0 <bos>, key 3 <pad>: hidden").click()
    assert verdict.inner_text().endswith(
        "may not read key 3 (<pad>): it stands later; it is padding."
    )

    # without the padding mask the row of padding alone is another: chapter 9's remark
    before = open_cells()
    page.get_by_label("padding mask").uncheck()
    assert [cell for cell in open_cells() if cell not in before] == ["query 3 <pad>, key 3 <pad>"]
    page.get_by_label("padding mask").check()

    # on the left the first row has nothing to read
    page.get_by_label("padding on the left").check()
    assert "query 1 <bos>, key 0 <pad>" not in open_cells()
    assert verdict.inner_text().endswith("This query may read nothing: attention gives it zeros.")
    page.get_by_label("padding on the left").uncheck()

    # a window, and layers above it
    page.get_by_label("target words").press("End")
    page.get_by_label("target padding").press("Home")
    page.get_by_label("window").check()
    assert len(open_cells()) == 10 + 9
    page.get_by_role("button", name="query 9, key 7: hidden").click()
    assert why("window") == ["no", "it is 2 places away, and the window reaches 1"]
    assert hearing.inner_text() == (
        "After 2 layers, output 9 can depend on 3 of 10 inputs: 7 to 9."
    )
    page.get_by_role("slider", name="layers").press("End")
    assert "7 of 10 inputs: 3 to 9" in hearing.inner_text()
    assert page.get_by_role("img", name="7 of 10 inputs: 3 to 9").is_visible()
    page.get_by_label("causal mask").uncheck()
    assert len(open_cells()) == 10 + 2 * 9

    # cross-attention: only the source's padding is hidden
    page.locator(".tw-reset").click()
    page.get_by_role("combobox").select_option("cross-attention")
    assert page.locator(".tw-cell:visible").count() == 4 * 5 and len(open_cells()) == 4 * 3
    assert verdict.inner_text() == "Query 1 (starts) may read key 2 (工作)."
    assert not page.get_by_label("causal mask").is_visible()
    assert "after one, output 1 can depend on 3 of 5 source positions" in hearing.inner_text()
    page.locator(".tw-spoken", has_text="may read key").wait_for(state="attached")
    assert opened.errors == []
