"""The sampler as a member of a blend: the posterior mean of a factorisation.

Mostly, the chain is given normal scores instead of values: scores of counts, of skewed levels and of
values with outliers have noise that is more nearly normal.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from deepmf.linalg.backend import Backend
from deepmf.matrix.arrays import LatentArray
from deepmf.matrix.axis_entries import AxisEntries
from deepmf.matrix.entries import EntryStore
from deepmf.models.blending import HeldOutValues
from deepmf.models.gibbs.chain import GibbsSampler, NoiseBound, Samples, Units, run_chain
from deepmf.models.gibbs.encoder import MOST_FACTORS, N_BESIDE, NOTHING_NEW, SampleEncoder
from deepmf.models.members import Conversion, MemberFit, MemberInputs
from deepmf.scoring.encoders import Scores
from deepmf.scoring.factors import Factors, unpack_latents
from deepmf.storage.model_file import Tensors
from deepmf.training.holdout import choose

# The blind part of a chain, as one in a number of its iterations: of many entries, and of few.
_BLIND_PARTS = {False: 2, True: 3}

# Up to this many entries, held-out entries choose between chains of values and of scores; a factor
# needs fewer entries, as one that says nothing costs little there.
FEW_ENTRIES, _FEW_A_FACTOR = 20_000, 2

# Two chains are compared after a third of their iterations if these are at least this many.
_FEWEST_COMPARED = 40

# Samples that predict rehearsed arrivals: few are enough to tell how far they can be trusted.
REHEARSAL_SAMPLES = 8

# The latent size of a sample: the least; the size above which a factor needs twice the entries; the
# most on a CPU and on a GPU; and how many entries of the average row or column each factor needs.
_FEWEST_SAMPLED, _LARGE_SAMPLED, MOST_SAMPLED, _ENTRIES_A_FACTOR = 4, 32, {False: 16, True: 64}, 4


class SampledChain(NamedTuple):
    """A chain after some iterations, from which a longer one can go on; it predicts held-out
    entries unseen."""

    sampler: GibbsSampler
    n_run: int
    samples: Samples
    location: LatentArray | None  # of held-out entries, in the units of the chain
    error: float  # the mean squared error of held-out entries
    bound: NoiseBound | None = None

    @property
    def units(self) -> Units:
        """The units of the chain."""
        return self.sampler.units


@dataclass
class SamplerMember:
    """Samples of the posterior (`gibbs/`).

    The first half of a chain, or third of few entries, is given the entries without the held-out
    ones, and predicts these; the rest is given all entries. Where validation entries are given, the
    whole chain is not given these. Of few entries, two chains are compared after a third of the
    iterations.

    size: the latent size of a sample; None: it is chosen. bins: those of values without levels.
    earlier: a shorter chain of many entries to go on from. chain: the chain that was run.
    """

    size: int | None
    iterations: int
    n_samples: int
    bins: int
    seed: int
    earlier: SampledChain | None = None
    chain: SampledChain | None = field(default=None, init=False)

    def fit(self, inputs: MemberInputs) -> MemberFit | None:
        """Return the sampled posterior; None where there is none that can be drawn from."""
        if self.size == 0:
            return None
        try:
            return self._sample(inputs)
        except np.linalg.LinAlgError:
            return None

    def _sample(self, inputs: MemberInputs) -> MemberFit:
        training, entries, backend = inputs.seen, inputs.entries, Backend.of(inputs.device)
        is_joined, is_small = training is not entries, entries.train.n_entries <= FEW_ENTRIES
        n_blind = self.iterations
        if is_joined and self.iterations > 1:
            n_blind = max(1, self.iterations // _BLIND_PARTS[is_small])
        if self.earlier is None or is_small or self.earlier.n_run >= n_blind:
            best = self._start_chain(inputs, n_blind, is_small=is_small)
        else:
            best = self.earlier._replace(sampler=copy.copy(self.earlier.sampler), bound=None)
        if best.n_run < n_blind:
            epochs = range(best.n_run, n_blind)
            best = self._run_blind(best.sampler, epochs, inputs, bound=best.bound)
        self.chain, units, samples = best, best.units, best.samples
        n_joined = self.iterations - n_blind
        if is_joined and self.iterations > 1:
            sampler = copy.copy(best.sampler)
            sampler.set_entries(entries)
            epochs = range(n_blind, n_blind + n_joined)
            part = run_chain(sampler, epochs, burn_in=n_joined // 6, n_samples=self.n_samples)
            samples = part.samples
        blind = SampleEncoder(units, best.samples.take_last(REHEARSAL_SAMPLES), backend)
        encoder = SampleEncoder(units, samples, backend).narrow(entries)

        def encode_blind(rows: AxisEntries, columns: AxisEntries) -> Factors:
            nothing = Factors(NOTHING_NEW, NOTHING_NEW, blind.on_cpu(), N_BESIDE)
            return nothing.fold_in("row", rows).fold_in("column", columns)

        noise = units.deviation * math.sqrt(np.mean(1.0 / samples.alphas.astype(np.float64)))
        scores = None
        if best.location is not None:
            scores = Scores.of_values(best.location)
        return MemberFit(
            encoder.encode_all(entries),
            scores,
            noise,
            Conversion(units.score, units.mean),
            encode_blind,
        )

    def _start_chain(self, inputs: MemberInputs, n_blind: int, *, is_small: bool) -> SampledChain:
        """Return a chain of scores; of few entries, the better one of values and of scores."""
        seen, entries, held_out, _ = inputs
        makers = [Units.of, Units.by_scores] if is_small else [Units.by_scores]
        n_compared = n_blind
        if held_out is None:
            makers = makers[:1]
        elif is_small and seen is entries and n_blind >= 3 * _FEWEST_COMPARED:
            n_compared = n_blind // 3  # before the first sample that is used
        backend, size = Backend.of(inputs.device), self.size
        if size is None:
            size = choose_size(seen, is_gpu=backend.on_gpu)
        chains = []
        for make_units in makers:
            units = make_units(entries.train)
            sampler = GibbsSampler(seen, units, latent_size=size, seed=self.seed, backend=backend)
            epochs = range(n_compared)
            chains.append(self._run_blind(sampler, epochs, inputs, burn_in=n_compared // 3))
        return choose(chains, lambda chain: chain.error).candidate

    def _run_blind(
        self,
        sampler: GibbsSampler,
        epochs: range,
        inputs: MemberInputs,
        *,
        burn_in: int = 0,
        bound: NoiseBound | None = None,
    ) -> SampledChain:
        """Run iterations of a chain that is not given the held-out entries."""
        held_out, units = inputs.held_out, sampler.units
        if held_out is not None and bound is None:
            bound = NoiseBound(held_out, units, sampler.backend)
        part = run_chain(sampler, epochs, burn_in=burn_in, n_samples=self.n_samples, bound=bound)
        if held_out is None:
            return SampledChain(sampler, epochs.stop, part.samples, None, 0.0)
        predicted = units.deviation * part.predictions
        location = (units.mean + predicted).astype(np.float32)
        if not np.all(np.isfinite(location)):
            raise np.linalg.LinAlgError("the predictions of the chain are not finite numbers")
        values = HeldOutValues.of(held_out, inputs.entries.train, n_bins=self.bins)
        error = values.measure_alone(location, Conversion(units.score, units.mean))
        return SampledChain(sampler, epochs.stop, part.samples, location, error, bound)

    def load(self, content: Any, tensors: Tensors, entries: EntryStore) -> Factors:
        """Return the stored factors; anything that no sampler could have raises `BadModelFile`."""
        encoder = SampleEncoder.load(content, tensors, entries)
        latents = unpack_latents(tensors, entries, width=encoder.n_factors + N_BESIDE)
        return Factors(*latents, encoder, N_BESIDE).with_arrived(tensors, entries)


def choose_size(seen: EntryStore, *, is_gpu: bool) -> int:
    """Return the latent size of a sample for a matrix."""
    mean_count = 2 * seen.train.n_entries // sum(seen.train.shape)
    size = max(
        min(mean_count // _ENTRIES_A_FACTOR, _LARGE_SAMPLED), mean_count // (2 * _ENTRIES_A_FACTOR)
    )
    if seen.train.n_entries <= FEW_ENTRIES:
        size = min(mean_count // _FEW_A_FACTOR, MOST_SAMPLED[False])
    return max(_FEWEST_SAMPLED, min(MOST_SAMPLED[is_gpu], size))


def bound_width(*, size: int | None, n_samples: int, is_gpu: bool) -> int:
    """Return the largest width that the latents of the sampler may have with these settings."""
    if size == 0:
        return 0
    return min(n_samples * (size or MOST_SAMPLED[is_gpu]), MOST_FACTORS) + N_BESIDE
