"""Size: what is unpacked of an artefact, layer and function together."""

from collections.abc import Mapping

from bench.artefacts import size_of
from bench.contestants import Contestant
from bench.results import Part

LAMBDA_LIMIT_MB = 262.144  # 250 MB of 1,048,576 bytes
BOTO3 = ("boto3", "botocore", "s3transfer")


def measure_size(contestants: Mapping[str, Contestant]) -> Part:
    """Megabytes of 1,000,000 bytes; `without_boto3_mb` for those who leave it to Lambda's runtime."""
    part = Part("size", f"size: unzipped artefacts (Lambda takes {LAMBDA_LIMIT_MB:.0f} MB)")
    for name, who in contestants.items():
        whole = size_of(who.folder)
        boto3 = sum(size_of(who.task / package) for package in BOTO3)
        part.add(name, unzipped_mb=[whole / 1e6], without_boto3_mb=[(whole - boto3) / 1e6])
    return part
