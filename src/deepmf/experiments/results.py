"""Results in a folder for each table: one JSON line for each recipe, split and area, kept as each trial ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepmf.data.datasets.catalogue import DATASETS
from deepmf.errors import BadSetting, CannotSave, UnreadableFile
from deepmf.experiments.recipe import Recipe
from deepmf.experiments.source_digest import stamp
from deepmf.experiments.trial import Record, Trial
from deepmf.models.registry import model_class

Key = tuple[str, int, float | None]

_NEEDED = {"recipe", "seed", "new_share", "area", "commit", "data", "settings"}

AFRESH = "delete the folder to start from scratch, or give another with --out"


class Results:
    """The finished trials of all tables under one folder; a run that was killed continues behind them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def records(self, recipes: Iterable[Recipe]) -> list[Record]:
        """Return the records of some recipes, which may be rows of several tables."""
        names = {recipe.name for recipe in recipes}
        tables = sorted({name.partition("/")[0] for name in names})
        records = [record for table in tables for record in self._of(table).records()]
        return [record for record in records if record["recipe"] in names]

    def missing(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials that are still to run; results of another source or of other settings are refused."""
        tables = {trial.recipe.table for trial in trials}
        done: set[Key] = set()
        for table in tables:
            done |= self._of(table).finished([trial for trial in trials if trial.recipe.table == table])
        return [trial for trial in trials if _key(trial.key) not in done]

    def check_writable(self, trials: Iterable[Trial]) -> None:
        """Raise now what adding records of these trials would raise after the first fit."""
        for table in {trial.recipe.table for trial in trials}:
            self._of(table).add([])

    def add(self, records: Sequence[Record]) -> None:
        """Append the records of one trial, all of them or none."""
        self._of(records[0]["recipe"].partition("/")[0]).add(records)

    def _of(self, table: str) -> _TableResults:
        return _TableResults(self.folder / table)


class _TableResults:
    """The finished trials of one table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "results.jsonl"

    def records(self) -> list[Record]:
        """Return all records; a last line that was cut off by a kill does not count."""
        if not self.path.exists():
            return []
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableFile(f"{self.path} cannot be read ({error})") from error
        records: list[Record] = []
        found: dict[tuple[object, ...], int] = {}
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                if number == len(lines):  # no newline behind it: it was being written
                    break
                raise UnreadableFile(f"line {number} of {self.path} is not JSON ({error})") from error
            if not isinstance(record, dict) or not record.keys() >= _NEEDED:
                raise UnreadableFile(f"line {number} of {self.path} is not a result; {AFRESH}")
            first = found.setdefault((*_key(record), record["area"]), number)
            if first != number:  # a mean over both would count one split twice
                raise UnreadableFile(
                    f"lines {first} and {number} of {self.path} are both {record['recipe']}, split {record['seed']}, "
                    f"area {record['area']}; delete one of them"
                )
            records.append(_in_present_terms(record))
        return records

    def finished(self, trials: Sequence[Trial]) -> set[Key]:
        """Return the keys of the trials that are here; results that are not of these trials' kind are refused."""
        self._refuse_others(trials)
        return {_key(record) for record in self.records()}

    def add(self, records: Iterable[Record]) -> None:
        """Append the records of one trial, all of them or none."""
        text = "".join(json.dumps(record) + "\n" for record in records)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._cut_off_rest()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CannotSave(f"{self.path} could not be written ({error.strerror})") from error

    def _cut_off_rest(self) -> None:
        """Remove a last line that a kill cut off."""
        if not self.path.exists():
            return
        whole = self.path.read_bytes()
        if whole and not whole.endswith(b"\n"):
            with self.path.open("r+b") as file:
                file.truncate(whole.rfind(b"\n") + 1)

    def _refuse_others(self, trials: Sequence[Trial]) -> None:
        now = stamp()
        wanted = {_key(trial.key): trial for trial in trials}
        for record in self.records():
            for part, here in now.items():
                if record.get(part, here) != here:  # older records have no digest
                    raise BadSetting(
                        f"{self.folder} holds results of {part} {record[part]}; this is {here}, and the two "
                        f"are not mixed: {AFRESH}"
                    )
            trial = wanted.get(_key(record))
            if trial is not None:
                differing = _differing(record, trial)
                if differing:
                    raise BadSetting(
                        f"{self.folder} holds {record['recipe']} with other settings ({differing}): {AFRESH}"
                    )


def _in_present_terms(record: Record) -> Record:
    """Return a record whose two errors of levels are those of the same levels.

    Where a model had a distribution, records once kept the absolute error of its median levels as `level_mae`, beside
    the squared error of those nearest its mean. Of the latter they kept all counts, so their absolute error is known.
    """
    if "calibration_error" not in record or "median_mae" in record:
        return record
    now = {key: value for key, value in record.items() if key != "level_mae"} | {"median_mae": record["level_mae"]}
    levels = DATASETS[record["data"]].scale.levels if record["data"] in DATASETS else None
    if levels is not None:
        counts = np.array(record["confusion"])
        now["level_mae"] = float(np.sum(counts * np.abs(levels[None, :] - levels[:, None])) / np.sum(counts))
    return now


def _key(holder: dict[str, Any]) -> Key:
    return holder["recipe"], holder["seed"], holder["new_share"]


def _differing(record: Record, trial: Trial) -> str:
    """Name the settings in which a record and a trial differ; those that its fit chose are no part of the trial."""
    model = model_class(trial.recipe.model)(**trial.settings)
    settings, chosen = model.own_settings, model.settings.to_dict().keys() - model.own_settings.keys()
    recipe = trial.recipe
    beside = {"data": recipe.data, "protocol": recipe.protocol, "joined": recipe.joined, "refit": recipe.refit}
    own = json.loads(json.dumps(settings | beside))
    fitted = {name: value for name, value in record["settings"].items() if name not in chosen}
    kept = fitted | {name: record.get(name) for name in beside}
    return ", ".join(name for name in own | kept if own.get(name) != kept.get(name))
