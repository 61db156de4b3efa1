"""From a lease to a device in a pod. `base` is the port, and `trait` picks one of the ways beside it.

`conflict` finds what a pod already says against its lease, `companion` creates what a way needs beside the pod, and `injector` does
both for the spawner.
"""
