"""What a selection costs, and when that is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shopsimulator.pricing import price_changing_axes, price_text, read_number, variant_price
from shopsimulator.products import OptionValue, Product, public_value


def product(pricing=(), **options):
    axes = {
        axis: tuple(OptionValue(public_value(value), price) for value, price in values.items())
        for axis, values in options.items()
    }
    return Product("1", "shelf", "", "", tuple(pricing), axes, (), "")


def price(item, **selected):
    return variant_price(item, selected).price


def method(item, **selected):
    found = variant_price(item, selected)
    assert (found.status == "pass") == (found.price is not None)
    return found.method


SHELF = product((30.0, 55.0), colour={"red": None, "blue": None}, size={"small": 30.0, "large": 55.0})


def test_the_changing_axis_sets_the_price():
    assert price(SHELF, colour="red", size="large") == 55
    assert price(SHELF, size="small") == 30
    assert variant_price(SHELF, {"size": "small"}).evidence == {"price_axis": "size"}


def test_the_price_is_unknown_until_the_changing_axis_is_chosen():
    assert method(SHELF) == method(SHELF, colour="red") == "price_axis_unselected"


def test_a_value_without_a_price_is_unknown_not_guessed():
    shelf = product((30.0,), size={"small": 30.0, "large": 55.0, "giant": None})
    assert method(shelf, size="giant") == method(shelf, size="no such") == "selected_variant_price_missing"


def test_values_compare_without_width_case_and_blanks():
    shelf = product(size={"S/M": 30.0, "l": 55.0})
    assert price(shelf, size="s | m") == price(shelf, size="Ｓ／Ｍ") == 30


def test_one_price_of_all_options_holds_whatever_is_chosen():
    shelf = product((18.0, 25.0), colour={"red": 20.0, "blue": None}, size={"small": 20.0})
    assert price(shelf) == price(shelf, colour="blue") == 20
    assert method(shelf) == "constant_option_price"


def test_a_listed_price_holds_only_without_axes():
    assert method(product((20.0,))) == "single_listing_price"
    assert price(product((20.0, 20.0))) == 20
    assert method(product((20.0,), colour={"red": None})) == "price_not_deterministic"
    assert method(product((20.0,), colour={})) == "price_not_deterministic"
    assert method(replace(product((20.0,)), null_axes=("colour",))) == "price_not_deterministic"


def test_contradicting_or_missing_prices_are_unknown():
    assert method(product((18.0, 25.0))) == method(product()) == "price_not_deterministic"
    both = product(colour={"red": 20.0}, size={"small": 30.0})
    assert variant_price(both, {"colour": "red", "size": "small"}).evidence == {"candidate_prices": [20.0, 30.0]}
    twice = product(a={"x": 1.0, "y": 2.0}, b={"x": 1.0, "y": 2.0})
    assert method(twice, a="x", b="x") == "multiple_price_affecting_axes"


def test_a_price_of_zero_is_a_price():
    assert price(product((0.0,))) == 0


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (12, 12.0), ("12", 12.0), (" 19.9 ", 19.9), ("１２", 12.0), (0, 0.0),
        ("¥19", None), ("1,29", None), ("1,299", None), ("面议", None), ("12-15", None), (-1, None), ("-1", None),
        (float("nan"), None), ("inf", None), (True, None), (None, None), ("", None), ([1], None), (10**400, None),
    ],
)  # fmt: skip
def test_only_plain_numbers_are_prices(value, number):
    assert read_number(value) == number


def test_listed_prices_are_shown_in_file_order():
    assert price_text(product((39.9, 19.9))) == "39.9 to 19.9"
    assert price_text(product((399.0,))) == "399.0"
    assert price_text(product()) == "100.0"


PRICES = st.lists(st.one_of(st.none(), st.integers(1, 5).map(float)), min_size=1, max_size=5)


@given(PRICES, PRICES)
def test_a_known_price_is_one_of_the_chosen_values_or_of_all(first, second):
    item = product(
        (7.0,), a={f"v{i}": price for i, price in enumerate(first)}, b={f"v{i}": p for i, p in enumerate(second)}
    )
    found = variant_price(item, {"a": "v0", "b": "v0"})
    if found.price is not None:
        assert found.price in {*first, *second}
        changing = price_changing_axes(item.options)
        assert len(changing) < 2
        if changing:
            assert found.price == item.options[changing[0]][0].price
