"""Print the Markdown table of results/dmf-ml-1m.jsonl that the README shows: mean and standard deviation over seeds.

The file is written by benchmarks/accuracy.py; a test checks that the README agrees with it.
"""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "dmf-ml-1m.jsonl"


def groups(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each model, protocol and setting, seeds together."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        result = json.loads(line)
        settings = ", ".join(f"{name}={value}" for name, value in result["settings"].items()) or "defaults"
        found.setdefault(f"{result['model']}, {result['protocol']}, {settings}", []).append(result)
    return dict(sorted(found.items()))


def spread(values: list[float]) -> str:
    """Return a mean and, of several values, their standard deviation."""
    mean = f"{statistics.mean(values):.4f}"
    return f"{mean} ± {statistics.stdev(values):.4f}" if len(values) > 1 else mean


def table(path: Path = RESULTS) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| model, protocol, settings | seeds | area | RMSE | level RMSE | level MAE |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, results in groups(path).items():
        for area in results[0]["errors"]:
            shown = [
                spread([result["errors"][area][metric] for result in results])
                for metric in ("rmse", "level_rmse", "level_mae")
            ]
            yield f"| {name} | {len(results)} | {area} | {' | '.join(shown)} |"


if __name__ == "__main__":
    print("\n".join(table()))
