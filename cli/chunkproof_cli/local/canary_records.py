"""Records of canaries in a folder of this machine."""

from dataclasses import dataclass
from pathlib import Path

from chunkproof.files import make_private_folder, write_file


@dataclass(frozen=True, slots=True)
class RecordFolder:
    """One file for each record."""

    path: Path

    def read_if_exists(self, name: str) -> bytes | None:
        """Read a record; None when there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: str | bytes) -> None:
        """Create or replace a record."""
        make_private_folder(self.path)
        write_file(self.path / name, content if isinstance(content, str) else content.decode())
