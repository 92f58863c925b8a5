"""Systems of equations in ONNX, which has no operator that solves them: conjugate gradients in a loop."""

# What is scripted is read as a graph, whose types onnxscript's annotations cannot follow.
# mypy: disable-error-code="arg-type, assignment, misc, return-value, type-arg, type-var"

from collections.abc import Callable
from typing import Any

import onnxscript
import torch
from onnxscript import FLOAT
from onnxscript import opset18 as op


@onnxscript.script(default_opset=op)
def conjugate_gradients(matrices: FLOAT[...], right: FLOAT[...]) -> FLOAT[...]:
    """Solve positive definite systems (n, unknowns, unknowns), scaled by the roots of their diagonals.

    The worst of a refinement that were met, of condition 5000, are solved to rounding after some 90 steps.
    """
    unknowns = op.Shape(right, start=1, end=2)
    one = op.EyeLike(op.ConstantOfShape(op.Concat(unknowns, unknowns, axis=0)), dtype=1)
    diagonal = op.ReduceSum(op.Mul(matrices, one), op.Constant(value_ints=[2]), keepdims=1)
    roots = op.Reciprocal(op.Sqrt(diagonal))
    scaled = op.Mul(op.Mul(matrices, roots), op.Transpose(roots, perm=[0, 2, 1]))
    axis = op.Constant(value_ints=[1])
    tiny = op.Constant(value_float=1e-30)
    residual = op.Mul(right, roots)
    direction = op.Identity(residual)
    solution = op.Sub(residual, residual)
    squares = op.ReduceSumSquare(residual, axis)
    for _ in range(128):
        image = op.MatMul(scaled, direction)
        step = op.Div(squares, op.Max(op.ReduceSum(op.Mul(direction, image), axis), tiny))
        solution = op.Add(solution, op.Mul(step, direction))
        residual = op.Sub(residual, op.Mul(step, image))
        before = op.Max(squares, tiny)
        squares = op.ReduceSumSquare(residual, axis)
        direction = op.Add(residual, op.Mul(op.Div(squares, before), direction))
        scaled = op.Identity(scaled)  # carried along: a graph is cut into files by what its nodes name as inputs,
        axis = op.Identity(axis)  # and what the body of a loop reads from outside is none
        tiny = op.Identity(tiny)
    return op.Mul(solution, roots)


def translations() -> dict[Callable[..., Any], Any]:
    """Return what torch's exporter puts in place of an operator that ONNX has not."""
    return {torch.ops.deepmf.solved.default: conjugate_gradients}
