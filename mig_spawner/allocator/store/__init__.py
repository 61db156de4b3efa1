"""Where leases live. `base` is the port, `sql` its adapter; only `app` picks one."""
