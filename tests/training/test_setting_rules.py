"""Rules: which values a setting may have, in a sentence, in a few words and as plain ends."""

from typing import Any

import pytest

from deepmf.errors import BadSetting
from deepmf.training.setting_rules import LARGEST, MOST, WIDEST, Number, OneOf, Period, Rule, Sizes, Whole

RULES: list[tuple[Rule, str, dict[str, Any]]] = [
    (Whole("", low=1), "whole, 1 or more", {"low": 1, "high": MOST}),
    (Whole("", True, 2, 9), "whole, 2 to 9, or none", {"low": 2, "high": 9}),
    (Number("", low=0.0), "0 or more", {"low": 0.0, "high": LARGEST}),
    (Number("", low=0.0, high=0.99), "0 to 0.99", {"low": 0.0, "high": 0.99}),
    (Number("", above=0.0), "above 0", {"above": 0.0, "high": LARGEST}),
    (Number("", True, above=0.0, high=1.0), "above 0, at most 1, or none", {"above": 0.0, "high": 1.0}),
    (OneOf("", of=("root", "mean")), "root, mean", {"choices": ["root", "mean"]}),
    (Sizes("", fewest=1), "whole numbers, 1 to 1000000", {"low": 1, "high": WIDEST, "fewest": 1, "most": 100}),
    (Period(""), "whole, 1 or more, or increasing epochs", {"low": 1, "high": MOST}),
]


@pytest.mark.parametrize(("rule", "words", "ends"), RULES, ids=[words for _, words, _ in RULES])
def test_what_is_allowed(rule: Rule, words: str, ends: dict[str, Any]) -> None:
    assert rule.allowed == words
    assert rule.to_dict() == ends


@pytest.mark.parametrize(("rule", "words", "ends"), RULES, ids=[words for _, words, _ in RULES])
def test_only_what_is_optional_may_be_none(rule: Rule, words: str, ends: dict[str, Any]) -> None:
    if rule.optional:
        assert rule.checked("x", None) is None
    else:
        with pytest.raises(BadSetting, match="^x must be .*; got None$"):
            rule.checked("x", None)


@pytest.mark.parametrize(
    ("rule", "given", "kept"),
    [
        (Whole("", low=2, high=9), 9, 9),
        (Number("", above=0.0), 1, 1),
        (OneOf("", of=("root", "mean")), "mean", "mean"),
        (Sizes(""), 7, (7,)),
        (Sizes(""), [7, 8], (7, 8)),
        (Sizes(""), (), ()),
        (Period(""), 50, 50),
        (Period(""), [24, 36], (24, 36)),
    ],
)
def test_what_is_kept(rule: Rule, given: Any, kept: Any) -> None:
    assert rule.checked("x", given) == kept


@pytest.mark.parametrize(
    ("rule", "bad", "said"),
    [
        (Whole("", low=2, high=9), 1, "a whole number of at least 2"),
        (Whole("", low=2, high=9), 10, "a whole number of at least 2 and at most 9"),
        (Number("", above=0.0), 0.0, "a number above 0"),
        (Number("", above=0.0), 1e39, "a number above 0 and at most 1e+38"),
        (Number("", low=0.0, high=0.5), 0.6, "a number at least 0 and at most 0.5"),
        (OneOf("", of=("root", "mean")), "sum", "'root' or 'mean'"),
        (Sizes("", fewest=1), (), "whole numbers of at least 1, such as (2048,)"),
        (Period(""), 0, "a whole number of at least 1"),
        (Period(""), (3, 3), "increasing epochs from 1 on, such as (24, 36)"),
    ],
)
def test_what_is_refused(rule: Rule, bad: Any, said: str) -> None:
    with pytest.raises(BadSetting) as caught:
        rule.checked("x", bad)
    assert str(caught.value) == f"x must be {said}; got {bad!r}"
