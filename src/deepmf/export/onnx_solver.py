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
    first = op.Mul(right, roots)
    # One state for all: onnxscript orders several of a loop at random, and files are cut out of a graph by what its
    # nodes name as inputs, which what the body of a loop reads from outside is not. Its last three columns are the
    # solution, the residual and the direction.
    state = op.Concat(scaled, op.Sub(first, first), first, first, axis=2)
    for _ in range(128):
        last = op.Constant(value_ints=[2])
        system = op.Slice(state, op.Constant(value_ints=[0]), op.Constant(value_ints=[-3]), last)
        solution = op.Slice(state, op.Constant(value_ints=[-3]), op.Constant(value_ints=[-2]), last)
        residual = op.Slice(state, op.Constant(value_ints=[-2]), op.Constant(value_ints=[-1]), last)
        direction = op.Slice(state, op.Constant(value_ints=[-1]), op.Constant(value_ints=[2147483647]), last)
        axis = op.Constant(value_ints=[1])
        tiny = op.Constant(value_float=1e-30)
        squares = op.ReduceSumSquare(residual, axis)
        image = op.MatMul(system, direction)
        step = op.Div(squares, op.Max(op.ReduceSum(op.Mul(direction, image), axis), tiny))
        moved = op.Add(solution, op.Mul(step, direction))
        left = op.Sub(residual, op.Mul(step, image))
        turn = op.Div(op.ReduceSumSquare(left, axis), op.Max(squares, tiny))
        state = op.Concat(system, moved, left, op.Add(left, op.Mul(turn, direction)), axis=2)
    found = op.Slice(state, op.Constant(value_ints=[-3]), op.Constant(value_ints=[-2]), op.Constant(value_ints=[2]))
    return op.Mul(found, roots)


def translations() -> dict[Callable[..., Any], Any]:
    """Return what torch's exporter puts in place of an operator that ONNX has not."""
    return {torch.ops.deepmf.solved.default: conjugate_gradients}
