"""Phrases and clauses: both sides of a sentence, built together from the words of lexicon.py."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import lexicon as lex
from lexicon import BE, KIN, PLACES, TIMES, Adj, Noun, Place, Time, Verb, Words, tagged, verb

Item = TypeVar("Item")
Link = tuple[str, str, str]  # (relation, word, word): a combination, in Chinese words
Links = frozenset[Link]
NONE: Links = frozenset()


class Dice(random.Random):
    """Draws by `random()` alone, whose sequence Python promises never to change."""

    def pick(self, items: Sequence[Item]) -> Item:
        """One of `items`, each as likely as the others."""
        return items[int(self.random() * len(items))]

    def word(self, words: str) -> str:
        """One of the words of a string."""
        return self.pick(words.split())

    def chance(self, p: float) -> bool:
        """True with probability `p`."""
        return self.random() < p


def phrase(*parts: str) -> str:
    """Join the parts that are not empty."""
    return " ".join(p for p in parts if p)


def link(relation: str, a: str, b: str) -> Links:
    """One combination, as a set."""
    return frozenset({(relation, a, b)})


# -------------------------------------------------------------------------------- noun phrases


@dataclass(frozen=True)
class NP:
    """A noun phrase on both sides."""

    zh: Words
    en: str
    head: str = ""  # the Chinese head word
    plural: bool = False
    person: int = 3
    obj: str = ""  # English form after a verb, where it differs
    gen: str = ""  # English genitive, where it does not end in 's
    mine: str = ""  # English genitive without a noun, where it differs
    back: str = ""  # the Chinese pronoun that takes it up, where there is just one
    links: Links = NONE
    second: str = ""  # the second head of 小明 和 小红

    @property
    def object(self) -> str:
        """The English form after a verb or a preposition."""
        return self.obj or self.en

    def linked(self, relation: str, word: str) -> Links:
        """The combinations of its head, or of both its heads, with a word."""
        return frozenset((relation, head, word) for head in (self.head, self.second) if head)

    @property
    def genitive(self) -> str:
        """The English form of an owner."""
        return self.gen or self.en + "'s"


PRONOUNS = {
    zh: NP((zh,), en, zh, "p" in person, int(person[0]), obj, gen, mine, zh)
    for zh, en, obj, gen, mine, person in lex.rows("""
我 | I | me | my | mine | 1
你 | you | you | your | yours | 2
他 | he | him | his | his | 3
她 | she | her | her | hers | 3
它 | it | it | its | | 3
我们 | we | us | our | ours | 1p
他们 | they | them | their | theirs | 3p
它们 | they | them | their | theirs | 3p
""")
}
NAMES = [
    NP((zh,), en, zh, back=back)
    for zh, en, back in lex.rows("""
