"""The corpora that ship: data/zh-en, which a grammar writes, and data/hsk, which was converted."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "data" / "zh-en"
HSK = ROOT / "data" / "hsk"
NAMES = ("train", "valid", "test")
EXAMPLES = {
    "小明 开始 工作": "Xiaoming starts working",
    "我 爱 中国": "I love China",
    "我 把 猫 抱 起来 ， 它 很 乖": "I picked the cat up, and it was very well-behaved",
}
RELATIVES = {
    "他 开始 工作": "He starts working",
    "小明 开始 看 书": "Xiaoming starts reading",
    "我 爱 北京": "I love Beijing",
    "他 爱 中国": "He loves China",
}


def pairs_of(name):
    lines = (FOLDER / f"{name}.tsv").read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == ""  # LF at the end of the last line too
    return [tuple(line.split("\t")) for line in lines]


CORPUS = {name: pairs_of(name) for name in NAMES}
ALL = [pair for name in NAMES for pair in CORPUS[name]]


@pytest.fixture(scope="module")
def grammar():
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("grammar")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def links(grammar):
    """The combinations of each sentence, by source, as the grammar noted them."""
    return {s.source: s.links for s in grammar.pool()}


# ------------------------------------------------------------------------------- the files


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_the_grammar_writes_the_same_bytes_again(tmp_path, hash_seed):
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": "C", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-B", "grammar.py"], cwd=tmp_path, env=environment, check=True)
    assert {p.name for p in tmp_path.glob("*.tsv*")} == {f"{name}.tsv" for name in NAMES}
    for name in NAMES:
        assert (tmp_path / f"{name}.tsv").read_bytes() == (FOLDER / f"{name}.tsv").read_bytes()


def test_the_readme_shows_the_counts_of_the_files():
    command = [sys.executable, "grammar.py", "--counts"]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    shown = subprocess.run(command, cwd=FOLDER, env=environment, check=True, capture_output=True)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for line in shown.stdout.decode("utf-8").splitlines():
        assert "    " + line in readme.splitlines()
    sizes = {name: len(CORPUS[name]) for name in NAMES}
    assert all(f"    {name}: {size} pairs," in readme for name, size in sizes.items())


def test_the_examples_of_the_readme_are_in_the_files():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"([\u4e00-\u9fff ，？]+) → ([A-Z][\w ,'-]+\??)", readme)
    examples += re.findall(r"^    ([\u4e00-\u9fff ，？]+)\t(.+)$", readme, re.MULTILINE)
    assert len(examples) >= 30
    for source, target in examples:
        assert (source.strip(), target.strip()) in ALL


def test_sizes():
    assert len(CORPUS["valid"]) == len(CORPUS["test"]) == 1000
    assert 22_000 <= len(CORPUS["train"]) <= 30_000


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_clean(name):
    raw = (FOLDER / f"{name}.tsv").read_bytes()
    assert not raw.startswith(b"\xef\xbb\xbf") and b"\r" not in raw
    for pair in CORPUS[name]:
        assert len(pair) == 2
        for side in pair:
            assert side and side == " ".join(side.split())  # no blank, no double or odd space
    chinese = "".join(source for source, _ in CORPUS[name])
    assert re.fullmatch(r"[\u4e00-\u9fff ，？]+", chinese)
    english = "".join(target for _, target in CORPUS[name])
    assert re.fullmatch(r"[A-Za-z ,?'-]+", english)


def test_one_translation_each_way():
    sources, targets = (Counter(side) for side in zip(*ALL))
    assert max(sources.values()) == 1  # so the mapping is one to one, and nothing leaks
    assert max(targets.values()) == 1


def test_sentences_begin_and_end_as_they_should():
    for source, target in ALL:
        assert target[0].isupper()
        assert not target.endswith(".")
        assert source.endswith(" ？") == target.endswith("?")
        assert source.count("，") <= 1 and source.count("？") <= 1


def test_tokens_make_up_the_text_again():
    token = re.compile(r"[\w'’-]+|[^\w\s]")
    for source, target in ALL:
        assert token.findall(source) == source.split(" ")
        joined = " ".join(token.findall(target))
        assert re.sub(r" (?=[,.;:!?])", "", joined) == target


def test_training_knows_every_word_well():
    token = re.compile(r"[\w'’-]+|[^\w\s]")
    for side, least in ((0, 30), (1, 8)):
        train, valid, test = (
            Counter(word for pair in CORPUS[name] for word in token.findall(pair[side]))
            for name in NAMES
        )
        assert min(train.values()) >= least
        assert valid.keys() | test.keys() <= train.keys()


def test_the_running_examples():
    assert EXAMPLES.items() <= dict(CORPUS["test"]).items()
    assert RELATIVES.items() <= dict(CORPUS["train"]).items()


# ------------------------------------------------------------------------------- the split


def test_each_test_sentence_holds_an_unseen_combination(links):
    seen = {x for source, _ in CORPUS["train"] for x in links[source]}
    for source, _ in CORPUS["test"]:
        assert links[source] - seen
    for source, _ in CORPUS["valid"]:
        assert links[source] <= seen


def test_combinations_are_words_of_their_sentence(links):
    for source, found in links.items():
        words = set(source.replace("没有", "没有 有").split())
        assert all({a, b} <= words for _, a, b in found), source


# What a combination of A and B looks like on the surface, written without the grammar's notes.
# Not every sentence shows it so plainly, but none of the plain ones may be in training.
WHEN = r"(?:(?:昨天|今天|明天|每天)(?: 早上| 下午| 晚上)?|上周|下周|周末|现在)"
COUNTED = r"(?:[一两三四五六这那] \S (?:大 |小 |新 |旧 |\S+ 的 )?)?"
SIDE = r"(?:上|里|下面|旁边)"
END = r"(?: 了)?(?: 吗 ？)?$"
SURFACE = {
    "subject–verb": rf"^A (?:{WHEN} )?(?:(?:也|都|常常|有时候|不|没|想|要|会|正在) )*B\b(?! 没)",
    "verb–object": rf"\bA (?:了 |过 )?{COUNTED}B{END}",
    "subject–object": (
        rf"^A (?:{WHEN} )?(?:(?:也|都|不|没) )*(?!在|去|是)\S+ (?:了 |过 )?{COUNTED}B{END}"
    ),
    "noun–adjective": r"\bA (?:也 )?(?:很|非常|不|不 太|太) B\b|\bB (?:的 )?A\b",
    "verb–place": r"\b(?:在|正在) B A\b",
    "owner–noun": r"\bA (?:的 )?B\b",
    "thing–place": rf"\bB {SIDE} (?:有|没有) {COUNTED}A\b|\bA (?:不 )?在 B(?: {SIDE})?{END}",
    "verb–verb": r"\bA B\b",
}


def surface(relation, a, b):
    return re.compile(SURFACE[relation].replace("A", a).replace("B", b), re.MULTILINE)


@pytest.mark.parametrize("relation", SURFACE)
def test_training_lacks_the_held_out_combinations(relation, links):
    """Patterns on the text alone find no held-out pair in training, but they do find others."""
    seen = {x for source, _ in CORPUS["train"] for x in links[source]}
    held = {x for source, _ in CORPUS["test"] for x in links[source] - seen if x[0] == relation}
    known = sorted(x for x in seen if x[0] == relation)
    training, testing = ("\n".join(s for s, _ in CORPUS[name]) for name in ("train", "test"))
    assert held
    for x in held:
        assert not surface(*x).search(training), x
    assert sum(bool(surface(*x).search(testing)) for x in held) >= len(held) / 4
    sample = known[:: len(known) // 40 + 1]
    assert sum(bool(surface(*x).search(training)) for x in sample) >= len(sample) / 4


# ---------------------------------------------------------------- the rules that README states

RULES = [  # Chinese pattern, English pattern that must then hold
    (r"\b想\b", r"\bwants? to\b"),
    (r"\b要\b", r"\b(am|is|are|Am|Is|Are)\b.* going to\b"),
    (r"\b应该\b", r"\b[Ss]hould"),
    (r"\b会\b", r"\b([Cc]an|can't|[Ww]ill|won't)\b"),
    (r"\b正在\b", r"\b(am|is|are|Am|Is|Are)\b.*ing\b"),
    (r"\b过\b", r"\b([Hh]as|[Hh]ave)\b"),
    (r"\b没 (\S+ )*过\b", r"\b(has|have) never\b"),
    (r"\b过 .*吗 ？", r"\bever\b"),
    (r"\b已经\b", r"\b([Hh]as|[Hh]ave) already\b"),
    (r"\b还 没\b", r"n't .* yet$"),
    (r"\b如果\b", r"^If it (rains|snows) .* (will|won't) "),
    (r"\b什么时候\b", r"^When will\b"),
    (r"^(?!.*(想|要|会|应该|如果)).*(明天|下周)", r"\b[Ww]ill\b|\bwon't\b"),
    (r"\b每天\b(?!.*(想|要))", r"\bevery (day|morning|afternoon|evening)\b"),
    (r"\b周末\b", r"\bat weekends\b"),
    (r"\b也 .*(不|没|没有) |\b也 不\b", r"\beither$"),
    (r"^(?!.*(不|没|没有)).*\b也\b", r"\btoo$"),
    (r"\b一 (本|只|个|条|顶|部|台|辆|把|张|朵|封|件|匹|位|杯|碗|块|家)\b", r"\b(a|an)\b"),
    (r"\b很多\b", r"\bmany\b"),
    (r"\b这些\b", r"\b[Tt]hese\b"),
    (r"\b那些\b", r"\b[Tt]hose\b"),
    (r"\b两 杯 水\b", r"\btwo glasses of water\b"),
    (r"\b两 杯 茶\b", r"\btwo cups of tea\b"),
    (r"\b看 (了 .*|过 .*|这.*|那.*)?书\b", r"\b[Rr]ead"),
    (r"\b看 电视\b", r"\bwatch(es|ed|ing)? TV\b"),
    (r"\b看 过 .*电影", r"\bseen\b"),
    (r"\b比\b(?!.*(岁)).*大( 吗 ？)?$", r"\b(older|bigger) than\b"),
    (r"\b太 贵 了\b", r"\btoo expensive\b"),
    (r"(?<!不 )太 漂亮 了\b", r"\bso beautiful\b"),
    (r"\b一样\b", r"\bas \S+ as\b"),
    (r"\b被\b", r"\b(was|wasn't) .*\bby\b"),
    (r"\b它\b", r"\bit\b"),
    (r"\b它们\b", r"\b(they|them)\b"),
    (r"\b因为\b", r"^Because\b"),
    (r"\b虽然\b", r"^Although\b"),
    (r"\b一边\b", r"\bwhile \S+ing\b"),
    (r"\b然后\b", r"\bfirst\b.* and then\b"),
    (r"\b的 时候\b", r"\bwhen\b"),
    (r"\b没 (买|卖|借) (书|猫|自行车|鸡蛋|小说|车)$", r"didn't (buy|sell|borrow) any \w+s\b"),
    (r"\b没有 (猫|车|书)$", r"doesn't have a |don't have a |[Tt]here are no "),
    (r"^谁", r"^Who\b"),
    (r"谁 的", r"^Whose\b"),
    (r"哪里", r"^Where\b"),
    (r"什么 ？", r"^What\b"),
    (r"为什么", r"^Why\b"),
    (r"怎么", r"^How\b"),
    (r"\b几\b", r"^How many\b"),
    (r"多少", r"^How much\b"),
]


@pytest.mark.parametrize(("chinese", "english"), RULES, ids=[chinese for chinese, _ in RULES])
def test_rule(chinese, english):
    found = [(source, target) for source, target in ALL if re.search(chinese, source)]
    assert len(found) >= 2
    for source, target in found:
        assert re.search(english, target), (source, target)


# -------------------------------------------------------------------------------- data/hsk


def test_hsk_sentences_and_their_notice():
    raw = (HSK / "sentences.tsv").read_bytes()
    assert not raw.startswith(b"\xef\xbb\xbf") and b"\r" not in raw and raw.endswith(b"\n")
    rows = [line.split("\t") for line in raw.decode("utf-8").removesuffix("\n").split("\n")]
    assert len(rows) == 4354
    assert all(len(row) == 3 for row in rows)
    assert all(cell == " ".join(cell.split()) for row in rows for cell in row)
    levels = Counter(level for level, _, _ in rows)
    assert levels == {"1": 281, "2": 538, "3": 727, "4": 801, "5": 965, "6": 1042}
    assert rows[1] == ["1", "你 好 ， 很 高兴 认识 你 。", "Hello, nice to meet you."]
    assert all(re.search(r"[\u4e00-\u9fff]", chinese) for _, chinese, _ in rows)
    notice = (HSK / "NOTICE").read_text(encoding="utf-8")
    for part in ("hsk-sentences-audio 1.0.0", "github.com/no7z", "CC BY-SA 4.0", "Changes:"):
        assert part in notice
    licence = (HSK / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith("Attribution-ShareAlike 4.0 International")
    assert (FOLDER / "LICENSE").read_text(encoding="utf-8").count("CC0") > 1


@pytest.fixture(scope="module")
def convert():
    sys.path.insert(0, str(HSK))
    try:
        yield importlib.import_module("convert")
    finally:
        sys.path.remove(str(HSK))


def test_hsk_segmentation_puts_punctuation_back(convert):
    assert convert.segmented("老师，您好！", ["老师", "您", "好"]) == "老师 ， 您 好 ！"
    assert convert.segmented("“好”", ["好"]) == "“ 好 ”"
    with pytest.raises(ValueError, match="你好"):
        convert.segmented("你好", ["好", "你"])


def test_hsk_conversion_refuses_another_file(tmp_path):
    before = (HSK / "sentences.tsv").read_bytes()
    wrong = tmp_path / "page.whl"
    wrong.write_text("<html>404</html>")
    command = [sys.executable, str(HSK / "convert.py"), str(wrong)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "page.whl: SHA-256 is " in done.stderr
    assert "Traceback" not in done.stderr
    assert (HSK / "sentences.tsv").read_bytes() == before
