"""The hub of `spawn.py`: that of the tests, but people called `plain-…` have a KubeSpawner."""

from pathlib import Path
from typing import Any

from kubespawner import KubeSpawner

from mig_spawner.spawner import MIGSpawner, lease

HUB = Path(__file__).resolve().parents[1] / "spawner/hub"


class Either(MIGSpawner):
    """A MIGSpawner for some and a KubeSpawner for others, since a hub has one class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return (KubeSpawner if kwargs["user"].name.startswith("plain") else MIGSpawner)(*args, **kwargs)


load_subconfig("jupyterhub_config.py", path=str(HUB))  # type: ignore[name-defined]  # noqa: F821
vars(lease)["RENEW_S"] = 60  # as it is outside of tests

c = get_config()  # type: ignore[name-defined]  # noqa: F821
c.JupyterHub.spawner_class = Either
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 30}
c.KubeSpawner.poll_interval = 30
