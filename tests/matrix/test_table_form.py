"""The names of fields: those of the source, unless another field has them."""

from deepmf.matrix.table_form import PLAIN, TableForm


def test_names_are_all_different() -> None:
    assert PLAIN.names == ("row", "column", "value")
    assert TableForm("user", "film", "stars").names == ("user", "film", "stars")
    assert TableForm("value", wide=True).names == ("row", "column", "value")
    assert TableForm("column", wide=True).ids_beside(["area"]) == ("row", "column")
    assert TableForm("area", "row").ids_beside(["area"]) == ("row", "column")
