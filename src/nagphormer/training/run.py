"""A trained model and its run folder: weights, settings, metrics and manifest, and `state/` to resume from."""

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nagphormer import __version__
from nagphormer.data.graph import Graph
from nagphormer.device import Machine, machine, memory_explained
from nagphormer.errors import UserError
from nagphormer.files import new_file, read_json, write_json
from nagphormer.model.network import NAGphormer
from nagphormer.settings import (
    ModelConfig,
    NetworkConfig,
    Scaling,
    TrainConfig,
    read_settings,
    read_yaml,
    settings_to_write,
)
from nagphormer.tokens.store import TokenStore
from nagphormer.training.checkpoint import Checkpoints
from nagphormer.training.history import History, read_history
from nagphormer.training.loop import Trainer
from nagphormer.training.ranks import ALONE, Ranks
from nagphormer.training.source import check_store, projection_pays, token_source, tokens_folder
from nagphormer.training.sources import TokenSource
from nagphormer.training.task import Classes, Task, check_trainable

FORMAT = 1
MANIFEST, MODEL, CONFIG, METRICS, STATE = "manifest.json", "model.safetensors", "config.yaml", "metrics.jsonl", "state"
SPLITS_FILE = "splits.safetensors"
KEYS = ("graph", "input_dim", "num_classes", "class_names", "multi_label", "tokens")


@dataclass
class Trained:
    """A network with all that is needed to use it."""

    model: NAGphormer
    config: TrainConfig
    classes: Classes
    graph: dict[str, Any]
    """Name, fingerprints and size of the graph it was trained on."""
    splits: dict[str, np.ndarray]
    tokens: dict[str, Any] = field(default_factory=lambda: {"path": None, "dtype": "float16"})
    """Where its token store lies, seen from the run folder, and what tokens were stored as."""
    history: list[dict[str, Any]] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    """Best epoch, its validation metric and loss, epochs run."""

    @property
    def num_parameters(self) -> int:
        """Number of weights."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def diverged(self) -> str:
        """Where the loss stopped being a number and what is left, or nothing."""
        if not self.outcome.get("diverged"):
            return ""
        epoch = self.outcome["best_epoch"]
        kept = f"the weights of epoch {epoch} are kept" if epoch else "only the initial weights are left"
        return f"{self.outcome['diverged']}: training stopped, {kept}; lower lr, or set clip_norm to 1"

    def save(self, folder: Path) -> None:
        """Write the run folder's files; `model.safetensors` last, as the sign that training has ended."""
        write_start(folder, self)
        with new_file(folder / METRICS) as staging:
            staging.write_text("".join(json.dumps(record) + "\n" for record in self.history), encoding="utf-8")
        write_weights(folder, self)


def train_model(
    graph: Graph,
    config: TrainConfig,
    store: TokenStore | None = None,
    folder: Path | None = None,
    tensorboard: bool = False,
    ranks: Ranks = ALONE,
) -> tuple[Trained, TokenSource]:
    """Train NAGphormer on a graph with labels and splits.

    Args:
        graph: the graph; training and validation nodes must be labeled.
        config: the settings.
        store: the graph's tokens, if they are made already.
        folder: run folder to write to; a run of the same settings that was stopped in it goes on.
        tensorboard: also write events for TensorBoard into the run folder.
        ranks: the processes that train together; all of them see the folder, the first one writes.

    Returns:
        The trained model, and the tokens it was trained on.
    """
    check_trainable(graph)
    here = machine(config.device)
    device = here.device
    begun = ranks.agreed(folder is not None and (folder / MANIFEST).is_file())
    config = ranks.agreed(_decide(graph, config, here, store, folder if begun else None))
    trained = _untrained(graph, config)
    if store is not None:
        check_store(store, graph, config)
        trained.tokens = {"path": _relative(store.path, folder), "dtype": store.dtype}
    if folder is None:
        return trained, _train(trained, graph, device, store, None, False, ranks)
    if begun:
        _check_same_run(folder, trained)
    elif ranks.first:
        check_vacant_run(folder)
        write_start(folder, trained)
    try:
        source = _train(trained, graph, device, store, folder, tensorboard, ranks)
    except BaseException:
        # nothing to go on with: leave the folder free
        if ranks.first and not begun and not any((folder / STATE).glob("*.json")):
            for name in (MANIFEST, CONFIG, SPLITS_FILE, METRICS):
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        raise
    if ranks.first:
        write_weights(folder, trained)
    return trained, source


