"""How to make the embedded API misbehave, as clusters do on bad days."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass

from mig_spawner.testing.kube.resources import Manifest

PodMatch = str | Callable[[Manifest], bool]
"""Which pods are meant: a shell pattern for the name (`"*"` is all of them), or a predicate on the pod."""


@dataclass
class KubeKnobs:
    """What goes wrong, from now on. All knobs may be turned while the server runs; each is off by default."""

    create_delay: float = 0.0
    """Seconds that pass before the creation of a pod is answered. A client that gave up meanwhile does not stop it:
    the pod is created all the same."""

    create_delay_for: PodMatch = "*"
    """Which pods `create_delay` is for."""

    create_persists_first: bool = False
    """With `create_delay`: the pod is stored, visible and watched at once, and only the answer is late. Otherwise it is
    stored when the delay is over."""

    create_refused: str | None = None
    """The creation of pods is answered 403 with this message, for example
    `exceeded quota: gpu, requested: requests.nvidia.com/mig-1g.10gb=1, used: ...=4, limited: ...=4`."""

    stuck_pending: PodMatch | None = None
    """These pods stay Pending: no scheduler can bind them (the binding is answered 500). Pods whose author named a node
    never needed a scheduler and are not held."""

    stuck_terminating: PodMatch | None = None
    """These pods never go: even the kubelet's last word, a deletion with grace 0, leaves them Terminating."""

    delete_failures: int = 0
    """So many deletions of pods are answered 500 and do nothing; counts down to 0."""

    api_down: bool = False
    """Every request is answered 503, and watches that were open end."""

    def holds_pending(self, pod: Manifest) -> bool:
        """Whether a pod may not be bound."""
        return _matches(self.stuck_pending, pod)

    def holds_terminating(self, pod: Manifest) -> bool:
        """Whether a pod may not go."""
        return _matches(self.stuck_terminating, pod)

    def delays(self, pod: Manifest) -> float:
        """Seconds by which the creation of a pod is late."""
        return self.create_delay if _matches(self.create_delay_for, pod) else 0.0

    def takes_delete_failure(self) -> bool:
        """Whether this deletion fails; uses up one of `delete_failures`."""
        if self.delete_failures <= 0:
            return False
        self.delete_failures -= 1
        return True


def _matches(match: PodMatch | None, pod: Manifest) -> bool:
    if match is None:
        return False
    if callable(match):
        return match(pod)
    return fnmatch.fnmatchcase(pod["metadata"].get("name", ""), match)
