"""Sensors with gaps: real values on an interval, with a row for every hour and a column for every sensor.

The temperatures come from a generated building, whose rooms depend on weather, sun and heating to different degrees.
"""

import numpy as np
import numpy.typing as npt

from deepmf import DMF, Means, ObservedMatrix, Scale, split_entries
from deepmf.metrics import rmse_error

HOURS = 21 * 24
ROOMS = [f"{side} {number}" for side in ("north", "south", "attic") for number in range(1, 13)]
SHARES = {
    "north": (0.3, 1.0, 4.0),
    "south": (0.3, 7.0, 3.0),
    "attic": (0.9, 4.0, 0.5),
}  # of weather, sun, heating
SETTINGS = {
    "hidden_sizes": (64,),
    "latent_size": 32,
    "dropout": 0.1,
    "epochs": 150,
    "decay_every": 30,
}
BLOCK = {"block_rows": 100, "block_columns": 36}


def generate_temperatures(dice: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the true temperatures in degrees Celsius, (hours, rooms)."""
    days, hours = np.divmod(np.arange(HOURS), 24)
    weather = np.cumsum(dice.normal(0, 0.35, HOURS))
    sun = np.clip(np.sin(2 * np.pi * (hours - 6) / 24), 0, None) * dice.random(HOURS // 24)[days]
    heating = (hours >= 6) & (hours < 20) & (days % 7 < 5)
    causes = np.stack([weather - weather.mean(), sun, heating])
    shares = np.array([SHARES[room.split()[0]] for room in ROOMS]) * dice.uniform(
        0.6, 1.4, (len(ROOMS), 3)
    )
    return (
        17
        + dice.normal(0, 1, len(ROOMS))
        + causes.T @ shares.T
        + dice.normal(0, 0.3, (HOURS, len(ROOMS)))
    )


def generate_gaps(dice: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return when each sensor is silent, (hours, rooms): six gaps of six hours to a day and a half."""
    silent = np.zeros((HOURS, len(ROOMS)), dtype=bool)
    for room in range(len(ROOMS)):
        for start in dice.integers(HOURS, size=6):
            silent[start : start + dice.integers(6, 36), room] = True
    return silent


def main() -> None:
    """Fill the gaps from the other sensors, and compare the result with the true temperatures."""
    true, silent = (
        generate_temperatures(np.random.default_rng(0)),
        generate_gaps(np.random.default_rng(1)),
    )
    measured = ObservedMatrix.from_array(
        np.where(silent, np.nan, true), Scale(low=-10, high=50), column_labels=ROOMS
    )
    print(measured)
    split = split_entries(measured, train=0.95, validation=0.05, test=0.0, seed=0)
    model = DMF(**SETTINGS, **BLOCK, seed=0, device="cpu").fit(
        split.train, validation=split.validation
    )
    filled = {"means": Means().fit(measured).complete(), "DMF": model.complete()}
    shown = ", ".join(
        f"{name} {rmse_error(done[silent], true[silent]):.3f}" for name, done in filled.items()
    )
    print(f"RMSE in degrees over {silent.sum()} silent hours: {shown}")


if __name__ == "__main__":
    main()
