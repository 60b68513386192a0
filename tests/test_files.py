import errno
import os
import platform
import re
import subprocess
import time
from math import inf
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nagphormer import UserError, __version__
from nagphormer.files import (
    check_size,
    check_vacant,
    checksum,
    format_size,
    locked,
    new_file,
    new_folder,
    newer_version,
    parse_seconds,
    parse_size,
    read_json,
    writable,
    write_json,
)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("4GB", 4 * 10**9),
        ("4 gb", 4 * 10**9),
        ("1.5kB", 1500),
        ("512MiB", 512 * 2**20),
        ("2TiB", 2 * 2**40),
        ("17", 17),
        ("17B", 17),
        (12, 12),
        (4e9, 4 * 10**9),
    ],
)
def test_sizes_are_read(text, num_bytes):
    assert parse_size(text) == num_bytes


def test_a_folder_to_be_replaced_is_there_until_the_new_one_is(tmp_path, monkeypatch):
    target = tmp_path / "folder"
    for name in ("one", "two"):
        with new_folder(target, replace=True) as staging:
            (staging / name).touch()
            assert target.exists() == (name == "two")
    rename = Path.rename

    def refuse(path, other):
        if "partial" in path.name:
            raise OSError(errno.EIO, "broken")
        return rename(path, other)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="broken"), new_folder(target, replace=True) as staging:
        (staging / "three").touch()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["folder", "folder/two"]


@pytest.mark.parametrize("text", ["", "GB", "4XB", "-4GB", "four", "4GB each", "nan", "0", "0GB", "0.1B", None])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UserError, match=r"size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (999_999, "1 MB"),
        (12_340_000, "12.3 MB"),
        (4e9, "4 GB"),
        (313e9, "313 GB"),
        (5e15, "5e+03 TB"),
    ],
)
def test_sizes_are_written_for_people(num_bytes, text):
    assert format_size(num_bytes) == text


@given(st.integers(1, 10**14))
def test_a_written_size_reads_back_to_three_digits(num_bytes):
    assert parse_size(format_size(num_bytes).replace(" ", "")) == pytest.approx(num_bytes, rel=5e-3)


def test_a_folder_takes_its_name_when_the_block_ends_well(tmp_path):
    with new_folder(tmp_path / "deep" / "folder") as folder:
        (folder / "file").write_text("content")
        assert not (tmp_path / "deep" / "folder").exists()
    assert (tmp_path / "deep" / "folder" / "file").read_text() == "content"
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["folder"]


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt(), SystemExit(), UserError("no")], ids=repr)
def test_a_folder_vanishes_when_the_block_fails(error, tmp_path):
    def work():
        with new_folder(tmp_path / "folder") as folder:
            (folder / "file").write_text("content")
            raise error

    with pytest.raises(type(error)):
        work()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_replaced_and_a_full_one_not(tmp_path):
    with new_folder(tmp_path) as folder:
        (folder / "file").write_text("first")
    with (
        pytest.raises(UserError, match="already exists: choose another folder or remove it first"),
        new_folder(tmp_path),
    ):
        pytest.fail("the block was entered")
    assert (tmp_path / "file").read_text() == "first"


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    check_vacant(tmp_path / "free")
    with pytest.raises(UserError, match="already exists"):
        check_vacant(tmp_path / "file")
    with pytest.raises(UserError, match="cannot write"), new_folder(tmp_path / "file" / "folder"):
        pytest.fail("the block was entered")


def test_leftovers_of_a_killed_run_are_swept(tmp_path):
    killed = subprocess.Popen(["true"])
    killed.wait()
    leftover = tmp_path / f".folder.partial-{platform.node()}-{killed.pid}"
    leftover.mkdir()
    running = tmp_path / f".folder.partial-{platform.node()}-{os.getppid()}"
    running.mkdir()
    (leftover / "old").touch()
    with new_folder(tmp_path / "folder") as folder:
        (folder / "new").touch()
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["new"]
    assert not leftover.exists()
    assert running.exists()


def test_a_file_takes_its_name_when_the_block_ends_well(tmp_path):
    with new_file(tmp_path / "deep" / "file") as staging:
        staging.write_text("content")
        assert staging.parent == tmp_path / "deep"  # on the same disk, so that it can be renamed
        assert not (tmp_path / "deep" / "file").exists()
    assert (tmp_path / "deep" / "file").read_text() == "content"
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["file"]


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path):
    (tmp_path / "file").write_text("old")
    with new_file(tmp_path / "file") as staging:
        staging.write_text("new")
        assert (tmp_path / "file").read_text() == "old"
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt(), SystemExit(), UserError("no")], ids=repr)
def test_a_file_is_left_as_it_was_when_the_block_fails(error, tmp_path):
    (tmp_path / "file").write_text("old")

    def work():
        with new_file(tmp_path / "file") as staging:
            staging.write_text("half")
            raise error

    with pytest.raises(type(error)):
        work()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_file_for_which_there_is_no_room_is_a_users_error(tmp_path):
    with pytest.raises(UserError, match="the disk filled up"), new_file(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "no space")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_of_a_files_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"), new_file(tmp_path / "file" / "deeper"):
        pytest.fail("the block was entered")


