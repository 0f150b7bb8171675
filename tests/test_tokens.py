"""transformer.tokens: reading, vocabularies, round trips, batches; the faults others hit."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.tokens import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Tokenizer,
    encode_pairs,
    frame,
    pad,
    read_lines,
    read_pairs,
    write_text,
)

LINES = ["小明 开始 工作", "我 把 猫 抱 起来 ， 它 很 乖", "I love China .", "Is the cat nice ?"]
KINDS = ["word", "char", "bpe"]
TEXT = "你好，世界。\ncafé\n"


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [TEXT.encode(), b"\xef\xbb\xbf" + TEXT.encode(), TEXT.replace("\n", "\r\n").encode(),
     TEXT.rstrip("\n").encode()],
)  # fmt: skip
def test_one_text_in_four_files(tmp_path, content):
    """Case V6: with and without a byte-order mark, LF and CRLF, with and without a last LF."""
    assert read_lines(write(tmp_path / "a.txt", content)) == ["你好，世界。", "café"]


def test_no_read_or_write_depends_on_the_locale(tmp_path):
    """Case V6: in an ASCII locale, and with every use of the default encoding made an error."""
    write(tmp_path / "a.txt", TEXT)
    script = (
        "import sys\n"
        "from transformer.tokens import *\n"
        "lines = read_lines('a.txt')\n"
        "Tokenizer.train(lines).save('v.json')\n"
        "tokens = Tokenizer.load('v.json').tokens('你好，世界。 café')\n"
        "assert tokens == ['你好', '，', '世界', '。', 'café'], tokens\n"
        "assert not sys.flags.utf8_mode\n"
    )
    environment = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHON"))
    } | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}  # fmt: skip
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-X", "utf8=0", "-X", "warn_default_encoding",
               "-W", "error::EncodingWarning:transformer.tokens", "script.py"]  # fmt: skip
    subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    assert "café" in (tmp_path / "v.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("你好".encode("gbk"), r"a\.txt: not UTF-8 \(byte 0 is 0xc4\)"),
        ("hello".encode("utf-16"), r"a\.txt: not UTF-8 \(byte 0 is 0xff\)"),
        ("one\ntwo".encode("utf-16-le"), r"a\.txt: NUL in line 1"),
        (b"\x1f\x8b\x08\x00rest", r"a\.txt: not UTF-8 \(byte 1 is 0x8b\)"),
        (b"one\ntwo\0\n", r"a\.txt: NUL in line 2"),
        ("<!DOCTYPE html>\n<title>404</title>", r"a\.txt: an HTML page"),
        ("\ufeff\n  <HTML lang='en'>", r"a\.txt: an HTML page"),
        ("<?xml version='1.0'?>\n<!DOCTYPE html>", r"a\.txt: an HTML page"),
        ("<head><title>Not found</title></head>", r"a\.txt: an HTML page"),
        ("", r"a\.txt: empty"),
        ("\n \n\u3000\n", r"a\.txt: empty"),
    ],
)
def test_wrong_files_are_refused(tmp_path, content, message):
    """Case V9: a wrong file gives one error that names it."""
    with pytest.raises(ValueError, match=message):
        read_lines(write(tmp_path / "a.txt", content))


@pytest.mark.parametrize("line", ["<3 this", "< html is a language", "<headline> news", "a <html>"])
def test_text_that_only_looks_like_html_is_read(tmp_path, line):
    assert read_lines(write(tmp_path / "a.txt", line)) == [line]


def test_blank_lines_and_rare_separators_keep_their_place(tmp_path):
    """Case V5: as many lines out as in."""
    lines = ["one", "", "\u3000 ", "two\u2028still two\x0c\x1e\x85", ""]
    assert read_lines(write(tmp_path / "a.txt", "\n".join(lines) + "\n")) == lines


def test_pairs_from_one_file_and_from_two(tmp_path):
    one = write(tmp_path / "a.tsv", "小明 工作\tXiaoming works\r\n 我 爱 中国 \tI love China\r\n")
    zh = write(tmp_path / "a.zh", "\ufeff小明 工作\n我 爱 中国\n")
    en = write(tmp_path / "a.en", "Xiaoming works\nI love China\n")
    expected = [("小明 工作", "Xiaoming works"), ("我 爱 中国", "I love China")]
    assert read_pairs(one) == read_pairs(zh, en) == expected


def test_a_blank_side_drops_both_sides_and_says_so(tmp_path):
    """Case V5."""
    zh = write(tmp_path / "a.zh", "一\n\n\u3000 \n四\n")
    en = write(tmp_path / "a.en", "one\ntwo\n\nfour\n")
    with pytest.warns(UserWarning, match="dropped 2 pairs with a blank side"):
        assert read_pairs(zh, en) == [("一", "one"), ("四", "four")]
    tsv = write(tmp_path / "a.tsv", "一\tone\n\ttwo\n")
    with pytest.warns(UserWarning, match="dropped 1 pairs"):
        assert read_pairs(tsv) == [("一", "one")]


def test_pairs_that_do_not_correspond_are_refused(tmp_path):
    zh = write(tmp_path / "a.zh", "一\n二\n")
    en = write(tmp_path / "a.en", "one\n")
    with pytest.raises(ValueError, match=r"a\.zh has 2 lines, .*a\.en has 1"):
        read_pairs(zh, en)
    for content, columns in (("一\tone\n二 two\n", 1), ("一\tone\n二\ttwo\tdeux\n", 3)):
        with pytest.raises(ValueError, match=f"line 2: {columns} columns, need 2"):
            read_pairs(write(tmp_path / "a.tsv", content))
    blank = write(tmp_path / "b.tsv", "\tone\n二\t\n")
    with pytest.raises(ValueError, match="no pair with text on both sides"):
        read_pairs(blank)  # the error alone: a warning beside it would be a second line


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "folder" / "a.txt"
    write_text(path, "old 旧\n")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")  # half of a surrogate pair: not text
    assert path.read_bytes() == "old 旧\n".encode()
    write_text(path, "new 新\n")
    assert path.read_bytes() == "new 新\n".encode()
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]


# --- vocabularies -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_token_before_and_after_a_round_trip(tmp_path, kind):
    """Case V1: UNK, not an error and not PAD; and the mark is seen after decoding."""
    tokenizer = Tokenizer.train(["a a b"], kind)
    tokenizer.save(tmp_path / "v.json")
    for each in (tokenizer, Tokenizer.load(tmp_path / "v.json")):
        assert each.kind == kind
        assert UNK in each.encode("z") and PAD not in each.encode("z")
        assert "<unk>" in each.decode(each.encode("z"))
        assert UNK not in each.encode("a b")
        assert each.backend.to_str() == tokenizer.backend.to_str()
    assert len(SPECIALS) == 4 and (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


def test_special_tokens_in_another_order_are_refused(tmp_path):
    """Case V1."""
    tokenizer = Tokenizer.train(["a a b"])
    tokenizer.save(tmp_path / "v.json")
    text = (tmp_path / "v.json").read_text(encoding="utf-8")
    swap = {'"<pad>": 0': '"<pad>": 3', '"<unk>": 3': '"<unk>": 0'}
    for old, new in swap.items():
        assert old in text
        text = text.replace(old, new)
    content = json.loads(text)
    content["tokenizer"]["added_tokens"] = []
    write(tmp_path / "other.json", json.dumps(content))
    with pytest.raises(ValueError, match=r"ids 0 to 3 are \('<unk>', '<bos>', '<eos>', '<pad>'\)"):
        Tokenizer.load(tmp_path / "other.json")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}))
    with pytest.raises(ValueError, match=r"ids 0 to 3 are \('a', 'b', None, None\)"):
        Tokenizer(plain, "word")


@pytest.mark.parametrize("kind", KINDS)
def test_special_marks_in_a_text_are_text(tmp_path, kind):
    """A user who types <eos> does not end the sentence, and <pad> does not hide."""
    tokenizer = Tokenizer.train([*LINES, "< > pad bos eos"], kind)
    tokenizer.save(tmp_path / "v.json")
    for each in (tokenizer, Tokenizer.load(tmp_path / "v.json")):
        ids = each.encode("猫 <pad> <bos> <eos> 猫")
        assert not {PAD, BOS, EOS} & set(ids)
        assert len(ids) > 5
        assert each.decode(ids).replace(" ", "") == "猫<pad><bos><eos>猫"


def test_words_are_numbered_by_frequency():
    tokenizer = Tokenizer.train(["b a c", "b a", "b"])
    assert tokenizer.encode("b a c d") == [4, 5, 6, UNK]
    assert len(tokenizer) == 7


def test_words_and_punctuation_are_cut():
    tokenizer = Tokenizer.train(["Don't re-read 小明的书, please!"])
    assert tokenizer.tokens("Don't re-read 小明的书, please!") == [
        "Don't", "re-read", "小明的书", ",", "please", "!"
    ]  # fmt: skip
    assert tokenizer.decode(tokenizer.encode("please , Don't !")) == "please, Don't!"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, 9, 20])
def test_no_vocabulary_is_larger_than_asked(kind, size):
    tokenizer = Tokenizer.train(["abcdefghij klm 一二三四五", "abcabc", "a"], kind, vocab_size=size)
    assert len(SPECIALS) < len(tokenizer) <= size
    assert max(tokenizer.encode("abcdefghij klm 一二三四五 z")) < len(tokenizer)


alphabet = st.sampled_from("abcdeXYZ小明工作，。！'-é")
words_of_it = st.text(alphabet, min_size=1, max_size=6)
sentences = st.lists(words_of_it, min_size=1, max_size=6).map(" ".join)


@given(st.lists(sentences, min_size=1, max_size=5), st.sampled_from(["char", "bpe"]))
@settings(max_examples=60, deadline=None)
def test_decode_inverts_encode_on_what_was_learned(lines, kind):
    tokenizer = Tokenizer.train(lines, kind, vocab_size=200)
    for line in lines:
        ids = tokenizer.encode(line)
        assert UNK not in ids
        assert tokenizer.decode([*frame(ids), PAD, PAD]) == line


@given(st.lists(sentences, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_words_agree_with_the_pattern_in_python(lines):
    """Python's own `re` cuts the same words, and counts the same vocabulary."""
    cut = [re.findall(r"[\w'’-]+|[^\w\s]", line) for line in lines]
    tokenizer = Tokenizer.train(lines)
    assert [tokenizer.tokens(line) for line in lines] == cut
    assert len(tokenizer) == len(SPECIALS) + len({word for words in cut for word in words})


