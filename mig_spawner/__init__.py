"""Fractional GPU notebooks for JupyterHub.

Three processes share one wire and one domain: the **spawner** inside the hub asks for a lease and puts it into the
pod, the **allocator** decides which part of which GPU a lease gets, and one **agent** per node reads and cuts the GPUs.
"""

from mig_spawner._version import __version__

__all__ = ["__version__"]
