"""Makes a plan: jobs as JSON on stdin, plans on stdout. It takes seconds, so it is a process of its own, and a polite one."""

from __future__ import annotations

import os
import sys

from mig_spawner.allocator.foresight.codec import jobs_from_text, kinds_to_text
from mig_spawner.domain.policy.priced.plan import plan_kind

NICE = 10


def main() -> None:
    os.nice(NICE)
    jobs, candidates = jobs_from_text(sys.stdin.read())
    made = {kind: plan_kind(job, candidates=candidates) for kind, job in jobs.items()}
    sys.stdout.write(kinds_to_text({kind: plan for kind, plan in made.items() if plan is not None}))


if __name__ == "__main__":
    main()
