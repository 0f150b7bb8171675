"""The position explorer: the page computes as the package does, and answers the hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pages import Visit, module_of, widget_of

from transformer.positional_encoding import sinusoidal_encoding

CASES = [
    (place, width, base)
    for place in (0, 1, 7, 60)
    for width in (4, 8, 32, 128)
    for base in (10, 10_000, 100_000)
]


def test_python_agrees_with_the_package() -> None:
    widget = widget_of("position")
    for _, width, base in CASES:
        widget.width, widget.base = width, base
        package = sinusoidal_encoding(61, width, base).numpy()
        assert widget.encoding(range(61)) == pytest.approx(package, abs=1e-7)
    # the dot product knows the distance alone: Σ cos(ω k), chapter 3
    widget = widget_of("position")
    omega = 10_000 ** (-torch.arange(0, 32, 2, dtype=torch.float64) / 32)
    assert f"with place 12 {(omega * 5).cos().sum():.4f}" in widget.text()
    assert "with itself 16.0000" in widget.text()
    assert widget.coordinates() == [0, 4, 8, 12]  # those of the chapter's figure


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("place", 61, "place 61, need 0 to 60"),
        ("other", -1, "other -1, need 0 to 60"),
        ("width", 6, "width 6, need one of"),
        ("base", 2, "base 2, need one of"),
    ],
)
def test_values_beyond_the_limits_are_refused(trait: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setattr(widget_of("position"), trait, value)


def test_the_page_agrees_with_the_package_and_answers(
    widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, "chapters/position.html").alive()
    page = module_of(opened.page)
    states = [dict(zip(("place", "width", "base"), case, strict=True)) for case in CASES]
    for state, found in zip(
        states, page.evaluate("states => states.map(module.explore)", states), strict=True
    ):
        code = sinusoidal_encoding(61, state["width"], state["base"]).double()
        assert found["row"] == pytest.approx(code[state["place"]].tolist(), abs=1e-6)
        products = (code @ code[state["place"]]).tolist()
        assert found["products"] == pytest.approx(products, abs=1e-4)

    def product() -> str:
        return page.locator(".tw-product").inner_text()

    code = sinusoidal_encoding(61, 32).double()
    assert f"place 7 · place 12 = {code[7] @ code[12]:.4f}, distance 5;" in product()
    assert page.locator(".tw-sin").all_inner_texts() == [
        f"{code[7, c]:.3f}".replace("-", "−") for c in (0, 4, 8, 12)
    ]
    # both places moved on by one, by keyboard: the product stays
    place = page.get_by_label("place p").first
    before = f"{code[7] @ code[12]:.4f}, distance 5"
    place.press("ArrowRight")
    assert before not in product()
    page.get_by_label("compare with").first.press("ArrowRight")
    assert f"place 8 · place 13 = {before}" in product()
    page.get_by_role("slider", name="place to compare with").press("Shift+ArrowLeft")
    assert "place 8 · place 3 " in product() and "distance −5;" in product()
    assert f"= {before}".replace(", distance 5", "") in product()

    # by mouse, to place 40 and beyond the last
    hair = page.locator("[aria-roledescription='movable point'][aria-label='place p']")
    box = page.locator(".tw svg").first.bounding_box()
    at = hair.locator("circle").bounding_box()
    assert box and at
    unit = box["width"] / 330
    page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + unit * (34 + 40 / 60 * 284), box["y"] + 50)
    assert "place 40 · place 3 " in product()
    page.mouse.move(box["x"] + unit * 400, box["y"] + 50)
    page.mouse.up()
    assert "place 60 · place 3 " in product()

    # width and base
    page.get_by_label("width d").select_option("4")
    page.get_by_label("base").select_option("10")
    small = sinusoidal_encoding(61, 4, 10).double()
    assert f"= {small[60] @ small[3]:.4f}".replace("-", "−") in product()
    assert page.locator(".tw-sin:visible").all_inner_texts() == [
        f"{small[60, c]:.3f}".replace("-", "−") for c in (0, 2)
    ]
    assert opened.errors == []
