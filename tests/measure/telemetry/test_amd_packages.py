import pytest

from charllm.measure.telemetry.amd_packages import Device, Package, group_packages


def mi250(*talking: bool) -> list[Device]:
    return [Device(f"0000:{0xC0 + place:02x}:00.0", "MI250", tells) for place, tells in enumerate(talking)]


@pytest.mark.parametrize(
    ("talking", "packages"),
    [
        ((True, False, True, False), [(0, (0, 1)), (2, (2, 3))]),
        ((False, True, False, True), [(1, (1, 0)), (3, (3, 2))]),
        ((True, True), [(0, (0,)), (1, (1,))]),
        ((False,), [(0, (0,))]),
        # One die of the second package is hidden from this container.
        ((True, False, True), [(0, (0, 1)), (2, (2,))]),
        ((), []),
    ],
)
def test_a_silent_die_joins_its_neighbour(
    talking: tuple[bool, ...], packages: list[tuple[int, tuple[int, ...]]]
) -> None:
    assert group_packages(mi250(*talking)) == [Package(*package) for package in packages]


def test_neighbours_are_found_by_address_whatever_the_order() -> None:
    first, second, third, fourth = mi250(True, False, True, False)
    assert group_packages([fourth, first, third, second]) == [Package(1, (1, 3)), Package(2, (2, 0))]


def test_a_gpu_of_another_kind_is_no_second_die() -> None:
    devices = [Device("0000:03:00.0", "MI210", True), Device("0000:04:00.0", "Radeon", False)]
    assert group_packages(devices) == [Package(0, (0,)), Package(1, (1,))]


def test_partitions_differ_in_the_last_digit() -> None:
    devices = [Device(f"0000:{bus}:00.{part}", "MI300X", part == 0) for bus in ("05", "26") for part in range(4)]
    assert group_packages(devices) == [Package(0, (0, 1, 2, 3)), Package(4, (4, 5, 6, 7))]


def test_devices_without_an_address_stand_alone() -> None:
    assert group_packages([Device("", "unknown", False)] * 2) == [Package(0, (0,)), Package(1, (1,))]
