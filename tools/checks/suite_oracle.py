"""Compare our metrics with trec_eval's on a BEIR folder; `make suite-oracle` runs this.

Without a folder, one of 1,000 documents and 200 queries is generated. It is loaded into an embedded store and run with
the public commands; the judgments are read here separately, so that only the ranking is shared.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support import oracle
from support.beir import write_beir

PRECISION = 1e-9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, help="a BEIR folder with qrels/test.tsv")
    parser.add_argument("-k", "--top-k", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = given.folder or Path(work) / "machines"
        if given.folder is None:
            write_beir(folder)
        ours, theirs = compare(folder, Path(work), given.top_k)
    return print_table(ours, theirs)


def compare(folder: Path, work: Path, top_k: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of a run of the folder: ours, and trec_eval's of the same rankings."""
    report = work / "report.json"
    store = ["--data", str(work / "data"), "--collection", folder.name]
    _chunkproof("load", str(folder), *store)
    _chunkproof("suite", "run", str(folder), "-k", str(top_k), "-o", str(report), *store, may_fail=True)
    result = json.loads(report.read_text("utf-8"))["result"]
    # trec_eval sorts by score: the rank as score keeps the order of the response among equal scores.
    run = {
        case["name"]: {found["chunk_id"]: float(-found["rank"]) for found in case["actual_results"]}
        for case in result["test_results"]
    }
    qrels = read_qrels(folder / "qrels" / "test.tsv")
    theirs: dict[str, float] = {}
    for k in sorted({int(name.partition("@")[2]) for name in result["metrics"]}):
        theirs |= oracle.means(run, qrels, k)
    return result["metrics"], theirs


def print_table(ours: Mapping[str, float], theirs: Mapping[str, float]) -> int:
    """Print a line per metric; return 1 when one differs."""
    print(f"{'metric':<14}{'chunkproof':>18}{'trec_eval':>18}{'difference':>14}")
    for name, value in ours.items():
        print(f"{name:<14}{value:>18.12f}{theirs[name]:>18.12f}{abs(value - theirs[name]):>14.1e}")
    wrong = [name for name in {*ours, *theirs} if abs(ours.get(name, -1) - theirs.get(name, -1)) > PRECISION]
    print(f"{len(ours)} metrics, {len(wrong)} differ by more than {PRECISION:g}")
    return 1 if wrong or not ours else 0


def read_qrels(file: Path) -> dict[str, dict[str, int]]:
    """Return the grades of the queries that have a relevant document."""
    found: dict[str, dict[str, int]] = {}
    for line in file.read_text("utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        found.setdefault(query, {})[document] = int(grade)
    return {query: judged for query, judged in found.items() if any(grade > 0 for grade in judged.values())}


def _chunkproof(*arguments: str, may_fail: bool = False) -> None:
    done = subprocess.run([sys.executable, "-m", "chunkproof_cli", *arguments], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in ((0, 1) if may_fail else (0,)):  # 1: some query finds nothing relevant
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
