"""The words of the grammar: what each means, how it inflects, and what it goes with."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

Words = tuple[str, ...]


def rows(table: str) -> Iterator[list[str]]:
    """The cells of a small table written as text."""
    for row in table.strip().splitlines():
        yield [cell.strip() for cell in row.split("|")]


# ------------------------------------------------------------------------------ English verbs


@dataclass(frozen=True)
class Verb:
    """The five forms of an English verb."""

    base: str
    third: str
    past: str
    participle: str
    ing: str


# past and participle; 去 过 is "has been to", hence the participle of go
IRREGULAR = {
    base: (past, participle)
    for base, past, participle in rows("""
buy | bought | bought
sell | sold | sold
eat | ate | eaten
drink | drank | drunk
read | read | read
write | wrote | written
draw | drew | drawn
see | saw | seen
find | found | found
lose | lost | lost
take | took | taken
put | put | put
give | gave | given
sing | sang | sung
swim | swam | swum
run | ran | run
sleep | slept | slept
speak | spoke | spoken
teach | taught | taught
drive | drove | driven
go | went | been
have | had | had
do | did | done
know | knew | known
think | thought | thought
learn | learnt | learnt
study | studied | studied
""")
}


def verb(base: str) -> Verb:
    """Inflect a verb, by rule where it is regular."""
    stem = base + base[-1] if base in ("put", "swim", "run", "shop") else base
    if base.endswith("e") and base != "see":
        stem = base[:-1]
    third = base + ("es" if base.endswith(("ch", "sh", "o")) else "s")
    third = {"have": "has", "study": "studies"}.get(base, third)
    past, participle = IRREGULAR.get(base, (stem + "ed", stem + "ed"))
    return Verb(base, third, past, participle, stem + "ing")


BE = Verb("be", "is", "was", "been", "being")
WATCH_FILM = replace(verb("watch"), participle="seen")  # one has seen, not watched, a film


# ------------------------------------------------------------------------ nouns and adjectives


@dataclass(frozen=True)
class Noun:
    """A common noun. A mass noun has no plural and a unit of measure (a cup of tea)."""

    zh: str
    en: str
    plural: str
    measure: str
    unit: str
    tags: str

    def is_(self, tags: str) -> bool:
        """Whether it bears one of the tags."""
        return bool(set(self.tags.split()) & set(tags.split()))


# The tags say what a noun goes with. Objects of verbs: eat (counted), melon, meal, drink, read, write,
# film, draw, lend, lose, fix, wash; shop and goods are bought, food in a market. Adjectives: big,
# new, price, pretty, cute, fun, tasty, heavy, clean, colour. own: has an owner; small: fits into
# a bag; animal, pet, zoo; job, young, relation: persons; built, room: things that are there.
NOUNS = {
    row[0]: Noun(*row)
    for row in rows("""
