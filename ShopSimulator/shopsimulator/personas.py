"""The shoppers of a generated world, in the persona schema of the public data (Chinese keys throughout).

A persona answers what an instruction leaves open: the usual brand is the one marked 高 (high), the material last
searched is the last keyword, the colour stands under 颜色. Each answer lies among distractors: brands liked less,
older keywords. Every shopper carries all of it, needed or not, so that its mere presence gives nothing away.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shopsimulator.words import Vocabulary

_AGES = ("18-24岁", "25-34岁", "35-44岁", "45-54岁")
_HOURS = ("08:00-10:00", "12:00-14:00", "20:00-22:00")
_LEVELS = ("普通", "银卡", "金卡")


@dataclass(frozen=True, slots=True)
class Taste:
    """What the shopper's persona must show."""

    brand: str
    material: str
    colour: str


def make_persona(
    rng: random.Random,
    words: Vocabulary,
    user: int,
    taste: Taste,
    brands: Sequence[str],
    materials: Sequence[str],
    prices: tuple[float, float],
) -> dict[str, Any]:
    """The persona of shopper number `user`; distractors come from `brands` and `materials`."""
    others = rng.sample([brand for brand in brands if brand != taste.brand], 2)
    liked = [(taste.brand, "高"), (others[0], "中"), (others[1], "低")]
    rng.shuffle(liked)
    older = rng.sample([material for material in materials if material != taste.material], 2)
    return {
        "用户ID": f"U{user:08d}",
        "人口属性": {
            "性别": rng.choice(("男", "女")),
            "年龄段": rng.choice(_AGES),
            "会员等级": rng.choice(_LEVELS),
            "消费等级": rng.choice(("高", "中", "低")),
        },
        "兴趣偏好": {
            "品牌偏好": [{"品牌名称": brand, "偏好程度": level} for brand, level in liked],
            "商品属性偏好": {
                "价格区间": {"最小值": prices[0], "最大值": prices[1]},
                "功能": [],
                "材质": [],
                "颜色": [taste.colour],
                "风格": [],
                "尺码偏好": {},
            },
            "类目偏好": {},
        },
        "行为特征": {
            "最近14天搜索关键词": [*older, taste.material],
            "最近14天加购商品": [],
            "最近14天收藏商品": [],
            "最近14天关注店铺": [rng.choice(brands)],
            "近7天访问次数": rng.randint(1, 30),
            "活跃时间段": [rng.choice(_HOURS)],
        },
        "交易特征": {"平均客单价": rng.randint(20, 150), "是否促销敏感": rng.random() < 0.5},
        "地区信息": {"省份": rng.choice(words.places), "城市": "", "区县": "", "时区": "UTC+8"},
        "用户标签": [],
        "注册时间": "",
        "最后更新时间": "",
    }
