"""A small Chinese–English grammar that writes the parallel corpus of this book.

    python data/zh-en/grammar.py            rewrite train.tsv, valid.tsv and test.tsv
    python data/zh-en/grammar.py --counts   print what the three files hold
    python data/zh-en/grammar.py --sample 7 print a hundred random pairs (seed 7)

lexicon.py holds the words, clauses.py builds phrases and clauses of them on both sides together.
Here are the templates, each of which draws words for one construction, and the split. README.md
states the rules (tense, articles, pronouns). Only `random.random` and SHA-256 decide anything, so
that every platform writes the same bytes.
"""

import argparse
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import lexicon as lex
from clauses import (
    ACTIVITIES,
    ACTS,
    DEGREES,
    IT,
    NAMES,
    NONE,
    NP,
    PRONOUNS,
    SIGHTS,
    VP,
    Dice,
    Link,
    Links,
    Sentence,
    activities,
    all_of,
    an_act,
    apart,
    article,
    at,
    bare,
    before,
    beside,
    clause,
    counted,
    do,
    english,
    finite,
    go,
    going,
    group,
    is_,
    join,
    kin,
    kinds,
    like,
    link,
    other,
    owned,
    owner,
    people,
    person,
    phrase,
    placed,
    pointed,
    pro,
    quality,
    say,
    some,
    start,
    suits,
    this_or_that,
    time,
    want,
)
from lexicon import ADJS, BE, KIN, LANDS, NEAR, NOUNS, PLACES, TIMES, Adj, Words, tagged, verb

# ---------------------------------------------------------------------------------- templates
# Each docstring begins with an example. A template returns None where its words do not suit.

Template = Callable[[Dice], Sentence | None]
TEMPLATES: list[tuple[int, Template]] = []


def template(quota: int) -> Callable[[Template], Template]:
    """Register a template and the number of different sentences to draw from it."""

    def register(f: Template) -> Template:
        TEMPLATES.append((quota, f))
        return f

    return register


HABITS = "habit habit habit habit- habit? often often often? "
PAST = "past past past past past- past? past+ "
FUTURE = "will will will- will? "
WISHES = "want want- want? going going? should should- want+ "
NOW = "progressive progressive progressive? "


@template(4700)
def acting(r: Dice) -> Sentence:
    """我 昨天 在 学校 看 书 : I read at school yesterday."""
    everyday = [x for x in ACTIVITIES.values() if x.vp.post != ("水",)]
    what = r.pick([*everyday, *(x for x in everyday if not x.vp.any)])
    vp = what.vp
    if "alone" not in what.tags and r.chance(0.2):
        vp = beside(vp, other(r, PRONOUNS["我"]))
    bound = vp.verb in ("工作", "学习") or (vp.verb == "吃" and vp.parts)  # hardly said without a place
    if what.places and (bound or r.chance(0.5)):
        place = r.pick(what.places)
        vp = at(vp, place)
        if place.kind == "land" and vp.verb in ("工作", "学习", "学"):
            return say(r, vp, "plain plain- plain? want want- want?", p=0)
        if place.kind == "land":
            return say(r, vp, PAST + "will want want- want? going going?")
    return say(r, vp, HABITS + PAST + FUTURE + WISHES + NOW * ("several" not in what.tags))


@template(650)
def general(r: Dice) -> Sentence:
    """小红 不 吃 肉 : Xiaohong doesn't eat meat. 你 在 医院 工作 吗 ？ : Do you work at the hospital?"""
    if r.chance(0.5):
        vp = r.pick([x.vp for x in activities("food") if x.vp.post != ("水",)])
        return say(r, vp, "plain- plain- plain? plain-+ plain* plain@")
    what = ACTIVITIES[r.word("工作 学习")]
    vp = at(what.vp, r.pick(what.places))
    return say(r, vp, "plain plain- plain? plain+ plain* plain@")


@template(500)
def skill(r: Dice) -> Sentence:
    """小丽 会 说 中文 : Xiaoli can speak Chinese."""
    vp = r.pick(activities("skill")).vp
    return say(r, vp, "can can can- can? can+ can-+ can* can@ can-@")


def regulars() -> list[NP]:
    """The subjects of the sentences that are written out in full."""
    mine = [kin(PRONOUNS["我"], w) for w in KIN]
    return [*pro("我 他 她 我们 他们"), *NAMES, *mine, *(bare(n) for n in tagged("job"))]


def every_start() -> list[Sentence]:
    """小明 开始 工作 : Xiaoming starts working."""
    new = [x.vp for x in activities("new")]
    return [clause(who, start(vp)) for who in regulars() for vp in new if suits(who, vp)]


def every_love() -> list[Sentence]:
    """我 爱 中国 : I love China. 小明 也 喜欢 北京 : Xiaoming likes Beijing too."""
    lands = [NP((p.zh,), p.to.removeprefix("to "), p.zh) for p in LANDS]
    ways = [("爱", "love", ""), ("喜欢", "like", ""), ("喜欢", "like", "也")]
    return [
        clause(who, do(zh, verb(en), land), adverb=adverb)
        for who in regulars()
        for land in lands
        for zh, en, adverb in ways
    ]


@template(300)
def starting(r: Dice) -> Sentence:
    """小明 明天 开始 学 中文 : Xiaoming will start learning Chinese tomorrow."""
    what = r.pick(activities("new"))
    if r.chance(0.3):
        return say(r, start(what.vp), "want yet")
    return say(r, start(placed(r, what, 0.4, lands=False)), "past will will?", p=1)


@template(1050)
def liking(r: Dice) -> Sentence:
    """小明 也 喜欢 猫 : Xiaoming likes cats too. 我 不 喜欢 跑步 : I don't like running."""
    kind = r.word("do do kinds kinds that person")
    like_ = verb("like")
    if kind == "person":
        return say(r, do("喜欢", like_, other(r, IT)), "plain plain plain- plain?")
    if kind == "that":
        np = this_or_that(r, r.pick(tagged("shop goods pet film")), 0.15)
        return say(r, do("喜欢", like_, np), "plain plain- plain? plain+ plain*")
    vp = do("喜欢", like_, kinds(r.pick(tagged("animal eat melon meal drink read film", but="信 水"))))
    if kind == "do":
        vp = like(placed(r, r.pick([x for x in ACTIVITIES.values() if x.vp.post != ("水",)])))
    if r.chance(0.15):
        return say(r, replace(vp, pre=("最",), rest=vp.rest + " best"), "plain")
    return say(r, vp, "plain plain plain- plain? plain+ plain-+ plain* plain@ plain-@")


@template(2300)
def event(r: Dice) -> Sentence:
    """小明 昨天 在 商店 买 了 三 本 书 : Xiaoming bought three books at the shop yesterday."""
    act = r.pick(ACTS)
    np = some(r, r.pick(act.nouns), 0.4 * (act.zh in ("买", "卖", "画", "看见", "丢", "借")), SIGHTS + " 便宜")
    if act.zh == "看见" and r.chance(0.3):
        np = other(r, IT)
    vp = do(act.zh, act.en, np, le="mid")
    if act.places and r.chance(0.4):
        vp = at(vp, r.pick(act.places))
    moods = "past past past past past+ past@ "
    if act.zh in ("修", "洗"):
        moods += "already "
    elif act.zh not in ("看见", "丢", "找到"):
        moods += "already want going going? " + "should " * (act.zh in ("买", "看"))
    return say(r, vp, moods)


