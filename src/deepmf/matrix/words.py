"""Words of texts as vectors: their importance (tf-idf), and its leading directions (truncated SVD)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse

from deepmf.matrix.arrays import FloatArray

_WORD = re.compile(r"\w\w+")

# The fewest texts in which a word that counts occurs, the largest number of words, and of directions.
_FEWEST_TEXTS, _MOST_WORDS, _MOST_DIRECTIONS = 2, 2_000, 32


@dataclass(frozen=True, eq=False)
class Words:
    """The words that texts are read by.

    vocabulary: the words, lower case. importance: (words,) their inverse document frequencies.
    directions: (words, directions) the leading right singular vectors of the texts.

    >>> words = Words.learn(["a blue whale", "the blue sea", "a sea of sand", "sand and sea"])
    >>> words.vocabulary
    ('blue', 'sand', 'sea')
    """

    vocabulary: tuple[str, ...]
    importance: npt.NDArray[np.float32]
    directions: npt.NDArray[np.float32]

    @classmethod
    def learn(cls, texts: list[str]) -> Words:
        """Learn the words of texts, their importance and their directions."""
        counts = Counter(word for text in texts for word in set(split_words(text)))
        common = sorted(
            (word for word in counts if counts[word] >= _FEWEST_TEXTS), key=lambda each: (-counts[each], each)
        )
        if not common:
            raise ValueError("no word occurs in two of them")
        vocabulary = tuple(sorted(common[:_MOST_WORDS]))
        documents = np.array([counts[word] for word in vocabulary])
        importance = (1.0 + np.log((1 + len(texts)) / (1 + documents))).astype(np.float32)
        words = cls(vocabulary, importance, np.zeros((len(vocabulary), 0), dtype=np.float32))
        weighted, kept = words.weigh(texts), min(_MOST_DIRECTIONS, len(vocabulary))
        together = (weighted.T @ weighted).toarray()
        _, found = scipy.linalg.eigh(together, subset_by_index=[len(vocabulary) - kept, len(vocabulary) - 1])
        largest = found[np.abs(found).argmax(axis=0), np.arange(kept)]  # of any sign; here it is positive
        return cls(vocabulary, importance, (found * np.sign(largest))[:, ::-1].astype(np.float32))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Words) and all(
            np.array_equal(*each) for each in zip(vars(self).values(), vars(other).values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def weigh(self, texts: list[str]) -> scipy.sparse.csr_array:
        """Return the weights (texts, words): logarithms of counts times importance, of length 1 for each text."""
        places = {word: at for at, word in enumerate(self.vocabulary)}
        found = [Counter(places[word] for word in split_words(text) if word in places) for text in texts]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in found])]).astype(np.int64)
        at = np.array([place for each in found for place in each], dtype=np.int64)
        counts = np.array([count for each in found for count in each.values()], dtype=np.float64)
        weights = (1.0 + np.log(counts)) * self.importance[at]
        which = np.repeat(np.arange(len(texts)), np.diff(starts))
        squares = np.bincount(which, np.square(weights), minlength=len(texts))
        shape = len(texts), len(self.vocabulary)
        return scipy.sparse.csr_array((weights / np.sqrt(squares)[which], at, starts), shape=shape)

    def embed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a tuple of numbers for each text; None for a missing one, or one without any known word."""
        texts = ["" if text is None else text for text in values.tolist()]
        weights = self.weigh(texts)
        vectors: FloatArray = weights @ self.directions.astype(np.float64)
        is_known = np.diff(weights.indptr) > 0
        return np.fromiter(
            (tuple(each) if known else None for each, known in zip(vectors.tolist(), is_known, strict=True)),
            dtype=object,
            count=len(texts),
        )


def split_words(text: str) -> list[str]:
    """Return the words of a text, lower case, of two letters or digits and more.

    >>> split_words("Léon: The Professional (1994)")
    ['léon', 'the', 'professional', '1994']
    """
    return _WORD.findall(text.lower())