def _decide(
    graph: Graph, config: TrainConfig, here: Machine, store: TokenStore | None, begun: Path | None
) -> TrainConfig:
    """Settings with nothing left open; a run that was begun keeps what it chose, whatever the machine is like now."""
    kept = None if begun is None else _read_config(begun)
    if config.precision == "auto":
        config = replace(config, precision=kept.precision if kept else "bf16" if here.fast_bf16 else "fp32")
    if config.feature_scaling is None:
        dense = graph.features is not None and not sp.issparse(graph.features)
        scaling: Scaling = "standardize" if dense else "none"
        config = replace(config, feature_scaling=scaling if store is None else store.tokens.feature_scaling)
    if config.feature_dropout is None:  # the more columns there are for each training node, the more are hidden
        share = graph.num_features / (graph.num_features + len(graph.splits["train"]))
        config = replace(config, feature_dropout=round(share, 3))
    if store is not None:
        if config.project_first == "always":
            raise UserError("project_first='always' makes no use of a token store: give one or the other")
        return replace(config, project_first="never")
    if config.project_first == "auto" and kept:
        return replace(config, project_first=kept.project_first)
    return replace(config, project_first="always" if projection_pays(graph, config, here.device) else "never")


def _train(
    trained: Trained,
    graph: Graph,
    device: str,
    store: TokenStore | None,
    folder: Path | None,
    tensorboard: bool,
    ranks: Ranks,
) -> TokenSource:
    """Get the tokens and train on them; gives the tokens."""
    config, out = trained.config, None
    history, checkpoints = History(), None
    if folder is not None:
        checkpoints, out = Checkpoints(folder / STATE), tokens_folder(folder, graph, config)
    if folder is not None and ranks.first:
        history = History(folder / METRICS, folder / "tensorboard" if tensorboard else None)
    if not ranks.first:
        ranks.wait()  # the first one stores the tokens, the others read them
    with memory_explained(
        f"making tokens of {config.hops} hops", "lower hops, or prepare them with nagphormer prepare"
    ):
        source = token_source(graph, config, device, store, out)
    if ranks.first:
        ranks.wait()
    with memory_explained(
        f"training with batch_size={config.batch_size}, hidden_dim={config.hidden_dim}, hops={config.hops}",
        "lower batch_size first, then hidden_dim",
    ):
        task = Task(graph, trained.classes, device, config.class_weights)
        trainer = Trainer(trained.model, source, task, trained.splits, config, history, checkpoints, ranks)
        outcome = trainer.run()
    trained.history, trained.outcome = history.records, asdict(outcome)
    return source


def _relative(path: Path | None, folder: Path | None) -> str | None:
    """A path as seen from a run folder, so that both can be moved together."""
    return None if path is None or folder is None else os.path.relpath(path, folder)


def _untrained(graph: Graph, config: TrainConfig) -> Trained:
    """The network with its initial weights, drawn from the seed."""
    classes = Classes.of(graph)
    input_dim = max(graph.num_features, 1) + config.encoding_dim
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = network(config, input_dim, classes)
    facts = {
        "name": graph.name,
        "fingerprint": graph.fingerprint,
        "labels": hashlib.sha256(np.ascontiguousarray(graph.labels).data).hexdigest(),
        "num_nodes": graph.num_nodes,
    }
    return Trained(model, config, classes, facts, dict(graph.splits))


def network(config: TrainConfig, input_dim: int, classes: Classes) -> NAGphormer:
    """The network for settings and data, with fresh weights."""
    shape = {name: getattr(config, name) for name in (*NetworkConfig.__dataclass_fields__, "feature_dropout")}
    tokens = config.hops + 1 if config.linear else 0
    return NAGphormer(ModelConfig(input_dim=input_dim, num_classes=classes.num_classes, linear_tokens=tokens, **shape))


def check_vacant_run(folder: Path) -> None:
    """Refuse a folder that holds anything, when a run is to start afresh."""
    if (folder / CONFIG).is_file() and (folder / MANIFEST).is_file():
        raise UserError(
            f"{folder} holds a run already: choose another folder (nagphormer train --resume goes on with a run)"
        )
    start = {CONFIG, SPLITS_FILE}  # all that is left when a run was killed before it began
    if folder.exists() and (
        not folder.is_dir() or any(file.name not in start and file.name[0] != "." for file in folder.iterdir())
    ):
        raise UserError(f"{folder} is not empty: choose another folder")


