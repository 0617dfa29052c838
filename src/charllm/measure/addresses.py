"""Addresses of this machine: by which others may reach it, and which of them lead to the nodes of a job."""

import contextlib
import ipaddress
import socket
import time
from collections.abc import Iterable

from charllm.measure.settings import LOOPBACK

LOOK_UP_S = 10.0
"""Until the interfaces that lead to the nodes of a job must be found."""


def own_addresses() -> list[str]:
    """Return names and addresses by which others may reach this machine, the likeliest first."""
    name = socket.gethostname()
    found: list[str] = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: connecting only asks which of our addresses leads outside.
        probe.connect(("192.0.2.1", 9))
        found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET)]
    return list(dict.fromkeys([*found, name, "127.0.0.1"]))


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def addresses_toward(peers: Iterable[str]) -> list[str]:
    """Return our own addresses that lead to other machines; none where that is not known of each of them."""
    found: list[str] = []
    end_s = time.monotonic() + LOOK_UP_S
    for peer in peers:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                # Nothing is sent: connecting only asks which of our addresses leads there.
                probe.connect((peer, 9))
                found.append(probe.getsockname()[0])
        except OSError:
            return []
        if time.monotonic() > end_s:
            return []
    # A name of our own may stand for the loopback address: others try it last.
    return sorted(dict.fromkeys(found), key=lambda one: ipaddress.ip_address(one).is_loopback)


def own_addresses_for(nodes: int, peers: Iterable[str]) -> list[str]:
    """Return where the head of some nodes listens: on this machine alone where it is the only one."""
    return [LOOPBACK] if nodes == 1 else addresses_toward(peers)