@template(400)
def busy(r: Dice) -> Sentence:
    """小红 正在 写 一 封 信 : Xiaohong is writing a letter."""
    act = an_act(r, "看 写 写 吃 喝 画 修 洗")
    noun = r.pick(act.nouns)
    np = counted(noun, "一") if noun.unit or r.chance(0.6) else this_or_that(r, noun, many=False)
    if noun.is_("own") and act.zh in ("修", "洗") and r.chance(0.6):
        np = owned(owner(r), noun)
    vp = do(act.zh, act.en, np)
    if act.places and r.chance(0.4):
        vp = at(vp, r.pick(act.places))
    return say(r, vp, NOW + "progressive@")


@template(650)
def definite(r: Dice) -> Sentence:
    """小明 还 没 看 那 本 书 : Xiaoming hasn't read that book yet."""
    act = an_act(r, "看 看 买 修 洗 卖 借")
    noun = r.pick([n for n in act.nouns if not n.unit])
    np = this_or_that(r, noun, 0.15)
    if act.zh in ("修", "洗") and noun.is_("own") and r.chance(0.5):
        np = owned(owner(r), noun)
    return say(r, do(act.zh, act.en, np), "yet yet want want- want? going should should- past-")


@template(550)
def no_such(r: Dice) -> Sentence:
    """小明 昨天 没 买 书 : Xiaoming didn't buy any books yesterday."""
    act = an_act(r, "买 买 卖 看 写 吃 喝 画 看见 借")
    while act.en is lex.WATCH_FILM:
        act = an_act(r, "看")
    while act.zh == "看见" and act.nouns[0].is_("job"):
        act = an_act(r, "看见")
    noun = r.pick([n for n in act.nouns if (act.zh, n.zh) != ("看", "书")])  # that is a set phrase
    return say(r, do(act.zh, act.en, kinds(noun), any=True), "past- past?", p=0.7)


@template(700)
def experience(r: Dice) -> Sentence:
    """小红 去 过 北京 : Xiaohong has been to Beijing. 你 吃 过 饺子 吗 ？ : Have you ever eaten dumplings?"""
    kind = r.word("go go that kinds kinds set")
    vp = go(r.pick([*LANDS, PLACES["动物园"]]))
    if kind == "set":
        vp = ACTIVITIES[r.pick(["学 英语", "学 中文", "踢 足球", "打 篮球"])].vp
    elif kind != "go":
        act = an_act(r, "看 看 修" if kind == "that" else "吃 喝 写 画")
        usual = "苹果 鸡蛋 面包 肉 水 牛奶 茶"
        noun = r.pick([n for n in act.nouns if n.zh not in usual.split()])
        vp = do(act.zh, act.en, this_or_that(r, noun) if kind == "that" else kinds(noun))
    tenses = "perfect perfect perfect- perfect? perfect+ perfect* perfect@"
    return say(r, vp, tenses)


# 把 brings the object before the verb.


def thing(r: Dice, who: NP, tags: str) -> NP:
    """A definite thing."""
    noun = r.pick(tagged(tags))
    x = r.random()
    if noun.is_("own") and x < 0.35:
        np = owned(owner(r), noun)
        return np if apart(who, np) else thing(r, who, tags)
    return pointed(noun, r.word("这 那")) if x < 0.5 and not noun.unit else bare(noun)


def disposal(r: Dice, who: NP) -> VP:
    """把 书 放 在 桌子 上 : put the book on the table. What one does to a definite thing."""

    def ba(np: NP, zh: str, en: str, post: Words = (), rest: str = "", links: Links = NONE) -> VP:
        links |= np.links | link("verb–object", zh, np.head)
        pre, rest = ("把", *np.zh), phrase(np.object, rest)
        return VP(zh, verb(en), post, rest, pre, (zh,), (np.head,), links, "end")

    kind = r.word("put put put put open open eat drink finish wash fix back give away up up sell")
    if kind == "put":
        spot = r.pick(list(lex.SPOTS))
        np = thing(r, who, "small")
        links = link("thing–place", np.head, spot[0])
        return ba(np, "放", "put", ("在", *spot), lex.SPOTS[spot], links)
    if kind == "open":
        zh, en = r.pick([("打开", "open"), ("关上", "close")])
        word = r.pick(["门 door", "窗户 window", "箱子 box"]).split()
        return ba(NP((word[0],), f"the {word[1]}", word[0]), zh, en)
    if kind == "finish":
        np = thing(r, who, "read")
        return replace(ba(np, "看", "finish", ("完",)), rest=f"reading {np.object}")
    if kind in ("back", "give"):
        zh, en = ("还", "back to") if kind == "back" else ("送", "to")
        np, to = thing(r, who, "own"), other(r, who)
        while not apart(to, np):
            np = thing(r, who, "own")
        links = to.links | link("verb–recipient", zh, to.head)
        return ba(np, zh, "give", ("给", *to.zh), f"{en} {to.object}", links)
    if kind == "up":
        np = thing(r, who, r.word("pet pet small"))
        return ba(np, "抱" if lex.are(np.head, "pet") else "拿", "pick", ("起来",), "up")
    tags, zh, en, post, rest = {
        "eat": ("eat", "吃", "eat", "掉", ""),
        "drink": ("drink", "喝", "drink", "掉", ""),
        "wash": ("wash", "洗", "wash", "干净", "clean"),
        "fix": ("fix", "修", "repair", "好", ""),
        "away": ("small fix", "拿", "take", "走", "away"),
        "sell": ("goods", "卖", "sell", "掉", ""),
    }[kind]
    return ba(thing(r, who, tags), zh, en, tuple(post.split()), rest)


@template(1700)
def disposing(r: Dice) -> Sentence:
    """小明 把 书 放 在 桌子 上 了 : Xiaoming put the book on the table."""
    ask = r.chance(0.15)
    who = person(r, ask)
    vp = disposal(r, who)
    moods = "past?" if ask else "past past past past- " + "want want- going " * (vp.post != ("起来",))
    return say(r, vp, moods, who, 0.3)


@template(450)
def passive(r: Dice) -> Sentence | None:
    """蛋糕 被 小明 吃 了 : The cake was eaten by Xiaoming."""
    zh, en, tags = r.pick([("吃", "eat", "eat"), ("喝", "drink", "drink"), ("卖", "sell", "goods"),
                           ("拿", "take", "small fix"), ("借", "borrow", "lend")])  # fmt: skip
    post = "走" if zh in "拿借" else "掉"
    by = person(r)
    np = thing(r, by, tags)
    if people(by.zh) & people(np.zh):
        return None
    neg = r.chance(0.2)
    away = zh == "拿"
    words = (*np.zh, *("没",) * neg, "被", *by.zh, zh, post, *("了",) * (not neg))
    said = phrase(verb(en).participle, "away" * away, "by", by.object)
    links = np.links | by.links | link("verb–object", zh, np.head)
    links |= by.linked("subject–verb", zh) | by.linked("subject–object", np.head)
    return Sentence(words, english(np, BE, said, "past", neg), links)