苹果 | apple | apples | 个 | | eat draw big tasty small price
西瓜 | watermelon | watermelons | 个 | | melon big tasty heavy price
蛋糕 | cake | cakes | 个 | | eat big tasty price
鸡蛋 | egg | eggs | 个 | | eat
饺子 | dumpling | dumplings | 个 | | meal
面条 | noodles | | 碗 | bowl | meal tasty
面包 | bread | | 块 | piece | meal tasty
肉 | meat | | 块 | piece | meal
茶 | tea | | 杯 | cup | drink
咖啡 | coffee | | 杯 | cup | drink
水 | water | | 杯 | glass | drink
牛奶 | milk | | 杯 | glass | drink
书 | book | books | 本 | | read shop own new fun price small lend
小说 | novel | novels | 本 | | read write shop own new fun price small lend
信 | letter | letters | 封 | | read write small
电影 | film | films | 部 | | film fun new
毛衣 | sweater | sweaters | 件 | | shop own new wash clean pretty price colour
衬衫 | shirt | shirts | 件 | | shop own new wash clean pretty price colour
帽子 | hat | hats | 顶 | | shop own new wash clean pretty price colour small lose
手机 | phone | phones | 部 | | shop own new fix price small lose
电脑 | computer | computers | 台 | | shop own new fix price heavy
自行车 | bike | bikes | 辆 | | goods own new fix price lend colour
车 | car | cars | 辆 | | goods own new fix price wash clean big lend colour
伞 | umbrella | umbrellas | 把 | | shop own new pretty price small lend lose colour
桌子 | table | tables | 张 | | goods new fix price heavy big clean room
椅子 | chair | chairs | 把 | | goods new fix price heavy room
箱子 | box | boxes | 个 | | goods heavy big room
杯子 | cup | cups | 个 | | shop own new wash clean pretty price small colour
花 | flower | flowers | 朵 | | shop draw pretty colour
照片 | photo | photos | 张 | | own small lose pretty
礼物 | present | presents | 个 | | shop small big
钥匙 | key | keys | 把 | | own small lose
猫 | cat | cats | 只 | | animal pet own draw big cute
狗 | dog | dogs | 只 | | animal pet own draw big cute
兔子 | rabbit | rabbits | 只 | | animal pet own draw big cute
鸟 | bird | birds | 只 | | animal zoo draw big pretty
马 | horse | horses | 匹 | | animal zoo draw big pretty
鱼 | fish | fish | 条 | | eat draw big tasty
老师 | teacher | teachers | 位 | | job
医生 | doctor | doctors | 位 | | job
护士 | nurse | nurses | 位 | | job
学生 | student | students | 个 | | job young
孩子 | child | children | 个 | | young cute
朋友 | friend | friends | 个 | | relation
同学 | classmate | classmates | 个 | | relation
公园 | park | parks | 个 | | built
图书馆 | library | libraries | 个 | | built
超市 | supermarket | supermarkets | 家 | | built
饭馆 | restaurant | restaurants | 家 | | built
医院 | hospital | hospitals | 家 | | built
""")
}


def tagged(tags: str, but: str = "") -> list[Noun]:
    """The nouns that bear one of the tags, without some."""
    return [n for n in NOUNS.values() if n.is_(tags) and n.zh not in but.split()]


def are(word: str, tags: str) -> bool:
    """Whether a word is a noun with one of the tags."""
    return word in NOUNS and NOUNS[word].is_(tags)


@dataclass(frozen=True)
class Adj:
    """An adjective, its comparative, the tag of the nouns it suits, and the English of 太 … 了."""

    zh: str
    en: str
    more: str
    suits: str
    excess: str = "too"

    @property
    def before(self) -> Words:
        """Before a noun an adjective of one syllable stands bare, a longer one takes 的."""
        return (self.zh,) if len(self.zh) == 1 else (self.zh, "的")


# 太 贵 了 complains, "too expensive"; 太 漂亮 了 admires, "so beautiful"
ADJS = {
    zh: Adj(zh, en, more or f"more {en}", suits, excess)
    for zh, en, more, suits, excess in rows("""
大 | big | bigger | big | too
小 | small | smaller | big | too
新 | new | newer | new | so
旧 | old | older | new | too
贵 | expensive | | price | too
便宜 | cheap | cheaper | price | so
漂亮 | beautiful | | pretty | so
可爱 | cute | cuter | cute | so
乖 | well-behaved | | cute | so
有意思 | interesting | | fun | so
好吃 | tasty | tastier | tasty | so
重 | heavy | heavier | heavy | too
干净 | clean | cleaner | clean | so
脏 | dirty | dirtier | clean | too
红色 | red | | colour |
黑色 | black | | colour |
高 | tall | taller | person | too
年轻 | young | younger | person | too
聪明 | clever | cleverer | person | so
忙 | busy | busier | person | too
累 | tired | | person | so
高兴 | happy | happier | person | so
饿 | hungry | | person | so
渴 | thirsty | | person | so
冷 | cold | colder | weather | too
热 | hot | hotter | weather | too
""")
}
MOODS = "忙 累 高兴 饿 渴"  # they pass, the other qualities stay


def suiting(noun: Noun, among: str = "") -> list[Adj]:
    """The adjectives that suit a noun, all or those named."""
    fit = [x for x in ADJS.values() if noun.is_(x.suits)]
    return [x for x in fit if x.zh in among.split()] if among else fit


NUMBERS = {
    "一": "a", "两": "two", "三": "three", "四": "four", "五": "five", "六": "six", "很多": "many",
}  # fmt: skip
PRICES = {"五": "five", "十": "ten", "二十": "twenty"}
KIN = {  # and the pronoun that takes each up
    zh: (en, back)
    for zh, en, back in rows("""
