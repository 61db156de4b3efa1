"""What would happen, and how should the GPUs be cut? A simulator of fleets, and a planner of layouts.

Both run on the very code by which the allocator decides: GPUs, policies and queue rules are those of `mig_spawner.domain`.
`trace` and `traffic` say who comes when, `scenario` names whole settings, `fleet` has the GPUs, `simulation` lets time pass,
`bench` tries setups on the same arrivals and `kept` keeps what came of it, `measure`, `part` and `compare` turn runs into figures with
intervals, `report` and `plot` show them, `bound` and `optimum` say how much is left to gain.
"""
