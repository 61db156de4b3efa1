"""The ledger as it is kept from one transaction to the next, so that a decision costs the same on 10 and on 10,000 GPUs.

`facts` has the rows, `fleet` what follows from them for placement, `census` adds equal GPUs up, and `view` brings all of it up to
date. None of it is the truth: see `docs/decisions/0005-a-view-that-is-checked.md`.
"""
