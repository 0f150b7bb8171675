"""Loss and gradient, and the beam tree: the page computes as the package does, and answers."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import Visit, module_of, widget_of
from torch import Tensor

from transformer.decoding import beam_search, greedy_search
from transformer.loss import cross_entropy
from transformer.tokens import EOS

# --- loss and gradient ---------------------------------------------------------------------------


def states() -> list[dict[str, Any]]:
    """Logits, labels and smoothing: drawn, at the ends, and with labels that are PAD."""
    drawn = [torch.rand(4, 10, dtype=torch.float64) * 16 - 8 for _ in range(8)]
    drawn.append(torch.zeros(4, 10, dtype=torch.float64))
    drawn.append((torch.rand(4, 10, dtype=torch.float64) > 0.5) * 16.0 - 8)
    choices = [[4, 5, 6, 2], [0, 9, 0, 9], [1, 0, 3, 3], [0, 0, 0, 7]]
    return [
        {"logits": z.tolist(), "labels": labels, "smoothing": smoothing, "rate": 2.5}
        for z, labels, smoothing in itertools.product(drawn, choices, (0.0, 0.1, 0.9))
    ]


def by_autograd(state: dict[str, Any]) -> tuple[float, float, Tensor]:
    """−ln p and loss, means over the labels, and the slope of the loss at each logit."""
    z = torch.tensor(state["logits"], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor(state["labels"])
    loss = cross_entropy(z, labels, state["smoothing"])
    (slope,) = torch.autograd.grad(loss, z)
    return cross_entropy(z, labels).item(), loss.item(), slope


def lowest(state: dict[str, Any]) -> float:
    """Entropy of the smoothed label."""
    share = torch.full((10,), state["smoothing"] / 10, dtype=torch.float64)
    share[0] += 1 - state["smoothing"]
    return torch.distributions.Categorical(share).entropy().item()


def test_loss_in_python_agrees_with_the_package() -> None:
    widget = widget_of("loss")
    assert widget.values()["mean_nll"] == pytest.approx(0.7034, abs=5e-5)
    assert widget.values()["slope"][0, 4] == pytest.approx(-0.1)
    for state in states():
        for trait in ("logits", "labels", "smoothing", "rate"):
            widget.set_trait(trait, state[trait])
        nll, loss, slope = by_autograd(state)
        found = widget.values()
        assert [found["mean_nll"], found["mean_loss"]] == pytest.approx([nll, loss], abs=1e-12)
        assert found["slope"] == pytest.approx(slope.numpy(), abs=1e-12)
        assert found["floor"] == pytest.approx(lowest(state), abs=1e-6)
    widget = widget_of("loss")
    before = torch.tensor(widget.logits, dtype=torch.float64)
    _, loss, slope = by_autograd({**states()[0], "logits": widget.logits, "smoothing": 0.0})
    widget.descend()
    assert widget.logits == pytest.approx((before - slope).numpy())
    assert widget.history == pytest.approx([loss])


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("logits", [[0.0] * 10] * 3, r"\(3, 10\), need \(4, 10\)"),
        ("logits", [[0.0] * 10] * 3 + [[0.0] * 9 + [8.5]], "8.5, each must be −8 to 8"),
        ("logits", [[0.0] * 10] * 3 + [[float("nan")] * 10], "nan, each must be −8 to 8"),
        ("labels", [4, 5, 6], r"\[4, 5, 6\], need 4 numbers from 0 to 9"),
        ("labels", [4, 5, 6, 10], "10.*need 4 numbers from 0 to 9"),
        ("labels", [0, 0, 0, 0], "all <pad>"),
        ("position", 4, "4, need 0 to 3"),
        ("smoothing", 1.0, "1.0, need 0 to 0.9"),
        ("rate", 0.0, "0.0, need 0.1 to 10"),
    ],
)
def test_loss_refuses_values_beyond_the_limits(trait: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setattr(widget_of("loss"), trait, value)


def test_loss_in_the_page_agrees_with_autograd_and_answers(
    widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, "chapters/loss.html").alive()
    page = module_of(opened.page)
    drawn = states()
    costs = page.evaluate("states => states.map(module.cost)", drawn)
    stepped = page.evaluate("states => states.map(module.descend)", drawn)
    for state, cost, after in zip(drawn, costs, stepped, strict=True):
        nll, loss, slope = by_autograd(state)
        assert [cost["nll"], cost["loss"]] == pytest.approx([nll, loss], abs=1e-12)
        found = torch.tensor([row["slope"] for row in cost["rows"]], dtype=torch.float64)
        torch.testing.assert_close(found, slope, atol=1e-12, rtol=0)
        z = torch.tensor(state["logits"], dtype=torch.float64)
        p = torch.tensor([row["p"] for row in cost["rows"]], dtype=torch.float64)
        torch.testing.assert_close(p, z.softmax(-1), atol=1e-12, rtol=0)
        torch.testing.assert_close(
            torch.tensor(after, dtype=torch.float64), z - 2.5 * slope, atol=1e-12, rtol=0
        )
        assert cost["floor"] == pytest.approx(lowest(state), abs=1e-6)

    def shown(kind: str) -> list[str]:
        return [text.strip() for text in page.locator(f".tw-{kind}").all_inner_texts()]

    # it starts on the chapter's worked example
    assert shown("p") == ["0.6000", "0.5000", "0.2500", "0.8000"]
    assert shown("nll") == ["0.5108", "0.6931", "1.3863", "0.2231"]
    assert "−ln p 0.7034, loss 0.7034" in shown("means")[0]
    assert shown("slope") == ["0.0111"] * 4 + ["−0.1000"] + ["0.0111"] * 5

    # a step, ten more, and back
    widget = widget_of("loss")
    page.get_by_role("button", name="One step").click()
    widget.descend()
    assert f"loss {widget.values()['mean_loss']:.4f}" in shown("means")[0]
    assert shown("p")[0] == f"{widget.values()['p'][0, 4]:.4f}" == "0.6263"
    page.get_by_role("button", name="Ten steps").click()
    widget.descend(10)
    assert f"loss {widget.values()['mean_loss']:.4f}" in shown("means")[0]
    course = page.get_by_role("img", name="Loss 0.7034 before 11 steps, now ")
    assert course.get_attribute("aria-label", timeout=1000)
    page.locator(".tw-reset").click()
    assert "loss 0.7034" in shown("means")[0]

    # the position and the label, by keyboard; smoothing, which begins a new course
    page.get_by_role("radio", name="Look at position 1").press("ArrowRight")
    assert shown("slope")[5] == "−0.1250"
    page.get_by_role("button", name="One step").press("Enter")
    smoothing = page.get_by_label("smoothing ε")
    smoothing.press("ArrowRight")
    smoothing.press("ArrowRight")
    assert shown("wanted") == ["0.0100"] * 5 + ["0.9100"] + ["0.0100"] * 4
    assert page.get_by_role("img", name="before").count() == 0
    assert "below 0.5003" in shown("means")[0]
    page.get_by_role("radio", name="<pad> is right").check()
    assert shown("p")[1] == shown("nll")[1] == "–" and "Mean of 3" in shown("means")[0]
    assert set(shown("slope")) == {"0.0000"}
    for position in (1, 3):
        page.get_by_role("radio", name=f"Look at position {position}").check()
        page.get_by_role("radio", name="<pad> is right").check()
    page.get_by_role("radio", name="Look at position 4").check()
    assert page.get_by_role("radio", name="<pad> is right").is_disabled()
    page.locator(".tw-reset").click()

    # typed, refused; by arrow keys; by mouse
    box = page.get_by_label("Logit of Xiaoming, typed")
    assert box.input_value() == "-0.5108"
    box.fill("9")
    assert page.get_by_role("alert").filter(has_text="−8 to 8").is_visible()
    box.fill("-3.1135")
    assert shown("share")[4] == "0.1000"
    point = page.get_by_role("slider", name="Logit of Xiaoming")
    point.press("Shift+ArrowRight")
    assert point.get_attribute("aria-valuetext") == box.input_value().replace("-", "−") == "−2.1"
    at, chart = (
        point.locator("circle").bounding_box(),
        page.locator(".tw svg").nth(1).bounding_box(),
    )
    assert at and chart
    unit = chart["width"] / 330
    page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    page.mouse.down()
    page.mouse.move(chart["x"] + unit * (121 + 37 / 8 * 2), at["y"])
    assert box.input_value() == "2"
    page.mouse.move(chart["x"] + unit * 300, at["y"])
    page.mouse.up()
    assert box.input_value() == "8"

    # a step too far is refused in words, and changes nothing
    page.get_by_label("Logit of starts, typed").fill("8")
    page.get_by_label("rate").press("End")
    before = shown("means")
    page.get_by_role("button", name="One step").click()
    assert page.get_by_role("alert").filter(has_text="beyond −8 to 8").is_visible()
    assert shown("means") == before
    assert opened.errors == []


# --- the beam tree -------------------------------------------------------------------------------


class Table:
    """A Stepper whose next-token probabilities depend on the last token only."""

    def __init__(self, rows: list[list[float]]):
        self.log_probs = torch.tensor(rows).log()

    def step(self, tokens: Tensor) -> Tensor:
        return self.log_probs[tokens]

    def select(self, rows: Tensor) -> None:
        pass


def by_the_package(
    rows: list[list[float]], beam: int, alpha: float, limit: int, wanted: int
) -> list[tuple[list[int], float, float, bool]]:
    (found,) = beam_search(Table(rows), 1, limit, beam, alpha, wanted)
    return [(list(h.ids), h.log_prob, h.score, h.finished) for h in found]


def agrees(found: list[dict[str, Any]], wanted: list[tuple[list[int], float, float, bool]]) -> None:
    assert [(h["ids"], h["finished"]) for h in found] == [(ids, end) for ids, _, _, end in wanted]
    for h, (_, log_prob, score, _) in zip(found, wanted, strict=True):
        assert [h["total"], h["score"]] == pytest.approx([log_prob, score], abs=1e-5)


SETTINGS = list(itertools.product((1, 2, 3, 4), (0.0, 0.6, 1.0, 2.0)))


def test_beam_in_python_agrees_with_the_package() -> None:
    widget = widget_of("beam")
    for table, (beam, alpha) in itertools.product((0, 1), SETTINGS):
        widget.table, widget.beam, widget.alpha = table, beam, alpha
        rows, found = widget.tables[table]["rows"], widget.values()
        assert found["wanted"] == min(2, beam)
        wanted = by_the_package(rows, beam, alpha, 5, found["wanted"])
        agrees(found["found"][: found["wanted"]], wanted)
        ids = greedy_search(Table(rows), 1, 5)[0].tolist()
        assert [*found["greedy"]["ids"], EOS] == ids
        for length, step in enumerate(found["steps"][: len(ids)], 1):  # so it can be drawn
            assert ids[:length] in [each["ids"] for each in step]

    def best(**traits: Any) -> str:
        for name, value in traits.items():
            widget.set_trait(name, value)
        return widget.words(widget.values()["found"][0]["ids"])

    # what the larger table is for: width matters at α = 0.6, and so does α
    assert best(table=1, beam=1, alpha=0.6) == "he starts to work"
    assert best(beam=2) == "work"
    assert best(beam=3) == best(beam=4) == "she begins working"
    assert best(alpha=0.0) == "work"
    complete = by_the_package(widget.tables[1]["rows"], 200, 0.6, 5, 1)[0]
    assert widget.words(complete[0]) == "she begins working"


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("table", 2, "table 2, need 0 to 1"),
        ("beam", 0, "beam 0, need 1 to 4"),
        ("beam", 5, "beam 5, need 1 to 4"),
        ("alpha", -0.1, "alpha -0.1, need 0 to 2"),
        ("alpha", float("nan"), "alpha nan, need 0 to 2"),
        ("step", 6, "step 6, need 0 to 5"),
    ],
)
def test_beam_refuses_values_beyond_the_limits(trait: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        setattr(widget_of("beam"), trait, value)


def test_beam_in_the_page_agrees_with_the_package_and_answers(
    widgets: Path, visit: Callable[..., Visit]
) -> None:
    opened = visit(widgets, "chapters/beam.html").alive()
    page = module_of(opened.page)
    tables = [each["rows"] for each in widget_of("beam").tables]
    for _ in range(4):
        drawn = torch.rand(7, 7) ** 2
        drawn[:, :2] = 0  # PAD and BOS
        drawn[torch.rand(7, 7) < 0.3] = 0  # and words that never follow: some beams run dry
        drawn[:, EOS] += 0.05
        tables.append((drawn / drawn.sum(1, keepdim=True)).tolist())
    cases = [
        {"rows": rows, "beam": beam, "alpha": alpha, "limit": limit, "wanted": wanted}
        for rows, (beam, alpha), limit in itertools.product(tables, SETTINGS, (1, 3, 5))
        for wanted in sorted({1, min(2, beam), beam})
    ]
    for case, found in zip(
        cases, page.evaluate("cases => cases.map(module.search)", cases), strict=True
    ):
        agrees(found["found"][: case["wanted"]], by_the_package(**case))
    for rows in tables:
        plain = page.evaluate("rows => module.greedy({ rows, alpha: 0.6 })", rows)
        assert plain["path"] == greedy_search(Table(rows), 1, 5)[0].tolist()

    def shown(kind: str) -> list[str]:
        return page.locator(f".tw-{kind}:visible").all_inner_texts()

    def sentences() -> list[str]:
        return page.locator("tr:has(.tw-score):visible th").all_inner_texts()

    # it starts on the chapter's table, with the search done
    assert shown("stand") == ["step 2 of 2"]
    assert shown("total") == ["−1.0217", "−1.6094", "−1.7430", "−2.0794"]
    assert shown("fate") == ["finished", "finished", "goes on", "goes on"]
    assert sentences() == ["1. B", "2. A", "greedy: A"]
    assert shown("score") == ["−1.0217", "−1.6094", "−1.6094"]
    assert "−1.7430 / 1.0000 = −1.7430, not above the second best" in shown("why")[0]

    # back and forward, by mouse and by keyboard, and not beyond the ends
    back, forward = (page.get_by_role("button", name=name) for name in ("Back", "Forward"))
    assert forward.get_attribute("aria-disabled") == "true"
    forward.press("Enter")
    back.click()
    assert shown("stand") == ["step 1 of 2"]
    assert shown("fate") == ["goes on", "goes on", "pruned"]
    assert sentences() == ["greedy: A"]
    back.press("Enter")
    back.press("Enter")
    assert shown("stand") == ["step 0 of 2"] and shown("fate") == []
    forward.press("Space")
    assert page.get_by_role("img", name="goes on: A; B. pruned: EOS. Greedy: A.").is_visible()
    page.get_by_role("button", name="To the end").click()
    assert shown("stand") == ["step 2 of 2"]

    # the larger table: each width finds another sentence
    page.get_by_role("combobox").select_option("她 开始 工作")
    assert shown("stand") == ["step 5 of 5"]
    width, alpha = page.get_by_label("beam width"), page.get_by_label("length penalty α")
    for _ in range(6):
        alpha.press("ArrowRight")
    assert sentences()[0] == "1. work" and sentences()[-1] == "greedy: he starts to work"
    width.press("ArrowRight")
    assert sentences()[:2] == ["1. she begins working", "2. work"]
    assert shown("score")[0] == "−1.3445"
    width.press("Home")
    assert sentences() == ["1. he starts to work", "greedy: he starts to work"]
    width.press("End")
    alpha.press("Home")
    assert sentences()[0] == "1. work"
    assert "And 1 more" in page.locator(".tw-note:visible").first.inner_text()
    page.locator("summary").press("Enter")
    assert "begins 0.90, starts 0.10" in shown("next")
    assert opened.errors == []
