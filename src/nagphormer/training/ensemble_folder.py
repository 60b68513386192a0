"""The run folder of an ensemble: a run folder for each member, and what joins them.

`members/<name>/` are run folders like any other. `manifest.json` names them with their weights when all are trained,
and stands there without weights from the start; `config.yaml` is the recipe that was followed, as a recipe.
"""

import os
import re
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import yaml

from nagphormer import __version__
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_file, new_folder, read_json, write_json
from nagphormer.settings import MEMBER_NAME, TrainConfig, read_members
from nagphormer.training.ensemble import Ensemble, Part
from nagphormer.training.plan import Plan
from nagphormer.training.ranks import ALONE, Ranks
from nagphormer.training.run import Run, Subject
from nagphormer.training.run_folder import (
    CONFIG,
    MANIFEST,
    RunFolder,
    check_vacant_run,
    load_run,
    read_subject,
    same_splits,
    subject_facts,
    versions,
    write_splits,
)

FORMAT = 3
"""Of runs with several members, which older versions cannot read."""
MEMBERS = "members"


@dataclass(frozen=True)
class EnsembleFolder:
    """A folder that the training of an ensemble may write to: vacant, or with one that was begun."""

    path: Path
    ranks: Ranks = ALONE

    @classmethod
    def take(cls, path: str | os.PathLike[str], resume: bool = False, ranks: Ranks = ALONE) -> "EnsembleFolder":
        """A folder for an ensemble; without `resume`, one that holds anything is refused."""
        folder = Path(path)
        if ranks.first and not resume:
            check_vacant_run(folder)
        if ranks.first and (folder / MANIFEST).is_file() and not is_ensemble(folder):
            raise UserError(f"{folder} holds a run of one model, not of several: choose another folder")
        return cls(folder, ranks)

    def begun(self) -> dict[str, dict[str, Any]]:
        """Settings of the members that were begun in the folder, by name; none of a vacant one."""
        begun = read_members(self.path / CONFIG) if self.ranks.first and (self.path / MANIFEST).is_file() else {}
        return self.ranks.agreed(begun)

    def begin(self, subject: Subject, graph: Graph, recipe: str, given: dict[str, Any], plans: dict[str, Plan]) -> None:
        """Write what is known before training, or see that the ensemble in the folder is this one."""
        if not self.ranks.first:
            return
        if not (self.path / MANIFEST).is_file():
            check_vacant_run(self.path)
            self._write_start(subject, recipe, given, {name: plan.resolved for name, plan in plans.items()})
            return
        manifest, holds = _read_manifest(self.path), f"{self.path} holds a run"
        begun = read_subject(self.path, manifest)
        if not graph.is_known_as(begun.graph.fingerprint):
            raise UserError(f"{holds} on another graph: choose another folder")
        if begun.graph.labels != subject.graph.labels:
            raise UserError(f"{holds} on other labels: choose another folder")
        if not same_splits(begun.splits, subject.splits):
            raise UserError(f"{holds} on other training, validation or test nodes: choose another folder")
        if (manifest["recipe"], manifest["given"]) != (recipe, given):
            raise UserError(
                f"{holds} of the recipe {manifest['recipe']!r} with {manifest['given']}, not of {recipe!r} with "
                f"{given}: give the same to go on with it, or choose another folder"
            )

    def member(self, name: str) -> RunFolder:
        """The folder of a member, which goes on where it was stopped."""
        own = RunFolder.take(self.path / MEMBERS / name, resume=True, ranks=self.ranks)
        return replace(own, whole=self.path)

    def finish(self, run: Ensemble) -> None:
        """Write the weights that join the members: with them the run has ended."""
        if self.ranks.first:
            facts = {"temperature": run.temperature, MEMBERS: [part.facts() for part in run.parts]}
            self._write_manifest(run, run.recipe, run.given, facts)

    def write(self, run: Ensemble) -> None:
        """Write an ensemble that was trained elsewhere."""
        configs = {part.name: part.run.best.plan.resolved for part in run.parts}
        self._write_start(run, run.recipe, run.given, configs)
        for part in run.parts:
            self.member(part.name).write(part.run)
        self.finish(run)

    def _write_start(
        self, subject: Subject, recipe: str, given: dict[str, Any], configs: dict[str, TrainConfig]
    ) -> None:
        members = {name: asdict(config) for name, config in configs.items()}  # a recipe that names all has no default
        with new_file(self.path / CONFIG) as staging:
            text = yaml.safe_dump({"version": __version__, MEMBERS: members}, sort_keys=False)
            staging.write_text(text, encoding="utf-8")
        write_splits(self.path, subject)
        self._write_manifest(subject, recipe, given, {})

    def _write_manifest(self, subject: Subject, recipe: str, given: dict[str, Any], learned: dict[str, Any]) -> None:
        manifest = {
            "kind": "run",
            "format": FORMAT,
            **subject_facts(subject),
            "recipe": recipe,
            "given": given,
            **learned,
            "versions": versions(),
        }
        with new_file(self.path / MANIFEST) as staging:
            write_json(staging, manifest)


