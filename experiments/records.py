"""Recorded cells: a file of JSON lines for every data set, a line a cell, and one for the machines.

Files are rewritten sorted, whole or not at all, under a lock that all processes share, and a cell's line replaces the
one before. Where two branches were merged a cell may have two: the newer counts, of the same day the later line.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from nagphormer import UserError
from nagphormer.files import new_file

RESULTS = Path(__file__).parent / "results"
MACHINES = "machines"
MACHINE = ("device", "versions")
"""What many cells have in common: each such machine is written once, and cells name it."""

Facts = dict[str, Any]


def find(dataset: str, method: str, settings: Facts, seed: int) -> Facts | None:
    """What was recorded of a cell, if it was."""
    facts = _read(dataset).get(_key({"method": method, "settings": settings, "seed": seed}))
    return facts and facts | _read(MACHINES)[facts["machine"]]


def write(facts: Facts) -> None:
    """Record a cell, in place of what was recorded of it before."""
    machine = {name: facts[name] for name in MACHINE}
    name = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:8]
    rest = {name: value for name, value in facts.items() if name not in MACHINE}
    with _alone():
        _put(MACHINES, {"machine": name} | machine)
        _put(facts["dataset"], rest | {"machine": name})


def _key(facts: Facts) -> str:
    """What tells the lines of a file apart."""
    if "method" not in facts:
        return facts["machine"]
    return json.dumps([facts["method"], facts["settings"], facts["seed"]], sort_keys=True)


def _put(name: str, facts: Facts) -> None:
    """Write a file anew with one line more, or another one."""
    lines = _read(name)
    if lines.get(_key(facts)) != facts:
        lines = dict(sorted((lines | {_key(facts): facts}).items()))
        with new_file(RESULTS / f"{name}.jsonl") as staging:
            texts = (json.dumps(line, ensure_ascii=False) + "\n" for line in lines.values())
            staging.write_text("".join(texts), encoding="utf-8")
        _parsed.cache_clear()


@contextmanager
def _alone() -> Iterator[None]:
    """Keep out other processes that write."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / ".lock", "w") as lock:  # not the file that is written: a new one takes its place
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        yield


def _read(name: str) -> dict[str, Facts]:
    """A file's lines by what tells them apart."""
    path = RESULTS / f"{name}.jsonl"
    if not path.is_file():
        return {}
    stat = path.stat()
    return _parsed(path, (stat.st_mtime_ns, stat.st_ino, stat.st_size))


@lru_cache  # asked for every cell of a page many times
def _parsed(path: Path, stamp: tuple[int, ...]) -> dict[str, Facts]:
    *texts, last = path.read_text(encoding="utf-8").split("\n")
    lines = []
    for number, text in enumerate([*texts, last], start=1):
        try:
            lines.append(json.loads(text))
        except ValueError as error:
            if number <= len(texts):
                raise UserError(f"{path}, line {number}, is not JSON ({error}): mend or remove it") from error
            # empty, or cut short: whoever wrote it was stopped, or the disk was full
    lines.sort(key=lambda facts: facts.get("date", ""))
    return {_key(facts): facts for facts in lines}
