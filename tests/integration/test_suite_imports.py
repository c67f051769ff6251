"""What the suite function loads."""

import subprocess
import sys
from pathlib import Path

APP = Path(__file__).parents[2] / "functions" / "suite" / "app.py"


def test_the_suite_function_loads_no_http_resolver() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code, str(APP)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loaded = set(run.stdout.split())
    assert "chunkproof.suite.suite_job" in loaded
    unwanted = ("chunkproof.service.api", "aws_lambda_powertools.event_handler")
    assert not [name for name in loaded if name.startswith(unwanted)]
