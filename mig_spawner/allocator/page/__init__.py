"""What people see of the allocator: views are values made from the ledger, templates turn them into HTML, handlers serve that."""
