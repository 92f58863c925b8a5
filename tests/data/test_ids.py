"""Ids in text: a whole number is one that reads back as it stands."""

import polars

from deepmf.data.ids import are_written_so, is_whole, whole_or_null, whole_or_text

WHOLE = ["0", "7", "-7", "123456789012345678"]
OTHERS = ["-0", "007", "+7", " 7", "1_0", "1٣", "٣", "7.0", ""]


def test_whole_numbers() -> None:
    assert all(map(is_whole, [*WHOLE, "9223372036854775808"]))
    assert not any(map(is_whole, OTHERS))


def test_a_single_text_makes_all_ids_texts() -> None:
    assert whole_or_text(polars.Series(WHOLE)).to_list() == [int(text) for text in WHOLE]
    for other in [*OTHERS, "9223372036854775808"]:
        assert whole_or_text(polars.Series(["7", other])).to_list() == ["7", other]


def test_each_id_by_itself() -> None:
    largest = "9223372036854775807"
    ids = polars.Series([*WHOLE, largest, *OTHERS, "9223372036854775808"])
    assert whole_or_null(ids).to_list() == [*map(int, WHOLE), int(largest), *[None] * (len(OTHERS) + 1)]


def test_texts_that_ints_would_not_keep() -> None:
    edges = [str(sign * (10**power + more)) for power in range(18) for more in (-1, 0, 1) for sign in (1, -1)]
    kept = [*WHOLE, *dict.fromkeys(edges), None]
    assert are_written_so(polars.Series(kept).cast(int), sum(len(text) for text in kept if text))
    assert are_written_so(polars.Series([None], dtype=polars.Int64), 0)
    for other in ("-0", "007", "+7", "00", "-07"):  # what else polars reads as an int
        assert not are_written_so(polars.Series(["12345", other, "-6"]).cast(int), 7 + len(other))
    assert not are_written_so(polars.Series([10**18]), 19)
