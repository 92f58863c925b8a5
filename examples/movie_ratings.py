"""Film ratings: fit DMF, add viewers who arrive after training, and recommend films to them.

The ratings are generated, so the truth is known; no viewer or film is real.
"""

from deepmf import DMF, Means, ObservedMatrix, split_areas
from deepmf.datasets import generate
from deepmf.evaluation import evaluate

SETTINGS = {"hidden_sizes": (64,), "latent_size": 32, "dropout": 0.5, "epochs": 120, "decay_every": 30}
BLOCK = {"block_rows": 100, "block_columns": 60}


def main() -> None:
    """Compare DMF with the mean baseline for known and new viewers, then recommend films to new viewers."""
    ratings = generate(500, 120, density=0.2, noise=0.5, seed=0)
    print(ratings.matrix)
    split = split_areas(ratings.matrix, new_rows=0.2, new_columns=0, seed=0)

    # `extend` adds new viewers by their first ratings, without training.
    means = Means().fit(split.train).extend(split.extension)
    model = DMF(**SETTINGS, **BLOCK, seed=0, device="cpu").fit(split.train, validation=split.validation)
    model = model.extend(split.extension)
    for area, viewers in (("I", "known"), ("II", "new")):
        test = split.test[area]
        errors = [evaluate(fitted, test)[0].rmse for fitted in (means, model)]
        print(f"RMSE on {test.n_entries} ratings of {viewers} viewers: means {errors[0]:.3f}, DMF {errors[1]:.3f}")

    # Recommendations for one new viewer, beside the true mean rating.
    viewer = split.test["II"].entries().rows[0]
    best = model.recommend(viewer, n=3)
    truth = ratings.truth.mean([viewer] * 3, best.labels)
    print(f"\nFor {viewer}, a new viewer (prediction, truth):")
    for film, predicted, true in zip(*best, truth, strict=True):
        print(f"  {film:<28}{predicted:.1f}  {true:.1f}")

    # A viewer of our own, with four ratings.
    rated = dict(zip(model.column_labels_[:4], [5, 1, 4, 2], strict=True))
    wilma = ObservedMatrix.from_entries(["Wilma"] * 4, rated, rated.values(), ratings.matrix.scale)
    print("\nWilma has rated", ", ".join(f"{film} {stars}" for film, stars in rated.items()))
    for film, predicted in zip(*model.extend(wilma).recommend("Wilma", n=3), strict=True):
        print(f"  {film:<28}{predicted:.1f}")


if __name__ == "__main__":
    main()