# Pronouns that refer back, and one that Chinese leaves out.


def hug(np: NP) -> VP:
    """把 猫 抱 起来 "pick the cat up"."""
    links = np.links | link("verb–object", "抱", np.head)
    rest = f"{np.object} up"
    return VP("抱", verb("pick"), ("起来",), rest, ("把", *np.zh), ("抱",), (np.head,), links)


def every_hug() -> list[Sentence]:
    """我 把 猫 抱 起来 ， 它 很 乖 : I picked the cat up, and it was very well-behaved."""
    pets = tagged("pet")
    it, good = PRONOUNS["它"], ADJS["乖"]
    return [
        join(
            clause(who, hug(bare(pet)), "past"),
            "",
            "and",
            quality(Dice(), replace(it, head=pet.zh), good, "很", tense="past"),
        )
        for who in regulars()
        for pet in pets
    ]


@template(900)
def refer(r: Dice) -> Sentence:
    """我 把 猫 抱 起来 ， 它 很 乖 : I picked the cat up, and it was very well-behaved."""
    who = person(r, single=True)
    noun = r.pick(tagged("pet"))
    kind = r.word("up up have have buy see")
    tense = "present" if kind == "have" else "past"
    np = counted(noun, r.word("一 一 两 三"))
    if kind == "up":
        np = bare(noun) if r.chance(0.6) else this_or_that(r, noun, many=False)
        vp = hug(np)
    elif kind == "see":
        place = PLACES[r.word("公园 学校")]
        vp = at(do("看见", verb("see"), np, le="mid"), place)
    else:
        vp = do(*(("有", verb("have")) if kind == "have" else ("买", verb("buy"))), np, le="mid")
    one = clause(who, vp, tense)
    it = PRONOUNS["它们" if np.plural else "它"]
    x = r.random()
    if kind == "have" and x < 0.25 and who.back:
        rest = f"{it.object} very much"
        fond = VP("喜欢", verb("like"), it.zh, rest, ("很",), ("喜欢",))
        return join(one, "", "and", clause(PRONOUNS[who.back], fond))
    if kind == "have" and x < 0.45:
        treats = {"猫": "吃 鱼,喝 牛奶,睡觉", "狗": "吃 肉,喝 水,睡觉", "兔子": "吃 苹果,喝 水,睡觉"}
        fond = like(ACTIVITIES[r.pick(treats[noun.zh].split(","))].vp)
        return join(one, "", "and", clause(it, fond))
    it = replace(it, head=noun.zh)
    adj = ADJS[r.word("乖 乖 可爱 大 小 漂亮" + " 聪明" * (kind in ("up", "have")))]
    if r.chance(0.25) and adj.zh in ("乖", "大", "小", "聪明"):
        return join(one, "但是", "but", quality(r, it, adj, "不 不太", tense=tense))
    return join(one, "", "and", quality(r, it, adj, "很 很 非常", tense=tense))


@template(500)
def refer_person(r: Dice) -> Sentence:
    """小明 有 一 个 妹妹 ， 她 很 聪明 : Xiaoming has a younger sister, and she is very clever.

    The second person is of the other sex, so that the pronoun has one meaning.
    """
    if r.chance(0.6):
        head = r.word("哥哥 姐姐 弟弟 妹妹")
        en, back = KIN[head]
        who = r.pick([x for x in [*pro("我 他 她"), *NAMES, *NAMES] if x.back != back])
        one = clause(who, do("有", verb("have"), NP(("一", "个", head), article(en), head)))
    else:
        who = r.pick([PRONOUNS["我"], *NAMES])
        head = r.pick(tagged("job")).zh
        back = {"她": "他", "他": "她"}.get(who.back) or r.word("他 她")
        one = clause(who, do("认识", verb("know"), counted(NOUNS[head], "一")))
    they = replace(PRONOUNS[back], head=head)
    kind = r.word("quality quality habit can")
    if kind == "quality":
        words = "高 忙 聪明" + " 年轻" * (head in NOUNS)
        two = quality(r, they, ADJS[r.word(words)], "很 很 非常")
    else:
        fit = [y for y in activities("skill" if kind == "can" else "new") if suits(they, y.vp)]
        what = r.pick([y for y in fit if y.vp.who != "child"])
        vp = placed(r, what, 0.7 * (kind == "habit"), lands=False)
        two = say(r, vp, kind, they)
    return join(one, "", "and", two)


@template(500)
def dropped(r: Dice) -> Sentence | None:
    """小明 买 了 两 本 书 ， 都 很 贵 : Xiaoming bought two books, and they were both very expensive."""
    act = an_act(r, "买 买 看 吃 借")
    among = {"买": "贵 便宜 漂亮 有意思 可爱", "看": "有意思", "吃": "好吃", "借": "新 旧 有意思"}[act.zh]
    noun = r.pick(act.nouns)
    fit = lex.suiting(noun, among)
    if not fit or noun.zh == "饺子":
        return None
    np = counted(noun, r.word("一 一 两 三"))
    vp = do(act.zh, act.en, np, le="mid")
    if act.places and r.chance(0.4):
        vp = at(vp, r.pick(act.places))
    it = NP((), "they" if np.plural else "it", noun.zh, np.plural)
    two = quality(r, it, r.pick(fit), "很 很 非常", tense="past")
    if np.plural:
        every = "both" if np.zh[0] == "两" else "all"
        two = replace(two, zh=("都", *two.zh), en=two.en.replace("were", f"were {every}"))
    return join(say(r, vp, "past"), "", "and", two)


# Having and being.


@template(700)
def having(r: Dice) -> Sentence:
    """小明 有 两 只 猫 : Xiaoming has two cats. 小红 没有 自行车 : Xiaohong doesn't have a bike."""
    noun = r.pick(tagged("own pet"))
    have, kind = verb("have"), r.word("some some one one many")
    if kind == "some":
        return say(r, do("有", have, some(r, noun, 0.5)), "plain plain plain plain+")
    if kind == "many":
        many = NP(("几", noun.measure, noun.zh), "", noun.zh)
        return clause(person(r, ask=True), do("有", have, many), ask=f"how many {noun.plural}")
    vp = do("有", have, NP((noun.zh,), article(noun.en), noun.zh))
    return say(r, vp, "plain- plain- plain? plain? plain@")


@template(700)
def there(r: Dice) -> Sentence:
    """桌子 上 有 三 本 书 : There are three books on the table."""
    x = r.random()
    if x < 0.6:
        where = r.pick(list(lex.SPOTS))
        en, nouns = lex.SPOTS[where], tagged("small", but=where[0])
    elif x < 0.8:
        room, en, tags = r.pick(
            [("房间", "in the room", "room pet"), ("教室", "in the classroom", "room young"),
             ("公园", "in the park", "animal young"), ("动物园", "at the zoo", "zoo")]
        )  # fmt: skip
        where, nouns = (room, "里"), tagged(tags)
    else:
        place, en = r.pick(["学校 school", "公园 park", "医院 hospital", "车站 station"]).split()
        where, en, nouns = (place, "旁边"), f"next to the {en}", tagged("built", but=place)
    noun = r.pick(nouns)
    links = link("thing–place", noun.zh, where[0])
    one, many = NP((), "there"), NP((), "there", plural=True)
    kind = r.word("say say say none ask many")
    if kind == "say":
        np = some(r, noun, 0.25)
        said = english(many if np.plural else one, BE, f"{np.en} {en}", "present")
        return Sentence((*where, "有", *np.zh), said, links | np.links)
    if kind == "none":
        said = english(many, BE, f"no {noun.plural} {en}", "present")
        return Sentence((*where, "没有", noun.zh), said, links)
    if kind == "ask":
        said = english(many, BE, f"any {noun.plural} {en}", "present", invert=True) + "?"
        return Sentence((*where, "有", noun.zh, "吗", "？"), said, links)
    said = f"how many {noun.plural} {english(many, BE, en, 'present', invert=True)}?"
    return Sentence((*where, "有", "几", noun.measure, noun.zh, "？"), said, links)


