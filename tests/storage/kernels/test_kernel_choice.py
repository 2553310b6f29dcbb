from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from storage.errors import KernelError
from storage.kernels import kernel_choice
from storage.kernels.kernel_choice import NATIVE_INTERFACE, load_native, select_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _forget_the_module() -> Iterator[None]:
    kernel_choice.native_module.cache_clear()
    yield
    kernel_choice.native_module.cache_clear()


def _native_is(monkeypatch: pytest.MonkeyPatch, interface: int | None) -> None:
    def load(name: str) -> SimpleNamespace:
        if interface is None:
            raise ModuleNotFoundError(name)
        return SimpleNamespace(INTERFACE=interface)

    monkeypatch.setattr(kernel_choice, "import_module", load)


@pytest.mark.parametrize(
    "interface, found",
    [(NATIVE_INTERFACE, "native"), (NATIVE_INTERFACE + 1, "numpy"), (None, "numpy")],
    ids=["native", "native of another version", "no native"],
)
def test_the_fastest_that_is_there_when_nothing_is_demanded(
    monkeypatch: pytest.MonkeyPatch, interface: int | None, found: str
) -> None:
    monkeypatch.delenv("EOCTL_KERNEL", raising=False)
    _native_is(monkeypatch, interface)
    assert select_kernel() == found
    assert (load_native() is not None) == (found == "native")


def test_a_kernel_can_be_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    _native_is(monkeypatch, NATIVE_INTERFACE)
    for name in ("pure", "numpy", "native"):
        monkeypatch.setenv("EOCTL_KERNEL", name)
        assert select_kernel() == name
        assert (load_native() is not None) == (name == "native")


@pytest.mark.parametrize("interface", [NATIVE_INTERFACE - 1, None])
def test_a_demanded_kernel_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, interface: int | None
) -> None:
    _native_is(monkeypatch, interface)
    monkeypatch.setenv("EOCTL_KERNEL", "native")
    with pytest.raises(KernelError, match="without its native kernel"):
        select_kernel()
    monkeypatch.setenv("EOCTL_KERNEL", "rust")
    with pytest.raises(KernelError, match="no such kernel"):
        select_kernel()


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    _native_is(monkeypatch, None)
    monkeypatch.setattr(kernel_choice, "find_spec", lambda name: None)
    monkeypatch.delenv("EOCTL_KERNEL", raising=False)
    assert select_kernel() == "pure"
    monkeypatch.setenv("EOCTL_KERNEL", "numpy")
    with pytest.raises(KernelError, match="not installed"):
        select_kernel()
