"""The shape of the code: layers import only from their left, no cycles, a bare numeric core."""

import ast
import functools
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "deepmf"

# From left to right; nothing imports from its right. Names that share a place may not import each
# other.
LAYERS = [
    ["errors", "lazy"],
    ["formatting"],
    ["files"],
    ["storage"],
    ["metrics"],
    ["plots"],
    ["matrix"],
    ["data"],
    ["datasets"],
    ["nn"],
    ["training"],
    ["linalg"],
    ["scoring"],
    ["recommend"],
    ["models"],
    ["evaluation"],
    ["experiments"],
    ["sklearn", "serve", "report", "batch", "testing"],
    ["client"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
CORE = {name for name, rank in RANK.items() if rank <= RANK["experiments"]}
CORE_MAY_IMPORT = {"torch", "numpy", "scipy", "safetensors", "deepmf"}

# Libraries that the core imports inside functions only.
ON_DEMAND = {
    "data/excel.py": {"openpyxl"},
    "matrix/frames.py": {"narwhals", "polars"},
    "files.py": {"polars"},
    "plots.py": {"matplotlib"},
    "training/threads.py": {"threadpoolctl"},
}


def module_name(path: Path) -> str:
    parts = ["deepmf", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def imports(tree: ast.AST, *, inside_functions: bool, for_types: bool = False) -> Iterator[str]:
    """Yield imported modules; optionally those imported inside functions, and those for types alone
    (TYPE_CHECKING)."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not for_types:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
            continue
        if isinstance(node, ast.expr):
            continue  # most nodes, and none of them holds a statement
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module or "" for name in names)
        yield from imports(node, inside_functions=inside_functions, for_types=for_types)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


@functools.cache
def parse_all() -> dict[str, ast.Module]:
    """Return the syntax tree of every module by name."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def wrong_imports(module: str, tree: ast.AST) -> list[str]:
    """Imports of a layer on the right, or of a sibling at the same place."""
    here = layer_of(module)
    if here is None:
        return []  # the package root names what it offers and imports it on demand
    wrong = []
    for name in imports(tree, inside_functions=True, for_types=True):
        there = layer_of(name) if name.startswith("deepmf.") else None
        if there and there != here and RANK[there] >= RANK[here]:
            wrong.append(f"{module} imports {name}, which lies to its right")
    return wrong


def test_every_layer_is_known() -> None:
    assert {layer_of(name) for name in MODULES} - {None} <= RANK.keys()


def test_imports_go_left() -> None:
    assert [
        wrong for module, tree in parse_all().items() for wrong in wrong_imports(module, tree)
    ] == []


def test_wrong_imports_are_seen() -> None:
    assert wrong_imports(
        "deepmf.matrix.matrix", ast.parse("def f():\n    from deepmf.data.read import x")
    )
    assert wrong_imports(
        "deepmf.matrix.matrix", ast.parse("if TYPE_CHECKING:\n    from deepmf.data.read import x")
    )
    assert not wrong_imports("deepmf.data.read", ast.parse("from deepmf.matrix.scale import Scale"))


def test_no_import_cycle() -> None:
    graph = {
        name: {
            found
            for found in imports(tree, inside_functions=True, for_types=True)
            if found in MODULES
        }
        - {name}
        for name, tree in parse_all().items()
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_models_stand_on_eight_floors() -> None:
    names = {name for name in MODULES if name.startswith("deepmf.models.")}
    below = {
        name: names & set(imports(parse_all()[name], inside_functions=False)) - {name}
        for name in names
    }
    floors = dict[str, int]()
    for name in TopologicalSorter(below).static_order():
        floors[name] = 1 + max((floors[each] for each in below[name]), default=0)
    assert max(floors.values()) <= 8, {name for name, floor in floors.items() if floor > 8}


def reached(module: str) -> set[str]:
    """All modules that the import of one loads, other than inside functions: the packages on the
    way too."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            parts = name.split(".")
            left += [".".join(parts[:depth]) for depth in range(1, len(parts))]
            left += (
                list(imports(parse_all()[name], inside_functions=False)) if name in MODULES else []
            )
    return found


# What may load torch at the top: the training of networks, the paper's networks, and rankings on a
# device. All else is numpy: fitting, loading, predicting, ranking, extending, evaluating.
MAY_LOAD_TORCH = {
    "training": "blocks runtime trainer",
    "recommend": "device_ranking",
    "models": "dmf_network dmfd_network paper",
}
MODULES_THAT_LOAD_TORCH = {"deepmf.models.ordinal.network", "deepmf.models.ordinal.trainer"}


def may_load_torch(module: str) -> bool:
    _, package, *names = [*module.split("."), ""]
    may_load = names[0] in MAY_LOAD_TORCH.get(package, "").split()
    return may_load or module in MODULES_THAT_LOAD_TORCH


@pytest.mark.parametrize("package", sorted(CORE - {"experiments", "nn"}))
def test_what_works_after_training_does_not_load_torch(package: str) -> None:
    modules = [name for name in MODULES if layer_of(name) == package and not may_load_torch(name)]
    assert [name for name in modules if "torch" in reached(name)] == []


@pytest.mark.parametrize("module", ["deepmf", "deepmf.cli.app"])
def test_names_and_commands_are_light(module: str) -> None:
    assert reached(module) & {"torch", "numpy", "scipy", "polars"} == set()


def test_what_is_heavy_is_seen() -> None:
    assert {"torch", "numpy"} <= reached("deepmf.training.trainer")


def test_core_is_bare() -> None:
    allowed = CORE_MAY_IMPORT | sys.stdlib_module_names
    for module in (name for name in MODULES if layer_of(name) in CORE or layer_of(name) is None):
        path = MODULES[module].relative_to(SOURCE).as_posix()
        outside = {
            name.split(".")[0] for name in imports(parse_all()[module], inside_functions=False)
        } - allowed
        assert not outside, f"{path} imports {outside} at module level"
        anywhere = {
            name.split(".")[0] for name in imports(parse_all()[module], inside_functions=True)
        } - allowed
        assert anywhere <= ON_DEMAND.get(path, set()), f"{path} imports {anywhere} on demand"
