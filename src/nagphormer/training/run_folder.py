"""The run folder: which files it has, in which order they are written, and what each of them means.

`config.yaml` (settings, decided), `splits.safetensors` and `manifest.json` are there from the start, `metrics.jsonl`
grows by a line an epoch, `state/` holds checkpoints. `model.safetensors` comes last, as the sign that training has
ended. Nothing in it is a pickle.
"""

import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nagphormer import __version__
from nagphormer.data.classes import Classes
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_file, newer_version, read_json, write_json
from nagphormer.model.classifier import Classifier
from nagphormer.model.network import build
from nagphormer.progress import note
from nagphormer.settings import TrainConfig, read_settings, read_yaml, settings_to_write
from nagphormer.tokens.fitted import RUN_FORMAT as FORMAT
from nagphormer.tokens.fitted import Fitted
from nagphormer.tokens.labels import Shown
from nagphormer.training.checkpoint import Checkpoints
from nagphormer.training.history import History, read_history
from nagphormer.training.plan import Plan, shape_of
from nagphormer.training.ranks import ALONE, Ranks
from nagphormer.training.run import GraphFacts, Member, Run, StoreFacts, Subject

MANIFEST, MODEL, CONFIG, METRICS, STATE = "manifest.json", "model.safetensors", "config.yaml", "metrics.jsonl", "state"
SPLITS, PREDICTIONS = "splits.safetensors", "predictions.parquet"
T = TypeVar("T")
KEYS = ("graph", "input_dim", "num_classes", "class_names", "multi_label", "tokens")


@dataclass(frozen=True)
class RunFolder:
    """A folder that a training may write to: vacant, or with a run that was begun."""

    path: Path
    begun: Plan | None = None
    """The plan of the run in it, which goes on."""
    ranks: Ranks = ALONE
    """The processes that train together: all of them see the folder, the first one writes."""
    whole: Path | None = None
    """The folder of several members of which this is one: beside it tokens are kept, if not in the cache."""

    @classmethod
    def take(cls, path: str | os.PathLike[str], resume: bool = False, ranks: Ranks = ALONE) -> "RunFolder":
        """A folder for a run; without `resume`, one that holds anything is refused."""
        folder = Path(path)
        if ranks.first and not resume:
            check_vacant_run(folder)
        begun = None
        if ranks.first and (folder / MANIFEST).is_file():
            begun = _read_plan(folder, _read_manifest(folder))
        return cls(folder, ranks.agreed(begun), ranks)

    @contextmanager
    def begin(self, plan: Plan, subject: Subject, graph: Graph) -> Iterator[None]:
        """Write what is known before training, or see that the run in the folder is this one.

        When the block fails before anything was learned, the folder is left free.
        """
        if self.begun is not None:
            self._check_same(plan, subject, graph)
        elif self.ranks.first:
            check_vacant_run(self.path)
            _write_start(self.path, plan, subject)
        try:
            yield
        except BaseException:
            if self.ranks.first and self.begun is None and not any((self.path / STATE).glob("*.json")):
                for name in (MANIFEST, CONFIG, SPLITS, METRICS):
                    (self.path / name).unlink(missing_ok=True)
                with suppress(OSError):
                    self.path.rmdir()
            raise

    def ended(self, plan: Plan) -> Run | None:
        """The run in the folder, where it ended and keeps no checkpoint to go on from; else None."""
        begun, state = self.begun, self.path / STATE
        if begun is None or not self.ranks.agreed(is_finished(self.path) and not any(state.glob("*.json"))):
            return None
        run, epochs = load_run(self.path), begun.resolved.epochs
        if run.best.ended_by == "epochs" and plan.resolved.epochs > epochs:
            raise UserError(
                f"{self.path} holds a run of {epochs} epochs without {STATE}/, which NodeClassifier.save does not "
                f"write: it cannot go on to {plan.resolved.epochs}; choose another folder"
            )
        note(
            f"the run in {self.path} was ended by {run.best.ended_by} after epoch {run.best.outcome['epochs']} and "
            f"keeps no {STATE}/: nothing is left to do"
        )
        return run

    def extend(self, plan: Plan, subject: Subject) -> None:
        """Where more epochs are planned than the run in the folder had, it has not ended any more."""
        if self.begun is None or self.begun.resolved.epochs == plan.resolved.epochs or not self.ranks.first:
            return
        for name in (MODEL, PREDICTIONS):
            (self.path / name).unlink(missing_ok=True)
        _write_start(self.path, plan, subject)

    def history(self, tensorboard: bool = False) -> History:
        """Where records of epochs go; those of ranks that do not write stay in memory."""
        if not self.ranks.first:
            return History()
        return History(self.path / METRICS, self.path / "tensorboard" if tensorboard else None)

    def checkpoints(self) -> Checkpoints:
        """Where training leaves what it needs to go on."""
        return Checkpoints(self.path / STATE)

    def finish(self, run: Run) -> None:
        """Write how training ended, then the weights; where patience ended it, checkpoints are of no more use."""
        if not self.ranks.first:
            return
        if run.fitted is not None:
            run.fitted.write(self.path)
        if run.shown is not None:
            run.shown.write(self.path)
        _write_manifest(self.path, run.best.plan, run, run.best.outcome)
        with new_file(self.path / MODEL) as staging:
            weights = run.best.model.state_dict()
            save_file({name: tensor.cpu().contiguous() for name, tensor in weights.items()}, staging)
        if run.best.ended_by == "patience":
            shutil.rmtree(self.path / STATE, ignore_errors=True)

    def write(self, run: Run) -> None:
        """Write a run that was trained elsewhere."""
        _write_start(self.path, run.best.plan, run, run.best.outcome)
        with new_file(self.path / METRICS) as staging:
            staging.write_text("".join(json.dumps(record) + "\n" for record in run.best.history), encoding="utf-8")
        self.finish(run)

    def _check_same(self, plan: Plan, subject: Subject, graph: Graph) -> None:
        """Refuse to go on with a run of another graph or other settings."""
        begun, holds = self.begun, f"{self.path} holds a run"
        assert begun is not None
        manifest = _read_manifest(self.path)
        if not graph.is_known_as(manifest["graph"]["fingerprint"]):
            raise UserError(f"{holds} on another graph: choose another folder")
        found, wanted = asdict(begun.resolved), asdict(plan.resolved)
        for name, value in wanted.items():
            if found[name] != value and not (name == "epochs" and value > found[name]):
                raise UserError(
                    f"{holds} with {name}={found[name]!r}, not {value!r}: give {name}={found[name]!r} to go on with "
                    f"it, or choose another folder"
                )
        if manifest["graph"]["labels"] != subject.graph.labels:
            raise UserError(f"{holds} on other labels: choose another folder")
        if not same_splits(_read_splits(self.path), subject.splits):
            raise UserError(f"{holds} on other training, validation or test nodes: choose another folder")


