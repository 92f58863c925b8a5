"""Sensors with gaps: real values, with a row for every hour and a column for every sensor.

The temperatures come from a generated building, whose rooms depend on weather, sun and heating to different degrees.
"""

import numpy as np
import numpy.typing as npt

from deepmf import Features, Means, ObservedMatrix, OrdinalDMF, Scale
from deepmf.metrics import rmse_error

HOURS = np.datetime64("2024-05-06T00") + np.arange(21 * 24)
ROOMS = [f"{side} {number}" for side in ("north", "south", "attic") for number in range(1, 13)]
SHARES = {
    "north": (0.3, 1.0, 4.0),
    "south": (0.3, 7.0, 3.0),
    "attic": (0.9, 4.0, 0.5),
}  # of weather, sun, heating


def generate_temperatures(dice: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the true temperatures in degrees Celsius, (hours, rooms)."""
    days, hours = np.divmod(np.arange(HOURS.size), 24)
    weather = np.cumsum(dice.normal(0, 0.35, HOURS.size))
    sun = np.clip(np.sin(2 * np.pi * (hours - 6) / 24), 0, None) * dice.random(21)[days]
    heating = (hours >= 6) & (hours < 20) & (days % 7 < 5)
    causes = np.stack([weather - weather.mean(), sun, heating])
    shares = np.array([SHARES[room.split()[0]] for room in ROOMS])
    shares = shares * dice.uniform(0.6, 1.4, shares.shape)
    levels = 17 + dice.normal(0, 1, len(ROOMS))
    return levels + causes.T @ shares.T + dice.normal(0, 0.3, (HOURS.size, len(ROOMS)))


def generate_gaps(dice: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return when each sensor is silent, (hours, rooms): six gaps of six hours to a day and a half."""
    silent = np.zeros((HOURS.size, len(ROOMS)), dtype=bool)
    for room in range(len(ROOMS)):
        for start in dice.integers(HOURS.size, size=6):
            silent[start : start + dice.integers(6, 36), room] = True
    return silent


def main() -> None:
    """Fill the gaps from the other sensors and the hours around, and compare with the truth."""
    true = generate_temperatures(np.random.default_rng(0))
    silent = generate_gaps(np.random.default_rng(1))
    measured = ObservedMatrix.from_array(
        np.where(silent, np.nan, true),
        Scale(low=-10, high=50),
        row_labels=HOURS.astype(str),
        column_labels=ROOMS,
    )
    print(measured)
    times = Features.from_columns(measured.row_labels, {"time": HOURS}, kinds={"time": "position"})
    model = OrdinalDMF(effort="quick", seed=0, device="cpu").fit(measured, row_features=times)
    filled = {"means": Means().fit(measured).complete(), "OrdinalDMF": model.complete()}
    shown = ", ".join(
        f"{name} {rmse_error(done[silent], true[silent]):.3f}" for name, done in filled.items()
    )
    print(f"RMSE in degrees over {silent.sum()} silent hours: {shown}")
    print(f"shares of members: {model.chosen_['members']}")


if __name__ == "__main__":
    main()
