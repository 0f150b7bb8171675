"""Make NotoSansCJKsc-subset.otf from the full font: python subset.py NotoSansCJK-Regular.ttc."""

import sys
from pathlib import Path

from fontTools import subset

FACE = 2  # the simplified Chinese face of the collection
OUT = Path(__file__).with_name("NotoSansCJKsc-subset.otf")


def level_1() -> str:
    """The 3,755 common characters of GB 2312: rows 16 to 55, less five empty cells at the end."""
    cells = [bytes((0xA0 + row, 0xA0 + cell)) for row in range(16, 56) for cell in range(1, 95)]
    return b"".join(cells[:-5]).decode("gb2312")


def wanted() -> str:
    """Every character the subset holds."""
    latin = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA0, 0x100)]))
    pinyin = "āáǎàēéěèīíǐìōóǒòūúǔùǖǘǚǜü"
    greek = "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩαβγδεζηθικλμνξοπρςστυφχψω"
    punctuation = "–—‘’“”…•‰′″‹›€№™、。〃〈〉《》「」『』【】〔〕〖〗·\u3000"
    full_width = "".join(map(chr, range(0xFF01, 0xFF5F))) + "￥"
    signs = "−×÷±≈≠≡≤≥∞∑∏√∂∇∈∉∩∪∧∨∀∃∝⊙⊕⊗⊥←↑→↓↔⇐⇒⇔↗↘↙↖"
    shapes = "■□▲△▼▽◆◇○●◎★☆✓①②③④⑤⑥⑦⑧⑨⑩"
    return latin + pinyin + greek + punctuation + full_width + signs + shapes + level_1()


def main(source: str) -> None:
    """Write the subset of the font collection at `source`."""
    options = subset.Options()
    options.layout_features = ["kern"]  # nothing else is used by horizontal labels
    options.hinting = False  # labels become outlines
    options.name_IDs = ["*"]  # keep the copyright and licence records
    options.notdef_outline = True
    options.font_number = FACE
    face = subset.load_font(source, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(text=wanted())
    subsetter.subset(face)
    subset.save_font(face, str(OUT), options)
    absent = "".join(sorted(set(wanted()) - set(map(chr, face.getBestCmap()))))
    if absent:
        raise ValueError(f"the source font has no glyph for {absent}")
    print(f"{OUT.name}: {OUT.stat().st_size:,} bytes, {len(face.getBestCmap()):,} characters")


if __name__ == "__main__":
    main(sys.argv[1])
