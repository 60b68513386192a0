"""The training loop: epochs of mini-batches, validation, early stopping, checkpoints.

Every epoch draws its batches and its dropout from (seed, epoch) alone, so a run that is resumed after any epoch goes on
exactly as if it had never stopped.

Shapes: B nodes in a batch, K hops, D model width, C classes
"""

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import islice
from math import inf
from typing import Any

import numpy as np
import torch
from torch import nn

from nagphormer.device import autocast
from nagphormer.model import ops
from nagphormer.model.classifier import Classifier
from nagphormer.progress import epochs_shown, note
from nagphormer.settings import NetworkConfig, TrainConfig
from nagphormer.training.batches import Batch, TokenSource
from nagphormer.training.checkpoint import Checkpoints
from nagphormer.training.forward import forward, rows_at_once
from nagphormer.training.history import History
from nagphormer.training.optimizer import AdamW
from nagphormer.training.ranks import ALONE, Ranks
from nagphormer.training.schedule import learning_rate
from nagphormer.training.stopping import EarlyStopping
from nagphormer.training.task import Task


@dataclass
class Outcome:
    """How training ended; the model holds the weights that were best on the validation nodes."""

    best_epoch: int
    """0 when not one was finished."""
    best_metric: float | None
    best_loss: float | None
    epochs: int
    diverged: str = field(default="")
    """Where the loss stopped being a number, if it did."""
    out_of_time: bool = False
    """Whether a limit of time ended it."""

    def facts(self) -> dict[str, Any]:
        """All of it, ready for JSON; of a limit of time only where there was one."""
        facts = asdict(self)
        return facts if self.out_of_time else {name: facts[name] for name in facts if name != "out_of_time"}


