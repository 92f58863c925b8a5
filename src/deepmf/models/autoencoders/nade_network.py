"""The network of CF-NADE: from some entries of a vector to a distribution over the levels of every other one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepmf.layers.dropout import Dropout
from deepmf.layers.sampled_linear import SampledLinear
from deepmf.layers.sparse_linear import SparseLinear
from deepmf.layers.vectors import Batch, SparseBatch

# By which power of (usual count / count) the sum over a vector's entries is scaled: not at all, halfway, to their mean.
NORMALISATIONS = {"none": 0.0, "root": 0.5, "count": 1.0}
_USUAL_COUNT = 100.0


class Nade(nn.Module):
    """One hidden layer of tanh on thermometers of levels, and a score for each level of each output.

    It reads levels by their number: 1 for the lowest, 0 where a table (batch, places) has nothing. A level switches on
    the weights of all levels up to it, on both sides: the input of level k is the sum of W^1 to W^k, the score of
    level k is that of b^1 + V^1 h to b^k + V^k h (Zheng et al. 2016). Weights of a level lie together, by place.
    `frequencies` of the levels, (levels,), are the distribution that the biases give before training.
    """

    def __init__(
        self, n_places: int, hidden_size: int, *, frequencies: Tensor, normalise: str, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.n_places, self.n_levels = n_places, frequencies.numel()
        self.first = SparseLinear(n_places * self.n_levels, hidden_size, generator=generator)
        self.first_bias = nn.Parameter(torch.zeros(hidden_size, dtype=torch.float32))
        self.last = SampledLinear(hidden_size, n_places * self.n_levels, generator=generator)
        with torch.no_grad():
            self.last.bias.copy_(frequencies.log().diff(prepend=frequencies.new_zeros(1)).repeat_interleave(n_places))
        self.subset = Subset()
        self._power = NORMALISATIONS[normalise]

    def hidden(self, batch: Batch) -> Tensor:
        """Return the hidden activations of a batch of vectors, (batch, hidden)."""
        if isinstance(batch, SparseBatch):
            counts, sums = batch.starts.diff(), self.first(thermometers(batch, self.n_places))
        else:
            numbers = torch.arange(1, self.n_levels + 1, device=batch.device)
            switched = (batch[:, None] >= numbers[:, None]).flatten(1)
            counts, sums = (batch > 0).sum(1), self.first(switched.to(torch.bfloat16))  # 0 and 1 are exact in it
        usual = (_USUAL_COUNT / counts.clamp(min=1).to(self.first_bias.dtype)) ** self._power
        return torch.tanh(sums.to(self.first_bias.dtype) * usual[:, None] + self.first_bias)

    def level_scores(self, hidden: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Return the scores of the levels of all outputs, or of some, (batch, levels, outputs)."""
        weight: Tensor = self.last.weight
        bias: Tensor = self.last.bias
        if outputs is not None:
            places = self._places(outputs).T.flatten()
            weight, bias = weight[places], bias[places]
        steps = functional.linear(hidden, weight).to(bias.dtype) + bias  # also where the product is in half precision
        return steps.view(len(hidden), self.n_levels, -1).cumsum(1)

    def level_scores_at(self, hidden: Tensor, outputs: Tensor, starts: Tensor) -> Tensor:
        """Return those of some outputs of each vector, (entries, levels): of vector k at starts[k]:starts[k + 1]."""
        steps = self.last.at(hidden, self._places(outputs).flatten(), starts * self.n_levels)
        return steps.view(-1, self.n_levels).cumsum(1)

    def squared_weights(self) -> Tensor:
        """Return ||W||^2 + ||V||^2: the L2 penalty."""
        return self.first.weight.square().sum() + self.last.weight.square().sum()

    def _places(self, outputs: Tensor) -> Tensor:
        """Return where the weights of all levels of some outputs lie, (outputs, levels)."""
        return outputs.long()[:, None] + self.n_places * torch.arange(self.n_levels, device=outputs.device)


class Subset(Dropout):
    """Draws which of a vector's D entries it is shown: d of them, every d from 0 to D - 1 and every choice as likely.

    With a random key for each entry, those below the key of one entry chosen at random are such a draw: its rank is
    uniform, and all sets below it are as likely. That costs no sorting; equal keys are too rare to matter.
    """

    def __init__(self) -> None:
        super().__init__(0.0)

    def of_table(self, observed: Tensor) -> Tensor:
        """Return which places are shown, (batch, places), of those that are observed; two draws of fixed shape."""
        keys, lots = (
            torch.rand(observed.shape, generator=self.generator, device=observed.device, dtype=torch.float32)
            for _ in range(2)
        )
        chosen = torch.where(observed, lots, -1.0).argmax(1, keepdim=True)
        return observed & (keys < keys.gather(1, chosen))

    def of_entries(self, starts: Tensor) -> Tensor:
        """Return which entries are shown, (entries,), where those of vector k are at starts[k]:starts[k + 1]."""
        counts = starts.diff()
        n_entries = int(starts[-1])
        keys, lots = (
            torch.rand(size, generator=self.generator, device=starts.device, dtype=torch.float32)
            for size in (n_entries, counts.numel())
        )
        chosen = (starts[:-1] + (lots * counts).long()).clamp(max=n_entries - 1)  # where a vector has none, of another
        return keys < torch.repeat_interleave(keys[chosen], counts)


def entries_where(batch: SparseBatch, kept: Tensor) -> SparseBatch:
    """Return the vectors with some of their entries alone, by `kept` (entries,)."""
    ends = functional.pad(kept.cumsum(0), (1, 0))
    return SparseBatch(batch.indices[kept], ends[batch.starts], batch.weights[kept])


def thermometers(batch: SparseBatch, n_places: int) -> SparseBatch:
    """Return vectors of levels by number as vectors of ones at every level up to theirs.

    Adding up the weights of the levels once for all places would save entries, and costs as much (measured with 5
    levels); for a few vectors it would cost far more.
    """
    numbers = batch.weights.long()
    ends = functional.pad(numbers.cumsum(0), (1, 0))
    shifts = torch.repeat_interleave(batch.indices.long() - n_places * ends[:-1], numbers)
    indices = shifts + n_places * torch.arange(shifts.numel(), device=shifts.device)
    return SparseBatch(indices, ends[batch.starts], torch.ones_like(indices, dtype=batch.weights.dtype))


def ordinal_costs(level_scores: Tensor, levels: Tensor) -> Tensor:
    """Return the cost (batch, ...) of scores (batch, levels, ...) where the true levels are `levels` (batch, ...).

    Zheng et al. 2016: the negative logarithm of the probability to pick first the true level, then each lower one in
    turn, out of those that are not picked yet and not higher; and likewise upwards. Levels go by their number, from 1.
    """
    down = level_scores.logcumsumexp(1) - level_scores
    up = level_scores.flip(1).logcumsumexp(1).flip(1) - level_scores
    n_levels = level_scores.shape[1]
    numbers = torch.arange(1, n_levels + 1, device=levels.device).view(n_levels, *[1] * (levels.ndim - 1))
    true = levels[:, None]
    return (torch.where(numbers <= true, down, 0.0) + torch.where(numbers >= true, up, 0.0)).sum(1)


def expected_values(level_scores: Tensor, values: Tensor) -> Tensor:
    """Return the mean (batch, ...) of the levels' values (levels,) by the softmax of scores (batch, levels, ...)."""
    return level_scores.to(values.dtype).softmax(1).movedim(1, -1) @ values
