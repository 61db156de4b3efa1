"""`python -m mig_spawner.cli`, for places where the script is not on the PATH."""

from mig_spawner.cli import main

main()
