"""The table of claims: complete, every reference real, every number of the articles in it."""

import ast
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
CHAPTERS = ROOT / "chapters"
PAGE = CHAPTERS / "A1_claims.ipynb"
ARTICLES = ROOT.parent / "shared" / "seeds"  # not part of the project
VERDICTS = ("holds", "within bounds", "does not hold", "cited")

LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#([^)]*))?\)|\{doc\}`([^`]+)`")
TEST = re.compile(r"`tests/(test_\w+\.py)::(\w+)`")
CITED = re.compile(r"\{cite:[pt]\}`([\w,]+)`")
PAPER = re.compile(r"\]\(https://arxiv\.org/abs/\d{4}\.\d{5}\)")


class Row(NamedTuple):
    """One claim of the table."""

    article: str
    number: int
    claim: str
    verdict: str
    reason: str
    decided_by: str


def prose(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def lines_of_claims(text: str) -> list[list[str]]:
    """The cells of each line of a table whose first cell is a number like A1."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")]
    return [line for line in lines if re.fullmatch(r"[AB]\d+", line[0])]


def rows(text: str) -> list[Row]:
    found = []
    for identifier, claim, verdict, decided_by in lines_of_claims(text):
        word, _, reason = verdict.partition(": ")
        found.append(Row(identifier[0], int(identifier[1:]), claim, word, reason, decided_by))
    return found


def anchor(heading: str) -> str:
    """The anchor that MyST gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> set[str]:
    text = prose(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    text = re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)  # no code
    return {anchor(heading) for heading in re.findall(r"^#{1,3} (.*)$", text, re.MULTILINE)}


@cache
def names_in(name: str) -> set[str]:
    path = ROOT / "tests" / name
    if not path.exists():
        return set()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def works() -> set[str]:
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    return set(re.findall(r"^@\w+\{(\w+),", text, re.MULTILINE))


def problems(text: str) -> Iterator[str]:
    """Everything wrong with the table and the references of the page."""
    if any(len(line) != 4 for line in lines_of_claims(text)):
        yield "a row without four cells"
        return
    table = rows(text)
    for article in "AB":
        numbers = [row.number for row in table if row.article == article]
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            yield f"{article}: not numbered 1, 2, 3, …"
    for row in table:
        name = f"{row.article}{row.number}"
        if row.verdict not in VERDICTS:
            yield f"{name}: verdict {row.verdict!r}"
        bounded = row.verdict in ("within bounds", "does not hold")
        if bounded != (len(row.reason.split()) > 2):
            yield f"{name}: a reason exactly where a claim does not simply hold"
        if not any(kind.search(row.decided_by) for kind in (LINK, TEST, CITED, PAPER)):
            yield f"{name}: no link, test or citation"
        if row.verdict == "cited" and not (CITED.search(row.decided_by)):
            yield f"{name}: cited, but from whom?"
    for one, other in combinations(table, 2):
        if one.article == other.article and alike(one.claim, other.claim):
            yield f"{one.article}{one.number} and {other.number} say the same"
    for file, section, document in LINK.findall(text):
        path = CHAPTERS / file
        if document:
            path = next(CHAPTERS.glob(f"{document}.*"), CHAPTERS / document)
        if not path.is_file():
            yield f"no chapter {file or document}"
        elif section and section not in anchors(path):
            yield f"no section {section} in {file}"
    for file, test in TEST.findall(text):
        if test not in names_in(file):
            yield f"no test {file}::{test}"
    for key in sorted({key for keys in CITED.findall(text) for key in keys.split(",")} - works()):
        yield f"no work {key}"
    failing = {f"{r.article}{r.number}" for r in table if r.verdict == "does not hold"}
    section = text.split("## What does not hold", 1)[-1].split("\n## ", 1)[0]
    if set(re.findall(r"\b[AB]\d+\b", section)) != failing:
        yield "the first section must name the claims that do not hold, and no other"


def alike(one: str, other: str) -> bool:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    return matcher.quick_ratio() > 0.95 and matcher.ratio() > 0.95


def test_every_row_is_whole_and_every_reference_real() -> None:
    assert list(problems(prose(PAGE))) == []


def test_all_of_the_articles_is_there() -> None:
    count = Counter(row.article for row in rows(prose(PAGE)))
    assert count["A"] >= 90 and count["B"] >= 90


def test_the_printed_count_is_that_of_the_table() -> None:
    """The cell reads the page as it was when it ran; after a change it must run again."""
    count = Counter((row.article, row.verdict) for row in rows(prose(PAGE)))
    cells = nbformat.read(PAGE, as_version=4).cells
    printed = next(
        output.text
        for cell in cells
        for output in cell.get("outputs", [])
        if "article A" in output.get("text", "")
    )
    for verdict in VERDICTS:
        (numbers,) = re.findall(rf"^{verdict} +(\d+) +(\d+)$", printed, re.MULTILINE)
        assert [int(n) for n in numbers] == [count["A", verdict], count["B", verdict]]


def first_row(text: str) -> str:
    return next(line for line in text.split("\n") if line.startswith("| A1 |"))


def in_first_row(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(first_row(text), first_row(text).replace(old, new))


def without_links(text: str) -> str:
    line = first_row(text)
    return text.replace(line, re.sub(r"[^|]*\|$", " by nothing |", line))


def without_reason(text: str) -> str:
    return re.sub(r"\| within bounds: [^|]*\|", "| within bounds |", text, count=1)


def doubled(text: str) -> str:
    claim = first_row(text).split(" | ")[1]
    return text.replace("| A3 | ", f"| A3 | {claim} | holds | {{doc}}`04_attention` |\n| A4 | ")


FAULTS: dict[str, tuple[Callable[[str], str], str]] = {
    "verdict": (in_first_row("| holds |", "| true |"), "verdict 'true'"),
    "reason": (without_reason, "a reason exactly"),
    "link": (without_links, "no link"),
    "row lost": (lambda t: t.replace(first_row(t), ""), "not numbered"),
    "row twice": (doubled, "say the same"),
    "cell lost": (in_first_row("| holds |", "|"), "four cells"),
    "chapter": (lambda t: t.replace("(04_attention.ipynb", "(04_atention.ipynb"), "no chapter"),
    "document": (lambda t: t + "{doc}`99_nothing`", "no chapter 99_nothing"),
    "section": (lambda t: t.replace("#masks", "#mask"), "no section mask"),
    "test": (lambda t: t.replace("::test_worked_example`", "::test_of_nothing`"), "no test"),
    "work": (lambda t: t.replace("`vaswani2017attention`", "`vaswani2071attention`"), "no work"),
    "citation": (
        lambda t: t.replace("{cite:t}`devlin2019bert`", "{doc}`04_attention`"),
        "cited, but from whom",
    ),
    "first section": (lambda t: t.replace("(B2)", "(B1)"), "the first section"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_is_noticed(kind: str) -> None:
    change, message = FAULTS[kind]
    text = prose(PAGE)
    assert change(text) != text
    assert any(message in problem for problem in problems(change(text)))


# --- the articles themselves


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def numbers_of_article(text: str) -> set[str]:
    lines = [line for line in text.split("\n") if not line.rstrip().endswith("#")]  # no headings
    text = "\n".join(lines).replace("{,}", "")
    # two formulas lost their signs in the second article's text: 10000^(2i/d) and 512/8 = 64
    text = text.replace("100002i", "10000 2i").replace("512/864", "512 8 64")
    return set(NUMBER.findall(text))


def numbers_of_table(article: str) -> set[str]:
    """In claims and reasons; numbers of chapters and addresses do not count."""
    table = [row for row in rows(prose(PAGE)) if row.article == article]
    return {n for row in table for n in NUMBER.findall(f"{row.claim} {row.reason}")}


@pytest.mark.parametrize(
    ("article", "mark", "known"), [("A", "Xiaoming", "0.7071"), ("B", "我爱中国", "2048")]
)
def test_every_number_of_the_articles_is_in_the_table(article: str, mark: str, known: str) -> None:
    if not ARTICLES.is_dir():
        pytest.skip("the two articles do not ship with the book")
    texts = [path.read_text(encoding="utf-8") for path in sorted(ARTICLES.glob("*.txt"))]
    (text,) = [text for text in texts if mark in text]
    numbers = numbers_of_article(text)
    assert known in numbers and len(numbers) > 10
    assert numbers - numbers_of_table(article) == set()