@template(550)
def lying(r: Dice) -> Sentence:
    """小明 的 书 在 桌子 上 : Xiaoming's book is on the table. 我 的 猫 在 哪里 ？ : Where is my cat?"""
    kind = r.word("say say not ask where")
    noun = r.pick(tagged("small pet"))
    np = owned(owner(r), noun) if noun.is_("own") and r.chance(0.6) else bare(noun)
    if r.chance(0.25):
        np = this_or_that(r, noun)
    if kind == "where":
        said = f"where {english(np, BE, '', 'present', invert=True)}?"
        return Sentence((*np.zh, "在", "哪里", "？"), said, np.links)
    spot = r.pick(list(lex.SPOTS))
    links = link("thing–place", noun.zh, spot[0])
    return is_(np, ("在", *spot), lex.SPOTS[spot], links, mark={"not": "-", "ask": "?"}.get(kind, ""))


@template(550)
def being_at(r: Dice) -> Sentence:
    """小明 昨天 不 在 家 : Xiaoming wasn't at home yesterday."""
    mark = r.pick(["", "", "-", "?", "?", "+", "where"])
    who = r.pick(pro("你 他们")) if mark == "?" and r.chance(0.3) else person(r, mark in ("?", "where"))
    when = r.pick([None, TIMES[-1], time(r, "past", VP("在", BE))])
    if mark == "where":
        s = is_(who, ("在", "哪里"), "", when=when, mark="?")
        return replace(s, zh=(*s.zh[:-2], "？"), en="where " + s.en)
    place = r.pick(list(PLACES.values()))
    links = who.linked("thing–place", place.zh)
    return is_(who, ("在", place.zh), place.at, links, when, mark=mark)


@template(700)
def identity(r: Dice) -> Sentence | None:
    """小明 的 妈妈 是 医生 : Xiaoming's mum is a doctor. 这 是 谁 的 书 ？ : Whose book is this?"""
    mark = r.pick(["", "", "-", "?"])
    kind = r.word("job job job relation whose of of")
    here = NP(*r.pick([(("这",), "this"), (("那",), "that")]))
    noun = r.pick(tagged("own"))
    if kind == "job":
        who = group(r, mark == "?") if r.chance(0.2) else person(r, mark == "?", "adult")
        job = r.pick(tagged("job", but="学生" if who.head in lex.PARENTS else ""))
        if lex.are(who.head, "job"):
            return None
        said = job.plural if who.plural else article(job.en)
        links = who.linked("subject–noun", job.zh)
        if who.plural and not mark:
            return is_(who, ("都", "是", job.zh), f"{all_of(who)} {said}", links)
        return is_(who, ("是", job.zh), said, links, mark=mark or r.pick(["", "+"]))
    of = owner(r, mark == "?")
    if kind == "relation":
        np = owned(of, r.pick([noun, *tagged("relation")]))
        return is_(here, ("是", *np.zh), np.en, np.links, mark=mark)
    links = link("owner–noun", "谁", noun.zh)
    if kind == "whose":
        said = f"whose {noun.en} {english(here, BE, '', 'present', invert=True)}?"
        return Sentence((*here.zh, "是", "谁", "的", noun.zh, "？"), said, links)
    if r.chance(0.5):
        of = r.pick(pro("你 他 她 他们" if mark == "?" else "我 她 我们 他们"))
    links = of.links | link("owner–noun", of.head, noun.zh)
    np = this_or_that(r, noun)
    return is_(np, ("是", *of.zh, "的"), of.mine or of.genitive, links, mark=mark)


# Adjectives.


def described(r: Dice, ask: bool = False) -> tuple[NP, Adj]:
    """Someone or something, and an adjective that suits."""
    if r.chance(0.5):
        return person(r, ask), ADJS[r.word(lex.MOODS + " 高 高 聪明 聪明 年轻")]
    adj = r.pick([x for x in ADJS.values() if x.suits not in ("person", "weather", "colour")])
    noun = r.pick([n for n in tagged(adj.suits) if not n.is_("young")])
    x = r.random()
    if x < 0.35 and noun.is_("own"):
        return owned(owner(r, ask), noun), adj
    return bare(noun) if noun.unit or x < 0.55 else this_or_that(r, noun), adj


@template(1450)
def describing(r: Dice) -> Sentence:
    """这 本 书 太 贵 了 : This book is too expensive. 小红 昨天 很 累 : Xiaohong was very tired yesterday."""
    ask = r.chance(0.15)
    np, adj = described(r, ask)
    when = None
    if adj.zh in lex.MOODS.split() and r.chance(0.5):
        when = r.pick([*TIMES[-2:], time(r, "past", VP(adj.zh, BE))])
    return quality(r, np, adj, "吗" if ask else "很 很 非常 太 不 不太 也", when)


@template(1250)
def comparing(r: Dice) -> Sentence | None:
    """小明 比 小红 高 : Xiaoming is taller than Xiaohong. 这 本 书 没有 那 本 贵 : This book isn't as expensive as that one."""
    how = r.word("more more less same ask")
    ask = how == "ask"
    years: Words = ()
    if r.chance(0.55):
        one = person(r, ask, single=True)
        two = other(r, one)
        adj = ADJS[r.word("高 高 年轻 聪明 忙 大 大 小 小")]
        en, more = adj.en, adj.more
        if adj.zh in ("大", "小"):  # of people: old and young
            more = "older" if adj.zh == "大" else "younger"
            if how in ("less", "same") or (how == "ask" and adj.zh == "小") or {one.head, two.head} & {*lex.PARENTS, "孩子"}:
                return None
            if how == "more" and (adj.zh == "小" or r.chance(0.5)):
                n = r.word("一 两 三 四 五 六")
                more = f"{'a year' if n == '一' else lex.NUMBERS[n] + ' years'} {more}"
                years = (n, "岁")
    else:
        adj = ADJS[r.word("大 小 新 贵 便宜 漂亮 有意思 好吃 重 可爱")]
        noun = r.pick([n for n in tagged(adj.suits) if not n.unit and not n.is_("young")])
        en, more = adj.en, adj.more
        this, that = r.pick([("这", "那"), ("那", "这")])
        one, two = pointed(noun, this), pointed(noun, that)
        two = replace(two, zh=two.zh[:2], en=f"{two.en.split()[0]} one")
        if noun.is_("own") and r.chance(0.4):
            of = r.pick([*NAMES, *pro("他 她")])
            one = owned(PRONOUNS["你" if ask else "我"], noun)
            two = replace(owned(of, noun), zh=(*of.zh, "的"), en=of.mine or of.genitive)
    links = two.links | one.linked("noun–adjective", adj.zh)
    if one.head != two.head:
        links |= link("comparison", one.head, two.head)
    if how == "less":
        said = english(one, BE, f"as {en} as {two.object}", "present", neg=True)
        return Sentence((*one.zh, "没有", *two.zh, adj.zh), said, one.links | links)
    if how == "same":
        return is_(one, ("跟", *two.zh, "一样", adj.zh), f"as {en} as {two.object}", links)
    zh = ("比", *two.zh, adj.zh, *years)
    return is_(one, zh, f"{more} than {two.object}", links, mark="?" * ask)


