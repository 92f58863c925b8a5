"""The search: all candidates, measured on validation entries, best first."""

from pathlib import Path

from deepmf.experiments.recipe import read_table
from deepmf.experiments.results import Results
from deepmf.experiments.run import run
from deepmf.experiments.search import best_of, candidates
from deepmf.experiments.trial import run_choice


def test_candidates_are_ranked_by_their_validation_error(recipes: Path, tmp_path: Path) -> None:
    means = read_table("small", only=["means"])[0]
    trials = candidates(means, n_splits=2)
    assert [trial.recipe.name for trial in trials] == ["small/means?shrinkage=1"] * 2 + [
        "small/means?shrinkage=1000"
    ] * 2
    assert all(trial.new_share == 0.2 for trial in trials)
    results = Results(tmp_path / "search")
    list(run(run_choice, trials, results))
    shown = best_of([means], results.records(trial.recipe for trial in trials)).splitlines()
    assert shown[1] == "shrunk means"
    assert shown[3].startswith("| settings | I | II | III | IV | mean RMSE | seconds |")
    # Shrinking everything to the overall mean is worse than hardly shrinking at all.
    assert [line.split("|")[1].strip() for line in shown[5:]] == ["shrinkage=1", "shrinkage=1000"]
    means_shown = [float(line.split("|")[6]) for line in shown[5:]]
    assert means_shown[0] < means_shown[1]
