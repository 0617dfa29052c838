import pytest

from charllm.units import (
    SUFFIXES,
    format_bytes,
    format_figure,
    format_params,
    format_si,
    seconds_format,
    si_key,
    split_suffix,
)


@pytest.mark.parametrize(
    ("key", "si", "factor"),
    [
        ("memory_gib", "memory_bytes", 2**30),
        ("memory_gb", "memory_bytes", 1e9),
        ("nic_bandwidth_gbit_per_s", "nic_bandwidth_bytes_per_s", 1.25e8),
        ("clock_max_mhz", "clock_max_hz", 1e6),
        ("latency_us", "latency_s", 1e-6),
        ("layers", "layers", 1.0),
        ("bytes", "bytes", 1.0),
    ],
)
def test_a_human_key_has_one_si_spelling(key: str, si: str, factor: float) -> None:
    assert si_key(key) == (si, factor)


def test_the_longest_suffix_wins() -> None:
    assert split_suffix("link_bandwidth_gb_per_s") == ("link_bandwidth", "gb_per_s")


def test_every_si_suffix_is_its_own_unit() -> None:
    for si_suffix, _factor in SUFFIXES.values():
        assert SUFFIXES[si_suffix] == (si_suffix, 1.0)


def test_gb_and_gib_are_different() -> None:
    assert SUFFIXES["gb"][1] < SUFFIXES["gib"][1]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (512, "512 B"), (6 * 2**20, "6 MiB"), (140.4 * 2**30, "140 GiB"), (20 * 2**40, "20 TiB")],
)
def test_bytes_are_written_in_binary_units(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


def test_numbers_keep_three_digits() -> None:
    assert format_si(1.2345e15, "FLOP") == "1.23 PFLOP"
    assert format_si(0.5) == "0.50"
    assert format_params(70_553_706_496) == "70.6 B"


@pytest.mark.parametrize(
    ("scale_s", "written"),
    [(3842.4, "12.3"), (123.4, "12.35"), (2.5, "12.346"), (0.3, "12.3456"), (0.01, "12.345600")],
)
def test_short_times_are_written_with_more_places(scale_s: float, written: str) -> None:
    assert seconds_format(scale_s)(12.3456) == written


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("memory_bytes", 150754820096.0, "140 GiB"),
        ("nic_bandwidth_bytes_per_s", 12.5e9, "12.5 GB/s"),
        ("peak_bf16_flop_per_s", 9.894e14, "989 TFLOP/s"),
        ("clock_max_hz", 1.98e9, "1,980 MHz"),
        ("launch_s", 13.32e-6, "13.32 us"),
        ("flop_j", 0.41e-12, "0.41 pJ"),
        ("power_cap_w", 1000.0, "1,000 W"),
        ("heads", 64, "64"),
        ("tokens_per_s", 76630.7, "76,631"),
        ("power_ramp_w_per_s", 4369.27, "4,369"),
        ("upstream", [-1, 0], "-1, 0"),
        ("rail", True, "yes"),
        ("experts", None, "-"),
    ],
)
def test_figures_are_written_in_the_unit_people_use(key: str, value: object, written: str) -> None:
    assert format_figure(key, value) == written
