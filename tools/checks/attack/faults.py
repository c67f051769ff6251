"""Faults of Qdrant and Cohere in random order, while the real handlers serve: silence, garbage, bombs, cuts.

Every response comes within the deadline and its grace, and the request after the fault succeeds.
"""

from support.fault_table import EVENTS, fault_names, fault_setup, run_fault
from tools.checks.attack.attack import Attack


def run(attack: Attack) -> None:
    """Put one fault after the other in force."""
    with fault_setup() as setup:
        faults = [fault for fault in fault_names() if fault[1] not in EVENTS]  # those restart the server
        while attack.goes_on():
            dependency, name = attack.rng.choice(faults)
            row = run_fault(setup, dependency, name)
            late = "" if row.is_in_time else f" after {row.ms:.0f} ms"
            lasting = "" if row.recovered else ", and the next request failed too"
            wrong = f"{dependency}, {name}: {row.status} {row.code}{late}{lasting}"
            attack.note(row.ms / 1000, wrong if late or lasting or row.code == "INTERNAL" else None)