小明 | Xiaoming | 他
小刚 | Xiaogang | 他
小强 | Xiaoqiang | 他
小红 | Xiaohong | 她
小丽 | Xiaoli | 她
小芳 | Xiaofang | 她
""")
]
WHO = NP(("谁",), "who", "谁")
IT = NP((), "it")
PEOPLE = {*PRONOUNS, *KIN, *(n.head for n in NAMES), *(n.zh for n in tagged("job young relation"))}


def pro(words: str) -> list[NP]:
    """Pronouns by their Chinese words."""
    return [PRONOUNS[w] for w in words.split()]


def article(words: str) -> str:
    """A or an; here a word begins with a vowel when it is spelt with one."""
    return ("an " if words[0] in "aeiou" else "a ") + words


def counted(noun: Noun, n: str, adj: Adj | None = None) -> NP:
    """三 本 书 "three books", 一 杯 茶 "a cup of tea", 两 只 小 猫 "two small cats"."""
    many = n != "一"
    en = phrase(adj.en if adj else "", (many and noun.plural) or noun.en)
    if noun.unit:
        en = f"{noun.unit}{('es' if noun.unit == 'glass' else 's') * many} of {en}"
    zh = (n, *(() if n == "很多" else (noun.measure,)), *(adj.before if adj else ()), noun.zh)
    links = link("noun–adjective", noun.zh, adj.zh) if adj else NONE
    en = f"{lex.NUMBERS[n]} {en}" if many else article(en)
    return NP(zh, en, noun.zh, many, links=links)


def pointed(noun: Noun, which: str, adj: Adj | None = None) -> NP:
    """这 本 书 "this book", 那些 书 "those books"."""
    that = {"这": "this", "那": "that", "这些": "these", "那些": "those"}[which]
    many = which.endswith("些")
    zh = (which, *(() if many else (noun.measure,)), *(adj.before if adj else ()), noun.zh)
    en = phrase(that, adj.en if adj else "", noun.plural if many else noun.en)
    links = link("noun–adjective", noun.zh, adj.zh) if adj else NONE
    return NP(zh, en, noun.zh, many, links=links)


def bare(noun: Noun) -> NP:
    """A bare noun as subject or after 把 is definite: 书 "the book"."""
    return NP((noun.zh,), f"the {noun.en}", noun.zh)


def kinds(noun: Noun) -> NP:
    """A bare noun as object names the kind: 书 "books", 茶 "tea"."""
    return NP((noun.zh,), noun.plural or noun.en, noun.zh)


def owned(owner: NP, noun: Noun) -> NP:
    """小明 的 书 "Xiaoming's book"."""
    links = owner.links | link("owner–noun", owner.head, noun.zh)
    return NP((*owner.zh, "的", noun.zh), f"{owner.genitive} {noun.en}", noun.zh, links=links)


def kin(owner: NP, word: str) -> NP:
    """我 妈妈 "my mum" (no 的 after a pronoun), 小明 的 妈妈 "Xiaoming's mum"."""
    en, back = KIN[word]
    zh = (*owner.zh, *(() if owner.head in PRONOUNS else ("的",)), word)
    links = link("owner–noun", owner.head, word)
    return NP(zh, f"{owner.genitive} {en}", word, back=back, links=links)


def group(r: Dice, ask: bool = False) -> NP:
    """Several people, of whom one can say 都."""
    one, two = r.pick(NAMES[:3]), r.pick(NAMES[3:])
    pair = NP((*one.zh, "和", *two.zh), f"{one.en} and {two.en}", one.head, True, second=two.head)
    return r.pick([*pro("他们" if ask else "我们 他们"), pair])


def person(r: Dice, ask: bool = False, who: str = "", single: bool = False) -> NP:
    """A person as subject. Questions are about you and others, statements about me and others.

    `who` is "adult" where children do no such thing, "child" where only they do.
    """
    x = r.random()
    if x < (0.3 if ask else 0.4):
        return r.pick(NAMES)
    owners = [*pro("你 他 她" if ask else "我 他 她"), *NAMES]
    if x < 0.65:
        return r.pick([*owners[:3], *([] if single else pro("他们" if ask else "我们 他们"))])
    if x < 0.69 and not single:
        return group(r, ask)
    young, old = who != "adult", who != "child"
    if x < 0.86:
        words = [w for w in KIN if (young or w not in lex.YOUNG) and (old or w not in lex.PARENTS)]
        word = r.pick(words)
        if word in lex.PARENTS and r.chance(0.3):
            return NP((word,), KIN[word][0].capitalize(), word, back=KIN[word][1])
        return kin(r.pick(owners), word)
    tags = phrase("job" * old, "young" * young, "relation")
    noun = r.pick(tagged(tags, but="" if young else "学生"))
    if noun.is_("relation"):
        return owned(r.pick([*owners, *pro("他们" if ask else "我们 他们")]), noun)
    if r.chance(0.5):
        return bare(noun)
    return pointed(noun, r.word("这 那" if single else "这 那 这些 那些"))


def owner(r: Dice, ask: bool = False) -> NP:
    """A person who owns a thing."""
    x = r.random()
    if x < 0.3:
        return kin(r.pick([*pro("你" if ask else "我"), *NAMES]), r.pick(list(KIN)))
    return r.pick([*pro("你 他 她" if ask else "我 我 他 她 我们 他们"), *NAMES])


def people(zh: Words, me: str = "") -> set[str]:
    """The persons a phrase names; the pronoun `me` does not count where it only says whose."""
    whose = {"的", *KIN}
    pairs = zip(zh, (*zh, "")[1:], strict=True)
    return {w for w, after in pairs if w in PEOPLE and (w != me or after not in whose)}


def apart(one: NP, *others: NP) -> bool:
    """Whether one subject and other phrases cannot confuse: 他 … 他 的 书 may stand, 他 … 他们 not."""
    x = people(one.zh)
    y = people(tuple(w for np in others for w in np.zh), one.head if one.head in PRONOUNS else "")
    both = x | y
    third = both & {"他", "她", "他们"}
    return not (x & y or {"我", "我们"} <= both or ("他们" in both and len(third) > 1))


def other(r: Dice, one: NP) -> NP:
    """A second person as object."""
    while True:
        who = r.pick([*NAMES, *pro("我 他 她 他们")])
        if r.chance(0.35):
            who = kin(r.pick([*NAMES, *pro("我 我")]), r.pick(list(KIN)))
        if apart(one, who):
            return who


SIGHTS = "大 小 新 旧 漂亮 可爱 有意思 红色 黑色"


def some(r: Dice, noun: Noun, p: float = 0.0, among: str = SIGHTS, few: bool = False) -> NP:
    """A counted thing, with probability p described: 一 本 新 书, 两 杯 茶."""
    fit = [] if noun.unit else lex.suiting(noun, among)
    numbers = "一 一 两 三 四 五 六 很多"
    if noun.is_("goods heavy film write fix lose"):
        numbers = "一 一 一 两"
    elif few or noun.unit or noun.is_("pet built job wash"):
        numbers = "一 一 两 三"
    return counted(noun, r.word(numbers), r.pick(fit) if fit and r.chance(p) else None)


def this_or_that(r: Dice, noun: Noun, p: float = 0.0, many: bool = True) -> NP:
    """A thing one points at: 这 本 书, 那些 花."""
    fit = lex.suiting(noun, "新 旧 红色 黑色 漂亮 大 小")
    which = r.word("这 那 这 那 这些 那些" if many else "这 那")
    return pointed(noun, which, r.pick(fit) if fit and r.chance(p) else None)


# ------------------------------------------------------------------------------- verb phrases


@dataclass(frozen=True)
class VP:
    """A verb phrase on both sides, before tense: Chinese pre + verb + post, English en + rest."""

    verb: str
    en: Verb
    post: Words = ()
    rest: str = ""
    pre: Words = ()
    verbs: Words = ()  # the Chinese verbs whose subject is that of the clause
    objects: Words = ()  # the heads of their objects
    links: Links = NONE
    le: str = ""  # where 了 stands in the past: "mid" after the verb, "end", "" as the clause says
    any: bool = False  # "any" before the object in the denied or questioned past
    parts: str = ""  # the parts of the day that suit
    who: str = ""  # adult, child

    @property
    def zh(self) -> Words:
        """The Chinese words without any mark of tense."""
        return (*self.pre, self.verb, *self.post)

    def plus(self, links: Links) -> "VP":
        """The same with more combinations."""
        return replace(self, links=self.links | links)


def do(zh: str, en: Verb, np: NP, particle: str = "", le: str = "", any: bool = False) -> VP:
    """A verb and its object."""
    links = np.links | link("verb–object", zh, np.head)
    rest = phrase(particle, np.object)
    return VP(zh, en, np.zh, rest, (), (zh,), (np.head,), links, le, any)


def before(vp: VP, pre: Words, rest: str, links: Links = NONE) -> VP:
    """Put words before the Chinese verb and, on the other side, behind the English one."""
    return replace(vp, pre=(*pre, *vp.pre), rest=phrase(vp.rest, rest)).plus(links)


def at(vp: VP, place: Place) -> VP:
    """在 学校 看 书 "read at school"."""
    return before(vp, ("在", place.zh), place.at, link("verb–place", vp.verb, place.zh))


def beside(vp: VP, np: NP) -> VP:
    """跟 小红 一起 跑步 "run with Xiaohong"."""
    links = np.links | link("verb–companion", vp.verb, np.head)
    return before(vp, ("跟", *np.zh, "一起"), f"with {np.object}", links)


def taking(zh: str, en: Verb, vp: VP, form: str) -> VP:
    """A verb that takes another: 想 看 书 "want to read", 开始 工作 "start working"."""
    rest = phrase(vp.en.ing if form == "ing" else f"{form} {vp.en.base}", vp.rest)
    verbs = (zh, *vp.verbs)
    links = vp.links | link("verb–verb", zh, vp.verb)
    return VP(zh, en, vp.zh, rest, (), verbs, vp.objects, links, parts=vp.parts, who=vp.who)


def want(vp: VP) -> VP:
    """想 "want to"."""
    return taking("想", verb("want"), vp, "to")


def going(vp: VP) -> VP:
    """要 "be going to"."""
    return taking("要", BE, vp, "going to")


def like(vp: VP) -> VP:
    """喜欢 "like doing"."""
    return taking("喜欢", verb("like"), vp, "ing")


def start(vp: VP) -> VP:
    """开始 "start doing"."""
    return taking("开始", verb("start"), vp, "ing")


def go(place: Place, how: str = "") -> VP:
    """去 学校 "go to school", 坐 火车 去 北京 "go to Beijing by train"."""
    links = link("verb–place", "去", place.zh)
    vp = VP("去", verb("go"), (place.zh,), place.to, (), ("去",), (), links, "mid")
    if how:
        zh, en, _ = lex.VEHICLES[how]
        vp = before(vp, (zh, how), en, link("verb–object", zh, how))
        vp = replace(vp, verbs=(zh, "去"), objects=(how,))
    return replace(vp, who="adult" if how == "车" else "")


@dataclass(frozen=True)
class Activity:
    """A set phrase, the places where it is done, and its tags."""

    vp: VP
    places: list[Place]
    tags: str


def activity(zh: str, en: str, places: str, parts: str, tags: str) -> Activity:
    """An activity from its row in the lexicon; a second Chinese word is the object."""
    word, *post = zh.split()
    base, _, rest = en.partition(" ")
    links = link("verb–object", word, post[0]) if post else NONE
    v = lex.WATCH_FILM if zh == "看 电影" else verb(base)
    who = next((w for w in ("adult", "child") if w in tags), "")
    objects = tuple(post)
    vp = VP(word, v, objects, rest, (), (word,), objects, links, "", "food" in tags, parts, who)
    return Activity(vp, [PLACES[p] for p in places.split()], tags)


ACTIVITIES = {row[0]: activity(*row) for row in lex.ACTIVITIES}


def activities(tag: str) -> list[Activity]:
    """The activities that bear a tag."""
    return [x for x in ACTIVITIES.values() if tag in x.tags.split()]


def placed(r: Dice, what: Activity, p: float = 0.5, lands: bool = True) -> VP:
    """The verb phrase of an activity, with probability p at one of its places."""
    places = [x for x in what.places if lands or x.kind != "land"]
    return at(what.vp, r.pick(places)) if places and r.chance(p) else what.vp


def suits(who: NP, *vps: VP) -> bool:
    """Whether a person is of an age for all of this."""
    ages = {vp.who for vp in vps}
    old = who.head in lex.PARENTS or (lex.are(who.head, "job") and who.head not in lex.YOUNG)
    return not (who.head in lex.YOUNG and "adult" in ages or old and "child" in ages)


@dataclass(frozen=True)
class Act:
    """A verb, the nouns it takes, and the places where one does it."""

    zh: str
    en: Verb
    nouns: list[Noun]
    places: list[Place]


ACTS = [
    Act(
        zh,
        lex.WATCH_FILM if en == "watch" else verb(en),
        tagged(tags),
        [PLACES[p] for p in places.split()],
    )
    for zh, en, tags, places in lex.ACTS
]


def an_act(r: Dice, words: str) -> Act:
    """One of the acts of some Chinese verbs."""
    return r.pick([x for x in ACTS if x.zh in words.split()])


# ------------------------------------------------------------------------------------ clauses


@dataclass(frozen=True)
class Sentence:
    """A pair and the combinations it holds; its English is not yet capitalised."""

    zh: Words
    en: str
    links: Links = NONE

    @property
    def source(self) -> str:
        """The Chinese line."""
        return " ".join(self.zh)

    @property
    def target(self) -> str:
        """The English line."""
        return self.en[0].upper() + self.en[1:]


def finite(subject: NP, v: Verb, tense: str, support: bool) -> tuple[str, str]:
    """Auxiliary and main verb; `support` calls for do, does or did where there is no auxiliary."""
    third = subject.person == 3 and not subject.plural
    first = subject.person == 1 and not subject.plural
    be = "am" if first else "is" if third else "are"
    if tense == "progressive":
        return be, v.ing
    if tense == "perfect":
        return "has" if third else "have", v.participle
    if tense in ("will", "can", "should"):
        return tense, v.base
    if v is BE:
        return be if tense == "present" else "was" if third or first else "were", ""
    if support:
        return "did" if tense == "past" else "does" if third else "do", v.base
    return "", v.past if tense == "past" else v.third if third else v.base


NOT = {"will": "won't", "can": "can't", "am": "am not"}  # the other auxiliaries take n't


def english(
    subject: NP, v: Verb, rest: str, tense: str, neg: bool = False, invert: bool = False, mid: str = ""
) -> str:
    """An English clause without its final mark: "does Xiaoming often read at school"."""
    aux, main = finite(subject, v, tense, neg or invert)
    if neg:
        aux = NOT.get(aux, aux + "n't")
    return phrase(*((aux, subject.en) if invert else (subject.en, aux)), mid, main, rest)


def all_of(np: NP) -> str:
    """都: of two, of more."""
    return "both" if "和" in np.zh else "all"


def clause(
    subject: NP,
    vp: VP,
    tense: str = "present",
    when: Time | None = None,
    adverb: str = "",
    neg: bool = False,
    ask: str = "",
) -> Sentence:
    """A clause on both sides.

    `tense` is past, present, will, progressive, perfect, already, yet (还 没), can or should.
    `ask` is "吗", "who" (the subject asks) or an English question word whose Chinese counterpart
    already stands in `subject` or `vp`.
    """
    wh = ask not in ("", "吗", "who")
    zh = [*subject.zh, *(when.zh if when else ()), *([adverb] if adverb else [])]
    mid, end, form, pre, main = "", "", tense, vp.pre, [vp.verb]
    if adverb == "也":
        end = "either" if neg else "too"
    elif adverb:
        mid = {"常常": "often", "有时候": "sometimes"}.get(adverb) or all_of(subject)
    if tense == "already":
        zh += ["已经"]
        form, mid = "perfect", "already"
    elif tense == "yet":
        zh += ["还", "没"]
        form, end, neg = "perfect", "yet", True
    elif tense == "perfect":
        zh += ["没"] if neg else []
        neg, mid = False, "never" if neg else "ever" if ask == "吗" else mid
        main += ["过"]
    elif neg and vp.verb == "有":
        main = ["没有"]
    elif neg:
        zh += ["没" if tense == "past" else "不"]
    zh += {"can": ["会"], "should": ["应该"], "progressive": ["正在"]}.get(tense, [])
    if tense == "progressive" and pre[:1] == ("在",):
        pre = pre[1:]  # 正在 在 学校 is said 正在 学校
    le = ""
    if tense in ("past", "already") and not neg:
        # 了 after the verb or at the end; a clause with words before its verb can do without
        le = vp.le or ("" if wh or (pre and not ask) else "end")
    zh += [*pre, *main, *(["了"] if le == "mid" else []), *vp.post, *(["了"] if le == "end" else [])]
    doubt = vp.any and (tense == "yet" or (tense == "past" and (neg or ask == "吗")))
    en = english(subject, vp.en, "any " * doubt + vp.rest, form, neg, ask not in ("", "who"), mid)
    en = phrase(ask if wh else "", en, when.en if when else "", end)
    if ask:
        zh += ["吗", "？"] if ask == "吗" else ["？"]
        en += "?"
    links = subject.links | vp.links
    for v in vp.verbs:
        links |= subject.linked("subject–verb", v)
    for o in vp.objects:
        links |= subject.linked("subject–object", o)
    return Sentence(tuple(zh), en, links)


def time(r: Dice, kind: str, vp: VP | None = None, done: bool = True) -> Time:
    """A time of one of the kinds that suits a verb phrase; `done` if it is marked as done by 了."""
    fit = [t for t in TIMES if t.kind in kind.split() and (done or t.kind != "earlier")]
    if vp and not lex.WEEKLY & {vp.verb, *vp.verbs}:
        fit = [t for t in fit if t.part != "week"]
    if vp and vp.parts:
        fit = [t for t in fit if not t.part or t.part in vp.parts]
    return r.pick(fit)


def say(r: Dice, vp: VP, moods: str, who: NP | None = None, p: float = 0.6) -> Sentence:
    """A clause in one of the moods named: a tense and marks.

    The tenses are those of `clause`, and plain (present without a time), habit and often (present
    with a time, with an adverb), want and going. Marks: - negative, ? question, + 也, * 都,
    @ 谁. `p` is the probability of a time where a sentence can do without.
    """
    mood = r.word(moods)
    tense = mood.rstrip("-?+*@")
    marks = mood[len(tense) :]
    neg = "-" in marks
    ask = "who" if "@" in marks else "吗" if "?" in marks else ""
    if "*" in marks:
        who = group(r)
    elif "@" in marks:
        who = WHO
    while who is None or not apart(who, NP(vp.zh, "")):
        who = person(r, ask == "吗", vp.who)
    if tense == "should" and who.head == "我":
        who = PRONOUNS["你"]
    adverb = "也" if "+" in marks else "都" if "*" in marks else ""
    adverb = r.word("常常 有时候") if tense == "often" else adverb
    kind = {"habit": "habit", "past": "past earlier", "will": "future"}.get(tense, "")
    kind = "later future" if tense in ("want", "going", "should") else kind
    bare_past = tense == "past" and not vp.le and not neg
    when = None
    if kind and (tense in ("habit", "will") or bare_past or r.chance(p)):
        when = time(r, kind, vp, done=not bare_past or not vp.pre)
    if tense == "habit" and neg:
        when = next(t for t in TIMES if t.zh == ("周末",))  # 每天 不 … is hardly said
    if tense in ("want", "going"):
        vp = want(vp) if tense == "want" else going(vp)
    form = "present" if tense in ("plain", "habit", "often", "want", "going") else tense
    return clause(who, vp, form, when, adverb, neg, ask)


def is_(
    subject: NP,
    zh: Words,
    en: str,
    links: Links = NONE,
    when: Time | None = None,
    tense: str = "",
    mark: str = "",
) -> Sentence:
    """A clause with the English verb be; `zh` and `en` follow the subject. Marks as in `say`."""
    tense = tense or ("past" if when and when.kind == "past" else "present")
    neg, ask, also = "-" in mark, "?" in mark, "+" in mark
    words = (*subject.zh, *(when.zh if when else ()), *("也",) * also, *("不",) * neg, *zh)
    said = english(subject, BE, en, tense, neg, ask)
    said = phrase(said, when.en if when else "", "too" * also) + "?" * ask
    return Sentence((*words, *("吗", "？") * ask), said, subject.links | links)


DEGREES = {"很": "very", "非常": "extremely"}


def quality(
    r: Dice, np: NP, adj: Adj, degrees: str, when: Time | None = None, tense: str = "", en: str = ""
) -> Sentence:
    """np 很 adj: one of the degrees 很, 非常, 太 (… 了), 不, 不太, 也 and 吗."""
    degree = r.word(degrees)
    if degree == "不" and adj.zh == "有意思":
        degree = "不太"
    zh, said, mark = {
        "太": (("太", adj.zh, "了"), adj.excess, ""),
        "不": ((adj.zh,), "", "-"),
        "不太": (("太", adj.zh), "very", "-"),
        "也": (("很", adj.zh), "very", "+"),
        "吗": ((adj.zh,), "", "?"),
    }.get(degree, ((degree, adj.zh), DEGREES.get(degree, ""), ""))
    links = np.linked("noun–adjective", adj.zh)
    return is_(np, zh, phrase(said, adj.en, en), links, when, tense, mark)


def join(one: Sentence, zh: str, en: str, two: Sentence) -> Sentence:
    """Two clauses joined by a comma and conjunctions."""
    words = (*one.zh, "，", *zh.split(), *two.zh)
    return Sentence(words, f"{one.en}, {phrase(en, two.en)}", one.links | two.links)
