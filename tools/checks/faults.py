"""Drive every fault of all services through the real handlers and print a table (`make test-faults`).

Exit 1 when a response came too late or the request after the fault failed.
"""

import sys

from support.fault_table import DEADLINE_MS, MARGIN_MS, fault_names, fault_setup, run_fault
from support.qdrant_server import NoServerError
from support.quiet import silence_handlers


def main() -> int:
    with silence_handlers() as say, fault_setup() as setup:
        say(f"{'service':16} {'fault':29} {'code':21} status    ms  calls  recovered")
        rows = []
        for dependency, name in fault_names():
            row = run_fault(setup, dependency, name)
            rows.append(row)
            recovered = "yes" if row.recovered else "NO"
            say(f"{dependency:16} {name:29} {row.code:21} {row.status:6} {row.ms:5.0f} {row.calls:6}  {recovered}")
        in_time = sum(row.is_in_time for row in rows)
        well = sum(row.recovered for row in rows)
        say(f"{well} of {len(rows)} recovered")
        say(f"{in_time} of {len(rows)} within the deadline ({DEADLINE_MS} ms, {MARGIN_MS} ms of grace)")
        return 0 if in_time == well == len(rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoServerError as reason:
        sys.exit(f"This needs a Qdrant server: {reason}")
