"""A real Kubernetes control plane as processes of this machine: etcd, API server, controllers, scheduler.

    async with ControlPlane(find_programs(os.environ)) as plane:
        plane.kubeconfig(folder / "admin.yaml")

It has the face of `EmbeddedKube`, and brings no kubelet either. Its programs are found, not built: that is `make controlplane`.
"""

from mig_spawner.testing.controlplane.program import HOW, PROGRAMS, ProgramsMissing, find_programs
from mig_spawner.testing.controlplane.run import ADMIN, ControlPlane, Panicked

__all__ = ["ADMIN", "HOW", "PROGRAMS", "ControlPlane", "Panicked", "ProgramsMissing", "find_programs"]