def merge(symbols, pair):
    out = []
    for symbol in symbols:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return out


def byte_pairs(words, merges):
    """Byte-pair encoding by definition: recount all pairs before each join."""
    pieces = {word: list(word) for word in words}
    age = {symbol: n for n, symbol in enumerate(sorted(set("".join(words))))}
    joins = []
    for _ in range(merges):
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], age[pair[0]], age[pair[1]]))
        joins.append(best)
        age.setdefault("".join(best), len(age))
        pieces = {word: merge(symbols, best) for word, symbols in pieces.items()}
    return joins


@given(
    st.dictionaries(
        st.text("abcd小", min_size=1, max_size=6), st.integers(1, 20), min_size=1, max_size=6
    )
)
@settings(max_examples=60, deadline=None)
def test_byte_pairs_agree_with_the_definition(words):
    lines = [word for word, count in words.items() for _ in range(count)]
    tokenizer = Tokenizer.train(lines, "bpe", vocab_size=24)
    model = json.loads(tokenizer.backend.to_str())["model"]
    learned = [tuple(pair) for pair in model["merges"]]
    marked = {"▁" + word: count for word, count in words.items()}
    assert learned == byte_pairs(marked, len(learned))
    for word in marked:
        symbols = list(word)
        for pair in learned:
            symbols = merge(symbols, pair)
        assert tokenizer.tokens(word[1:]) == symbols


