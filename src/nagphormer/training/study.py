"""The trials of a tuning: settings chosen by Optuna, results kept in an SQLite file, and taken up again from it.

Optuna chooses and prunes in memory. A trial is written when it has ended, whole, so one that was killed leaves no trial
behind. The file holds numbers, text and JSON: nothing in it is a pickle.
"""

import hashlib
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nagphormer import __version__
from nagphormer.data.graph import Graph
from nagphormer.errors import MissingExtra, UserError
from nagphormer.files import locked
from nagphormer.settings import TrainConfig, read_settings, settings_to_write
from nagphormer.training.space import Between, OneOf, Space
from nagphormer.training.trial import Result

if TYPE_CHECKING:
    import optuna

TRIALS = "trials.sqlite"
LOCK = ".lock"
NAME = "nagphormer tune"
"""Of the study in the file."""
STARTUP = 5
"""Trials that must be complete, also up to the epoch in question, before others are pruned."""
KILLS = 3
"""Times a trial may be begun: the third time that the process was killed it is to blame."""


@dataclass(frozen=True)
class About:
    """What the trials in a folder have in common; others could not be compared with them."""

    graph: str
    """Its fingerprint."""
    nodes: str
    """A digest of the nodes to train and validate on."""
    labels: str
    """A digest of their labels; those of test nodes are not looked at."""
    space: Space
    base: TrainConfig
    """The settings that are the same in all trials."""

    @classmethod
    def of(cls, graph: Graph, space: Space, base: TrainConfig) -> "About":
        """What is common to trials on a graph."""
        assert graph.labels is not None
        parts = [np.asarray(graph.splits[split]) for split in ("train", "val")]
        labels = [graph.labels[nodes] for nodes in parts]
        return cls(graph.fingerprint, _digest(parts), _digest(labels), space, replace(base, device=None))

    def written(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "graph": self.graph,
            "nodes": self.nodes,
            "labels": self.labels,
            "space": self.space.name,
            "choices": self.space.written(),
            "settings": settings_to_write(self.base),
            "nagphormer": __version__,
        }

    def refuse_other(self, kept: dict[str, Any], folder: Path) -> None:
        """Refuse to go on with trials that were about something else."""
        holds, otherwise = f"{folder} holds trials", "or choose another folder"
        for key, what in (("graph", "another graph"), ("nodes", "other nodes"), ("labels", "other labels")):
            if kept[key] != getattr(self, key):
                raise UserError(f"{holds} on {what}: choose another folder")
        if kept["space"] != self.space.name:
            raise UserError(f"{holds} of the space {kept['space']!r}, not {self.space.name!r}: give that, {otherwise}")
        found, wanted = asdict(read_settings(TrainConfig, kept["settings"], folder / TRIALS)), asdict(self.base)
        for name, value in wanted.items():
            if found[name] != value:
                raise UserError(f"{holds} with {name}={found[name]!r}, not {value!r}: give that, {otherwise}")
        before, now = kept["choices"], self.space.written()
        if changed := [name for name in before | now if before.get(name) != now.get(name)]:
            raise UserError(
                f"{holds} of nagphormer {kept['nagphormer']} that tried other values of {', '.join(changed)}: give the "
                f"same flags and take that version, {otherwise}"
            )


@dataclass(frozen=True)
class Begun:
    """A trial that runs."""

    number: int
    """The place it fills, from 1 on: its settings follow from it, the seed and the trials before."""
    tried: dict[str, Any]
    """The settings that are its own."""
    config: TrainConfig
    trial: "optuna.Trial"


@dataclass(frozen=True, kw_only=True)
class Ended(Result):
    """A trial that has ended."""

    number: int
    tried: dict[str, Any]

    def rank(self, minimize: bool) -> tuple[float, float]:
        """What is larger for a better complete trial."""
        assert self.value is not None
        assert self.loss is not None
        return (-self.value if minimize else self.value), -self.loss


