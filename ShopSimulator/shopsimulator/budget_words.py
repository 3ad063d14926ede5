"""The words that stand around prices, Chinese and English, as patterns.

A *left* pattern is searched at the very end of the text before a price, a *right* pattern at the very start of the
text after it. Order matters inside the two tables: the first class that matches holds, so negations come first
(`不超过` is a ceiling, `超过` is a floor; `no less than` is a floor, `less than` a ceiling).
"""

from __future__ import annotations

import re

Table = tuple[tuple[str, re.Pattern[str]], ...]


def _left(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})$", re.IGNORECASE)


def _right(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{pattern})", re.IGNORECASE)


# Traditional and formal characters, read as their plain counterparts.
PLAIN = str.maketrans(
    "兩萬塊圓內過價預約幾壹贰貳叁參肆伍陆陸柒捌玖拾佰仟", "两万块圆内过价预约几一二二三三四五六六七八九十百千"
)

# --- currencies ---
CURRENCY_LEFT = _left(r"(?:us|hk|a|c|nz|s)?[$€£¥]\s*|(?<![a-z])(?:rmb|cny|usd|eur|gbp)\s*|人民币\s*")
CURRENCY_RIGHT = _right(
    r"元(?!素|件|器|锂|正极|宵|旦)|块钱?|圆(?=左|上|以|之|内|[,，。]|$)|人民币|美元|美金|欧元|英镑|港币|港元|日元"
    r"|刀(?=以|左|之|内|$)|[$€£¥]|(?:rmb|cny|usd|eur|gbp|dollars?|bucks?|euros?|yuan|kuai|quid)(?![a-z])"
)
# 块 also counts pieces (3块香皂): as money one of these follows it, or a price word stands before the number.
PIECES = re.compile(
    r"\s*块(?!钱|拿|搞|以|之|左|上|内|下|的|到|至|起|多|差|就|吧|呢|封|前|出|一|每|[\s,，。;；!！?？、.~/\-)]|$)"
)
JIAO = re.compile(r"\s*块(?P<tenth>[0-9一二两三四五六七八九])(?=毛|角|包邮|以|左|上|的|钱|[\s,，。;；!！?？、.)]|$)")
VAGUE = re.compile(r"\s*(?P<word>[来把几多余])(?=块|元|圆|$|[,，。左以之])")  # 三十来块, 千把块, 十几块, 100多元

# --- bounds ---
_FILL = (
    r"(?:[\s:=]|在|到|是|为|区间|范围|价格?|总价|了|于"
    r"|\b(?:a|the|total|of|is|at|be|to|it|price|range|only|just|spend(?:ing)?|pay(?:ing)?)\b)*"
)
_NOT = r"(?:\b(?:no|not|never|without|nothing|cannot|cant)|\b\w+n[’']?t)\s+"
_NOT_SPEND = _NOT + (
    r"(?:(?:want|like|wish|plan|to|be|spend|spending|pay|paying|go|going|cost|costing|priced?|any|much|willing|a|"
    r"the|it|at|all|cent|penny|should|ever|anything|something|for)\s+){0,6}"
)
_MORE = r"(?:over|above|beyond|past|(?:more|greater|higher) than|exceed(?:s|ing)?|upwards? of)"
_LESS = r"(?:under|below|beneath|(?:less|lower|cheaper|smaller|fewer) than)"
_MORE_ZH = r"(?:超过|超出|超|高过|高出|高于|大于|多于|贵过|贵于|突破)"
_LESS_ZH = r"(?:低于|少于|小于|便宜于|低过)"
_NOT_ZH = (
    r"(?:不|别|勿|莫|没)(?:要|能够?|可以?|得|想|会|许|应该?|该|用|允许|希望|愿意?|打算|接受|考虑|买)*(?:价格|总价|花)?"
)

LEFT_WORDS: Table = (
    ("upper", _left(rf"(?:{_NOT_ZH}{_MORE_ZH}|(?:别|不能|不要)过|{_NOT_SPEND}{_MORE}){_FILL}")),
    ("lower", _left(rf"(?:不能?{_LESS_ZH}|别{_LESS_ZH}|{_NOT}{_LESS}){_FILL}")),
    (
        "upper",
        _left(
            rf"(?:{_LESS_ZH}|不到|不足|不满|最多|最高|至多|顶多|上限|限价|封顶|<=?|≤"
            rf"|\b(?:{_LESS}|within|at (?:the )?most|up ?to|max(?:imum)?\.?|cap(?:ped)?|limit(?:ed)?)){_FILL}"
        ),
    ),
    (
        "lower",
        _left(
            rf"(?:{_MORE_ZH}|至少|起码|最低|最少|>=?|≥"
            rf"|\b(?:{_MORE}|at least|min(?:imum)?\.?|start(?:s|ing)?|from)){_FILL}"
        ),
    ),
    (
        "about",
        _left(
            rf"(?:差不多|大概|大约|约莫|大致|约|接近|将近|~|≈"
            rf"|\b(?:around|about|roughly|approx(?:imately|\.)?|circa|near(?:ly)?|close to|almost)){_FILL}"
        ),
    ),
    (
        "price",
        _left(
            rf"(?:预算|价格?|价位|价钱|售价|总价|花费?|控制|支付|付"
            rf"|\b(?:budget|price[ds]?|costs?|costing|spend(?:ing)?|pay(?:ing)?|afford)){_FILL}"
        ),
    ),
)
RIGHT_WORDS: Table = (
    (
        "upper",
        _right(
            r"(?:钱)?(?:以内|之内|以下|之下|以里|往下|封顶|为限|为上限|打住|内(?![存径胆衣裤部置外层侧])|都?不到)"
            r"|(?:or|and) (?:less|under|below|cheaper)\b|(?:at (?:the )?)?(?:max(?:imum)?|most)\b"
            r"|(?:tops|limit|budget)\b"
        ),
    ),
    ("lower", _right(r"以上|之上|往上|开外|起(?![来点子床球])|\+|(?:or|and) (?:more|above|over|up|higher)\b")),
    ("about", _right(r"左右|上下|差不多|前后|附近|出头|(?:的|这|那)样子?|or so\b|-?ish\b|give or take|approx")),
    ("price", _right(r"的?(?:预算|价位|之间|区间|范围)|能?(?:拿下|搞定)")),
)
AND_ZH = re.compile("[和与跟]")  # two prices so joined are a range only where this follows
BETWEEN_ZH = _right(r"(?:元|块钱?)?\s*(?:之间|中间|区间)")
BETWEEN = _left(r"\b(?:between|from)\s*")
RANGE_LINK = re.compile(
    r"\s*(?:元|块钱?|[$€£¥]|dollars?|bucks?|yuan|rmb|usd|euros?)?\s*"
    r"(?:-|–|—|−|~|到|至|和|与|跟|\bto\b|\band\b)\s*(?:us)?[$€£¥]?\s*",
    re.IGNORECASE,
)

