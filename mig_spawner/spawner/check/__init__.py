"""The start check: before a server opens, its container sees exactly what was leased, or the start fails with the cause."""
