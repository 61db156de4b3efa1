"""The allocator: the service that decides which GPU slice a holder gets, and remembers it.

`app` wires, `handlers` speak HTTP, `service`, `node` and `timer` run one transaction per use case over a `ledger`, `loops` are
timers, `store` persists. Nothing is kept in memory between two transactions: the store is the only truth.
"""
