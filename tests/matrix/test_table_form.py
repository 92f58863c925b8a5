"""The names of fields: those of the source, unless another field has them."""

from deepmf.matrix.table_form import PLAIN, TableForm


def test_names_are_all_different() -> None:
    assert PLAIN.names == ("row", "column", "value")
    assert TableForm("user", "film", "stars").names == ("user", "film", "stars")
    assert TableForm("value", wide=True).names == ("row", "column", "value")
    assert TableForm("column", wide=True).ids_beside(["area"]) == ("row", "column")
    assert TableForm("area", "row").ids_beside(["area"]) == ("row", "column")


def test_the_types_of_ids_are_no_names() -> None:
    form = TableForm("user", "film", "stars", row_type="Int32")
    assert form.is_called(TableForm("user", "film", "stars")) and form.names == ("user", "film", "stars")
    assert not form.is_called(TableForm("user", "film", "stars", wide=True)) and not form.is_called(None)
