"""`python -m tests.controlplane`: find or build the programs and print their folder."""

from __future__ import annotations

import sys

from tests.controlplane.assets import main

sys.exit(main())
