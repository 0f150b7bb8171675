"""Write sentences.tsv from the wheel of hsk-sentences-audio 1.0.0.

    pip download --no-deps --dest . hsk-sentences-audio==1.0.0
    python data/hsk/convert.py hsk_sentences_audio-1.0.0-py3-none-any.whl
"""

import hashlib
import json
import os
import sys
import zipfile
from pathlib import Path

WHEEL = "9bf16cc7b48a24a10af83d377439d3c6f7571a380937f4645a1cd1590d5d0335"  # SHA-256
TARGET = Path(__file__).resolve().parent / "sentences.tsv"


def segmented(text: str, words: list[str]) -> str:
    """The text with a space between words; the punctuation that the words leave out stands alone."""
    pieces, i = [], 0
    for word in words:
        start = text.find(word, i)
        if start < 0:
            raise ValueError(f"words {words} do not make up {text!r}")
        pieces += [*text[i:start], word]
        i = start + len(word)
    pieces += text[i:]
    return " ".join(pieces)


def convert(wheel: str) -> None:
    """Convert one wheel, whose bytes must be the known ones."""
    found = hashlib.sha256(Path(wheel).read_bytes()).hexdigest()
    if found != WHEEL:
        raise ValueError(f"{wheel}: SHA-256 is {found}, need {WHEEL}")
    with zipfile.ZipFile(wheel) as archive:
        records = json.loads(archive.read("hsk_sentences_audio/data/sentences.json"))
    lines = []
    for r in records:
        words = [token["word"] for token in r["tokens"]]
        row = [str(r["hsk_level"]), segmented(r["chinese"], words), r["translation"]["en"]]
        lines.append("\t".join(row) + "\n")
    new = TARGET.with_name(TARGET.name + ".partial")
    new.write_bytes("".join(lines).encode())
    os.replace(new, TARGET)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: convert.py hsk_sentences_audio-1.0.0-py3-none-any.whl")
    try:
        convert(sys.argv[1])
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