妈妈 | mum | 她
爸爸 | dad | 他
爷爷 | grandpa | 他
奶奶 | grandma | 她
哥哥 | older brother | 他
姐姐 | older sister | 她
弟弟 | younger brother | 他
妹妹 | younger sister | 她
""")
}
PARENTS = {"妈妈", "爸爸", "爷爷", "奶奶"}  # without an owner they are names: Mum, Dad
YOUNG = {"学生", "孩子", "弟弟", "妹妹"}


# ----------------------------------------------------------------------------- time and place


@dataclass(frozen=True)
class Time:
    """A time expression and the kind of tense it calls for."""

    zh: Words
    en: str
    kind: str  # past, future, habit; earlier or later today; state goes with 很 忙
    part: str  # of the day; or week


TIMES = [
    Time(tuple(zh.split()), en, kind, part)
    for zh, en, kind, part in rows("""
昨天 | yesterday | past |
昨天 早上 | yesterday morning | past | 早上
昨天 下午 | yesterday afternoon | past | 下午
昨天 晚上 | yesterday evening | past | 晚上
上周 | last week | past | week
明天 | tomorrow | future |
明天 早上 | tomorrow morning | future | 早上
明天 下午 | tomorrow afternoon | future | 下午
明天 晚上 | tomorrow evening | future | 晚上
下周 | next week | future | week
每天 | every day | habit |
每天 早上 | every morning | habit | 早上
每天 下午 | every afternoon | habit | 下午
每天 晚上 | every evening | habit | 晚上
周末 | at weekends | habit |
今天 | today | earlier |
今天 早上 | this morning | earlier | 早上
今天 | today | later |
今天 下午 | this afternoon | later | 下午
今天 晚上 | this evening | later | 晚上
今天 | today | state |
现在 | now | state |
""")
]
WEEKLY = set("去 买 卖 借 丢 找到 修 开始 写 送 教 画 下雨 下雪 工作 学 学习 冷 热 忙 累".split())


@dataclass(frozen=True)
class Place:
    """A place: where one is, where one goes."""

    zh: str
    at: str
    to: str
    kind: str  # near, in (one is there, but does not set out for it), land


PLACES = {
    row[0]: Place(*row)
    for row in rows("""
家 | at home | home | in
教室 | in the classroom | to the classroom | in
办公室 | in the office | to the office | in
学校 | at school | to school | near
图书馆 | in the library | to the library | near
公园 | in the park | to the park | near
医院 | at the hospital | to the hospital | near
超市 | at the supermarket | to the supermarket | near
商店 | at the shop | to the shop | near
饭馆 | at the restaurant | to the restaurant | near
车站 | at the station | to the station | near
动物园 | at the zoo | to the zoo | near
北京 | in Beijing | to Beijing | land
上海 | in Shanghai | to Shanghai | land
中国 | in China | to China | land
英国 | in Britain | to Britain | land
法国 | in France | to France | land
""")
}
NEAR = [p for p in PLACES.values() if p.kind == "near"]
LANDS = [p for p in PLACES.values() if p.kind == "land"]
DAILY = [PLACES[p] for p in "学校 图书馆 公园 超市 商店 饭馆".split()]  # where one goes often
VEHICLES = {  # the Chinese verb, the English phrase, and where one goes so
    zh: (verb_, en, kind)
    for zh, verb_, en, kind in rows("""
