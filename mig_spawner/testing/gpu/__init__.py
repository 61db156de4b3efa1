"""Simulated GPUs: what is known of real models, and boards in memory that behave as theirs do.

`SimulatedNode` is the way in: the GPUs of one node, the faults they are told to have and, if a file is given, their state
on disk, so that a restarted agent, the demo's `nvidia-smi` and its kubelet see the same devices.
"""

from mig_spawner.testing.gpu.fault import Fault, Verb
from mig_spawner.testing.gpu.model import Model, find_model, list_models
from mig_spawner.testing.gpu.node import SimulatedNode

__all__ = ["Fault", "Model", "SimulatedNode", "Verb", "find_model", "list_models"]
