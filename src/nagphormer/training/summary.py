"""What a run is, in plain facts: what it was trained on and how, how that ended, and what can be done with it."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nagphormer.data.checks import SPLITS
from nagphormer.model.network import build
from nagphormer.training.ensemble_folder import MEMBERS, has_ended, load_trained, read_start_of
from nagphormer.training.history import read_history
from nagphormer.training.run import Member
from nagphormer.training.run_folder import METRICS, STATE, is_finished, load_run, read_start
from nagphormer.training.run_folder import SPLITS as SPLITS_FILE


def summarize_run(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a run folder, whether training has ended or not, ready for JSON."""
    folder = Path(path)
    plan, subject, manifest = read_start(folder)
    with torch.device("meta"):  # no weights are needed to count them
        member = Member(plan, build(plan.model), read_history(folder / METRICS), manifest.get("outcome", {}))
    outcome = member.outcome if is_finished(folder) else {}
    metric = "val_micro_f1" if subject.classes.multi_label else "val_accuracy"
    watched, other = plan.given.monitor, {}
    if watched not in ("accuracy", "loss"):
        best = [record for record in member.history if record["epoch"] == outcome.get("best_epoch")]
        other = {f"val_{watched}": best[0][f"val_{watched}"] if best else None}
    return {
        "run": str(folder),
        "ended_by": member.ended_by if outcome else None,
        "epochs": len(member.history),
        "best_epoch": outcome.get("best_epoch"),
        metric: outcome.get("best_metric"),
        **other,
        "val_loss": outcome.get("best_loss"),
        "graph": subject.graph.name,
        "nodes": subject.graph.num_nodes,
        "features": plan.model.input_dim - plan.tokens.encoding_dim,
        "classes": subject.classes.num_classes,
        "class_names": None if subject.classes.names is None else list(subject.classes.names),
        "several_labels": subject.classes.multi_label,
        "splits": {split: len(subject.splits[split]) for split in SPLITS if split in subject.splits},
        "parameters": member.num_parameters,
        "settings": asdict(plan.resolved),
        "token_store": subject.store.path,
        "fingerprint": subject.graph.fingerprint,
        "versions": manifest.get("versions", {}),
        "can": _uses(folder, member if outcome else None),
    }


def summarize_members(path: str | os.PathLike[str], verify: bool = False) -> dict[str, Any]:
    """Describe the folder of a run with several members, ready for JSON.

    Args:
        path: the folder.
        verify: also see that the weights of all members fit.
    """
    folder = Path(path)
    manifest, subject = read_start_of(folder)
    ended = has_ended(manifest)
    if verify and ended:
        load_trained(folder)
    rows = manifest.get(MEMBERS, [])
    return {
        "run": str(folder),
        "recipe": manifest["recipe"],
        "given": manifest["given"],
        "ended": ended,
        "members": sorted(rows, key=lambda row: (-row["weight"], row["loss"])),
        "temperature": manifest.get("temperature"),
        "graph": subject.graph.name,
        "nodes": subject.graph.num_nodes,
        "classes": subject.classes.num_classes,
        "class_names": None if subject.classes.names is None else list(subject.classes.names),
        "splits": {split: len(subject.splits[split]) for split in SPLITS if split in subject.splits},
        "fingerprint": subject.graph.fingerprint,
        "versions": manifest.get("versions", {}),
        "can": ["evaluate", "predict"] if ended else ["resume"],
        **({"weights": "fit"} if verify and ended else {}),
    }


def verify_run(path: str | os.PathLike[str]) -> None:
    """Refuse a run whose weights are damaged or do not fit; one that has not ended has none."""
    if is_finished(Path(path)):
        load_run(path)


def _uses(folder: Path, ended: Member | None) -> list[str]:
    """What can be done with a run."""
    if ended is None:
        return ["resume"]
    checkpoint = any((folder / STATE).glob("*.json"))
    splits = (folder / SPLITS_FILE).is_file()
    return ["evaluate", "predict"] + ["train longer"] * (ended.ended_by == "epochs" and checkpoint and splits)
