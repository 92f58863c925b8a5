"""Systems of equations in ONNX: solved to rounding, also badly conditioned ones and those without a right side."""

import numpy as np
import onnxruntime
import pytest

from deepmf.export.onnx import solve
from deepmf.export.onnx_solver import conjugate_gradients, list_translations


@pytest.mark.slow  # importing onnxscript takes seconds
def test_systems_are_solved_to_rounding() -> None:
    generator = np.random.default_rng(0)
    lines = generator.normal(size=(3, 500, 40)) * np.geomspace(0.02, 8, 40)
    matrices = lines.transpose(0, 2, 1) @ lines + 3.0 * np.eye(40)
    assert np.linalg.cond(matrices).min() > 5000
    right = generator.normal(size=(3, 40, 1))
    right[2] = 0.0
    session = onnxruntime.InferenceSession(conjugate_gradients.to_model_proto().SerializeToString())
    (found,) = session.run(None, {"matrices": matrices.astype(np.float32), "right": right.astype(np.float32)})
    expected = np.linalg.solve(matrices, right)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    (loop,) = (node for node in conjugate_gradients.to_function_proto().node if node.op_type == "Loop")
    assert len(loop.output) == 1  # of several, the order would be left to chance
    assert list(list_translations()) == [solve._opoverload]


@pytest.mark.slow
def test_the_loop_carries_one_tensor_and_reads_nothing_else() -> None:
    graph = conjugate_gradients.to_model_proto().graph
    (loop,) = (node for node in graph.node if node.op_type == "Loop")
    (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
    assert len(loop.output) == 1  # of several, the order hangs on the hashes of their names
    own = {each.name for each in body.input} | {name for node in body.node for name in node.output}
    assert {name for node in body.node for name in node.input if name} <= own
