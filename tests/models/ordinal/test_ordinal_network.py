"""The network of OrdinalDMF: latents of visible entries, and their mean over views, restated vector by vector."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deepmf.layers.branch import Branch
from deepmf.layers.input_channels import N_SUMMARY_FEATURES, channels
from deepmf.layers.masking import Masking, views
from deepmf.layers.vectors import DenseVectors, SparseBatch, SparseVectors, Vectors
from deepmf.models.ordinal import ordinal_network as ordinal_branches
from deepmf.models.ordinal.ordinal_head import OrdinalHead
from deepmf.models.ordinal.ordinal_network import OrdinalNetwork

N_ROWS, N_COLUMNS, N_VIEWS = 8, 6, 4


def network(*, n_views: int = N_VIEWS) -> OrdinalNetwork:
    """A small network with running statistics as if learned."""
    generator = torch.Generator().manual_seed(0)
    head = OrdinalHead([1, 2, 3], [-0.5, 0.5], [0.7, 0.2])
    rows = Branch(
        2 * N_COLUMNS,
        (7, 4 + head.n_row_outputs),
        dropout=0.5,
        generator=generator,
        n_summary_features=N_SUMMARY_FEATURES,
    )
    columns = Branch(
        2 * N_ROWS,
        (5, 4 + head.n_column_outputs),
        dropout=0.5,
        generator=generator,
        n_summary_features=N_SUMMARY_FEATURES,
    )
    for norm in (*rows.norms, *columns.norms):
        assert isinstance(norm, nn.BatchNorm1d)
        for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            assert tensor is not None
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.25)
    seen = [views(n_views, size, mask_rate=0.5, generator=generator) for size in (N_COLUMNS, N_ROWS)]
    return OrdinalNetwork(rows, columns, head, Masking(0.5), row_views=seen[0], column_views=seen[1]).eval()


def table() -> Tensor:
    """A matrix with NaN where nothing is observed; two equal rows, and one without entries."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randint(-1, 2, (N_ROWS, N_COLUMNS), generator=generator).float()
    values[torch.rand(N_ROWS, N_COLUMNS, generator=generator) < 0.5] = float("nan")
    values[5] = values[2]
    values[6] = float("nan")
    return values


def sparse(values: Tensor) -> SparseVectors:
    observed = ~values.isnan()
    at = observed.nonzero(as_tuple=True)
    return SparseVectors(torch.nn.functional.pad(observed.sum(1).cumsum(0), (1, 0)), at[1].int(), values[at])


def viewed(two: OrdinalNetwork, axis: str, vectors: Vectors, *, n_views: int | None = None) -> Tensor:
    ask = two.viewed_row_latents if axis == "rows" else two.viewed_column_latents
    return ask(vectors, n_views=n_views).detach()


def restated(two: OrdinalNetwork, axis: str, values: Tensor, n_views: int) -> Tensor:
    """The mean over views of the latents of what each view sees, one vector and one view at a time."""
    seen = two.row_views if axis == "rows" else two.column_views
    means = []
    for vector in values:
        latents = []
        for view in seen[:n_views]:
            visible = torch.where(view, vector, float("nan"))[None]
            if axis == "rows":
                latents.append(two.head.row_latents(two.rows(channels(visible, N_COLUMNS)))[0])
            else:
                latents.append(two.head.column_latents(two.columns(channels(visible, N_ROWS)))[0])
        means.append(torch.stack(latents).double().mean(0))
    return torch.stack(means).detach()


AXES = {"rows": table(), "columns": table().T.contiguous()}
every_axis = pytest.mark.parametrize("axis", AXES)


@every_axis
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n_views", [None, 1, 3])
def test_latents_are_means_over_views(axis: str, kind: str, n_views: int | None) -> None:
    two, values = network(), AXES[axis]
    vectors = DenseVectors(values) if kind == "dense" else sparse(values)
    found = viewed(two, axis, vectors, n_views=n_views)
    expected = restated(two, axis, values, n_views or N_VIEWS)
    assert found.shape == (len(values), 4 + 2 + two.head.n_response)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@every_axis
