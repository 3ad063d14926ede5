"""Every word the pages use, by language and rendering.

Words decide what can be clicked: navigation is clicked by exactly the word shown here. The full rendering speaks in
phrases; the compact one in single words, since a tiny policy reads (and writes) each of them token by token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rendering = Literal["full", "compact"]


@dataclass(frozen=True, slots=True)
class Words:
    """Navigation words (clickable) and page text of one language and rendering."""

    next: str
    previous: str
    back: str
    buy: str
    search: str
    results: str
    nothing: str
    shop: str
    category: str
    attributes: str
    price: str
    unknown_price: str
    selected: str
    missing: str
    clickable: str
    done: str
    messages: dict[str, str]  # reason code -> sentence; {value} and {missing} are filled in


_EN_MESSAGES = {
    "ok": "Done.",
    "invalid_format": "Not an action: write search[words] or click[value] with something between the brackets.",
    "search_unavailable": "There is no search box on this page; go back to the results first.",
    "not_clickable": "Nothing on this page is called '{value}'; click one of the values listed.",
    "already_selected": "'{value}' is already selected.",
    "incomplete_options": "Choose a value first for: {missing}.",
}
_ZH_MESSAGES = {
    "ok": "完成。",
    "invalid_format": "不是有效操作：请写 search[关键词] 或 click[值]，括号内不能为空。",
    "search_unavailable": "当前页面没有搜索框，请先返回结果页。",
    "not_clickable": "当前页面没有“{value}”，请点击列出的值。",
    "already_selected": "“{value}”已被选中。",
    "incomplete_options": "请先选择：{missing}。",
}
_EN = Words(
    next="next page",
    previous="previous page",
    back="back to results",
    buy="buy now",
    search="Search page. Look for products with search[words].",
    results="Results for '{query}', page {page} of {pages}, {total} products.",
    nothing="Nothing found for '{query}'. Search again with other words.",
    shop="shop",
    category="category",
    attributes="attributes",
    price="price",
    unknown_price="unknown",
    selected="selected",
    missing="still to choose",
    clickable="clickable",
    done="The episode is over.",
    messages=_EN_MESSAGES,
)
_EN_COMPACT = Words(
    next="next",
    previous="prev",
    back="back",
    buy="buy",
    search="search",
    results="",
    nothing="nothing",
    shop="",
    category="",
    attributes="",
    price="",
    unknown_price="?",
    selected="*",
    missing="",
    clickable="",
    done="done",
    messages=_EN_MESSAGES,
)
_ZH = Words(
    next="下一页",
    previous="上一页",
    back="返回结果",
    buy="立即购买",
    search="搜索页。用 search[关键词] 查找商品。",
    results="“{query}”的结果，第 {page} 页，共 {pages} 页，{total} 件商品。",
    nothing="没有找到“{query}”，请换关键词再搜。",
    shop="店铺",
    category="类目",
    attributes="属性",
    price="价格",
    unknown_price="未知",
    selected="已选",
    missing="尚未选择",
    clickable="可点击",
    done="本次任务已结束。",
    messages=_ZH_MESSAGES,
)
_ZH_COMPACT = Words(
    next="下一页",
    previous="上一页",
    back="返回结果",
    buy="立即购买",
    search="搜索",
    results="",
    nothing="无结果",
    shop="",
    category="",
    attributes="",
    price="",
    unknown_price="?",
    selected="*",
    missing="",
    clickable="",
    done="结束",
    messages=_ZH_MESSAGES,
)


def words(language: str, rendering: Rendering) -> Words:
    """The words of a language; anything but `zh` reads English."""
    if language == "zh":
        return _ZH if rendering == "full" else _ZH_COMPACT
    return _EN if rendering == "full" else _EN_COMPACT
