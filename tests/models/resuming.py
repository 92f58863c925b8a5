"""What every solver keeps: a run that goes on from its arrays ends with the same bits."""

import numpy as np

from deepmf.models.solver import Solver


def assert_resumes_to_the_bit(whole: Solver, first: Solver, second: Solver) -> None:
    """Seven sweeps leave what three, and four more by another solver that was given their arrays,
    leave."""
    objectives = [whole.sweep() for _ in range(7)]
    begun = [first.sweep() for _ in range(3)]
    second.set_arrays(
        {name: np.array(array, order="C") for name, array in first.get_arrays().items()}
    )
    assert begun + [second.sweep() for _ in range(4)] == objectives
    for name, array in whole.get_arrays().items():
        np.testing.assert_array_equal(array, second.get_arrays()[name])
    for one, other in zip(whole.compute_latents(), second.compute_latents(), strict=True):
        np.testing.assert_array_equal(one, other)