def load_trained(path: str | os.PathLike[str]) -> Run | Ensemble:
    """Open a run folder, of one model or of several; nothing in it is a pickle, and nothing else is read."""
    folder = Path(path)
    if not is_ensemble(folder):
        return load_run(folder)
    manifest = _read_manifest(folder)
    if not has_ended(manifest):
        raise UserError(f"the run in {folder} has not ended: go on with nagphormer train … --out {folder} --resume")
    subject, parts = read_subject(folder, manifest), []
    for facts in manifest[MEMBERS]:
        place = folder / MEMBERS / facts["name"]
        run = load_run(place)
        if (run.classes, run.graph.fingerprint) != (subject.classes, subject.graph.fingerprint):
            raise UserError(f"{place} is no member of the run in {folder}: it was trained on other classes or nodes")
        parts.append(Part(run=run, **{each.name: facts[each.name] for each in fields(Part) if each.name != "run"}))
    told = {name: manifest[name] for name in ("temperature", "recipe", "given")}
    return Ensemble(**vars(subject), parts=tuple(parts), **told)


def is_ensemble(folder: Path) -> bool:
    """Whether a folder holds a run of several models."""
    return (folder / MANIFEST).is_file() and "recipe" in read_json(folder / MANIFEST, "run", FORMAT, ("graph",))


def read_start_of(folder: Path) -> tuple[dict[str, Any], Subject]:
    """The manifest of a run with several members, and what it is about, whether or not training has ended."""
    manifest = _read_manifest(folder)
    return manifest, read_subject(folder, manifest)


def as_begun(path: Path, recipe: str | None, settings: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Recipe and settings of the run with several members that was begun in a folder, and what is given beside them."""
    if recipe is not None or not is_ensemble(path):
        return recipe, settings
    manifest = _read_manifest(path)
    given = {name: each for name, each in settings.items() if each is not None}
    return manifest["recipe"], settings | manifest["given"] | given


def has_ended(manifest: dict[str, Any]) -> bool:
    """Whether all members of an ensemble were trained and joined."""
    return MEMBERS in manifest


def replace_trained(path: str | os.PathLike[str], run: Run | Ensemble) -> None:
    """Write a run in place of the one in a folder, which goes, with all in it, when the new one is complete."""
    folder = Path(path)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        read_json(folder / MANIFEST, "run", FORMAT, ("graph",))  # refuses what is no run
    with new_folder(folder, replace=True) as staging:
        write_trained(staging, run)


def write_trained(path: str | os.PathLike[str], run: Run | Ensemble) -> None:
    """Write a run, of one model or of several, into a vacant folder."""
    if isinstance(run, Ensemble):
        EnsembleFolder.take(path).write(run)
    else:
        RunFolder.take(path).write(run)


def _read_manifest(folder: Path) -> dict[str, Any]:
    keys = ("graph", "num_classes", "class_names", "multi_label", "tokens", "recipe", "given")
    manifest = read_json(folder / MANIFEST, "run", FORMAT, keys)
    try:
        _check_members(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / MANIFEST} is damaged ({error}): train again") from error
    return manifest


def _check_members(manifest: dict[str, Any]) -> None:
    """Raise what is wrong with what a manifest says of its members."""
    if not isinstance(manifest["given"], dict):
        raise TypeError(f"what was given is {manifest['given']!r}")
    if not has_ended(manifest):
        return
    for facts in manifest[MEMBERS]:
        if not re.fullmatch(MEMBER_NAME, facts["name"]):
            raise ValueError(f"a member is called {facts['name']!r}")
        for each in fields(Part):
            if each.name not in ("name", "run") and not isfinite(facts[each.name]):
                raise ValueError(f"{each.name} of {facts['name']} is {facts[each.name]}")
    weights, heat = [facts["weight"] for facts in manifest[MEMBERS]], manifest["temperature"]
    if not (all(0 <= weight <= 1 for weight in weights) and abs(sum(weights) - 1) < 1e-6):
        raise ValueError(f"its weights are {weights}")
    if not (isinstance(heat, float) and 0 < heat < inf):
        raise ValueError(f"its temperature is {heat!r}")