火车 | 坐 | by train | land
飞机 | 坐 | by plane | land
公共汽车 | 坐 | by bus | near
自行车 | 骑 | by bike | near
车 | 开 | by car | near
""")
}
SPOTS = {  # where small things lie
    tuple(zh.split()): en
    for zh, en in rows("""
桌子 上 | on the table
椅子 上 | on the chair
床 上 | on the bed
箱子 里 | in the box
包 里 | in the bag
桌子 下面 | under the table
椅子 下面 | under the chair
床 下面 | under the bed
箱子 旁边 | next to the box
门 旁边 | next to the door
""")
}

# Set phrases with their one English form: Chinese | English | where | parts of the day | tags.
# adult, child: who does it; skill: one can do it or not; food: said in general; home: housework;
# alone: not with company; new: one can start it; several: not what one is eating just now.
ACTIVITIES = list(
    rows("""
看 书 | read | 家 学校 图书馆 教室 公园 办公室 | | new
看 报纸 | read the newspaper | 家 图书馆 办公室 公园 | | adult
看 电视 | watch TV | 家 | |
看 电影 | watch films | 家 学校 | 下午 晚上 |
听 音乐 | listen to music | 家 公园 教室 办公室 | |
唱歌 | sing | 家 学校 公园 教室 | | skill new
跳舞 | dance | 家 学校 公园 | | skill new
游泳 | swim | 学校 | 早上 下午 | skill
跑步 | run | 公园 学校 | | new
散步 | walk | 公园 | |
睡觉 | sleep | 家 | 下午 晚上 | alone
休息 | rest | 家 公园 办公室 学校 | |
工作 | work | 家 图书馆 医院 超市 商店 饭馆 办公室 动物园 北京 上海 中国 英国 法国 | | adult new
学习 | study | 家 学校 图书馆 教室 北京 上海 英国 法国 | | new
写 作业 | do homework | 家 学校 图书馆 教室 | | child new
洗 衣服 | wash clothes | 家 | | home
洗 碗 | wash the dishes | 家 饭馆 | | home new
做 饭 | cook | 家 饭馆 | | home skill new
打扫 房间 | clean the room | | | home new
画 画 | draw pictures | 家 学校 公园 教室 动物园 | | skill new
照相 | take photos | 公园 动物园 学校 北京 上海 法国 | |
打 篮球 | play basketball | 学校 公园 | | skill new
踢 足球 | play football | 学校 公园 | | skill new
弹 钢琴 | play the piano | 家 学校 | | skill alone new
玩 游戏 | play games | 家 学校 公园 | | new
骑 自行车 | cycle | 公园 | | skill
开 车 | drive | | | skill adult alone
学 中文 | learn Chinese | 家 学校 中国 北京 英国 | | new
学 英语 | learn English | 家 学校 英国 上海 | | new
说 中文 | speak Chinese | 家 学校 | | skill alone
说 英语 | speak English | 家 学校 办公室 | | skill alone
吃 早饭 | eat breakfast | 家 学校 饭馆 | 早上 |
吃 午饭 | eat lunch | 家 学校 饭馆 公园 办公室 | 下午 |
吃 晚饭 | eat dinner | 家 学校 饭馆 | 晚上 |
吃 面条 | eat noodles | 家 饭馆 学校 | | food
吃 饺子 | eat dumplings | 家 饭馆 学校 | | food
吃 肉 | eat meat | 家 饭馆 | | food
吃 鱼 | eat fish | 家 饭馆 | | food
吃 苹果 | eat apples | 家 学校 | | food several
吃 鸡蛋 | eat eggs | 家 学校 | | food several
吃 面包 | eat bread | 家 学校 | | food
喝 茶 | drink tea | 家 办公室 饭馆 公园 | | food adult
喝 咖啡 | drink coffee | 家 办公室 饭馆 图书馆 | | food adult
喝 水 | drink water | 家 学校 教室 办公室 | | food alone
喝 牛奶 | drink milk | 家 学校 | | food
买 东西 | shop | 超市 北京 上海 | |
""")
)

# Verbs with free objects: Chinese | English | tags of the objects | where it happens.
ACTS = list(
    rows("""
