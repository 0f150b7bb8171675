"""Chapter 11: beam search on a small table of probabilities, step by step."""

from __future__ import annotations

import math
from typing import Any

import figures
import traitlets
from matplotlib.figure import Figure
from widgets.frame import Widget, script

BOS, EOS = 1, 2
LIMIT = 5  # tokens, EOS included
WIDEST = 4
STEEPEST = 2.0

# The table of the chapter, and one of seven words: what comes after each, the rest never does.
GARDEN = {"BOS": "A .5 B .4 EOS .1", "A": "EOS .4 A .35 B .25", "B": "EOS .9 A .05 B .05"}
SENTENCE = {  # she begins working
    "BOS": "he .4 work .35 she .25",
    "he": "starts .85 begins .15",
    "she": "begins .9 starts .1",
    "starts": "to .55 EOS .25 working .2",
    "begins": "working .8 to .15 EOS .05",
    "to": "work 1",
    "work": "EOS .55 begins .35 starts .1",
    "working": "EOS 1",
}


def table(name: str, next_words: dict[str, str]) -> dict[str, Any]:
    """A table as the page takes it: the name, the words, and a row of probabilities for each."""
    words = ["PAD", "BOS", "EOS", "UNK", *(word for word in next_words if word != "BOS")]
    rows = []
    for word in words:
        parts = next_words.get(word, "EOS 1").split()
        chances = dict(zip(parts[::2], map(float, parts[1::2]), strict=True))
        rows.append([chances.get(each, 0.0) for each in words])
    return {"name": name, "words": words, "rows": rows}


TABLES = [table("A or B", GARDEN), table("她 开始 工作", SENTENCE)]


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


class BeamTree(Widget):
    """Every candidate of a beam search, what became of it, and greedy search beside it.

    `step` is the last step shown; a search that ends sooner is shown whole.
    """

    _esm = script("beam")
    _css = (
        Widget._css
        + '.tw button[aria-disabled="true"] { color: var(--quiet); border-color: var(--line); }\n'
    )
    tables = traitlets.List(TABLES).tag(sync=True)
    table = traitlets.Int(0).tag(sync=True)
    beam = traitlets.Int(2).tag(sync=True)
    alpha = traitlets.Float(0.0).tag(sync=True)
    step = traitlets.Int(LIMIT).tag(sync=True)

    @traitlets.validate("table", "beam", "alpha", "step")
    def _check_number(self, proposal: Any) -> float:
        name, value = proposal["trait"].name, proposal["value"]
        low, high = {
            "table": (0, len(TABLES) - 1),
            "beam": (1, WIDEST),
            "alpha": (0, STEEPEST),
            "step": (0, LIMIT),
        }[name]
        if not low <= value <= high:
            raise ValueError(f"{name} {value}, need {low} to {high:g}")
        return value

    def words(self, ids: list[int]) -> str:
        """Tokens as text; the empty sentence has a name too."""
        return " ".join(self.tables[self.table]["words"][i] for i in ids) or "(nothing)"

    def logs(self, last: int) -> list[tuple[int, float]]:
        """Tokens that may follow, with their log-probabilities."""
        row = self.tables[self.table]["rows"][last]
        return [(token, math.log(p)) for token, p in enumerate(row) if token > BOS and p > 0]

    def values(self) -> dict[str, Any]:
        """All steps of the search, its hypotheses from best to worst, and the greedy one.

        A step is a list of candidates: ids, total, parent (its rank one step before), state.
        """
        wanted, steps, done = min(2, self.beam), [], []
        alive: list[dict[str, Any]] = [{"ids": [], "total": 0.0, "rank": 0}]
        end = ""
        while not end:
            length = len(steps) + 1
            candidates = [
                {"ids": [*each["ids"], token], "total": each["total"] + log, "parent": each["rank"]}
                for each in alive
                for token, log in self.logs(each["ids"][-1] if each["ids"] else BOS)
            ]
            candidates = sorted(candidates, key=lambda each: -each["total"])[: 2 * self.beam]
            going = 0
            for rank, each in enumerate(candidates):
                ended = each["ids"][-1] == EOS
                kept = rank < self.beam if ended else going < self.beam
                going += not ended
                each["state"] = ("finished" if ended else "alive") if kept else "pruned"
                each["rank"] = rank
            steps.append(candidates)
            alive = [each for each in candidates if each["state"] == "alive"]
            done += [
                self.hypothesis(each["ids"], each["total"], length)
                for each in candidates
                if each["state"] == "finished"
            ]
            done.sort(key=lambda each: -each["score"])
            hope = alive[0]["total"] / penalty(LIMIT, self.alpha) if alive else -math.inf
            if not alive:
                end = "nothing alive"
            elif len(done) >= wanted and not hope > done[wanted - 1]["score"]:
                end = "nothing can win"
            elif length == LIMIT:
                end = "limit"
                cut = [self.hypothesis(each["ids"], each["total"], LIMIT) for each in alive]
                done += sorted(cut, key=lambda each: -each["score"])
        return {
            "steps": steps,
            "found": done,
            "wanted": wanted,
            "end": end,
            "greedy": self.greedy(),
        }

    def hypothesis(self, ids: list[int], total: float, length: int) -> dict[str, Any]:
        finished = ids[-1] == EOS
        sentence = ids[:-1] if finished else ids
        score = total / penalty(length, self.alpha)
        return {"ids": sentence, "total": total, "score": score, "finished": finished}

    def greedy(self) -> dict[str, Any]:
        """The likeliest token at each step."""
        ids, total = [BOS], 0.0
        while ids[-1] != EOS and len(ids) <= LIMIT:
            token, log = max(self.logs(ids[-1]), key=lambda pair: pair[1])
            ids, total = [*ids, token], total + log
        return self.hypothesis(ids[1:], total, len(ids) - 1)

    def line(self, each: dict[str, Any]) -> str:
        cut = "" if each["finished"] else ", cut off"
        return (
            f"{self.words(each['ids'])}{cut}  log-probability {each['total']:.4f}  "
            f"score {each['score']:.4f}"
        )

    def text(self) -> str:
        found = self.values()
        shown = min(self.step, len(found["steps"]))
        lines = [
            f"{self.tables[self.table]['name']}; beam {self.beam}, α {self.alpha:g}; "
            f"step {shown} of {len(found['steps'])}"
        ]
        for number, candidates in enumerate(found["steps"][:shown], 1):
            for each in candidates:
                lines.append(
                    f"{number}  {self.words(each['ids'])}  {each['total']:.4f}  {each['state']}"
                )
        if shown == len(found["steps"]):
            lines.append(f"end: {found['end']}")
            lines += [self.line(each) for each in found["found"][: found["wanted"]]]
        return "\n".join([*lines, f"greedy: {self.line(found['greedy'])}"])

    def still(self) -> Figure:
        found = self.values()
        best = found["found"][0]
        answer = [*best["ids"], EOS] if best["finished"] else best["ids"]
        nodes, edges = [("BOS", 0.0, "alive")], []
        before = {0: 0}  # rank one step earlier → node
        for candidates in found["steps"]:
            now = {}
            for each in candidates:
                now[each["rank"]] = len(nodes)
                edges.append((before[each["parent"]], len(nodes)))
                state = "best" if each["ids"] == answer else each["state"]
                nodes.append((self.words(each["ids"][-1:]), each["total"], state))
            before = now
        return figures.tree(nodes, edges)
