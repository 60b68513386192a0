"""Small studies, and what they need."""

from contextlib import contextmanager
from dataclasses import replace

from small import HERE, quick

from nagphormer.training.space import Between, OneOf, Space
from nagphormer.training.study import About, open_study
from nagphormer.training.trial import Result
from nagphormer.training.tune import Setup, tune

SPACE = Space(
    "wide",
    None,
    {
        "hops": OneOf((1, 2)),
        "num_layers": Between(0, 2),
        "lr": Between(0.0001, 0.1, log=True),
        "linear": OneOf((True, False)),
    },
)
START = quick(epochs=3, num_layers=0)


@contextmanager
def study_in(folder, graph, space=SPACE, **changes):
    base = replace(START, **changes)
    with open_study(folder, About.of(graph, space, base), base) as study:
        yield study


def tuned(folder, graph, trials, jobs=1, path=None, seconds=None, study=None, **changes):
    """Trials on a graph, which lies at a path where there are several jobs; gives all in the folder."""
    with study_in(folder, graph, **changes) as study:
        base = study.about.base
        setup = Setup.of(str(path), False, base.seed, folder, jobs, HERE)
        for _ in tune(study, graph, HERE, setup, trials, seconds):
            pass
        return study.ended


def complete(value, loss=1.0, **changes):
    """The result of a trial that one makes up."""
    facts = {"state": "complete", "value": value, "loss": loss, "best_epoch": 1, "epochs": 1, "seconds": 0.1}
    return Result(**facts | changes)


def without_seconds(ended):
    return [replace(each, seconds=0.0) for each in ended]