@template(550)
def manner(r: Dice) -> Sentence:
    """小明 跑 得 很 快 : Xiaoming runs very fast. 小明 跑 得 比 小红 快 : Xiaoming runs faster than Xiaohong."""
    zh, en, words = r.pick([("跑", "run", "快 慢"), ("写", "write", "快 慢 好"), ("唱", "sing", "好"),
                            ("画", "draw", "好 快"), ("吃", "eat", "快 慢")])  # fmt: skip
    how = r.word(words)
    plain, more = {"快": ("fast", "faster"), "慢": ("slowly", "more slowly"), "好": ("well", "better")}[how]
    kind = r.word("很 很 非常 不 比 比 没有 吗")
    who = person(r, ask=kind == "吗", single=kind in "比没有")
    animal = zh == "跑" and r.chance(0.3)
    if animal:
        who = pointed(NOUNS[r.word("马 狗 兔子 猫")], r.word("这 那"))
    links = who.links | who.linked("subject–verb", zh) | link("verb–adverb", zh, how)
    words_: Words = (how,)
    if kind in ("比", "没有"):
        two = other(r, who)
        if animal:
            two = pointed(NOUNS[who.head], "那" if who.zh[0] == "这" else "这")
            two = replace(two, zh=two.zh[:2], en=f"{two.en.split()[0]} one")
        else:
            links |= link("comparison", who.head, two.head)
        links |= two.links
        words_ = (kind, *two.zh, how)
        plain = f"{more} than {two.object}" if kind == "比" else f"as {plain} as {two.object}"
    elif kind != "吗":
        words_ = (kind, how)
        plain = phrase(DEGREES.get(kind, ""), plain)
    ask = kind == "吗"
    said = english(who, verb(en), plain, "present", kind in ("不", "没有"), ask) + "?" * ask
    return Sentence((*who.zh, zh, "得", *words_, *("吗", "？") * ask), said, links)


@template(280)
def weather(r: Dice) -> Sentence:
    """北京 昨天 很 冷 : It was very cold in Beijing yesterday. 上海 明天 会 下雪 : It will snow in Shanghai tomorrow."""
    city = r.pick([None, PLACES["北京"], PLACES["上海"]])
    it, where = (NP((city.zh,), "it", city.zh), city.at) if city else (IT, "")
    if r.chance(0.5):
        adj = ADJS[r.word("冷 热")]
        when = time(r, r.word("past state"), VP(adj.zh, BE))
        return quality(r, it, adj, "很 很 非常 不 不太 太 吗", when, en=where)
    zh, en = r.pick([("下雨", "rain"), ("下雪", "snow")])
    links = link("verb–place", zh, city.zh) if city else NONE
    vp = VP(zh, verb(en), rest=where, links=links)
    if r.chance(0.6):
        return say(r, vp, "past past past- past?", it, 1)
    when = time(r, "future", vp)
    mark = r.word("say not ask")
    said = english(it, vp.en, where, "will", mark == "not", mark == "ask") + f" {when.en}"
    tail = ("吗", "？") if mark == "ask" else ()
    words = (*it.zh, *when.zh, *("不",) * (mark == "not"), "会", zh, *tail)
    return Sentence(words, said + "?" * bool(tail), links)


# Going.


@template(1200)
def travel(r: Dice) -> Sentence:
    """小明 每天 骑 自行车 去 学校 : Xiaoming goes to school by bike every day."""
    mood = r.word(PAST + FUTURE + "want want- want? should habit habit habit? often often?")
    place = r.pick([*LANDS, *LANDS[:2]] if r.chance(0.45) else NEAR)
    if mood.startswith("habit"):
        place = r.pick(lex.DAILY)
    ways = [h for h, (_, _, kind) in lex.VEHICLES.items() if kind == place.kind]
    if place.zh in ("中国", "英国", "法国"):
        ways = ["飞机"]
    vp = go(place, r.pick(["", *ways]))
    if r.chance(0.3):
        vp = beside(vp, other(r, IT))
    return say(r, vp, mood)


@template(550)
def errand(r: Dice) -> Sentence:
    """小明 明天 去 图书馆 看 书 : Xiaoming will go to the library to read tomorrow."""
    place = PLACES[r.pick(list(lex.ERRANDS))]
    it = ACTIVITIES[r.pick(lex.ERRANDS[place.zh])].vp
    links = it.links | link("verb–place", "去", place.zh) | link("verb–place", it.verb, place.zh)
    rest = phrase(place.to, "to", it.en.base, it.rest)
    verbs = ("去", *it.verbs)
    parts = "week" if place.kind == "land" else it.parts
    vp = VP("去", verb("go"), (place.zh, *it.zh), rest, (), verbs, it.objects, links, parts=parts, who=it.who)
    moods = "past? past- will will- will? want want- want? "
    return say(r, vp, moods + "often often? habit habit should " * (place in lex.DAILY))


# Two people.


@template(1300)
def giving(r: Dice) -> Sentence:
    """小明 给 妈妈 买 了 一 件 衬衫 : Xiaoming bought a shirt for Mum. 小红 送 了 他 一 本 书 : Xiaohong gave him a book."""
    to = other(r, IT)
    kind = r.word("buy draw give give call teach help wait meet write")
    if kind in ("buy", "draw", "write", "give"):
        zh, en, tags, word = {
            "buy": ("买", "buy", "shop", "for"),
            "draw": ("画", "draw", "draw", "for"),
            "write": ("写", "write", "", "to"),
            "give": ("送", "give", "shop", ""),
        }[kind]
        noun = r.pick(tagged(tags)) if tags else NOUNS["信"]
        np = some(r, noun, 0.3, "大 小 新 漂亮 可爱 有意思 红色 黑色", few=True)
        vp = do(zh, verb(en), np, le="mid").plus(to.links | link("verb–recipient", zh, to.head))
        if word:
            vp = before(vp, ("给", *to.zh), f"{word} {to.object}")
        else:
            vp = replace(vp, post=(*to.zh, *np.zh), rest=f"{to.object} {np.en}")
        return say(r, vp, "past past past past? already want want? going going?")
    if kind == "call":
        links = to.links | link("verb–recipient", "打", to.head)
        vp = VP("打", verb("call"), ("电话",), to.object, ("给", *to.zh), ("打",), (), links)
        return say(r, vp, HABITS + FUTURE + NOW + WISHES + "past- past- past?")
    if kind == "teach":
        zh, en = r.pick([("中文", "Chinese"), ("英语", "English"), ("游泳", "to swim"), ("开 车", "to drive")])
        vp = do("教", verb("teach"), to)
        vp = replace(vp, post=(*to.zh, *zh.split()), rest=f"{to.object} {en}", who="adult")
        return say(r, vp, "habit often will will- will? want want- want? going progressive")
    if kind == "help":
        it = r.pick(activities("home")).vp
        vp = do("帮", verb("help"), to).plus(it.links)
        rest = phrase(to.object, it.en.base, it.rest)
        vp = replace(vp, post=(*to.zh, *it.zh), rest=rest, verbs=("帮", it.verb))
        return say(r, vp, HABITS + FUTURE + NOW + "want want- want? should past- past?")
    if kind == "wait":
        place = PLACES[r.word("学校 公园 车站 图书馆 医院 家 饭馆")]
        vp = at(do("等", verb("wait"), to, "for"), place)
        return say(r, vp, "past past past- will will- will? want " + NOW)
    vp = at(do("看见", verb("see"), to, le="mid"), r.pick(NEAR))
    return say(r, vp, "past past past? past- past+")


