"""Cutting idle partitions anew for those who wait: proposals on the ledger. What a good cut is stands in `domain/reshape`.

`propose` finds proposals and their effect, `check` says why one makes no sense any more, `advance` does what time changes, `follow`
what a report changes, `desire` writes what agents are told, `service` is what admins may do, `loop` runs it in the background.
"""
