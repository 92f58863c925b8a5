"""The areas that a method predicts in: what lies in others is refused with the reason."""

import pytest

from deepmf.errors import CannotExtend
from deepmf.matrix.labels import Labels
from deepmf.models.predicted_areas import PredictedAreas

KNOWN, MORE = Labels(["a"], axis="column"), Labels(["a", "b"], axis="column")


def test_what_covers_all_areas_refuses_nothing() -> None:
    areas = PredictedAreas("All", ("I", "II", "III", "IV"), "")
    areas.check_extends()
    for axis in ("row", "column"):
        assert areas.covers_new(axis)
        areas.check_folds_in(axis)
        areas.check_explains(axis)
        areas.check_new(axis, KNOWN, MORE)


def test_new_columns_are_refused_by_name_where_rows_alone_may_be_new() -> None:
    areas = PredictedAreas("Rows", ("I", "II"), "columns have weights")
    areas.check_extends()
    areas.check_new("column", KNOWN, KNOWN)
    with pytest.raises(CannotExtend, match=r"^Rows cannot predict for new columns, such as 'b': columns have weights$"):
        areas.check_new("column", KNOWN, MORE)
    with pytest.raises(CannotExtend, match=r"^Rows cannot predict for new columns: columns have weights$"):
        areas.check_folds_in("column")
    with pytest.raises(CannotExtend, match=r"^Rows cannot explain by the entries of a column: columns have weights$"):
        areas.check_explains("column")


def test_what_predicts_in_the_first_area_alone_is_never_extended() -> None:
    with pytest.raises(CannotExtend, match=r"^One cannot be extended: it has factors alone$"):
        PredictedAreas("One", ("I",), "it has factors alone").check_extends()
