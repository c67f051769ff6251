"""Suites in a deployed stack: publish one for scheduled runs, or run one now."""

from chunkproof.suite.cases import Suite
from chunkproof.suite.report import SuiteReport, read_report
from chunkproof.suite.shards import PUBLISHED
from chunkproof_cli.aws.executions import Machine, new_name
from chunkproof_cli.output import print_note

INCOMPLETE = "SuiteIncomplete"


def publish(stack: str, suite: Suite) -> str:
    """Make it the suite that the stack runs on its schedule and after deployments; return its address."""
    bucket = Machine.find(stack, "Suite").bucket
    bucket.write(PUBLISHED, suite.to_json().encode())
    return bucket.address(PUBLISHED)


def run_in_cloud(stack: str, suite: Suite, source: str, collection: str | None) -> SuiteReport:
    """Run the suite in AWS and return the report. Interrupting the command does not stop the run."""
    machine, run_id = Machine.find(stack, "Suite"), new_name()
    bucket, uploaded, report = machine.bucket, f"runs/{run_id}/given.json", f"runs/{run_id}/report.json"
    bucket.write(uploaded, suite.to_json().encode())
    given = {"suite": bucket.address(uploaded), "collection": collection or "", "source": source}
    run = machine.start(run_id, given)
    print_note(f"Run {run_id} is under way in {stack}; its report will be {bucket.address(report)}")
    machine.wait_for(run, INCOMPLETE)
    return read_report(bucket.read(report), bucket.address(report))