# --- prices per unit ---
_MEASURE_ZH = (
    r"平方米|平方|平米|平|公里|厘米|毫米|米2|米|m2|m|尺|寸|公斤|千克|kg|克|g|斤|两|吨|毫升|ml|升|l"
    r"|个|件|只|瓶|包|双|套|条|支|张|片|盒|卷|袋|桶|罐|箱|枚|颗|根|台|把|块|份|人|pcs"
)
_AREA_ZH = r"平方米|平方|平米|平(?=[不低最约\s0-9])"
_UNIT_EN = (
    r"(?:sq(?:uare)?\.?\s*)?(?:met(?:er|re)s?|m2?|cm|mm|feet|foot|ft|inch(?:es)?|yards?|kilo(?:gram)?s?|kg|grams?|g"
    r"|lbs?|pounds?|oz|ounces?|lit(?:er|re)s?|l|ml|pieces?|items?|units?|pairs?|packs?|box(?:es)?|bottles?|rolls?"
    r"|sheets?|tiles?|cups?|person|set)\b"
)
PER_LEFT = _left(
    rf"(?:每一?(?:{_MEASURE_ZH})|一(?:{_AREA_ZH})|单价|均价|\b(?:per|each|every)\s+{_UNIT_EN})"
    r"(?:的|价格?|单价|预算|要|需|控制|不|别|能|超过|高于|低于|到|在|最多|大概|约|以|[\s:]|\b(?:price|cost|under|below"
    r"|at|most|up|to|no|not|more|less|than|is|of|should|be|about|around|within|over)\b)*"
)
PER_RIGHT = _right(
    rf"(?:左右|上下|以内|以下|之内|以上)?\s*(?:(?:/|每)\s*一?(?:{_MEASURE_ZH})(?![a-z])|一(?:{_AREA_ZH}|斤|公斤|米|升))"
    rf"|一(?:{_MEASURE_ZH})|/\s*{_UNIT_EN}|(?:per|each|every|apiece)\b(?:\s+{_UNIT_EN})?|an?\s+{_UNIT_EN}"
)

# --- money that is no price of the product ---
ASIDE_LEFT = _left(
    r"(?:(?<!不)满|减|优惠|返|(?<!节)省|券|红包|运费|邮费|\b(?:save|saving|coupon|discount|shipping|postage|off)"
    r"(?: of| is)?)\s*"
)
ASIDE_RIGHT = _right(
    r"的?(?:优惠|红包|代金|满减|立减|折扣|运费|券)|(?:off|discount|coupon|cashback|shipping|gift card)\b"
)

# --- bare numbers ---
# They measure something else when one of these stands shortly before ...
MEASURED = _left(
    r"(?:[长宽高厚深]度?|直径|半径|身高|体重|尺寸|尺码|码数|鞋码|重量|重|容量|面积|功率|年龄|腰围|胸围|臀围|续航|像素|数量|"
    r"温度|转速|库存|评分|销量|屏幕|型号|编号|距离|密度|分辨率)[^,，。;；!！?？]{0,6}"
    r"|\b(?:sizes?|width|length|height|weight|depth|diameter|radius|thickness|capacity|ages?|aged|kids?|child(?:ren)?|"
    r"bab(?:y|ies)|toddlers?|teens?|teenagers?|boys?|girls?|adults?|people|model|number|no\.|quantity|packs?|sets?|"
    r"rating|rated|score|stars|power|volume|area|wide|long|tall|year|version|iphone|galaxy|waist|inseam|resolution|"
    r"supports?|temperatures?)\b[^\w,;.!?]*(?:\w+[^\w,;.!?]+){0,3}"
)
# ... or when what follows does not let the phrase end there.
PHRASE_END = re.compile(
    r"\s*(?:[,，。;；!！?？、)\]}:的吧呢啊就行可且并而但或和]|\.(?![0-9])|$|-\s"
    r"|(?:and|or|but|please|if|with|for|total|altogether|would|that|which|is|are|as|because|since|so|on|my|i|it|"
    r"including|incl|all|thanks|then|by|to|from|the|a|an)\b(?!\s*(?:[0-9]|inch|cm|mm))"
    r"|in\b(?!\s*(?:wide|long|tall|high|deep|diameter|thick|width|length|height)|\s*(?:[,.;x×]|$)))",
    re.IGNORECASE,
)