def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append((tmp_path / "file").exists()))
    with new_file(tmp_path / "file") as staging:
        staging.write_text("content")
    assert done == [False, True]  # first the content, after renaming the folder


def test_the_disk_is_asked_before_work(tmp_path):
    with (
        pytest.raises(UserError, match=r"needs 1e\+06 TB but only .* is free"),
        new_folder(tmp_path / "folder", 10**18),
    ):
        pytest.fail("the block was entered")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "the disk filled up while writing"),
        (errno.EROFS, "cannot write"),
        (errno.EACCES, "cannot write"),
        (errno.EPERM, "cannot write"),
        (errno.ENOTDIR, "cannot write"),
    ],
)
def test_refusals_of_the_system_become_user_errors(code, message, tmp_path):
    with pytest.raises(UserError, match=message), writable(tmp_path):
        raise OSError(code, os.strerror(code))


def test_other_errors_of_the_system_stay_what_they_are(tmp_path):
    with pytest.raises(OSError, match="broken"), writable(tmp_path):
        raise OSError(errno.EIO, "broken")


def test_json_comes_back_and_keeps_its_letters(tmp_path):
    content = {"kind": "graph", "format": 1, "name": "Â"}
    write_json(tmp_path / "file.json", content)
    assert read_json(tmp_path / "file.json", "graph", 1, ["kind"]) == content
    with pytest.raises(UserError, match=r"file.json is damaged \(it lacks 'files'\)"):
        read_json(tmp_path / "file.json", "graph", 1, ["kind", "files"])
    assert (tmp_path / "file.json").read_text(encoding="utf-8").endswith("}\n")
    assert "Â" in (tmp_path / "file.json").read_text(encoding="utf-8")


def manifest_of(folder, **more):
    write_json(folder / "graph.json", {"kind": "graph", "format": 1} | more)
    return folder / "graph.json"


def test_a_folder_of_a_newer_version_names_it_and_says_to_upgrade(tmp_path):
    path = manifest_of(tmp_path, format=2, versions={"nagphormer": "99.1.0", "torch": "2"})
    words = f"has format 2 but this version reads 1; nagphormer 99.1.0 wrote it and this is {__version__}: upgrade with"
    with pytest.raises(UserError, match=re.escape(words)):
        read_json(path, "graph", 1, [])
    with pytest.raises(UserError, match=r"reads 1; it is newer than this nagphormer: upgrade with pip"):
        read_json(manifest_of(tmp_path, format=2), "graph", 1, [])
    for form in (0, None, "2"):
        with pytest.raises(UserError, match="reads 1: make it again"):
            read_json(manifest_of(tmp_path, format=form), "graph", 1, [])


@pytest.mark.parametrize(
    ("versions", "newer"),
    [
        ({"nagphormer": "0.9.0"}, False),
        ({"nagphormer": "0.8.12"}, False),
        ({"nagphormer": "0.10.0"}, True),
        ({"torch": "99.0.0"}, False),
        (None, False),
    ],
)
def test_the_version_that_wrote_a_manifest_is_compared_by_its_numbers(versions, newer, monkeypatch):
    monkeypatch.setattr("nagphormer.files.__version__", "0.9.0")
    assert bool(newer_version({"versions": versions})) == newer


def test_checksums_are_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert checksum(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_sizes_of_files_are_checked(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    check_size(tmp_path / "file", 3)
    with pytest.raises(UserError, match="has 3 bytes instead of 4"):
        check_size(tmp_path / "file", 4)
    with pytest.raises(UserError, match="missing"):
        check_size(tmp_path / "other", 3)


def test_what_a_killed_process_left_of_a_file_is_swept_away(tmp_path):
    leftover = tmp_path / f".found.partial-{platform.node()}-{2**22 + 1}"  # above the largest process number
    leftover.write_text("half")
    with new_file(tmp_path / "found") as staging:
        staging.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["found"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), (90, 90), (0.5, 0.5), ("45s", 45), ("10m", 600), ("1.5h", 5400), (" 2 m ", 120), (None, inf)],
)
def test_times_are_read(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["0", "0m", -1, "1d", "10 min", "1,5h", "", "soon", True, float("nan"), "1h30m"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UserError, match=rf"cannot read {re.escape(repr(text))} as a time: write it like 90s, 10m or"):
        parse_seconds(text)


def test_others_may_read_a_new_file(tmp_path):
    with new_file(tmp_path / "found") as staging:
        staging.touch(0o600)
    assert (tmp_path / "found").stat().st_mode & 0o777 == 0o644


def test_a_lock_is_held_by_one_and_free_when_its_block_ends_in_any_way(tmp_path):
    path = tmp_path / "folder" / ".lock"
    with locked(path, "busy"), pytest.raises(UserError, match=r"^busy$"), locked(path, "busy"):
        pass
    with pytest.raises(KeyboardInterrupt), locked(path):
        raise KeyboardInterrupt
    with locked(path, "busy"):
        pass


def test_a_lock_is_waited_for(tmp_path):
    path, order = tmp_path / ".lock", []

    def other():
        with locked(path):
            order.append("other")

    with locked(path):
        thread = Thread(target=other)
        thread.start()
        time.sleep(0.1)
        order.append("one")
    thread.join()
    assert order == ["one", "other"]
