"""What the shop's tasks must keep to themselves: names of products, prices, and what no shopper sees.

A price is dangerous in any form: it tells one task's budget, or one product. So amounts of money are refused however
they are written, in figures or in words, English or Chinese.
"""

from __future__ import annotations

import re

from shopsimulator.catalog import Catalog

from intraskill.core.words import plain
from intraskill.families.analysis import Facts, OwnFacts, PrivilegedAudit
from intraskill.families.base import TaskSplits
from intraskill.families.shop.titles import TitleIndex

_AMOUNT = (
    r"(?:\d|\b(?:ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand)\b|"
    r"[一二两三四五六七八九][十百千万零一二三四五六七八九]*[十百千万])"
)
_PRICE = re.compile(
    rf"[$€£¥]\s*\d|{_AMOUNT}[-\s]*(?:yuan|usd|eur|dollars?|euros?|pounds?|bucks|rmb|cents?|元|块)|[一二两三四五六七八九]元",
    re.IGNORECASE,
)
_UNOBSERVABLE = re.compile(
    r"\bgold(?:en)?\s+(?:product|item|option|attribute)|\b(?:goal|target)\s+(?:product|item|asin|option|attribute)|"
    r"\bhidden\s+(?:product|option|attribute)|\br[ _-](?:success|strict|loose|type|att|option|price)\b|\basins?\b|"
    r"目标商品|目标产品",
    re.IGNORECASE,
)
PATTERNS = (("unobservable", _UNOBSERVABLE), ("price", _PRICE))


def shop_facts(catalog: Catalog, splits: TaskSplits) -> Facts:
    """The facts of a catalog, products that are excluded from the shop included."""
    asins = {asin.lower() for asin in catalog.products} | {item.asin.lower() for item in catalog.excluded}
    return Facts(
        task_ids=frozenset(map(str, catalog.tasks)),
        train_ids=frozenset(splits.train),
        names={"asin": frozenset(asins)},
        passages=TitleIndex(product.title for product in catalog.products.values()),
        patterns=PATTERNS,
        own=own_facts,
    )


def own_facts(audit: PrivilegedAudit) -> OwnFacts:
    """Attributes, options and ceiling of the task's goal, and the price that was paid in the end."""
    names = [*audit.goal.get("attributes", ()), *audit.goal.get("goal_options", ())]
    bought = audit.ending.get("purchase") or {}
    prices = (audit.goal.get("price_upper"), bought.get("price"))
    return OwnFacts(
        names=tuple(name for name in dict.fromkeys(plain(str(name)) for name in names) if name),
        numbers=frozenset(float(price) for price in prices if isinstance(price, (int, float))),
    )
