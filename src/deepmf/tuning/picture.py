"""The picture of a study: how much each setting matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepmf.errors import BadSetting, MissingDependency
from deepmf.storage.atomic import write_atomically

ENDINGS = (".svg", ".png")


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn."""
    if path.suffix not in ENDINGS:
        raise BadSetting(f"the name of a picture must end in {' or '.join(ENDINGS)}; got {str(path)!r}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependency("pictures need matplotlib: pip install 'deepmf[plots]'") from error


def draw_importances(importances: Mapping[str, float], path: Path, *, title: str) -> None:
    """Draw a bar for each setting, the most important on top; the same importances give the same file."""
    check_picture(path)
    import matplotlib
    from matplotlib.figure import Figure

    names, shares = list(importances), [100.0 * share for share in importances.values()]
    with matplotlib.rc_context({"svg.hashsalt": "deepmf", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.4, 1.2 + 0.36 * len(names)), layout="constrained")
        axis = figure.subplots()
        bars = axis.barh(names, shares, color="#0072B2")
        axis.bar_label(bars, fmt="%.0f %%", padding=3)
        axis.invert_yaxis()
        axis.set_xlim(0, 110)
        axis.set_xlabel("importance, %")
        axis.set_title(title)
        axis.spines[["top", "right"]].set_visible(False)
        ending = path.suffix.removeprefix(".")
        metadata = {"Date": None} if ending == "svg" else {"Software": None}
        write_atomically(path, lambda file: figure.savefig(file, format=ending, dpi=160, metadata=metadata))
