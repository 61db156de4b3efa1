"""The queue on the ledger: serve it, change it, tell people about it. The rules themselves are in `domain/queue`."""
