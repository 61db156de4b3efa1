"""Volumes: every claim is a folder on this machine, and gets a volume as soon as it asks for one."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path, PurePosixPath

from mig_spawner.testing.kube.kubelet.client import ApiError, KubeClient
from mig_spawner.testing.kube.resources import Manifest

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
_PROVISIONER = "mig-spawner.local/folder"


class ClaimFolders:
    """The folders of all claims, below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, namespace: str, claim: str) -> Path:
        return self._root / namespace / claim

    def of_pod(self, pod: Manifest) -> dict[str, Path]:
        """The folder behind each mount path of the pod's containers that shows a claim, made if need be."""
        namespace = pod["metadata"]["namespace"]
        by_volume = {
            volume["name"]: self.path(namespace, volume["persistentVolumeClaim"]["claimName"])
            for volume in pod["spec"].get("volumes") or []
            if volume.get("persistentVolumeClaim")
        }
        mounts: dict[str, Path] = {}
        for container in pod["spec"]["containers"]:
            for mount in container.get("volumeMounts") or []:
                if (folder := by_volume.get(mount["name"])) is not None:
                    below = PurePosixPath(mount.get("subPath") or ".")
                    if below.is_absolute() or ".." in below.parts:
                        continue
                    mounts[mount["mountPath"]] = folder / below
        for volume, folder in by_volume.items():
            if not mounts:
                mounts[f"/{volume}"] = folder
        for folder in mounts.values():
            folder.mkdir(parents=True, exist_ok=True)
        return mounts


def translate(path: str, mounts: dict[str, Path]) -> Path | None:
    """The folder of this machine that a path inside the pod means, if it lies on a claim."""
    wanted = PurePosixPath(path)
    for mount, folder in mounts.items():
        if wanted.is_relative_to(mount):
            return folder / wanted.relative_to(mount)
    return None


class Provisioner:
    """Gives each pending claim a volume, and takes the volume and the folder away with the claim."""

    def __init__(self, client: KubeClient, folders: ClaimFolders) -> None:
        self._client = client
        self._folders = folders
        self._queue: asyncio.Queue[tuple[str, Manifest]] = asyncio.Queue()

    def see(self, kind: str, claim: Manifest) -> None:
        """A claim was added, changed or deleted."""
        self._queue.put_nowait((kind, claim))

    async def run(self) -> None:
        """Provisions for ever."""
        while True:
            kind, claim = await self._queue.get()
            try:
                await (self._remove(claim) if kind == "DELETED" else self._provide(claim))
            except ApiError as error:
                if error.code not in {404, 409, 422}:  # gone, or another of the same name
                    _log.debug("claim %s waits: %s", claim["metadata"]["name"], error)
                    self._queue.put_nowait((kind, claim))
                    await asyncio.sleep(_RETRY_S)

    async def _provide(self, claim: Manifest) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        if claim["status"].get("phase") == "Bound" or metadata.get("deletionTimestamp"):
            return
        folder = self._folders.path(metadata["namespace"], metadata["name"])
        folder.mkdir(parents=True, exist_ok=True)
        name, capacity = _volume_name(claim), {"storage": spec["resources"]["requests"]["storage"]}
        volume: Manifest = {
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": _PROVISIONER}},
            "spec": {
                "capacity": capacity,
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "hostPath": {"path": str(folder.absolute())},
                "claimRef": {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        }
        if spec.get("storageClassName"):
            volume["spec"]["storageClassName"] = spec["storageClassName"]
        try:
            await self._client.create("/api/v1/persistentvolumes", volume)
        except ApiError as error:
            if error.code != 409:  # made before, perhaps by a kubelet that ended half-way
                raise
        path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}"
        marks = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        binding = {"metadata": {"uid": metadata["uid"], "annotations": marks}, "spec": {"volumeName": name}}
        await self._client.patch(path, binding)
        await self._client.patch(f"/api/v1/persistentvolumes/{name}/status", {"status": {"phase": "Bound"}})
        bound = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": capacity}
        await self._client.patch(f"{path}/status", {"metadata": {"uid": metadata["uid"]}, "status": bound})

    async def _remove(self, claim: Manifest) -> None:
        metadata = claim["metadata"]
        await self._client.delete(f"/api/v1/persistentvolumes/{_volume_name(claim)}")
        shutil.rmtree(self._folders.path(metadata["namespace"], metadata["name"]), ignore_errors=True)


def _volume_name(claim: Manifest) -> str:
    return f"pvc-{claim['metadata']['uid']}"