@pytest.mark.parametrize("i", [-1, 7, 10**6])
def test_ids_outside_the_vocabulary_are_not_decoded(i):
    tokenizer = Tokenizer.train(["a b c"])
    with pytest.raises(ValueError, match=f"id {i} is outside the vocabulary of 7"):
        tokenizer.decode([4, i])


@pytest.mark.parametrize("ids", [[4.7], torch.tensor([4.5]), [[4, 5]], "4", [None]])
def test_what_is_no_id_is_not_decoded(ids):
    """int() would round 4.7 down in silence."""
    with pytest.raises(TypeError):
        Tokenizer.train(["a b c"]).decode(ids)


def test_ids_of_a_tensor_are_decoded():
    assert Tokenizer.train(["a b c"]).decode(torch.tensor([1, 4, 5, 2])) == "a b"


def test_bad_arguments_of_train():
    with pytest.raises(ValueError, match="kind is 'words', need one of"):
        Tokenizer.train(LINES, "words")
    with pytest.raises(ValueError, match="vocab_size is 4, need more than the 4 specials"):
        Tokenizer.train(LINES, vocab_size=4)
    with pytest.raises(TypeError, match="lines is one string"):
        Tokenizer.train("小明 开始 工作")
    for lines in ([], ["", "\u3000"]):
        with pytest.raises(ValueError, match="no text to learn a vocabulary from"):
            Tokenizer.train(lines)


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", "<html>", '{"kind": "word", "tokenizer": {}}', b"\xff\xfe", "null"]
)
def test_files_that_are_no_vocabulary_are_refused(tmp_path, content):
    with pytest.raises(ValueError, match=r"v\.json: not a vocabulary file"):
        Tokenizer.load(write(tmp_path / "v.json", content))