买 | buy | shop | 商店 北京 上海
买 | buy | eat melon | 超市
买 | buy | goods pet |
卖 | sell | goods |
看 | read | read | 家 学校 图书馆 教室
看 | watch | film | 家 学校
写 | write | write | 家 学校 图书馆
吃 | eat | eat meal | 家 学校 饭馆
喝 | drink | drink | 家 饭馆 办公室
画 | draw | draw | 家 学校 教室 公园
看见 | see | pet | 公园 学校
看见 | see | zoo | 公园 动物园
看见 | see | job young | 公园 车站 学校
借 | borrow | lend |
丢 | lose | lose | 公园 车站 学校 超市
找到 | find | lose pet | 公园 学校
修 | repair | fix |
洗 | wash | wash |
""")
)

# What one goes somewhere for, and what one does while doing something else.
ERRANDS = {
    place: what.split(",")
    for place, what in rows("""
图书馆 | 看 书,看 报纸,学习,写 作业
公园 | 跑步,散步,照相,画 画,打 篮球,踢 足球,骑 自行车,跳舞
学校 | 学习,打 篮球,踢 足球,游泳,弹 钢琴,跑步,学 英语
超市 | 买 东西
饭馆 | 吃 晚饭,吃 午饭,吃 饺子,吃 面条,吃 鱼,喝 茶,喝 咖啡
动物园 | 照相,画 画
中国 | 学 中文,工作,学习
北京 | 学 中文,工作,学习,买 东西
上海 | 工作,学习,买 东西
英国 | 学 英语,工作,学习
法国 | 工作,学习,照相
""")
}
MEANWHILE = {
    one: two.split(",")
    for one, two in rows("""
工作 | 听 音乐,喝 茶,喝 咖啡,喝 水
学习 | 听 音乐,喝 水,喝 牛奶
写 作业 | 听 音乐,喝 水,喝 牛奶,吃 苹果
做 饭 | 听 音乐,唱歌,看 电视
洗 碗 | 听 音乐,唱歌,看 电视
洗 衣服 | 听 音乐,唱歌
打扫 房间 | 听 音乐,唱歌
看 书 | 听 音乐,喝 茶,喝 咖啡,吃 苹果
看 电视 | 喝 茶,吃 苹果,吃 面条
看 报纸 | 喝 茶,喝 咖啡,听 音乐
吃 早饭 | 看 电视,看 报纸,听 音乐
吃 晚饭 | 看 电视,听 音乐
吃 午饭 | 看 电视,听 音乐
散步 | 听 音乐,唱歌
跑步 | 听 音乐
画 画 | 听 音乐,唱歌,喝 茶
开 车 | 听 音乐,唱歌
""")
}
# What a mood makes one want to do, and not want to do.
REASONS = {
    adj: (yes.split(",") if yes else [], no.split(","))
    for adj, yes, no in rows("""
累 | 睡觉,休息 | 跑步,学习,跳舞,做 饭,打 篮球,踢 足球,打扫 房间,洗 衣服,写 作业
饿 | 吃 面条,吃 饺子,吃 面包,吃 肉,吃 鸡蛋 | 跑步,学习,踢 足球,打 篮球
渴 | 喝 水,喝 牛奶 | 跑步,吃 面包,踢 足球
忙 | | 看 电影,看 电视,玩 游戏,散步,做 饭,打 篮球,听 音乐
高兴 | 唱歌,跳舞,听 音乐 | 睡觉
""")
}
