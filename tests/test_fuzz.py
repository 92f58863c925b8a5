"""A short form of `make fuzz`: some damaged files of every kind are refused in a sentence, or can
be used."""

import pytest
from tests.fuzz import KINDS, fuzz


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_or_used(kind: str) -> None:
    counts, wrong = fuzz(kind, range(150))
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] > 0