class Study:
    """All trials in a folder; `open_study` makes it."""

    def __init__(self, about: About, start: TrainConfig, kept: "optuna.Study"):
        self.about, self._start = about, about.space.among(asdict(start))
        self.minimize = about.base.monitor == "loss"
        self.ended: list[Ended] = []
        """In the order of their numbers."""
        self._kept, self._running = kept, dict[int, Begun]()
        self._begun: dict[str, int] = kept.user_attrs.get("begun", {})
        self._study = _in_memory(about.base)
        for trial in kept.get_trials(deepcopy=False):
            self._study.add_trial(trial)
            self.ended.append(Ended(**trial.user_attrs))
        self.ended.sort(key=lambda each: each.number)
        self._give_up()

    @property
    def best(self) -> Ended | None:
        """The complete trial with the best value, ties by lower loss, then the first."""
        complete = [each for each in self.ended if each.state == "complete"]
        return max(complete, key=lambda each: each.rank(self.minimize), default=None)

    def begin(self, trials: int) -> Begun | None:
        """The next trial, of so many in all; None where every one has ended or runs."""
        taken = {each.number for each in self.ended} | self._running.keys()
        number = next((number for number in range(1, trials + 1) if number not in taken), None)
        if number is None:
            return None
        begun = self._ask(number)
        self._note({str(number): self._begun.get(str(number), 0) + 1})
        self._running[number] = begun
        return begun

    def report(self, begun: Begun, epoch: int, best: float) -> bool:
        """Take in the best value up to an epoch; says whether the trial shall go on.

        It shall not where it is worse than the median of the complete trials' best up to that epoch.
        """
        begun.trial.report(best, epoch)
        return not begun.trial.should_prune()

    def end(self, begun: Begun, result: Result) -> Ended:
        """Take in how a trial ended, and write it."""
        from optuna.trial import TrialState, create_trial

        ended = Ended(**asdict(result), number=begun.number, tried=begun.tried)
        states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        told = result.value if ended.state == "complete" else None
        self._study.tell(begun.trial, told, state=states[ended.state])
        frozen = self._study.get_trials(deepcopy=False)[begun.trial.number]
        self._kept.add_trial(
            create_trial(
                state=frozen.state,
                value=frozen.value,
                params=frozen.params,
                distributions=frozen.distributions,
                intermediate_values=frozen.intermediate_values,
                user_attrs=asdict(ended),
            )
        )
        self._running.pop(begun.number, None)
        self._note({str(begun.number): 0})
        self.ended = sorted([*self.ended, ended], key=lambda each: each.number)
        return ended

    def leave(self) -> None:
        """Forget the trials that run: they are not to blame for their end."""
        self._note({str(number): self._begun[str(number)] - 1 for number in self._running})
        self._running = {}

    def _ask(self, number: int) -> Begun:
        """A trial with the settings of its place; the first has those to start from.

        Its random numbers follow from its number and the seed, so that one that is begun again tries the same.
        """
        if number == 1:
            self._study.enqueue_trial(self._start)
        with _optunas_words():
            self._study.sampler = _sampler(self.about.base.seed, number)
            distributions = {name: _distribution(choice) for name, choice in self.about.space.choices.items()}
            trial = self._study.ask(distributions)
        tried = {name: _short(trial.params[name]) for name in distributions}
        return Begun(number, tried, replace(self.about.base, **tried), trial)

    def _note(self, changes: dict[str, int]) -> None:
        """Keep how often trials that have not ended were begun."""
        self._begun = {name: count for name, count in (self._begun | changes).items() if count > 0}
        self._kept.set_user_attr("begun", self._begun)

    def _give_up(self) -> None:
        """End the trials during which the process was killed again and again."""
        ended = {each.number for each in self.ended}  # one may have been killed as soon as it was written
        for number in {int(name) for name, count in self._begun.items() if count >= KILLS} - ended:
            reason = f"the process was killed {KILLS} times while it ran: does memory suffice?"
            lost = Result(state="failed", value=None, loss=None, best_epoch=0, epochs=0, seconds=0.0, reason=reason)
            self.end(self._ask(number), lost)


@contextmanager
def open_study(folder: Path, about: About, start: TrainConfig) -> Iterator[Study]:
    """The trials in a folder, begun there if there are none; one process at a time may have them.

    Args:
        folder: where they are kept.
        about: what they have in common.
        start: the settings of the first trial, as far as they are among those tried.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("optuna", "tune", "tuning") from error
    path = folder / TRIALS
    if not path.is_file() and folder.exists() and not (folder.is_dir() and _vacant(folder)):
        raise UserError(f"{folder} is not empty and holds no trials: choose another folder")
    with locked(folder / LOCK, f"another process is tuning in {folder}: give it --jobs instead, or wait for its end"):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with _storing(path):
            connect = partial(sqlite3.connect, path, check_same_thread=False)
            storage = optuna.storages.RDBStorage(f"sqlite:///{TRIALS}", engine_kwargs={"creator": connect})
            kept = optuna.create_study(
                storage=storage,
                study_name=NAME,
                direction=_direction(about.base),
                load_if_exists=True,
            )
            if "about" in kept.user_attrs:
                about.refuse_other(kept.user_attrs["about"], folder)
            else:
                kept.set_user_attr("about", about.written())
            study = Study(about, start, kept)
        try:
            with _storing(path):
                yield study
        finally:
            with _storing(path):
                study.leave()
            storage.engine.dispose()


def _vacant(folder: Path) -> bool:
    """Whether a folder holds nothing but what we hide."""
    return all(file.name.startswith(".") for file in folder.iterdir())


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Say in words what the database refuses."""
    import optuna
    import sqlalchemy

    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # SQLite's own words, without SQL
            cause = cause.__cause__
        raise UserError(f"cannot use {path} ({' '.join(str(cause).split())}): choose another folder") from error


@contextmanager
def _optunas_words() -> Iterator[None]:
    """Without Optuna's warnings of what it may change."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def _in_memory(base: TrainConfig) -> "optuna.Study":
    """A study without a file."""
    import optuna

    # not before patience could have ended it: while the learning rate rises, small ones look worse than they are
    pruner = optuna.pruners.MedianPruner(STARTUP, min(base.patience, base.epochs // 2), n_min_trials=STARTUP)
    return optuna.create_study(direction=_direction(base), pruner=pruner)


def _direction(base: TrainConfig) -> str:
    return "minimize" if base.monitor == "loss" else "maximize"


def _sampler(seed: int, number: int) -> "optuna.samplers.BaseSampler":
    """What chooses the settings of one trial; running ones keep it from trying the same."""
    import optuna

    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    return optuna.samplers.TPESampler(seed=own, multivariate=True, constant_liar=True)


def _distribution(choice: OneOf | Between) -> "optuna.distributions.BaseDistribution":
    """A choice as Optuna has it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(choice, OneOf):
        return CategoricalDistribution(choice.values)
    if choice.whole:
        return IntDistribution(int(choice.low), int(choice.high), log=choice.log)
    return FloatDistribution(choice.low, choice.high, log=choice.log)


def _short(value: Any) -> Any:
    """A number with three digits that count, so that a recipe can be read."""
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _digest(parts: list[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part.astype(np.int64)).data)
    return digest.hexdigest()
