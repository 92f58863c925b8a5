"""Side information: predict ratings of new films from year and genres, and of new people from age and occupation.

Ratings and features are generated, so predictions can be compared with the truth.
"""

from deepmf import ALS, Features, Means, split_areas
from deepmf.datasets import generate
from deepmf.metrics import rmse_error


def main() -> None:
    """Compare a model with features and the mean baseline on films and people without ratings."""
    rated = generate(400, 200, density=0.08, rank=2, noise=0.4, explained=0.7, seed=0)
    people, films = rated.row_features, rated.column_features
    assert people is not None and films is not None
    print(rated.matrix, people, films, sep="\n")

    # A fifth of the people and of the films are new: the model sees their features, but none of their ratings.
    split = split_areas(rated.matrix, new_rows=0.2, new_columns=0.2, seed=0)
    means = Means().fit(split.train)
    model = ALS(latent_size=6, seed=0).fit(
        split.train, split.validation, row_features=people, column_features=films
    )
    for area, group in (
        ("II", "new people"),
        ("III", "new films"),
        ("IV", "new people and new films"),
    ):
        rows, columns, stars = split.test[area].entries()
        baseline = rmse_error(means.predict(rows, columns, unknown="fallback"), stars)
        print(
            f"RMSE of {group}: means {baseline:.3f}, ALS {rmse_error(model.predict(rows, columns), stars):.3f}"
        )

    # A film that opens tomorrow: who would like it, and why.
    tomorrow = Features.from_columns(
        ["Tomorrow"], {"year": [2009], "genres": [["Sci-Fi", "Comedy"]]}
    )
    more = model.extend(column_features=tomorrow)
    viewers = people.labels[:3]
    for person, prediction in zip(viewers, more.predict(viewers, ["Tomorrow"] * 3), strict=True):
        print(f"{person} would give Tomorrow {prediction:.1f} stars")
    found = more.explain(viewers[0], "Tomorrow", axis="column")
    print("because of", ", ".join(f"{each.value} ({each.effect:+.2f})" for each in found.features))


if __name__ == "__main__":
    main()
