"""A small run of `make receipt-oracle`: every kind of tamper, in Python and in node."""

from click.testing import CliRunner

from tools.checks.receipt_oracle import KINDS, main


def test_every_kind_of_tamper_is_detected_with_the_right_reason() -> None:
    done = CliRunner().invoke(main, ["--count", str(2 * len(KINDS)), "--seed", "7"])
    assert done.exit_code == 0, done.output
    count = 2 * len(KINDS)
    assert f"{count} of {count} tampers of {len(KINDS)} kinds detected with the right reason" in done.output
    assert f"0 of {count} honest receipts refused" in done.output
    assert f"0 of {2 * count} documents judged otherwise" in done.output