# Questions.


@template(1300)
def asking(r: Dice) -> Sentence:
    """小明 昨天 买 了 什么 ？ : What did Xiaoming buy yesterday? 你 在 哪里 工作 ？ : Where do you work?"""
    kind = r.word("what next where where where-to when why why how who many")
    what = r.pick([x for x in ACTIVITIES.values() if x.places])
    vp = what.vp
    who = person(r, ask=True, who=vp.who)
    thing_ = NP(("什么",), "", "什么")
    if kind == "what":
        act = an_act(r, "买 卖 写 吃 喝 画 看见 借 修")
        vp = do(act.zh, act.en, thing_, le="mid")
        return clause(who, vp, "past", time(r, "past earlier", vp) if r.chance(0.8) else None, ask="what")
    if kind == "next":
        act = an_act(r, "买 卖 写 吃 喝 画 借")
        vp = do(act.zh, act.en, thing_)
        if act.zh in ("吃", "喝", "画") and r.chance(0.4):
            return clause(who, like(vp), ask="what")
        return clause(who, r.pick([want, going])(vp), when=time(r, "later future", vp), ask="what")
    if kind == "where":
        tense, times = r.pick([("present", "habit"), ("past", "past"), ("will", "future"), ("progressive", "")])
        if vp.verb in ("工作", "学习"):
            tense, times = "present", ""
        when = time(r, times, vp) if times else None
        return clause(who, replace(vp, pre=("在", "哪里")), tense, when, ask="where")
    if kind == "where-to":
        vp = VP("去", verb("go"), ("哪里",), "", (), ("去",), le="mid")
        tense, times = r.pick([("past", "past"), ("will", "future"), ("present", "later future")])
        vp = want(vp) if tense == "present" else vp
        return clause(who, vp, tense, time(r, times, vp), ask="where")
    if kind == "when":
        vp = go(r.pick([*LANDS, *NEAR])) if r.chance(0.5) or vp.any else vp
        return clause(who, replace(vp, pre=("什么时候",)), "will", ask="when")
    if kind == "why":
        why = replace(who, zh=(*who.zh, "为什么"))
        if r.chance(0.4):
            return clause(why, vp, "past", neg=True, ask="why")
        return clause(why, r.pick([like, want])(vp), neg=r.chance(0.6), ask="why")
    if kind == "how":
        near = r.chance(0.6)
        vp = replace(go(r.pick(lex.DAILY if near else LANDS)), pre=("怎么",))
        when = time(r, "habit" if near else "future", vp)
        return clause(who, vp, "present" if near else "will", when, ask="how")
    if kind == "who":
        vp = placed(r, what, 1, lands=False)
        return say(r, vp, "progressive@ will@ habit@ past@")
    act = an_act(r, "买 卖 看 写 吃 画 借 看见")
    noun = r.pick([n for n in act.nouns if not n.unit])
    vp = do(act.zh, act.en, NP(("几", noun.measure, noun.zh), "", noun.zh), le="mid")
    when = time(r, "past earlier", vp) if r.chance(0.7) else None
    return clause(who, vp, "past", when, ask=f"how many {noun.plural}")


@template(250)
def price(r: Dice) -> Sentence:
    """这 本 书 二十 块 钱 : This book costs twenty yuan. 那 把 伞 多少 钱 ？ : How much does that umbrella cost?"""
    noun = r.pick([n for n in tagged("price") if not n.is_("goods fix")])
    np = this_or_that(r, noun, 0.5, many=False)
    cost = verb("cost")
    if r.chance(0.4):
        said = f"how much {english(np, cost, '', 'present', invert=True)}?"
        return Sentence((*np.zh, "多少", "钱", "？"), said, np.links)
    n = r.word("五 十" if noun.is_("eat") else "十 二十")
    return Sentence((*np.zh, n, "块", "钱"), english(np, cost, f"{lex.PRICES[n]} yuan", "present"), np.links)


@template(350)
def lasting(r: Dice) -> Sentence:
    """小明 学 了 三 年 中文 : Xiaoming learnt Chinese for three years."""
    n = r.word("两 三 四 五 六")
    long = r.chance(0.3)
    names = "看 书,看 电视,休息,工作,学习,打 篮球,踢 足球,弹 钢琴,玩 游戏,画 画,开 车,听 音乐,写 作业"
    what = ACTIVITIES[r.pick((("学 中文,学 英语,学习,工作") if long else names).split(","))]
    vp, unit, en, when = what.vp, "年", "years", None
    places = [p for p in what.places if (p.kind == "land") == long]
    if not long:
        unit, en = "个 小时", "hours"
        when = r.pick([t for t in TIMES if t.kind in ("past", "earlier") and t.part in ("", *vp.parts.split())])
    if places and r.chance(0.5):
        vp = at(vp, r.pick(places))
    rest = phrase(vp.rest, f"for {lex.NUMBERS[n]} {en}")
    vp = replace(vp, post=(n, *unit.split(), *vp.post), rest=rest, le="mid")
    return clause(person(r, who=vp.who), vp, "past", when)


# Clauses inside clauses.


@template(900)
def relative(r: Dice) -> Sentence | None:
    """小明 昨天 买 的 书 很 贵 : The book Xiaoming bought yesterday is very expensive."""
    act = an_act(r, "买 买 写 画 借 看")
    noun = r.pick([n for n in act.nouns if not n.unit and n.zh != "鸡蛋"])
    who = person(r)
    vp = do(act.zh, act.en, NP((), "", noun.zh))
    if act.places and r.chance(0.3):
        vp = at(vp, r.pick(act.places))
    said = clause(who, vp, "past", time(r, "past", vp) if r.chance(0.5) else None)
    zh = (*(w for w in said.zh if w != "了"), "的", noun.zh)
    np = NP(zh, f"the {noun.en} {said.en}", noun.zh, links=said.links)
    x = r.random()
    if x < 0.6:
        among = {
            "买": "大 小 贵 便宜 漂亮 有意思 好吃 重 可爱",
            "借": "有意思 重 旧",
            "画": "漂亮 可爱",
        }.get(act.zh, "有意思")
        fit = lex.suiting(noun, among)
        return quality(r, np, r.pick(fit), "很 很 非常 不 太") if fit else None
    if x < 0.75 and noun.is_("small"):
        spot = r.pick(list(lex.SPOTS))
        return is_(np, ("在", *spot), lex.SPOTS[spot], link("thing–place", noun.zh, spot[0]))
    fan = person(r)
    return clause(fan, do("喜欢", verb("like"), np), neg=r.chance(0.3)) if apart(fan, who) else None


