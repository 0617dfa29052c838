"""Which GPU torch works on, on builds for CUDA, for ROCm and for neither."""

from types import SimpleNamespace

import pytest
import torch

from charllm.errors import SpecError
from charllm.measure.device import fp8_type, platform, require_device
from charllm.measure.kernels import device_code


@pytest.fixture
def rocm_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    monkeypatch.setattr(torch.version, "cuda", None)


@pytest.mark.parametrize(
    ("hip", "cuda", "found"), [(None, "12.8", "cuda"), ("6.4", None, "hip"), (None, None, "cpu")]
)  # fmt: skip
def test_the_platform_is_what_torch_was_built_for(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, cuda: str | None, found: str
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    assert platform() == found


def test_a_build_without_a_gpu_says_what_it_was_built_for(rocm_build: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SpecError, match=r"torch finds no GPU here \(it is built for ROCm\)"):
        require_device("cuda")


def test_kernels_for_amd_read_the_clock_of_amd(rocm_build: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = []

    def compiler(source: str, _name: str) -> object:
        sources.append(source)
        return lambda **_launch: None

    monkeypatch.setattr(torch.cuda, "_compile_kernel", compiler, raising=False)
    monkeypatch.setattr(device_code, "_compiled", {})
    device_code.make_spin(16, 0.01)()
    assert "wall_clock64" in sources[0]
    assert "asm" not in sources[0]


@pytest.mark.parametrize(("chip", "kind"), [("gfx942:sramecc+", "float8_e4m3fnuz"), ("gfx950", "float8_e4m3fn")])
def test_mi300_multiplies_a_type_of_its_own(
    rocm_build: None, monkeypatch: pytest.MonkeyPatch, chip: str, kind: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(gcnArchName=chip))
    fp8_type.cache_clear()
    try:
        assert fp8_type() == getattr(torch, kind)
    finally:
        fp8_type.cache_clear()
