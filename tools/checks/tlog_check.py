"""Check a sealed history with aics-tlog, a reader of C2SP logs that others wrote (Python 3.12 or later).

    python tools/checks/tlog_check.py FOLDER PUBLIC-KEY

FOLDER is a history of a seal (COLLECTION/NUMBER). It checks the signature of the checkpoint, every tile and every
entry against the root, an inclusion proof of some leaves, and the consistency proof of the last seal.
"""

import json
import sys
from base64 import b64decode
from pathlib import Path

from aics_tlog import checkpoint, note, tiles, tree, verified


def check_history(folder: Path, public_key: str) -> str:
    """Return what was checked, or fail."""
    key = note.parse_vkey(public_key)
    signed = note.parse_note((folder / "checkpoint").read_text("utf-8"))
    if not note.verify_note(signed, [key]):
        raise SystemExit("aics-tlog refuses the signature of the checkpoint")
    found = checkpoint.parse_checkpoint(signed.text)
    reader = tiles.FileSystemTileReader(folder)
    report = verified.audit_tiles(reader, found.size, found.root)
    for leaf in {0, found.size // 3, found.size - 1}:
        entry = tiles.read_entry(reader, leaf, found.size)
        proof = tiles.inclusion_proof_from_tiles(reader, leaf, found.size)
        if not tree.verify_leaf_inclusion(entry, leaf, found.size, proof, found.root):
            raise SystemExit(f"aics-tlog refuses leaf {leaf}")
    digest = b64decode(found.extension_lines[0].split()[1]).hex()
    info = json.loads((folder / "info" / f"{digest}.json").read_text("utf-8"))
    if info["consistency"]:
        before = checkpoint.parse_checkpoint(info["previous"])
        proof = [b64decode(node) for node in info["consistency"]]
        if not tree.verify_consistency(before.size, found.size, before.root, found.root, proof):
            raise SystemExit("aics-tlog refuses the consistency proof")
    history = f", consistent with {before.size}" if info["consistency"] else ""
    return f"{found.origin}: {found.size} leaves, {report.tiles} tiles, {report.bundles} bundles{history}"


if __name__ == "__main__":
    print(check_history(Path(sys.argv[1]), sys.argv[2]))
