"""Files on disk: whole or not at all."""

import errno
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

from nagphormer import __version__
from nagphormer.errors import Taken, UserError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_size(text: str | int | float) -> int:
    """Bytes in a size such as `4GB` (10⁹ each), `512MiB` or a plain number.

    >>> parse_size("4GB")
    4000000000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2].upper() not in _UNITS:
        raise UserError(f"cannot read {text!r} as a size: write it like 4GB, 512MB or 2GiB")
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    if size <= 0:
        raise UserError(f"a size must be positive, not {text!r}")
    return size


def parse_seconds(text: str | float | None) -> float:
    """Seconds in a time such as `90`, `45s`, `10m` or `1.5h`; without end for None.

    >>> parse_seconds("10m")
    600.0
    """
    if text is None:
        return inf
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(text))
    if match is None or float(match[1]) <= 0:
        raise UserError(f"cannot read {text!r} as a time: write it like 90s, 10m or 1.5h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def format_size(num_bytes: float) -> str:
    """A size for people, in powers of ten."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:  # so that rounding to three digits never gives 1e+03
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


@contextmanager
def new_folder(path: str | os.PathLike[str], num_bytes: int = 0, replace: bool = False) -> Iterator[Path]:
    """Give a temporary folder that takes the name `path` when the block ends well, and vanishes when not.

    Args:
        path: where the folder shall be; must not exist yet, or be an empty folder.
        num_bytes: about how much will be written; refused before work when the disk has less free.
        replace: put it in place of a folder that is there, which goes only then.
    """
    target = Path(path).absolute()
    if not replace:
        check_vacant(target)
    _sweep(target)
    staging = target.with_name(f".{target.name}.partial-{platform.node()}-{os.getpid()}")
    # not swept: should the machine stop between two renamings, what was there is still there under this name
    older = target.with_name(f".{target.name}.replaced-{platform.node()}-{os.getpid()}")
    with writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if num_bytes > free:
            raise UserError(
                f"{target} needs {format_size(num_bytes)} but only {format_size(free)} is free on that disk: "
                f"free some space or choose another folder"
            )
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
    try:
        with writable(target):
            yield staging
            _sync(staging)
            if replace and target.exists():
                target.rename(older)
            try:
                staging.rename(target)  # replaces an empty folder, refuses a full one
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise Taken(f"{target} was written by another process meanwhile: choose another folder") from error
            _sync_entry(target.parent)
            shutil.rmtree(older, ignore_errors=True)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        if replace and older.exists() and not target.exists():
            older.rename(target)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse now what `new_folder` would refuse after the work."""
    target = Path(path).absolute()
    check_vacant(target)
    with writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=target.parent).close()


def _sweep(target: Path) -> None:
    """Remove what runs on this machine left behind when they were killed."""
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.partial-{glob.escape(platform.node())}-*"):
        process = leftover.name.rpartition("-")[2]
        if process.isdigit() and not _alive(int(process)):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def check_vacant(target: Path) -> None:
    """Refuse a path that already holds something."""
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise UserError(f"{target} already exists: choose another folder or remove it first")


@contextmanager
def writable(target: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write into a message about `target`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise UserError(f"the disk filled up while writing {target}: free some space and run again") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise UserError(f"cannot write {target} ({error.strerror}): choose a folder you may write to") from error
        raise


def _sync(folder: Path) -> None:
    for file in folder.iterdir():
        _sync_entry(file)
    _sync_entry(folder)


def _sync_entry(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write readable JSON with a trailing newline."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, kind: str, version: int, keys: Iterable[str]) -> dict[str, Any]:
    """Read the manifest of a folder of ours and check its kind and format version.

    Args:
        path: the manifest's path.
        kind: what the folder should be, `graph` or `tokens`.
        version: the newest format this code reads; it reads all before.
        keys: what the manifest must hold.
    """
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} is not a {kind} folder: it does not exist")
    if not path.is_file():
        raise UserError(f"{path.parent} is not a {kind} folder: it has no {path.name}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): make the folder again") from error
    found = content.get("kind") if isinstance(content, dict) else None
    if found != kind:
        raise UserError(f"{path.parent} is not a {kind} folder" + (f" but a {found} folder" if found else ""))
    if not isinstance(form := content.get("format"), int) or not 1 <= form <= version:
        newer = newer_version(content) or "; it is newer than this nagphormer: upgrade with pip install -U nagphormer"
        mend = newer if isinstance(form, int) and form > version else ": make it again"
        raise UserError(f"{path.parent} has format {form!r} but this version reads {version}{mend}")
    if missing := [key for key in keys if key not in content]:
        raise UserError(f"{path} is damaged (it lacks {missing[0]!r}): make the folder again")
    return content


def newer_version(manifest: dict[str, Any]) -> str:
    """The end of a message about a folder that a newer version wrote, and what to do; nothing if none did."""
    versions = manifest.get("versions")
    wrote = str(versions.get("nagphormer", "")) if isinstance(versions, dict) else ""
    theirs, ours = (tuple(map(int, re.findall(r"\d+", version)[:3])) for version in (wrote, __version__))
    if theirs <= ours:
        return ""
    return f"; nagphormer {wrote} wrote it and this is {__version__}: upgrade with pip install -U nagphormer"


def checksum(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_size(path: Path, expected: int) -> None:
    """Refuse a file that is missing or not of the size its manifest gives."""
    if not path.is_file():
        raise UserError(f"{path} is missing: make the folder {path.parent} again")
    size = path.stat().st_size
    if size != expected:
        raise UserError(
            f"{path} has {size:,} bytes instead of {expected:,}: it was cut short or changed; "
            f"make the folder {path.parent} again"
        )


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary path that takes the name `path` when the block ends well, in place of any older file."""
    staging = path.with_name(f".{path.name}.partial-{platform.node()}-{os.getpid()}")
    try:
        with writable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(path)
            yield staging
            staging.chmod(0o644)  # safetensors lets nobody else read
            _sync_entry(staging)
            staging.replace(path)
            _sync_entry(path.parent)
    except BaseException:
        with suppress(OSError):
            staging.unlink()
        raise


@contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[None]:
    """Hold the lock of a file while the block runs; it ends with the process, however that ends.

    Args:
        path: the file, which stays.
        busy: how to refuse where another process holds it; without it, wait.
    """
    import fcntl

    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a")  # noqa: SIM115 (closed below)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as error:
            raise UserError(str(busy)) from error
        yield
