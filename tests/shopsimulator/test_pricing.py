"""What a selection costs, and when that is not known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.pricing import price_range, variant_price
from shopsimulator.products import OptionValue, Product


def product(pricing=(), **options):
    axes = {
        axis: tuple(OptionValue(value, price) for value, price in values.items()) for axis, values in options.items()
    }
    return Product("1", "shelf", "", (), tuple(pricing), axes, (), "")


SHELF = product((30, 55), colour={"red": None, "blue": None}, size={"small": 30, "large": 55})


def test_the_changing_axis_sets_the_price():
    assert variant_price(SHELF, {"colour": "red", "size": "large"}) == 55
    assert variant_price(SHELF, {"size": "small"}) == 30


def test_the_price_is_unknown_until_the_changing_axis_is_chosen():
    assert variant_price(SHELF, {}) is None
    assert variant_price(SHELF, {"colour": "red"}) is None


def test_a_value_without_a_price_is_unknown_not_guessed():
    shelf = product((30,), size={"small": 30, "large": 55, "giant": None})
    assert variant_price(shelf, {"size": "giant"}) is None
    assert variant_price(shelf, {"size": "no such"}) is None


def test_without_a_changing_axis_the_single_price_holds():
    assert variant_price(product((20,)), {}) == 20
    assert variant_price(product((20,), colour={"red": None}), {"colour": "red"}) == 20
    assert variant_price(product((18, 25), colour={"red": 20, "blue": 20}), {}) == 20
    assert variant_price(product((18,), colour={"red": 20, "blue": None}), {"colour": "red"}) == 20
    assert variant_price(product((18,), colour={"red": 20, "blue": None}), {"colour": "blue"}) == 18


def test_contradicting_or_missing_prices_are_unknown():
    assert variant_price(product((18, 25)), {}) is None
    assert variant_price(product(), {}) is None
    both = product(colour={"red": 20}, size={"small": 30})
    assert variant_price(both, {"colour": "red", "size": "small"}) is None
    assert variant_price(product(a={"x": 1, "y": 2}, b={"x": 1, "y": 2}), {"a": "x", "b": "x"}) is None


def test_a_price_of_zero_is_a_price():
    assert variant_price(product((0,)), {}) == 0


def test_the_range_spans_the_selections():
    assert price_range(SHELF) == (30, 55)
    assert price_range(product((20,))) == (20, 20)
    assert price_range(product((18, 25))) == (18, 25)
    assert price_range(product()) is None


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 99)), min_size=1, max_size=5), st.lists(st.integers(1, 99), max_size=2)
)
def test_every_known_price_lies_in_the_range(prices, pricing):
    item = product(sorted(pricing), size={f"v{i}": price for i, price in enumerate(prices)})
    for value in item.options["size"]:
        price = variant_price(item, {"size": value.value})
        if price is not None:
            low, high = price_range(item)
            assert price in {*pricing, *prices}
            assert low <= price <= high