def check_vacant_run(folder: Path) -> None:
    """Refuse a folder that holds anything, when a run is to start afresh."""
    if (folder / CONFIG).is_file() and (folder / MANIFEST).is_file():
        raise UserError(
            f"{folder} holds a run already: choose another folder (nagphormer train --resume goes on with a run)"
        )
    start = {CONFIG, SPLITS}  # all that is left when a run was killed before it began
    if folder.exists() and (
        not folder.is_dir() or any(file.name not in start and file.name[0] != "." for file in folder.iterdir())
    ):
        raise UserError(f"{folder} is not empty: choose another folder")


def same_splits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether two name the same nodes to train, validate and test on."""
    return one.keys() == other.keys() and all(np.array_equal(one[split], nodes) for split, nodes in other.items())


def is_finished(folder: Path) -> bool:
    """Whether a run folder holds the weights of a finished training."""
    return (folder / MANIFEST).is_file() and (folder / MODEL).is_file()


def load_run(path: str | os.PathLike[str]) -> Run:
    """Open a run folder; nothing in it is a pickle, and nothing else is read."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    if not is_finished(folder):
        raise UserError(f"the run in {folder} has not ended: go on with nagphormer train … --out {folder} --resume")
    plan = _read_plan(folder, manifest)
    model = build(plan.model)
    _load_weights(model, folder / MODEL)
    member = Member(plan, model.eval(), read_history(folder / METRICS), manifest.get("outcome", {}))
    fitted = Fitted.read(folder, manifest)
    heat = manifest.get("temperature", 1.0)  # 0.1.0 had none
    if not (isinstance(heat, float) and 0 < heat < inf):
        raise UserError(f"{folder / MANIFEST} is damaged (its temperature is {heat!r}): train again")
    share = manifest.get("doubt", 0.0)  # most have none
    if not (isinstance(share, float) and 0 <= share < 1):
        raise UserError(f"{folder / MANIFEST} is damaged (its doubt is {share!r}): train again")
    return Run(
        **vars(read_subject(folder, manifest)),
        members=(member,),
        fitted=fitted,
        temperature=heat,
        doubt=share,
        shown=Shown.read(folder),
    )


