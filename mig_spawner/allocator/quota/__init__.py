"""Quotas: `held` adds up what is held, `use` what is used of a quota, `check` says no in the granting transaction, `view` shows it."""