@template(450)
def who_is(r: Dice) -> Sentence | None:
    """正在 看 书 的 学生 是 我 的 朋友 : The student who is reading is my friend."""
    barred = ("学", "说", "买", "睡觉", "学习")
    what = r.pick([x for x in ACTIVITIES.values() if x.vp.verb not in barred and "several" not in x.tags])
    noun = r.pick(tagged("job young"))
    if not suits(bare(noun), what.vp):
        return None
    said = clause(NP((), "who", noun.zh), placed(r, what, lands=False), "progressive")
    np = NP((*said.zh, "的", noun.zh), f"the {noun.en} {said.en}", noun.zh, links=said.links)
    kind = r.word("is is quality know")
    if kind == "is":
        whom = owned(r.pick([*pro("我 他 她"), *NAMES]), r.pick(tagged("relation")))
        return is_(np, ("是", *whom.zh), whom.en, whom.links)
    if kind == "quality":
        return quality(r, np, ADJS[r.word("高 累 高兴 聪明")], "很 非常")
    return say(r, do("认识", verb("know"), np), "plain plain-", r.pick([*pro("我 他 她"), *NAMES]))


@template(800)
def thinking(r: Dice) -> Sentence | None:
    """小明 觉得 这 本 书 很 有意思 : Xiaoming thinks this book is very interesting."""
    mark = r.pick(["", "", "", "-", "?"])
    who = person(r, ask=mark == "?")
    if r.chance(0.6):
        np, adj = described(r)
        if adj.zh in lex.MOODS.split() or adj.zh == "新":
            return None
        inner = quality(r, np, adj, "很 很 非常 不 太" if not mark else "很")
        zh, en = "觉得", "think"
    else:
        np = person(r)
        zh, en = "知道", "know"
        inner = clause(np, r.pick(activities("skill")).vp, "can", neg=r.chance(0.4))
        if r.chance(0.6):
            inner = clause(np, like(r.pick(list(ACTIVITIES.values())).vp), neg=r.chance(0.4))
    third = np.head in PRONOUNS and np.person == 3 and who.person == 3
    if not apart(who, np) or people(who.zh) & people(np.zh) or third:
        return None
    neg, ask = mark == "-", mark == "?"
    links = inner.links | who.links | who.linked("subject–verb", zh)
    said = english(who, verb(en), inner.en, "present", neg, ask) + "?" * ask
    words = (*who.zh, *("不",) * neg, zh, *inner.zh, *("吗", "？") * ask)
    return Sentence(words, said, links)


def known(r: Dice, *vps: VP) -> NP:
    """A single person of an age for all of this whom one pronoun can take up."""
    while True:
        who = person(r, single=True)
        if who.back and suits(who, *vps):
            return who


@template(550)
def because(r: Dice) -> Sentence:
    """因为 小红 很 累 ， 所以 她 不 想 跑步 : Because Xiaohong is very tired, she doesn't want to run."""
    word = r.pick(list(lex.REASONS))
    yes, no = lex.REASONS[word]
    name = r.pick([*yes, *no])
    neg, vp = name in no, ACTIVITIES[name].vp
    who = known(r, vp)
    past = neg and r.chance(0.5)
    one = quality(r, who, ADJS[word], "很 很 非常", time(r, "past", vp) if past else None)
    he = PRONOUNS[who.back]
    two = clause(he, vp, "past", neg=True) if past else clause(he, want(vp), neg=neg)
    s = join(one, "所以", "", two)
    return replace(s, zh=("因为", *s.zh), en="because " + s.en)


@template(500)
def although(r: Dice) -> Sentence:
    """虽然 小红 很 忙 ， 但是 她 每天 跑步 : Although Xiaohong is very busy, she runs every day."""
    word = r.word("忙 累")
    barred = ("唱歌", "洗", "玩", *(("工作", "学习", "写") if word == "忙" else ()))
    what = r.pick([x for x in activities("new") if x.vp.verb not in barred])
    who = known(r, what.vp)
    one = quality(r, who, ADJS[word], "很 非常")
    moods = "habit habit often" if word == "忙" else "want"
    two = say(r, placed(r, what, 0.3, lands=False), moods, PRONOUNS[who.back], 0)
    s = join(one, "但是", "", two)
    return replace(s, zh=("虽然", *s.zh), en="although " + s.en)


@template(550)
def condition(r: Dice) -> Sentence:
    """如果 明天 下雨 ， 小明 就 不 去 公园 : If it rains tomorrow, Xiaoming won't go to the park."""
    zh, en = r.pick([("下雨", "rain"), ("下雪", "snow")])
    when = time(r, "future", VP("", BE))
    kind = r.word("go out home")
    if kind == "go":
        vp = go(r.pick([*lex.DAILY, PLACES["动物园"]]))
    elif kind == "out":
        vp = ACTIVITIES[r.pick("跑步,散步,打 篮球,踢 足球,骑 自行车".split(","))].vp
    else:
        fit = [x.vp for x in ACTIVITIES.values() if PLACES["家"] in x.places]
        fit = [x for x in fit if not x.any and x.verb != "说"]
        vp = at(r.pick([x for x in fit if when.part in (x.parts or when.part)]), PLACES["家"])
    who = person(r, who=vp.who)
    two = clause(who, vp, "will", neg=kind != "home")
    n = len(who.zh)
    one = Sentence(("如果", *when.zh, zh), f"if it {verb(en).third} {when.en}")
    return join(one, "", "", replace(two, zh=(*two.zh[:n], "就", *two.zh[n:])))


@template(500)
def meanwhile(r: Dice) -> Sentence:
    """小明 做 饭 的 时候 听 音乐 : Xiaoming listens to music when he cooks."""
    name = r.pick(list(lex.MEANWHILE))
    one, two = ACTIVITIES[name].vp, ACTIVITIES[r.pick(lex.MEANWHILE[name])].vp
    who = known(r, one, two)
    first, second = clause(who, one), clause(who, two)
    n = len(who.zh)
    links = first.links | second.links
    if r.chance(0.5):
        words = (*first.zh, "的", "时候", *second.zh[n:])
        when = english(PRONOUNS[who.back], one.en, one.rest, "present")
        return Sentence(words, f"{second.en} when {when}", links)
    words = (*who.zh, "一边", *first.zh[n:], "一边", *second.zh[n:])
    return Sentence(words, f"{second.en} while {phrase(one.en.ing, one.rest)}", links)


