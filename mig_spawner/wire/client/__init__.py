"""The allocator's API for everybody who calls it: spawner, agent, command line, other tools.

Two clients, one for `async` code and one that blocks. What both do (which calls there are, what is tried again and when, how an
answer is read) stands once, as *flows*: generators that say what to send and how long to pause, and do no I/O themselves. The
two clients only run them.
"""

from mig_spawner.wire.client.asynchronous import AllocatorClient
from mig_spawner.wire.client.connection import DEFAULT_TIMEOUT_S
from mig_spawner.wire.client.patience import ONCE, Patience
from mig_spawner.wire.client.synchronous import SyncAllocatorClient

__all__ = ["DEFAULT_TIMEOUT_S", "ONCE", "AllocatorClient", "Patience", "SyncAllocatorClient"]
