"""Where the embedded API server answers otherwise than a real one, and why that may stay so.

The one list of it. Every test that uses `cluster` runs on both servers; one that is named here must fail on the embedded
server, and only there: a row that is no longer true fails the suite, and so does a row that names no test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Difference:
    """A test, `file::name` without its parameters, that the embedded server does not pass, and why that is all right."""

    test: str
    reason: str


DIFFERENCES: Final = (
    Difference(
        "test_difference.py::test_an_unknown_field_is_refused",
        "It knows no schema, only the fields that it reads; the same pods meet the real server's strict validation.",
    ),
    Difference(
        "test_difference.py::test_what_cannot_be_decoded_is_told_in_words_of_go",
        "It names the field instead, which helps more; the status is the same (answers.yaml).",
    ),
    Difference(
        "test_difference.py::test_a_probe_is_completed",
        "Its kubelet has no probes, so that nobody would read what was filled in.",
    ),
    Difference(
        "test_difference.py::test_a_new_node_is_tainted_until_it_is_ready",
        "No controller would lift the taint; its scheduler looks at the node's Ready condition itself.",
    ),
    Difference(
        "test_difference.py::test_a_volume_is_protected",
        "No controller would lift the protection when the claim is gone.",
    ),
    Difference(
        "test_difference.py::test_a_pod_counts_its_generations",
        "Neither the hub nor the allocator reads it; both go by the revision.",
    ),
    Difference(
        "test_difference.py::test_applying_over_what_somebody_created_conflicts",
        "Only who applies owns fields there; nothing of ours applies.",
    ),
    Difference(
        "test_difference.py::test_a_pod_that_waits_has_no_log_yet",
        "What a pod prints is in a file: `Kubelet.log_path`.",
    ),
    Difference(
        "test_difference.py::test_a_table_has_the_wide_columns",
        "It has the columns that kubectl shows unless it is asked for more.",
    ),
    Difference(
        "test_difference.py::test_other_kinds_are_served",
        "Neither a hub nor mig-spawner asks for them.",
    ),
    Difference(
        "test_device.py::test_an_expression_that_cannot_be_read_is_invalid",
        "It has no interpreter of CEL, in which devices are selected.",
    ),
    Difference(
        "test_device.py::test_the_device_that_a_claim_selects_is_allocated",
        "To allocate devices takes a real scheduler and a controller that makes claims of templates.",
    ),
)