def test_damaged_and_missing_vocabularies(tmp_path):
    path = tmp_path / "v.json"
    Tokenizer.train(LINES).save(path)
    whole = path.read_text(encoding="utf-8")
    write(path, whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"v\.json: not a vocabulary file"):
        Tokenizer.load(path)
    write(path, whole.replace('"kind": "word"', '"kind": "sentence"'))
    with pytest.raises(ValueError, match=r"v\.json: not a vocabulary file \(kind is 'sentence'"):
        Tokenizer.load(path)
    write(path, b"\xef\xbb\xbf" + whole.encode())
    assert Tokenizer.load(path).tokens("小明") == ["小明"]
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        Tokenizer.load(tmp_path / "none.json")


# --- batches ------------------------------------------------------------------------------------


def test_targets_are_framed_and_padded():
    """Case T9, its first half: the two targets that the decoder's shift starts from."""
    assert pad([frame([5]), frame([5, 6, 7])]).tolist() == [[1, 5, 2, 0, 0], [1, 5, 6, 7, 2]]


def test_sources_have_no_marks_and_targets_have_both():
    tokenizer = Tokenizer.train(LINES)
    [(source, target)] = encode_pairs(tokenizer, [("小明 开始 工作", "I love China .")])
    assert source == tokenizer.encode("小明 开始 工作")
    assert target == [BOS, *tokenizer.encode("I love China ."), EOS]


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_padding_fills_the_right_and_nothing_else(sequences):
    batch = pad(sequences)
    assert batch.shape == (len(sequences), max(map(len, sequences)))
    for row, sequence in zip(batch.tolist(), sequences):
        assert row[: len(sequence)] == sequence
        assert set(row[len(sequence) :]) <= {PAD}


def test_empty_batches_and_sequences_are_refused():
    with pytest.raises(ValueError, match="empty batch"):
        pad([])
    with pytest.raises(ValueError, match="sequence 1 of the batch is empty"):
        pad([[4], [], [5]])
    with pytest.raises(ValueError, match="sequence 0 of the batch is empty"):
        pad([[]])
    assert pad(torch.tensor([[4, 5], [6, 7]])).tolist() == [[4, 5], [6, 7]]
