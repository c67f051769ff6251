import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from chunkproof.base.files import (
    LOCK_FILE,
    LockedError,
    lock_folder,
    private_files,
    replace_file,
    write_file,
    write_new_file,
)

from support.commands import FULL, needs_full

HOLDER = """
import sys, time
from pathlib import Path
from chunkproof.base.files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old", "utf-8")

    def write_half() -> None:
        with replace_file(file) as part:
            part.write(b"half of the new")
            part.flush()
            assert file.read_text("utf-8") == "old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    write_file(file, "new")
    assert file.read_text("utf-8") == "new"


def test_a_replaced_file_keeps_its_permissions_and_a_link_its_target(tmp_path: Path) -> None:
    file, link = tmp_path / "report.json", tmp_path / "latest.json"
    file.touch(0o640)
    link.symlink_to(file)
    write_file(link, "new")
    assert link.is_symlink()
    assert (mode_of(file), file.read_text("utf-8")) == (0o640, "new")


@needs_full
def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "full.json"
    link.symlink_to(FULL)
    with pytest.raises(OSError, match="No space left"):
        write_file(link, "x")
    assert FULL.is_char_device()


def test_a_failed_write_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_file(tmp_path / "no" / "report.json", "x")
    assert raised.value.filename == str(tmp_path / "no" / "report.json")


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    write_new_file(file, "first")
    with pytest.raises(FileExistsError):
        write_new_file(file, "second")
    assert file.read_text("utf-8") == "first"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_is_locked_by_one_process_and_a_kill_releases_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(LockedError), lock_folder(folder):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with lock_folder(folder):
        assert (mode_of(folder), mode_of(folder / LOCK_FILE)) == (0o700, 0o600)


def test_of_many_processes_that_lock_and_remove_a_folder_one_works_at_a_time(tmp_path: Path) -> None:
    """Each appends its number twice, removes the folder and starts again: numbers must come in pairs."""
    program = """
import os, sys, time
from pathlib import Path
from chunkproof.base.files import LOCK_FILE, LockedError, lock_folder
folder, log, end = Path(sys.argv[1]), open(sys.argv[2], "ab", buffering=0), time.monotonic() + 2
while time.monotonic() < end:
    try:
        with lock_folder(folder):
            for _ in range(2):
                log.write(f"{os.getpid()}\\n".encode())
                time.sleep(0.001)
            (folder / LOCK_FILE).unlink()
            try:
                folder.rmdir()
            except OSError:
                pass
    except LockedError:
        pass
"""
    log = tmp_path / "log"
    command = [sys.executable, "-c", program, str(tmp_path / "state"), str(log)]
    workers = [subprocess.Popen(command) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    numbers = log.read_text("utf-8").split()
    assert len(numbers) > 20
    assert numbers[::2] == numbers[1::2]


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"), lock_folder(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]


def test_threads_that_need_private_files_at_the_same_time_leave_the_mask_as_it_was() -> None:
    mask = os.umask(0o022)
    try:
        first, second = private_files(), private_files()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert os.umask(0o077) == 0o077  # the second still needs it
        second.__exit__(None, None, None)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(mask)
