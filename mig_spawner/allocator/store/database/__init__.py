"""The databases that a ledger may live in."""
