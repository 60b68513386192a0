"""What all commands that use a run have in common: their flags, and opening it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

if TYPE_CHECKING:
    from nagphormer.data.graph import Graph
    from nagphormer.training.ensemble import Trained


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UseFlags:
    """How a trained model is used."""

    tokens: Path | None = None
    """The graph's token store; by default that of training, or one in the cache."""
    device: str | None = None
    """cpu or cuda; by default a GPU where there is one."""
    gpu_memory: str | None = None
    """GPU memory to take at most, such as 8GB; what does not fit is streamed."""
    allow_pickle: bool = False
    """Let a data set's download be read from pickles, which can run any code."""

    def open(self, folder: Path, graph: str) -> tuple[Trained, Graph, str]:
        """The trained model, the graph as it is, and the device to use."""
        from nagphormer.data.datasets import load_graph
        from nagphormer.device import machine
        from nagphormer.training.ensemble import lead_of
        from nagphormer.training.ensemble_folder import load_trained

        device = machine(self.device, self.gpu_memory).device
        trained = load_trained(folder)
        loaded = load_graph(graph, seed=lead_of(trained).config.seed, allow_pickle=self.allow_pickle)
        return trained, loaded, device
