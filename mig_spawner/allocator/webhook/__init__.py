"""Telling other systems. `address` says where to, `signature` proves that it is us, `service` is what admins do with webhooks, and
`delivery` sends what was written with the moves of leases."""