class Trainer:
    """Trains one model on one graph's tokens."""

    def __init__(
        self,
        model: Classifier,
        source: TokenSource,
        task: Task,
        splits: dict[str, np.ndarray],
        config: TrainConfig,
        history: History | None = None,
        checkpoints: Checkpoints | None = None,
        ranks: Ranks = ALONE,
        deadline: float = inf,
    ):
        self.model = model.to(source.device)
        self._judged = copy.deepcopy(self.model) if config.averaging else self.model
        self.source, self.task, self.config, self.ranks = source, task, config, ranks
        self._goal = _Objective(model, source, task, config.precision, config.label_smoothing)
        all_used = config.network != "transformer" or (config.hops > 0 and config.readout == "attention")
        self._objective: Any = ranks.replicated(self._goal, all_used)
        assert config.batch_size is not None
        self._batch_size = config.batch_size
        self.train_nodes, self.val_nodes = splits["train"], splits["val"]
        shape = len(self.val_nodes), task.num_classes  # sums over batches do not give every metric
        self._scores = None if config.monitor in ("accuracy", "loss") else torch.empty(shape, device=source.device)
        self.history = history or History()
        self.checkpoints = checkpoints
        self._deadline, self._late = deadline, False
        self.stopping = EarlyStopping(config.patience, config.restart_on_ties)
        self.update = 0
        self._best = self._weights()
        self._optimizer = AdamW(model.parameters(), config.weight_decay)
        # a CPU is fastest with pieces whose values stay in its cache; propagating is done once for all of a batch
        self._rows_to_judge = rows_at_once(source, model.embed.out_features)
        self._rows = source.num_nodes
        if not source.projects_first:
            self._rows = rows_at_once(source, model.embed.out_features, config.num_layers)
        self._captured: dict[int, _CapturedStep | None] = {}

    def run(self) -> Outcome:
        """Train until patience or epochs run out; the model is left with the weights that were judged best."""
        config, diverged = self.config, ""
        first = 1 + self._resume()
        with (
            _own_randomness(self.source.device),
            ops.enough_work(self._work(), kernel_shape(config, self.source, config.precision)),
            epochs_shown(config.epochs, first) as show,
        ):
            for epoch in range(first, config.epochs + 1):
                if self.stopping.done:
                    break
                start = time.perf_counter()
                diverged = self._train_epoch(epoch)
                if diverged:
                    break
                self._average(epoch)
                judged = (self._judged, self.source, self.task, self.val_nodes)
                loss, metric = evaluate(*judged, config.precision, self.ranks, self._rows_to_judge, self._scores)
                if not np.isfinite(loss):
                    diverged = f"the validation loss became {loss} after epoch {epoch}"
                    break
                name, watched = self._watched(metric, loss)
                if self.stopping.update(epoch, -watched if name == "loss" else watched, loss):
                    self._best = self._weights()
                record = {
                    "epoch": epoch,
                    "train_loss": self._train_loss,
                    "val_loss": loss,
                    f"val_{self.task.metric}": metric,
                    f"val_{name}": watched,
                    "lr": learning_rate(config, self.update),
                    "seconds": round(time.perf_counter() - start, 4),
                }
                self.history.add(record)
                show(epoch, f"loss {self._train_loss:.4f}, val {name} {watched:.4f}")
                self._late = self.ranks.agreed(time.monotonic() > self._deadline)
                last = self.stopping.done or self._late or epoch == config.epochs
                if self.checkpoints and self.ranks.first and (self.checkpoints.due or last):
                    self._save(epoch)
                if self._late:
                    break
        self.model.load_state_dict(self._best)
        self.model.eval()
        return self.ranks.agreed(self._outcome(diverged))

    def _outcome(self, diverged: str) -> Outcome:
        """How training ended, as the first rank knows: after resuming, others lack the history before."""
        best, records = self.stopping.best_epoch, self.history.records
        if not best or not self.ranks.first:
            return Outcome(0, None, None, len(records), diverged, self._late)
        kept = records[best - 1]
        late = self._late and not self.stopping.done and len(records) < self.config.epochs
        return Outcome(best, kept[f"val_{self.task.metric}"], kept["val_loss"], len(records), diverged, late)

    def _watched(self, metric: float, loss: float) -> tuple[str, float]:
        """What chooses the best epoch: its name and its value."""
        monitor = self.config.monitor
        if monitor == "accuracy":
            return self.task.metric, metric
        if monitor == "loss":
            return monitor, loss
        assert self._scores is not None
        return monitor, self.ranks.agreed(self.task.measure(monitor, self._scores, self.val_nodes))

    def _work(self) -> float:
        """Hidden values that training will go through, as far as can be said before."""
        epochs = min(self.config.epochs, 4 * self.config.patience)
        values = (self.config.hops + 1) * self.config.hidden_dim * max(self.config.num_layers, 1)
        return epochs * len(self.train_nodes) * values

    def _train_epoch(self, epoch: int) -> str:
        """One pass over the training nodes; gives where the loss stopped being finite, or nothing."""
        self.model.train()
        order = np.random.default_rng([self.config.seed, epoch]).permutation(self.train_nodes)
        _set_seed(self.source.device, _dropout_seed(self.config.seed, epoch, self.ranks.rank))
        source = self._goal.source = self.source.in_training(epoch)
        batches = torch.from_numpy(order).split(self._batch_size)
        losses = torch.zeros(len(batches), device=self.source.device)
        pieces = [self._pieces(batch) for batch in batches]
        coming = source.batches([piece for parts in pieces for piece in parts])
        for number, (batch, parts) in enumerate(zip(batches, pieces, strict=True)):
            losses[number] = self._step(len(batch), list(islice(coming, len(parts))))
            if losses.device.type == "cpu" and self.ranks.count == 1 and not losses[number].isfinite():
                break
        self.ranks.add_up(losses)
        finite = losses.isfinite().tolist()
        if not all(finite):
            number = finite.index(False)
            return f"the loss became {losses[number].item()} in epoch {epoch}, update {number + 1} of {len(batches)}"
        sizes = torch.tensor([len(batch) for batch in batches], device=losses.device)
        self._train_loss = float((losses * sizes).sum() / sizes.sum())
        return ""

    def _pieces(self, batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """This rank's share of a batch, in the pieces that go through the network one by one."""
        return self.ranks.share(batch).split(self._rows)

    def _step(self, size: int, pieces: list[Batch]) -> torch.Tensor:
        """One update by a batch of so many nodes, of which this rank has these pieces; gives the batch's mean loss."""
        self.update += 1
        self._optimizer.set_rate(learning_rate(self.config, self.update))
        alike = self._goal.source is self.source  # a captured step reads from where it was captured
        if self.ranks.count == 1 and len(pieces) == 1 and alike and ops.captured(pieces[0].nodes):
            return self._replay(*pieces)
        return self._learn(size, pieces)

    def _learn(self, size: int, pieces: list[Batch]) -> torch.Tensor:
        """Forward, backward and the optimizer's step on a batch."""
        self._optimizer.zero_grad()
        *early, last = pieces
        total = torch.zeros((), device=self.source.device)
        with self._objective.no_sync() if self.ranks.count > 1 else nullcontext():
            for piece in early:
                total += self._backward(piece, size)
        total += self._backward(last, size)
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self._optimizer.step()
        return total

    def _replay(self, batch: Batch) -> torch.Tensor:
        """A step as one launch: run plainly the first time a size comes, captured the second, replayed from then on."""
        size = len(batch.nodes)
        if size not in self._captured:
            self._captured[size] = None
            # aligned as the captured step's will be: nothing is left to compile while capturing
            return self._learn(size, [replace(batch, nodes=batch.nodes.clone())])
        step = self._captured[size]
        if step is None:
            step = self._captured[size] = _CapturedStep(self._learn, batch)
        return step(batch)

    def _backward(self, piece: Batch, size: int) -> torch.Tensor:
        """Add the gradient of some nodes' part of a batch's mean loss; gives that part."""
        loss = self._objective(piece) / size
        (loss * self.ranks.count).backward()  # the mean of the ranks' gradients is then their sum
        return loss.detach()

    @torch.no_grad()
    def _average(self, epoch: int) -> None:
        """Take an epoch's weights into those that are judged: their running mean, in which earlier ones fade."""
        if self._judged is self.model:
            return
        share = max(1 - self.config.averaging, 1 / epoch)
        for averaged, own in zip(self._judged.parameters(), self.model.parameters(), strict=True):
            averaged.lerp_(own, share)

    def _weights(self) -> dict[str, torch.Tensor]:
        """A true copy of the judged weights: training goes on in place."""
        return {name: tensor.detach().clone() for name, tensor in self._judged.state_dict().items()}

    def _save(self, epoch: int) -> None:
        assert self.checkpoints is not None
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self._judged is not self.model:
            tensors |= {f"judged.{name}": tensor for name, tensor in self._judged.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in self._optimizer.state_dict().items()}
        self.history.sync()
        self.checkpoints.save(epoch, tensors, {"update": self.update, "stopping": asdict(self.stopping)})

    def _resume(self) -> int:
        """Take up the newest checkpoint, if any; gives the epochs that are done."""
        found = self.ranks.agreed(self.checkpoints.load() if self.checkpoints and self.ranks.first else None)
        if found is None:
            self.history.keep(0)
            return 0
        tensors, facts = found
        groups: dict[str, dict[str, torch.Tensor]] = {"model": {}, "judged": {}, "best": {}, "optimizer": {}}
        for name, tensor in tensors.items():
            group, _, rest = name.partition(".")
            groups[group][rest] = tensor.to(self.source.device)
        self.model.load_state_dict(groups["model"])
        self._judged.load_state_dict(groups["judged"] or groups["model"])
        self._best = groups["best"]
        self._optimizer.load_state_dict(groups["optimizer"])
        self.update = facts["update"]
        self.stopping = EarlyStopping(**facts["stopping"])
        self.history.keep(facts["epoch"])
        note(f"going on after epoch {facts['epoch']}" + (", where it had ended" if self.stopping.done else ""))
        return facts["epoch"]


class _Objective(nn.Module):
    """The loss as a function of nodes."""

    def __init__(self, model: Classifier, source: TokenSource, task: Task, precision: str, smoothing: float):
        super().__init__()
        self.model = model
        self.source, self.task, self.precision, self.smoothing = source, task, precision, smoothing

    def forward(self, batch: Batch) -> torch.Tensor:
        """Sum of the losses of some nodes, (B,) -> (), averaged over the model's parts."""
        if len(batch.nodes) == 0:  # a rank without nodes takes part in the sum of the gradients all the same
            return torch.stack([weight.sum() for weight in self.model.parameters()]).sum() * 0
        with autocast(self.source.device, self.precision):
            hidden = self.source.embedder(self.model.embed)(batch)
            losses = [self.task.loss(scores, batch.nodes, self.smoothing) for scores in self.model.scores(hidden)]
            return torch.stack(losses).mean()


class _CapturedStep:
    """A training step of one size of batch as a CUDA graph: a single launch instead of some hundred."""

    def __init__(self, learn: Callable[[int, list[Batch]], torch.Tensor], batch: Batch):
        stored = None if batch.stored is None else batch.stored.clone()
        self._batch = Batch(batch.nodes.clone(), stored)
        self._graph = torch.cuda.CUDAGraph()
        device = batch.nodes.device
        # batches are read ahead by other threads, which may allocate meanwhile
        with (
            torch.cuda.device(device),
            torch.cuda.graph(self._graph, stream=_capturing(device), capture_error_mode="thread_local"),
        ):
            self._loss = learn(len(batch.nodes), [self._batch])

    def __call__(self, batch: Batch) -> torch.Tensor:
        """One update; the loss is overwritten by the next."""
        self._batch.nodes.copy_(batch.nodes)
        if self._batch.stored is not None and batch.stored is not None:
            self._batch.stored.copy_(batch.stored)
        self._graph.replay()
        return self._loss


@cache
def _capturing(device: torch.device) -> torch.cuda.Stream:
    """The stream on which a device's steps are captured: one for all, since cuBLAS keeps memory for each."""
    return torch.cuda.Stream(device)


def kernel_shape(shape: NetworkConfig, source: TokenSource, precision: str) -> tuple[Any, ...]:
    """What the kernels for large work are compiled for."""
    return source.device, shape.hidden_dim, shape.num_heads, source.hops, precision


def evaluate(
    model: Classifier,
    source: TokenSource,
    task: Task,
    nodes: np.ndarray,
    precision: str,
    ranks: Ranks = ALONE,
    rows: int | None = None,
    scores: torch.Tensor | None = None,
) -> tuple[float, float]:
    """Mean loss and metric of a model on some nodes, of which every rank takes its part, `rows` of them at once.

    `scores`, (n, C), takes up the scores of all the nodes, if it is given.
    """
    model.eval()
    total = torch.zeros(3, dtype=torch.float64, device=source.device)
    share = ranks.share(torch.from_numpy(np.array(nodes)))
    own, done = None if scores is None else ranks.share(scores.zero_()), 0
    for batch, logits in forward(model, source, share, model.classify, precision, rows):
        total[0] += task.loss(logits, batch)
        total[1:] += task.hits(logits, batch)
        if own is not None:
            own[done : done + len(batch)] = logits
            done += len(batch)
    ranks.add_up(total)
    if scores is not None:
        ranks.add_up(scores)  # the others' are zero here
    loss, found, possible = total.tolist()
    return loss / len(nodes), 2 * found / max(possible, 1)


def _dropout_seed(seed: int, epoch: int, rank: int) -> int:
    """What torch's random numbers of an epoch start from; another for each rank."""
    words = [seed, epoch] if rank == 0 else [seed, epoch, rank]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)


def _set_seed(device: str, seed: int) -> None:
    """Where torch's random numbers start; `torch.manual_seed` loads torch's compiler in some versions."""
    torch.default_generator.manual_seed(seed)
    if device != "cpu":
        index = torch.device(device).index
        torch.cuda.default_generators[torch.cuda.current_device() if index is None else index].manual_seed(seed)


@contextmanager
def _own_randomness(device: str) -> Iterator[None]:
    """Leave torch's random state to the caller as it was."""
    with torch.random.fork_rng(devices=[] if device == "cpu" else [torch.device(device)]):
        yield
