"""The settings of the ways, and which one holds."""

from __future__ import annotations

from typing import Any

from traitlets import Enum, HasTraits, TraitError, Unicode, validate

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.injection.base import Injection
from mig_spawner.spawner.injection.cdi import CDIInjection
from mig_spawner.spawner.injection.device_plugin import DevicePluginInjection
from mig_spawner.spawner.injection.dra import DRAInjection
from mig_spawner.spawner.injection.env import EnvInjection
from mig_spawner.spawner.injection.volume_mount import VolumeMountInjection

WAYS = ("env", "volume-mounts", "cdi", "device-plugin", "dra")


class InjectionTraits(HasTraits):
    """How the device of a lease gets into the pod."""

    injection = Enum(
        WAYS,
        "env",
        config=True,
        help="""
        How the device of a lease gets into the pod: `env`, `volume-mounts`, `cdi`, `device-plugin` or `dra`.

        `env` fits wherever NVIDIA's container runtime is, and is the only one that no cut on demand can make stale. The page on
        injection says when another one is needed and what each needs of the nodes. A profile may differ from the rest of the cluster:
        `kubespawner_override: {injection: dra}`.
        """,
    )

    cdi_annotation = Unicode(
        "cdi.k8s.io/mig-spawner",
        config=True,
        help="""
        With `injection = "cdi"`, the key of the pod's annotation.

        Change it where the runtime looks for another prefix, such as `nvidia.cdi.k8s.io/`.
        """,
    )

    cdi_device = Unicode(
        "nvidia.com/gpu={uuid}",
        config=True,
        help="""
        With `injection = "cdi"`, kind and name of the device in the CDI specifications of the nodes, as `vendor/class=name`.

        It may refer to `{uuid}`, `{gpu_uuid}`, `{profile}`, `{start}` and `{size}`. Change the kind where the specification on the
        nodes is not the one that NVIDIA's toolkit writes.
        """,
    )

    device_plugin_prefix = Unicode(
        "nvidia.com/mig-",
        config=True,
        help="""
        With `injection = "device-plugin"`, how the names of the resources begin; the profile follows, with `.` for `+`.

        A whole GPU is the resource `gpu` of the same domain.
        """,
    )

    dra_device_class = Unicode(
        "mig.nvidia.com",
        config=True,
        help="""
        With `injection = "dra"`, the DeviceClass of MIG devices. Change it where the admins of the cluster made a class of their own.
        """,
    )

    dra_whole_device_class = Unicode(
        "gpu.nvidia.com",
        config=True,
        help="""
        With `injection = "dra"`, the DeviceClass of GPUs that are not cut.
        """,
    )

    @validate("cdi_annotation")
    def _an_annotation(self, proposal: Any) -> Any:
        return _tried(proposal, lambda value: CDIInjection(value, "nvidia.com/gpu={uuid}"))

    @validate("cdi_device")
    def _a_device(self, proposal: Any) -> Any:
        return _tried(proposal, lambda value: CDIInjection("cdi.k8s.io/mig-spawner", value))

    @validate("device_plugin_prefix")
    def _a_prefix(self, proposal: Any) -> Any:
        return _tried(proposal, DevicePluginInjection)

    @validate("dra_device_class", "dra_whole_device_class")
    def _a_class(self, proposal: Any) -> Any:
        return _tried(proposal, lambda value: DRAInjection(value, value))

    @property
    def mig_injection(self) -> Injection:
        """The way that holds for this server."""
        match self.injection:
            case "volume-mounts":
                return VolumeMountInjection()
            case "cdi":
                return CDIInjection(self.cdi_annotation, self.cdi_device)
            case "device-plugin":
                return DevicePluginInjection(self.device_plugin_prefix)
            case "dra":
                return DRAInjection(self.dra_device_class, self.dra_whole_device_class)
            case _:
                return EnvInjection()


def _tried(proposal: Any, make: Any) -> Any:
    try:
        make(proposal.value)
    except InvalidRequest as error:
        raise TraitError(str(error)) from error
    return proposal.value
