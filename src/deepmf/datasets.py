"""Matrices to try things on: public data sets by name, and generated matrices whose truth is
known."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.data.datasets import (
        Dataset as Dataset,
        fetch as fetch,
        fetch_file as fetch_file,
        find as find,
        folder as folder,
        info as info,
        load as load,
        load_split as load_split,
        names as names,
    )
    from deepmf.data.ground_truth import Truth as Truth
    from deepmf.data.synthetic import (
        Generated as Generated,
        checkerboard as checkerboard,
        generate as generate,
    )

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