def read_start(path: str | os.PathLike[str]) -> tuple[Plan, Subject, dict[str, Any]]:
    """What a run folder holds from the start, whether or not training has ended; also its manifest as it is."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    return _read_plan(folder, manifest), read_subject(folder, manifest), manifest


def _write_start(folder: Path, plan: Plan, subject: Subject, outcome: dict[str, Any] | None = None) -> None:
    with new_file(folder / CONFIG) as staging:
        staging.write_text(yaml.safe_dump(settings_to_write(plan.resolved), sort_keys=False), encoding="utf-8")
    write_splits(folder, subject)
    _write_manifest(folder, plan, subject, outcome or {})


def write_splits(folder: Path, subject: Subject) -> None:
    """Write the nodes that a run is trained, validated and tested on."""
    with new_file(folder / SPLITS) as staging:
        save_file({split: torch.from_numpy(np.array(nodes)) for split, nodes in subject.splits.items()}, staging)


def subject_facts(subject: Subject) -> dict[str, Any]:
    """What a manifest says of graph, classes and tokens."""
    return {
        "graph": asdict(subject.graph),
        "num_classes": subject.classes.num_classes,
        "class_names": subject.classes.names,
        "multi_label": subject.classes.multi_label,
        "tokens": asdict(subject.store),
    }


def versions() -> dict[str, str]:
    """Versions of what wrote a run."""
    known = {"nagphormer": __version__, "torch": torch.__version__, "numpy": np.__version__}
    return known | {"python": platform.python_version()}


def _write_manifest(folder: Path, plan: Plan, subject: Subject, outcome: dict[str, Any]) -> None:
    trained = subject if isinstance(subject, Run) else None
    learned = {}
    if trained is not None and trained.fitted is not None:
        doubt = {"doubt": trained.doubt} if trained.doubt else {}
        learned = {"temperature": trained.temperature, **doubt, "fitted": trained.fitted.facts()}
    about = subject_facts(subject)
    manifest = {
        "kind": "run",
        "format": FORMAT if trained is None or learned else 1,  # 1: 0.1.0 trained it
        "graph": about.pop("graph"),
        "input_dim": plan.model.input_dim,
        **about,
        "seed": plan.given.seed,
        "given": _left_open(plan),
        "outcome": outcome,
        **learned,
        "versions": versions(),
    }
    with new_file(folder / MANIFEST) as staging:
        write_json(staging, manifest)


def _left_open(plan: Plan) -> dict[str, Any]:
    """Settings as they were given, where that is not what was decided."""
    decided = asdict(plan.resolved)
    return {name: value for name, value in asdict(plan.given).items() if value != decided[name]}


def _read_manifest(folder: Path) -> dict[str, Any]:
    if "recipe" in read_json(folder / MANIFEST, "run", FORMAT + 1, ("graph",)):
        raise UserError(
            f"{folder} holds a run with several members, not of one model: give no other recipe to go on with it, or "
            f"choose another folder"
        )
    return read_json(folder / MANIFEST, "run", FORMAT, KEYS)


def _facts(kind: type[T], found: dict[str, Any], folder: Path) -> T:
    """What a manifest says of something; what a later version adds is passed over."""
    known = {each.name: found[each.name] for each in fields(kind) if each.name in found}  # type: ignore[arg-type]
    lacking = [each.name for each in fields(kind) if each.default is MISSING and each.name not in known]  # type: ignore[arg-type]
    if lacking:
        raise UserError(f"{folder / MANIFEST} is damaged (it lacks {lacking[0]!r}): train again")
    return kind(**known)


def _read_plan(folder: Path, manifest: dict[str, Any]) -> Plan:
    """The plan of a run from its settings and its manifest."""
    try:
        decided = read_settings(TrainConfig, read_yaml(folder / CONFIG), folder / CONFIG)
    except UserError as error:
        if newer := newer_version(manifest):
            raise UserError(str(error).rstrip(".") + newer) from error
        raise
    whole = asdict(decided)
    # 0.1.0 did not say what was given
    unknown = {"project_first": "auto"} if decided.project_first == "always" else {}
    given = manifest.get("given", unknown) or {}
    return Plan(
        given=read_settings(TrainConfig, whole | given, folder / MANIFEST),
        tokens=decided.tokens(
            decided.feature_scaling or "none", dtype=_facts(StoreFacts, manifest["tokens"], folder).dtype
        ),
        way="projected" if decided.project_first == "always" else "stored",
        model=shape_of(decided, manifest["input_dim"], manifest["num_classes"], decided.feature_dropout or 0.0),
        precision="bf16" if decided.precision == "bf16" else "fp32",
        batch_size=decided.batch_size or 1000,
    )


def read_subject(folder: Path, manifest: dict[str, Any]) -> Subject:
    """What a run is about, by its manifest and the file of its splits."""
    names = manifest["class_names"]
    return Subject(
        classes=Classes(manifest["num_classes"], None if names is None else tuple(names), manifest["multi_label"]),
        splits=_read_splits(folder) if (folder / SPLITS).is_file() else {},  # a model that was carried elsewhere
        graph=_facts(GraphFacts, manifest["graph"], folder),
        store=_facts(StoreFacts, manifest["tokens"], folder),
    )


def _load_weights(model: Classifier, path: Path) -> None:
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is not a safetensors file or is damaged ({error}): train again") from error
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise UserError(
                f"{path} does not fit {CONFIG} and {MANIFEST}: {name} should be {expected.get(name, 'absent')} but is "
                f"{found.get(name, 'absent')}; are they from the same run?"
            )
    model.load_state_dict(weights)


def _read_splits(folder: Path) -> dict[str, np.ndarray]:
    path = folder / SPLITS
    try:
        return {split: tensor.numpy() for split, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or missing ({error}): train again") from error