def test_views_of_a_vector_differ_so_its_mean_is_another(axis: str) -> None:
    two, values = network(), AXES[axis]
    assert not torch.allclose(restated(two, axis, values, 1), restated(two, axis, values, N_VIEWS), atol=1e-2)
    # Directions have length 1 and disagree: their mean is shorter, and so are scores.
    proper = restated(two, axis, values, N_VIEWS)[:, :4].norm(dim=1) / (two.head.scale.item() if axis == "rows" else 1)
    assert bool((proper < 1 + 1e-6).all()) and float(proper.min()) < 0.99


def test_equal_vectors_have_equal_latents_wherever_they_stand() -> None:
    two, values = network(), AXES["rows"]
    latents = viewed(two, "rows", sparse(values))
    torch.testing.assert_close(latents[5], latents[2], rtol=0, atol=1e-6)
    order = [6, 2, 0, 7]
    torch.testing.assert_close(viewed(two, "rows", sparse(values[order])), latents[order], rtol=0, atol=1e-6)


@every_axis
@pytest.mark.parametrize("at_a_time", [1, N_VIEWS, 3 * N_VIEWS + 1])
def test_one_vector_at_a_time_is_many_at_once(monkeypatch: pytest.MonkeyPatch, axis: str, at_a_time: int) -> None:
    two, values = network(), AXES[axis]
    whole = viewed(two, axis, sparse(values))
    monkeypatch.setattr(ordinal_branches, "_VECTORS_AT_A_TIME", at_a_time)
    torch.testing.assert_close(viewed(two, axis, sparse(values)), whole, rtol=0, atol=1e-6)


@every_axis
def test_few_entries_at_a_time_are_many_at_once(monkeypatch: pytest.MonkeyPatch, axis: str) -> None:
    two, vectors = network(), sparse(AXES[axis])
    whole, taken, take = viewed(two, axis, vectors), [], vectors.take

    def watched(ids: Tensor) -> SparseBatch:
        taken.append(take(ids))
        return taken[-1]

    monkeypatch.setattr(ordinal_branches, "_ENTRIES_AT_A_TIME", 8)
    monkeypatch.setattr(vectors, "take", watched)
    torch.testing.assert_close(viewed(two, axis, vectors), whole, rtol=0, atol=1e-6)
    longest = N_VIEWS * int(vectors.starts.diff().max())
    assert len(taken) > 2 and max(batch.indices.numel() for batch in taken) <= 8 + longest


def test_some_vectors_are_as_among_all() -> None:
    two, vectors = network(), sparse(AXES["rows"])
    some = torch.tensor([6, 2, 2])
    torch.testing.assert_close(
        two.viewed_row_latents(vectors, some).detach(), viewed(two, "rows", vectors)[some], rtol=0, atol=1e-6
    )


@every_axis
def test_one_view_is_a_look_at_all_of_it(axis: str) -> None:
    two, values = network(n_views=1), AXES[axis]
    ask = two.row_latents if axis == "rows" else two.column_latents
    torch.testing.assert_close(viewed(two, axis, sparse(values)), ask(values).detach(), rtol=0, atol=1e-6)


def test_a_vector_without_entries_has_the_latent_of_nothing() -> None:
    two, nothing = network(), torch.full((3, N_COLUMNS), float("nan"))
    expected = two.row_latents(nothing[:1]).detach()[0]
    for vectors in (DenseVectors(nothing), sparse(nothing)):
        latents = viewed(two, "rows", vectors)
        assert bool(latents.isfinite().all())
        torch.testing.assert_close(latents, expected.expand(3, -1), rtol=0, atol=1e-6)


def test_views_go_into_the_file() -> None:
    state = network().state_dict()
    assert {"row_views", "column_views"} < set(state)
    assert state["row_views"].shape == (N_VIEWS, N_COLUMNS) and state["column_views"].shape == (N_VIEWS, N_ROWS)
    other = network()
    other.row_views.logical_not_()
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.row_views, state["row_views"])
