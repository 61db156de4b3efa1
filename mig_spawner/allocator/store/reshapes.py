"""The part of the port that is about proposals to cut GPUs anew."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mig_spawner.domain.reshape import Reshape


class Reshapes(ABC):
    """A part of `Transaction`. What was done with a proposal is written down beside the acts on its node."""

    @abstractmethod
    def add_reshape(self, reshape: Reshape, *, who: str) -> bool:
        """Write a new proposal. False, and nothing is written, if there is one for that GPU of which something may still become."""

    @abstractmethod
    def move_reshape(self, before: Reshape, after: Reshape, *, who: str) -> None:
        """Write one step of a proposal's life.

        Raises:
            InvalidTransition: the stored one is not in the state of `before`.
        """

    @abstractmethod
    def reshape(self, reshape_id: str) -> Reshape | None: ...

    @abstractmethod
    def open_reshapes(self, *, node: str | None = None) -> list[Reshape]:
        """Proposals of which something may still become, or that hold; of all nodes or of one, oldest first."""

    @abstractmethod
    def ended_reshapes(self, most: int) -> list[Reshape]:
        """Those that have ended, newest first, at most so many. The newest 200 are kept."""
