"""Free memory: as Linux and containers tell it, and a GPU."""

from pathlib import Path

import pytest
import torch

from deepmf.training import free_memory
from deepmf.training.free_memory import _available, _left_to_the_group, free_bytes

CPU = torch.device("cpu")


def test_what_linux_could_hand_out(tmp_path: Path) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:    2048 kB\n")
    assert _available(told) == 2048 * 1024
    assert _available(tmp_path / "absent") != 0  # all that there is, or not known


def test_what_a_container_leaves(tmp_path: Path) -> None:
    assert _left_to_the_group(tmp_path) is None
    for name, text in (("memory.current", "300\n"), ("memory.stat", "anon 200\ninactive_file 50\n")):
        (tmp_path / name).write_text(text)
    for limit, left in (("max", None), ("1000", 750), ("200", 0)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert _left_to_the_group(tmp_path) == left


def test_the_least_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, group, free in ((5, 3, 3), (5, None, 5), (None, None, None)):
        monkeypatch.setattr(free_memory, "_available", lambda available=available: available)
        monkeypatch.setattr(free_memory, "_left_to_the_group", lambda group=group: group)
        assert free_bytes(CPU) == free


def test_a_gpu_tells_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (7, 9))
    assert free_bytes(torch.device("cuda")) == 7
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 5)  # of which torch would hand out 3 again
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2)
    assert free_bytes(torch.device("cuda")) == 10
