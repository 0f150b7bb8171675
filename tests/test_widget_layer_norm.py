"""LayerNorm and residual: the page computes as the package does, and answers the hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import Visit, module_of, widget_of

from transformer.residual_norm import LayerNorm, Residual

ROWS = [
    [1.8983, 3.7981],
    [2.0, 0.0, 1.0, 5.0],
    [3.0, 3.0, 3.0],  # variance 0: nothing but ε
    [-6.0, 6.0, -6.0, 6.0, 6.0, 6.0],
    [2.0, 2.001],
]


def by_the_package(row: list[float]) -> list[float]:
    x = torch.tensor(row, dtype=torch.float64)
    return LayerNorm(len(row)).double()(x).tolist()


def stack_of_the_package(norm_first: bool) -> tuple[list[float], list[float], list[float]]:
    """After each block: variance, factor of the side path, deviation that a closing norm meets."""
    from widgets.layer_norm import numbers

    inputs, matrices = numbers()
    x = torch.tensor(inputs)
    kept, variance, side, closing = torch.ones(len(x), dtype=torch.float64), [], [], []
    for first, second in matrices:
        block = Residual(64, 0.0, norm_first).double().eval()
        met: list[torch.Tensor] = []
        block.norm.register_forward_pre_hook(lambda _, args, met=met: met.append(args[0]))
        w_1, w_2 = torch.tensor(first), torch.tensor(second)
        x = block(x, lambda u, w_1=w_1, w_2=w_2: (u @ w_1.T).relu() @ w_2.T).detach()
        if not norm_first:  # what the norm divides, it divides the input's share by
            kept = kept / (met[0].detach().var(-1, unbiased=False) + 1e-5).sqrt()
        variance.append(x.var(-1, unbiased=False).mean().item())
        side.append(kept.mean().item())
        closing.append((x.var(-1, unbiased=False) + 1e-5).rsqrt().mean().item())
    return variance, side, closing


def test_python_agrees_with_the_package() -> None:
    widget = widget_of("layer_norm")
    assert widget.values()["result"] == pytest.approx([-1, 1], abs=1e-4)  # chapter 6, by hand
    assert widget.values()["mean"] == pytest.approx(2.8482)
    for row in ROWS:
        widget.set_trait("row", [*row, *[0.0] * (6 - len(row))])
        widget.size = len(row)
        assert widget.values()["result"] == pytest.approx(by_the_package(row), abs=1e-12)
    depth = widget.depth()
    for order, norm_first in (("post", False), ("pre", True)):
        variance, side, closing = stack_of_the_package(norm_first)
        assert depth[order]["variance"] == pytest.approx(variance, abs=1e-9)
        assert depth[order]["side"] == pytest.approx(side, abs=1e-9)
    assert depth["closed"]["side"] == pytest.approx(closing, abs=1e-9)
    # the law of the chapter, which it measures over ten initialisations; here is one
    assert depth["pre"]["variance"] == pytest.approx(
        [1 + 0.32 * block for block in range(1, 25)], rel=0.1
    )


def test_the_weights_are_those_of_a_fresh_stack() -> None:
    """Xavier's uniform range and variance, no two matrices alike."""
    from widgets.layer_norm import numbers

    _, matrices = numbers()
    weights = torch.tensor(np.array([[each.ravel() for each in pair] for pair in matrices]))
    assert weights.abs().max() <= (6 / 320) ** 0.5
    assert weights.var().item() == pytest.approx(2 / 320, rel=0.01)
    assert weights.mean().item() == pytest.approx(0, abs=3e-4)
    likeness = torch.corrcoef(weights.flatten(0, 1)) - torch.eye(48)
    assert likeness.abs().max() < 0.04  # 5 deviations of 16,384 unrelated pairs


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("row", [1.0, 2.0], "row of 2 numbers, need 6"),
        ("row", [7.0, 0, 0, 0, 0, 0], "7.0.*−6 to 6"),
        ("row", [float("nan"), 0, 0, 0, 0, 0], "nan.*−6 to 6"),
        ("size", 1, "size 1, need 2 to 6"),
        ("block", 25, "block 25, need 1 to 24"),
    ],
)
def test_values_beyond_the_limits_are_refused(trait: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setattr(widget_of("layer_norm"), trait, value)


def test_the_page_agrees_with_the_package_and_answers(
    widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, "chapters/layer_norm.html").alive()
    page = module_of(opened.page)
    for row, found in zip(
        ROWS, page.evaluate("rows => rows.map(module.normalise)", ROWS), strict=True
    ):
        assert found["result"] == pytest.approx(by_the_package(row), abs=1e-12)
    depth = page.evaluate("module.stack()")
    for order, norm_first in (("post", False), ("pre", True)):
        variance, side, closing = stack_of_the_package(norm_first)
        assert depth[order]["variance"] == pytest.approx(variance, abs=1e-9)
        assert depth[order]["side"] == pytest.approx(side, abs=1e-9)
    assert depth["closed"]["side"] == pytest.approx(closing, abs=1e-9)
    assert depth["closed"]["variance"] == pytest.approx([1] * 24, abs=1e-4)

    def shown(kind: str) -> list[str]:
        return page.locator(f".tw-{kind}:visible").all_inner_texts()

    moments = page.locator(".tw-moments")
    # it starts on the chapter's example
    assert shown("result") == ["−1.0000", "1.0000"]
    assert moments.inner_text() == "mean 2.8482, variance 0.9023, deviation 0.9499"

    # two numbers keep their order only: by typing, by keys, and when they cross
    box = page.get_by_label("x1", exact=True)
    box.fill("-6")
    assert shown("result") == ["−1.0000", "1.0000"]
    box.fill("7")
    assert page.get_by_role("alert").filter(has_text="−6 to 6").is_visible()
    assert shown("deviation")[0] == "−4.8990"  # (−6 − 3.7981) / 2, as before
    ring = page.get_by_role("slider", name="number 1 of the row")
    for _ in range(11):
        ring.press("Shift+ArrowUp")
    assert box.input_value() == "5" and shown("result") == ["1.0000", "−1.0000"]
    box.fill("3.7981")  # equal: only ε is left under the root
    assert shown("result") == ["0.0000", "0.0000"]
    assert "deviation 0.0032" in moments.inner_text()

    # by mouse, to 3 and beyond the edge
    picture = page.locator(".tw svg").first.bounding_box()
    at = ring.bounding_box()
    assert picture and at
    unit = picture["width"] / 340
    page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    page.mouse.down()
    page.mouse.move(picture["x"] + unit * 60, picture["y"] + unit * (111 - 3 / 6 * 89))
    assert ring.get_attribute("aria-valuetext") == "3"
    page.mouse.move(picture["x"] + unit * 60, picture["y"] + unit * 400)
    page.mouse.up()
    assert ring.get_attribute("aria-valuetext") == "−6"

    # offset and scale are not noticed, and nothing leaves the range
    page.locator(".tw-reset").click()
    page.get_by_label("numbers in the row").select_option("4")
    four = [f"{v:.4f}".replace("-", "−") for v in by_the_package([1.8983, 3.7981, 1, 5])]
    assert shown("result") == four
    page.get_by_role("button", name="add 1 to all").click()
    assert box.input_value() == "2.8983" and shown("result") == four
    add = page.get_by_role("button", name="add 1 to all")
    assert add.get_attribute("aria-disabled") == "true"  # 5 + 2 would be beyond 6
    add.click(force=True)
    assert box.input_value() == "2.8983"
    page.get_by_role("button", name="halve all").click()
    assert moments.inner_text().startswith("mean 1.962")  # 15.6964 / 8

    # through depth
    last = [f"{depth[o]['variance'][23]:.3f}" for o in ("post", "pre", "closed")]
    page.get_by_label("after block").press("End")
    assert shown("variance") == last and last[0] == "1.000"
    page.get_by_label("after block").press("Home")
    assert shown("side") == [f"{depth[o]['side'][0]:.3f}" for o in ("post", "pre", "closed")]
    page.locator(".tw-spoken", has_text="After block 1 variance 1.00").wait_for(state="attached")
    assert opened.errors == []
