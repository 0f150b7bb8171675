"""Attention by hand: the page computes as the package does, and answers the hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pages import Visit, module_of, widget_of

from transformer.attention import attention_weights, causal_mask

X = torch.tensor([[1, 0], [0, 1], [1, 2]], dtype=torch.float64)


def by_the_package(
    vectors: torch.Tensor, query: int, masked: bool, scaled: bool, temperature: float
) -> tuple[list[float], list[float]]:
    """Weights and output; the package always divides by √2, so not to, multiply before."""
    queries = vectors / temperature * (1.0 if scaled else 2**0.5)
    mask = causal_mask(3) if masked else None
    weights = attention_weights(queries, vectors, mask)
    return weights[query].tolist(), (weights @ vectors)[query].tolist()


def cases() -> list[tuple[torch.Tensor, int, bool, bool, float]]:
    drawn = [torch.rand(3, 2, dtype=torch.float64) * 6 - 3 for _ in range(20)]
    drawn.append(torch.zeros(3, 2, dtype=torch.float64))
    drawn.append(torch.full((3, 2), 3.0, dtype=torch.float64))
    return [
        (vectors, query, masked, scaled, temperature)
        for vectors in drawn
        for query in range(3)
        for masked in (False, True)
        for scaled in (False, True)
        for temperature in (0.1, 1.0, 5.0)
    ]


def test_python_agrees_with_the_package() -> None:
    widget = widget_of("attention")
    assert widget.values()["weights"] == pytest.approx(by_the_package(X, 2, False, True, 1)[0])
    for vectors, query, masked, scaled, temperature in cases():
        widget.set_trait("vectors", vectors.tolist())
        widget.query, widget.masked, widget.scaled = query, masked, scaled
        widget.temperature = temperature
        weights, output = by_the_package(vectors, query, masked, scaled, temperature)
        assert widget.values()["weights"] == pytest.approx(weights, abs=1e-12)
        assert widget.values()["output"] == pytest.approx(output, abs=1e-12)


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("vectors", [[1, 0], [0, 1]], r"\(2, 2\), need \(3, 2\)"),
        ("vectors", [[4, 0], [0, 1], [1, 2]], "4.0.*−3 to 3"),
        ("vectors", [[float("nan"), 0], [0, 1], [1, 2]], "nan.*−3 to 3"),
        ("query", 3, "3, need 0, 1 or 2"),
        ("temperature", 0.0, "0.0, need 0.1 to 5"),
    ],
)
def test_values_beyond_the_limits_are_refused(trait: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setattr(widget_of("attention"), trait, value)


def test_the_page_agrees_with_the_package_and_answers(
    widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, "chapters/attention.html").alive()
    page = module_of(opened.page)

    drawn = cases()
    wanted = [by_the_package(*case) for case in drawn]
    keys = ("vectors", "query", "masked", "scaled", "temperature")
    states = [dict(zip(keys, (case[0].tolist(), *case[1:]), strict=True)) for case in drawn]
    found = page.evaluate("states => states.map(module.attend)", states)
    for (weights, output), got in zip(wanted, found, strict=True):
        assert got["weights"] == pytest.approx(weights, abs=1e-12)
        assert got["output"] == pytest.approx(output, abs=1e-12)

    def shown(kind: str) -> list[str]:
        return page.locator(f".tw-{kind}").all_inner_texts()

    # it starts on the chapter's worked example
    assert shown("dots") == ["1", "2", "5"]
    assert shown("scores") == ["0.7071", "1.4142", "3.5355"]
    assert shown("weights") == ["0.0501", "0.1017", "0.8482"]
    assert "[0.8983, 1.7981]" in page.locator(".tw-sum").inner_text()

    # the query, by keyboard; the mask, by mouse
    asks = page.get_by_role("radio")
    asks.nth(2).press("ArrowLeft")
    assert shown("weights") == ["0.1400", "0.2840", "0.5760"]
    page.get_by_label("causal mask").click()
    assert shown("weights") == ["0.3302", "0.6698", "0.0000"]
    assert shown("scores")[2] == "−∞"
    page.get_by_label("causal mask").click()

    # typed
    box = page.get_by_label("工作, coordinate 2")
    box.fill("-1")
    assert shown("dots") == ["0", "1", "−1"]
    box.fill("7")
    assert box.get_attribute("aria-invalid") == "true"
    assert page.get_by_role("alert").filter(has_text="−3 to 3").is_visible()
    assert shown("dots") == ["0", "1", "−1"]
    page.keyboard.press("Tab")
    assert box.input_value() == "-1"

    # by arrow keys, and by ten steps
    tip = page.get_by_role("slider", name="Vector of 工作")
    assert tip.get_attribute("aria-valuetext") == "1, −1"
    tip.press("ArrowUp")
    assert box.input_value() == "-0.9"
    tip.press("Shift+ArrowUp")
    assert box.input_value() == "0.1"

    # by mouse: to (−2, 1.5), and beyond the edge of the plane
    plane = page.locator(".tw svg").first.bounding_box()
    assert plane
    unit = plane["width"] / 340 * 50

    def drag(x: float, y: float) -> None:
        origin = plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] / 2
        page.mouse.move(origin[0] + unit * x, origin[1] - unit * y)

    at = tip.bounding_box()
    assert at
    page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    page.mouse.down()
    drag(-2, 1.5)
    assert tip.get_attribute("aria-valuetext") == "−2, 1.5"
    drag(-5, 1.5)
    page.mouse.up()
    assert tip.get_attribute("aria-valuetext") == "−3, 1.5"
    drag(0, 0)
    assert tip.get_attribute("aria-valuetext") == "−3, 1.5"

    # √d_k and temperature
    page.locator(".tw-reset").click()
    page.get_by_label("divide by √d_k").uncheck()
    assert shown("scores") == ["1.0000", "2.0000", "5.0000"]
    heat = page.get_by_label("temperature")
    heat.press("End")
    weights, output = by_the_package(X, 2, False, False, 5.0)
    assert shown("weights") == [f"{weight:.4f}" for weight in weights]
    assert f"[{output[0]:.4f}, {output[1]:.4f}]" in page.locator(".tw-sum").inner_text()
    spoken = page.locator(".tw-spoken", has_text="工作 reads 小明 0.")
    spoken.wait_for(state="attached")
    assert opened.errors == []
