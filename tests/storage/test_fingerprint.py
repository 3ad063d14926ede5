"""What two settings differ in."""

from intraskill.storage.fingerprint import describe_difference, fingerprint


def test_fingerprints_ignore_key_order_and_see_values() -> None:
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({"a": "1"}) != fingerprint({"a": 1})


def test_differences_name_the_dotted_key_and_both_values() -> None:
    old = {"train": {"lr": 0.1, "betas": [0.9, 0.95]}, "seed": 1, "gone": True}
    new = {"train": {"lr": 0.2, "betas": (0.9, 0.95)}, "seed": 1, "name": "x"}
    assert describe_difference(old, new) == ["gone: true -> (absent)", 'name: (absent) -> "x"', "train.lr: 0.1 -> 0.2"]
    assert describe_difference(old, old) == []
