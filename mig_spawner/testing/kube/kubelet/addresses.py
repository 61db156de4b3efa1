"""An address for each pod. On Linux all of 127.0.0.0/8 is this machine, so pods get addresses of their own and may all
listen on the same port; elsewhere there is only 127.0.0.1, and each pod must be told another port."""

from __future__ import annotations

import itertools
import os
import socket

HOST_ADDRESS = "127.0.0.1"

_pools = itertools.count()


class AddressPool:
    """Loopback addresses, each given to one pod at a time.

    Kubelets of one machine keep apart: the process id chooses the network 127.64.0.0/24 to 127.127.255.0/24.
    """

    def __init__(self) -> None:
        seed = os.getpid() + 4099 * next(_pools)
        self._prefix = f"127.{64 + (seed >> 8) % 64}.{seed % 256}"
        self._given: set[str] = set()
        self._next = itertools.cycle(range(2, 255))
        self.has_own_addresses = _can_bind(f"{self._prefix}.2")

    def take(self) -> str:
        """An address that no other pod has; 127.0.0.1 for all where there is no other. Raises `RuntimeError` when all
        are given."""
        if not self.has_own_addresses:
            return HOST_ADDRESS
        for last in itertools.islice(self._next, 253):
            address = f"{self._prefix}.{last}"
            if address not in self._given:
                self._given.add(address)
                return address
        raise RuntimeError(f"all addresses of {self._prefix}.0/24 are given to pods")

    def give_back(self, address: str) -> None:
        self._given.discard(address)


def _can_bind(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
