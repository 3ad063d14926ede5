"""Every word a page shows, by language, and every sentence that answers an action.

The Chinese words are the published interface and stand to the letter; the English ones say the same in the same places.
What can be clicked (`actions.py`) is never translated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rendering = Literal["full", "compact"]


@dataclass(frozen=True, slots=True, eq=False)  # one object a language, so it can be a key of caches
class Words:
    """Labels of the full rendering, the few words of the compact one, and the sentences about actions."""

    home: str
    results: str
    product: str
    subpage: str
    terminal: tuple[str, str]
    query: str
    hits: str  # {...} are fields of the state
    products: str
    no_products: str
    unnamed: str
    missing_value: str
    item: str
    title: str
    asin: str
    price: str
    brand: str
    category: str
    attributes: str
    attribute_separator: str
    options: str
    unchosen: str
    chosen: str
    values: str
    no_options: str
    to_choose: str
    axis_separator: str
    complete: str
    invalid_options: str
    subpage_name: str
    content: str
    last_action: str
    outcome: str
    valid: str
    invalid: str
    note: str
    reason: str
    abilities: str
    can_search: str
    clickable: str
    nothing_clickable: str
    compact_home: str
    compact_empty: str
    compact_terminal: str
    messages: dict[str, str]  # {value} is what was clicked, or the open axes


_ZH = Words(
    home="页面：搜索首页",
    results="页面：搜索结果",
    product="页面：商品详情",
    subpage="页面：商品属性页",
    terminal=("页面：任务已终止", "不能再执行操作。"),
    query="搜索词：",
    hits="结果：第 {page}/{total_pages} 页，共 {total_results} 项，当前显示排名 {rank_start}-{rank_end}",
    products="商品列表：",
    no_products="（本页没有商品）",
    unnamed="未命名商品",
    missing_value="未提供",
    item="商品：",
    title="标题：",
    asin="ASIN：",
    price="价格：",
    brand="品牌：",
    category="类别：",
    attributes="关键属性：",
    attribute_separator="；",
    options="规格选择：",
    unchosen="：尚未选择",
    chosen="：已选择 ",
    values="可选值：",
    no_options="此商品没有规格选项",
    to_choose="仍需选择：",
    axis_separator="、",
    complete="规格状态：已选择全部规格，可以购买",
    invalid_options="无效的历史规格选择：",
    subpage_name="子页面：",
    content="内容：",
    last_action="上次交互结果：",
    outcome="结果：",
    valid="成功",
    invalid="无效",
    note="说明：",
    reason="原因代码：",
    abilities="页面能力：",
    can_search="支持商品搜索",
    clickable="可点击元素：",
    nothing_clickable="当前页面没有可交互元素。",
    compact_home="搜索",
    compact_empty="无结果",
    compact_terminal="结束",
    messages={
        "multiple_actions_not_allowed": "一次调用只能执行一个 search[...] 或 click[...] 动作",
        "invalid_format": "动作必须严格使用 search[...] 或 click[...] 格式",
        "other_verb": "动作必须使用 search[...] 或 click[...] 格式",
        "several_lines": "动作格式无效",
        "empty_action": "动作不能为空",
        "empty_search": "search[...] 的关键词不能为空",
        "empty_click": "click[...] 的点击值不能为空",
        "search_unavailable": "当前页面不提供搜索操作",
        "already_selected": "该规格已经选中：{value}",
        "incomplete_options": "购买前还需选择规格轴：{value}",
        "unavailable_action": "当前页面不存在可点击项：{value}",
        "no_buy_button": "当前页面没有可用的购买按钮",
        "searched": "搜索已执行",
        "clicked": "点击已执行",
        "bought": "购买已执行",
    },
)
_EN = Words(
    home="Page: search home",
    results="Page: search results",
    product="Page: product details",
    subpage="Page: product attributes",
    terminal=("Page: task ended", "No further action is possible."),
    query="Search text: ",
    hits="Results: page {page}/{total_pages}, {total_results} products, showing ranks {rank_start}-{rank_end}",
    products="Products:",
    no_products="(no products on this page)",
    unnamed="unnamed product",
    missing_value="not given",
    item="Product:",
    title="Title: ",
    asin="ASIN: ",
    price="Price: ",
    brand="Brand: ",
    category="Category: ",
    attributes="Key attributes: ",
    attribute_separator="; ",
    options="Options:",
    unchosen=": not chosen yet",
    chosen=": chosen ",
    values="Values: ",
    no_options="This product has no options",
    to_choose="Still to choose: ",
    axis_separator=", ",
    complete="Option status: everything is chosen, ready to buy",
    invalid_options="Invalid earlier choices: ",
    subpage_name="Subpage: ",
    content="Content: ",
    last_action="Last interaction:",
    outcome="Result: ",
    valid="success",
    invalid="invalid",
    note="Note: ",
    reason="Reason code: ",
    abilities="Page abilities:",
    can_search="Products can be searched",
    clickable="Clickable elements:",
    nothing_clickable="Nothing on this page can be used.",
    compact_home="search",
    compact_empty="nothing",
    compact_terminal="done",
    messages={
        "multiple_actions_not_allowed": "One call performs one search[...] or click[...] action only",
        "invalid_format": "An action must be exactly search[...] or click[...]",
        "other_verb": "An action must be search[...] or click[...]",
        "several_lines": "This is not an action",
        "empty_action": "An action must not be empty",
        "empty_search": "The words of search[...] must not be empty",
        "empty_click": "The value of click[...] must not be empty",
        "search_unavailable": "This page offers no search",
        "already_selected": "This option is already chosen: {value}",
        "incomplete_options": "Choose these options before buying: {value}",
        "unavailable_action": "Nothing on this page is called: {value}",
        "no_buy_button": "This page has no button to buy",
        "searched": "Search done",
        "clicked": "Click done",
        "bought": "Purchase done",
    },
)


def words(language: str) -> Words:
    """The words of a language; anything but `zh` reads English."""
    return _ZH if language == "zh" else _EN
