"""`mig-spawner demo`: the whole path from login to a notebook on a GPU slice, on one machine, with simulated GPUs.

Everything that decides is the real thing: JupyterHub and its proxy, the allocator, one agent per node, JupyterLab.
What a laptop lacks is replaced by the fakes of `mig_spawner.testing`: the GPUs (they say so wherever they are shown) and
Kubernetes (an API server in memory and a kubelet that runs pods as local processes).

`option` is what was asked for, `stack` starts and stops the parts, `tour` walks through it as four people would.
"""
