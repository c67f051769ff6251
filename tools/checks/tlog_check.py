"""Check a sealed history with aics-tlog, a reader of C2SP logs that others wrote (Python 3.12 or later).

    python tools/checks/tlog_check.py FOLDER PUBLIC-KEY

FOLDER is a history of a seal (COLLECTION/NUMBER). It checks the signature of the checkpoint, and of both trees every
tile and every entry against the root, an inclusion proof of some leaves, and the consistency proof of the last seal.
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
    found, history = checkpoint.parse_checkpoint(signed.text), ""
    digest = b64decode(found.extension_lines[0].split()[1]).hex()
    info = json.loads((folder / "info" / f"{digest}.json").read_text("utf-8"))
    for name in ("", "whole"):
        root = root_of(found, name)
        reader = tiles.FileSystemTileReader(folder / name)
        report = verified.audit_tiles(reader, found.size, root)
        for leaf in {0, found.size // 3, found.size - 1}:
            entry = tiles.read_entry(reader, leaf, found.size)
            proof = tiles.inclusion_proof_from_tiles(reader, leaf, found.size)
            if not tree.verify_leaf_inclusion(entry, leaf, found.size, proof, root):
                raise SystemExit(f"aics-tlog refuses leaf {leaf}")
        if nodes := info["whole_consistency" if name else "consistency"]:
            before = checkpoint.parse_checkpoint(info["previous"])
            proof = [b64decode(node) for node in nodes]
            if not tree.verify_consistency(before.size, found.size, root_of(before, name), root, proof):
                raise SystemExit("aics-tlog refuses the consistency proof")
            history = f", consistent with {before.size}"
    return f"{found.origin}: {found.size} leaves, {report.tiles} tiles, {report.bundles} bundles{history}"


def root_of(found: checkpoint.Checkpoint, name: str) -> bytes:
    """Return the root of the tree in this folder."""
    return b64decode(found.extension_lines[0].split()[2]) if name else bytes(found.root)


if __name__ == "__main__":
    print(check_history(Path(sys.argv[1]), sys.argv[2]))
