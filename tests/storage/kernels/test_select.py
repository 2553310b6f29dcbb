from __future__ import annotations

import pytest

from storage.errors import KernelError
from storage.kernels import select
from storage.kernels.select import select_kernel


def test_the_preference_counts_when_nothing_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOCTL_KERNEL", raising=False)
    assert select_kernel() == "numpy"
    assert select_kernel("pure") == "pure"


def test_a_kernel_can_be_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_KERNEL", "pure")
    assert select_kernel("numpy") == "pure"
    monkeypatch.setenv("EOCTL_KERNEL", "numpy")
    assert select_kernel("pure") == "numpy"
    monkeypatch.setenv("EOCTL_KERNEL", "native")
    with pytest.raises(KernelError, match="native: no such kernel"):
        select_kernel()


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "find_spec", lambda name: None)
    monkeypatch.delenv("EOCTL_KERNEL", raising=False)
    assert select_kernel() == "pure"
    monkeypatch.setenv("EOCTL_KERNEL", "numpy")
    with pytest.raises(KernelError, match="not installed"):
        select_kernel()
