"""Texts as features: the leading directions of tf-idf, as vectors (`pip install scikit-learn`).

Embeddings of a language model work in the same way: anything that maps a text to numbers.
"""

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from deepmf import ALS, Features, Means, ObservedMatrix, split_areas
from deepmf.metrics import rmse_error

WORDS = ["robots", "love", "war", "song", "desert", "detective", "ship", "dragon"]


def describe_films(n_films: int, latents: np.ndarray) -> list[str]:
    """Return a generated text for each film, whose words follow its latents (films, factors)."""
    generator = np.random.default_rng(0)
    affinities = latents @ generator.normal(size=(latents.shape[1], len(WORDS)))
    texts = []
    for film in range(n_films):
        likely = np.argsort(-affinities[film])[:3]
        texts.append("A film of " + " and ".join(WORDS[word] for word in likely))
    return texts


def main() -> None:
    """Compare a model that reads texts with the mean baseline on films without ratings."""
    generator = np.random.default_rng(0)
    people, films = generator.normal(size=(400, 2)), generator.normal(size=(200, 2))
    rows, columns = np.nonzero(generator.random((400, 200)) < 0.1)
    tastes = np.einsum("ij,ij->i", people[rows], films[columns])
    noise = 0.5 * generator.normal(size=rows.size)
    ratings = ObservedMatrix.from_entries(
        rows, columns, np.clip(np.round(3 + tastes + noise), 1, 5)
    )

    words = TfidfVectorizer().fit_transform(describe_films(200, films))
    vectors = TruncatedSVD(n_components=6, random_state=0).fit_transform(words)
    plots = Features.from_columns(range(200), {"plot": vectors}, kinds={"plot": "vector"})

    split = split_areas(ratings, new_rows=0.0, new_columns=0.2, seed=0)
    model = ALS(latent_size=4, seed=0).fit(split.train, split.validation, column_features=plots)
    means = Means().fit(split.train)
    rows, columns, stars = split.test["III"].entries()
    baseline = rmse_error(means.predict(rows, columns, unknown="fallback"), stars)
    error = rmse_error(model.predict(rows, columns), stars)
    print(f"RMSE of films without ratings: means {baseline:.3f}, ALS {error:.3f}")


if __name__ == "__main__":
    main()