@template(550)
def sequence(r: Dice) -> Sentence:
    """小明 每天 早上 先 跑步 ， 然后 去 学校 : Xiaoming first runs and then goes to school every morning."""
    when = r.pick([None, *(t for t in TIMES if t.kind in ("habit", "future") and t.part not in ("", "week"))])
    part = when.part if when else ""
    fit = [x.vp for x in ACTIVITIES.values() if part in (x.vp.parts or part)]
    fit = [vp for vp in fit if vp.verb not in ("说", "学", "喝", "睡觉", "开", "照相", "骑")]
    one = r.pick(fit)
    two = r.pick([vp for vp in fit if vp.verb != one.verb and vp.who in ("", one.who)])
    if r.chance(0.4):
        two = go(r.pick(lex.DAILY))
    who = person(r, who=one.who)
    tense = "will" if when and when.kind == "future" else "present"
    first = clause(who, before(one, ("先",), ""), tense, when)
    second = clause(who, two, tense)
    aux, main = finite(who, one.en, tense, False)
    then = finite(who, two.en, tense, False)[1]
    said = phrase(who.en, aux, "first", main, one.rest, "and then", then, two.rest, when.en if when else "")
    words = (*first.zh, "，", "然后", *second.zh[len(who.zh) :])
    return Sentence(words, said, first.links | second.links)


# -------------------------------------------------------------------------------------- split

HERE = Path(__file__).resolve().parent
SEED = 2017
N_VALID = N_TEST = 1000
# The running examples are test sentences, each by one combination held out for it.
EXAMPLES = {
    "小明 开始 工作": ("subject–verb", "小明", "工作"),
    "我 爱 中国": ("subject–object", "我", "中国"),
    "我 把 猫 抱 起来 ， 它 很 乖": ("subject–verb", "我", "抱"),
}
# Their near relatives stay in training.
RELATIVES = ["他 开始 工作", "小明 开始 看 书", "我 爱 北京", "他 爱 中国", "他 把 猫 抱 起来 ， 它 很 乖"]
SPLIT_ON = "subject–verb verb–object subject–object noun–adjective verb–place owner–noun thing–place verb–verb"
# These verbs are translated by their object (看 书 read, 看 电影 watch; 打 篮球 play, 打 电话 call),
# so no one could know an unseen pair of theirs.
BY_OBJECT = {"看", "打"}


def digest(text: str) -> int:
    """A number that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def pool() -> list[Sentence]:
    """All sentences, each once, in an order that depends on their text alone."""
    found = {s.source: s for s in [*every_start(), *every_love(), *every_hug()]}
    targets = {s.target for s in found.values()}
    for quota, draw in TEMPLATES:
        r = Dice(digest(f"{SEED} {draw.__name__}"))
        goal, tries = len(found) + quota, 0
        while len(found) < goal:
            tries += 1
            if tries > 40 * quota:
                raise ValueError(f"{draw.__name__} has fewer than {quota} sentences")
            s = draw(r)
            old = found.get(s.source) if s else None
            if s is None or (old and old.target == s.target):
                continue
            if old or s.target in targets:
                raise ValueError(f"not one to one: {s.source} / {s.target} / {old and old.target}")
            found[s.source] = s
            targets.add(s.target)
    return sorted(found.values(), key=lambda s: digest(s.source))


def hold_out(sentences: Sequence[Sentence], percent: int = 5) -> Links:
    """The combinations kept out of training: those of the examples, and some of each relation.

    A word keeps at least three quarters of its partners in a relation.
    """
    count = Counter(x for s in sentences for x in s.links)
    partners = Counter(k for relation, a, b in count for k in ((relation, 1, a), (relation, 2, b)))
    near = {x for s in sentences if s.source in RELATIVES for x in s.links}
    held: Counter[tuple[str, int, str]] = Counter()
    chosen = set(EXAMPLES.values())
    for x in sorted(count, key=lambda x: digest(" ".join(x))):
        relation, a, b = x
        keys = [(relation, 1, a), (relation, 2, b)]
        if (
            relation in SPLIT_ON.split()
            and digest("held " + " ".join(x)) % 100 < percent
            and x not in near
            and not (relation == "verb–object" and a in BY_OBJECT)
            and count[x] >= 3
            and all(partners[k] >= 4 * (held[k] + 1) for k in keys)
        ):
            chosen.add(x)
            held.update(keys)
    return frozenset(chosen)


def split(sentences: Sequence[Sentence]) -> tuple[dict[str, list[Sentence]], Links]:
    """Training, validation and test sentences, and the combinations held out of training."""
    held = hold_out(sentences)
    rest = [s for s in sentences if not s.links & held]
    seen = Counter(x for s in rest for x in s.links)
    valid: list[Sentence] = []
    for s in rest:
        if len(valid) < N_VALID and s.source not in RELATIVES and all(seen[x] > 3 for x in s.links):
            valid.append(s)
            seen.subtract(s.links)
    chosen = {s.source for s in valid}
    train = [s for s in rest if s.source not in chosen]
    links = {x for s in train for x in s.links}
    fit = [s for s in sentences if s.links & held and s.links - held <= links]
    # The examples first; then in turn one sentence of each held combination.
    turn: Counter[Link] = Counter()
    rank: dict[str, int] = {}
    for s in fit:
        x = min(s.links & held, key=lambda x: (turn[x], x))
        turn[x] += 1
        rank[s.source] = 0 if s.source in EXAMPLES else turn[x]
    test = sorted(fit, key=lambda s: rank[s.source])[:N_TEST]
    test.sort(key=lambda s: digest(s.source))
    return {"train": train, "valid": valid, "test": test}, held


def write(parts: dict[str, list[Sentence]]) -> None:
    """Write the three files; each replaces the old one only when it is complete."""
    for name, sentences in parts.items():
        new = HERE / f"{name}.tsv.partial"
        new.write_bytes("".join(f"{s.source}\t{s.target}\n" for s in sentences).encode())
        os.replace(new, HERE / f"{name}.tsv")


def counts(parts: dict[str, list[Sentence]], held: Links) -> str:
    """What the files hold."""
    lines = []
    for name, sentences in parts.items():
        n = len({x for s in sentences for x in s.links & held})
        words = sum(len(s.zh) for s in sentences) / len(sentences)
        longest = max(len(s.zh) for s in sentences)
        lines.append(f"{name}: {len(sentences)} pairs, {words:.1f} Chinese words each, at most {longest}; "
                     f"{n} combinations held out")  # fmt: skip
    frequency = Counter(w for s in parts["train"] for w in s.zh)
    rare, least = min(frequency.items(), key=lambda kv: kv[1])
    lines.append(f"training: {len(frequency)} Chinese words, the rarest {rare} {least} times")
    by_relation = Counter(relation for relation, _, _ in held)
    total = Counter(x[0] for x in {x for s in [*parts["train"], *parts["test"]] for x in s.links})
    lines += [f"{k}: {v} of {total[k]} combinations held out" for k, v in sorted(by_relation.items())]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the Chinese–English corpus.")
    parser.add_argument("--counts", action="store_true", help="print what the files hold, write nothing")
    parser.add_argument("--sample", type=int, metavar="SEED", help="print a hundred pairs, write nothing")
    options = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sentences = pool()
    if options.sample is not None:
        r = Dice(options.sample)
        for s in sorted(sentences, key=lambda s: (r.random(), s.source))[:100]:
            print(f"{s.source}\t{s.target}")
        return
    parts, held = split(sentences)
    if options.counts:
        print(counts(parts, held))
    else:
        write(parts)


if __name__ == "__main__":
    main()
