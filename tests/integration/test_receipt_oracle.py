"""A small run of `make receipt-oracle`: every kind of tamper, in Python and in node."""

from click.testing import CliRunner

from tools.checks.receipt_oracle import KINDS, main


def test_every_kind_of_tamper_is_detected_with_the_right_reason() -> None:
    done = CliRunner().invoke(main, ["--count", str(2 * len(KINDS)), "--seed", "7"])
    assert done.exit_code == 0, done.output
    assert "32 of 32 tampers of 16 kinds detected with the right reason" in done.output
    assert "0 of 32 honest receipts refused" in done.output
    assert "0 of 64 documents judged otherwise" in done.output