def _check_same_run(folder: Path, trained: Trained) -> None:
    """Refuse to go on with a run of another graph or other settings."""
    manifest = _read_manifest(folder)
    if manifest["graph"]["fingerprint"] != trained.graph["fingerprint"]:
        raise UserError(f"{folder} holds a run on another graph: choose another folder")
    found, wanted = asdict(_read_config(folder)), asdict(trained.config)
    for name, value in wanted.items():
        if found[name] != value:
            raise UserError(f"{folder} holds a run with {name}={found[name]!r}, not {value!r}: choose another folder")
    if manifest["graph"]["labels"] != trained.graph["labels"]:
        raise UserError(f"{folder} holds a run on other labels: choose another folder")
    kept = _read_splits(folder)
    if kept.keys() != trained.splits.keys() or any(
        not np.array_equal(kept[split], nodes) for split, nodes in trained.splits.items()
    ):
        raise UserError(f"{folder} holds a run on other training, validation or test nodes: choose another folder")


def write_start(folder: Path, trained: Trained) -> None:
    """Write what is known before training: settings, classes, the graph and its splits."""
    with new_file(folder / CONFIG) as staging:
        staging.write_text(yaml.safe_dump(settings_to_write(trained.config), sort_keys=False), encoding="utf-8")
    with new_file(folder / SPLITS_FILE) as staging:
        save_file({split: torch.from_numpy(np.array(nodes)) for split, nodes in trained.splits.items()}, staging)
    _write_manifest(folder, trained)


def write_weights(folder: Path, trained: Trained) -> None:
    """Write how training ended, then the weights."""
    _write_manifest(folder, trained)
    with new_file(folder / MODEL) as staging:
        save_file({name: tensor.cpu().contiguous() for name, tensor in trained.model.state_dict().items()}, staging)


def _write_manifest(folder: Path, trained: Trained) -> None:
    versions = {"nagphormer": __version__, "torch": torch.__version__, "numpy": np.__version__}
    manifest = {
        "kind": "run",
        "format": FORMAT,
        "graph": trained.graph,
        "input_dim": trained.model.config.input_dim,
        "num_classes": trained.classes.num_classes,
        "class_names": trained.classes.names,
        "multi_label": trained.classes.multi_label,
        "tokens": trained.tokens,
        "seed": trained.config.seed,
        "outcome": trained.outcome,
        "versions": versions | {"python": platform.python_version()},
    }
    with new_file(folder / MANIFEST) as staging:
        write_json(staging, manifest)


def is_finished(folder: Path) -> bool:
    """Whether a run folder holds the weights of a finished training."""
    return (folder / MANIFEST).is_file() and (folder / MODEL).is_file()


def load_run(path: str | os.PathLike[str]) -> Trained:
    """Open a run folder; nothing in it is a pickle, and nothing else is read."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    if not is_finished(folder):
        raise UserError(f"the run in {folder} has not ended: go on with nagphormer train … --out {folder} --resume")
    config = _read_config(folder)
    names = manifest["class_names"]
    classes = Classes(manifest["num_classes"], None if names is None else tuple(names), manifest["multi_label"])
    model = network(config, manifest["input_dim"], classes)
    _load_weights(model, folder / MODEL)
    return Trained(
        model.eval(),
        config,
        classes,
        manifest["graph"],
        _read_splits(folder),
        manifest["tokens"],
        read_history(folder / METRICS),
        manifest.get("outcome", {}),
    )


def _load_weights(model: NAGphormer, path: Path) -> None:
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


def _read_manifest(folder: Path) -> dict[str, Any]:
    return read_json(folder / MANIFEST, "run", FORMAT, KEYS)


def _read_config(folder: Path) -> TrainConfig:
    return read_settings(TrainConfig, read_yaml(folder / CONFIG), folder / CONFIG)


def _read_splits(folder: Path) -> dict[str, np.ndarray]:
    path = folder / SPLITS_FILE
    try:
        return {split: tensor.numpy() for split, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or missing ({error}): train again") from error
