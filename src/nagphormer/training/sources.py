"""Where a graph's tokens lie, and batches of them: gathered by index from memory, a memory map or the GPU.

Shapes: N nodes, B nodes in a batch, K hops, F token width, D model width
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from nagphormer.cache import can_be_written, tokens_in_cache
from nagphormer.data.graph import Graph
from nagphormer.device import gpu_memory
from nagphormer.errors import UserError
from nagphormer.files import format_size
from nagphormer.model import ops
from nagphormer.model.embedding import Embedding, HopMaps
from nagphormer.progress import note
from nagphormer.settings import TokenSettings
from nagphormer.tokens.engine import engine, round_up
from nagphormer.tokens.fitted import Fitted
from nagphormer.tokens.hop2token import make_tokens, refuse_statistics
from nagphormer.tokens.inputs import Columns
from nagphormer.tokens.labels import LABELS, Shown, label_tokens
from nagphormer.tokens.store import MANIFEST, Stored, StoreManifest, TokenStore
from nagphormer.training.batches import AHEAD, Batch, TokenSource, on_device
from nagphormer.training.drawn import Drawn, Joined
from nagphormer.training.plan import Plan, Way
from nagphormer.training.projection import ProjectedTokens

ALIGNED = 8
"""Rows of a matrix on a GPU have a multiple of so many values: matrix units are several times slower on others."""
UPLOAD_BYTES = 64 << 20
"""Bytes of tokens that go to a GPU at a time."""

Made = dict[tuple[TokenSettings, Way], TokenSource]
"""Tokens of a graph that several trainings share."""


def token_source(
    graph: Graph,
    tokens: TokenSettings,
    way: Way,
    device: str,
    store: TokenStore | None = None,
    out: str | os.PathLike[str] | None = None,
    fitted: Fitted | None = None,
) -> TokenSource:
    """Tokens of a graph for the network.

    Args:
        graph: the graph.
        tokens: what its tokens shall be.
        way: from a store, or projected first; a store that is given is used.
        device: where the network runs.
        store: tokens made before; must be this graph's, with the same settings but for the type.
        out: folder in which tokens are kept, should they have to be made; in memory without it.
        fitted: of the training, where the graph is one to use a model on; else the graph's own is found.
    """
    if store is None and way == "projected":
        encoding: np.ndarray | None = None
        if tokens.encoding_dim and fitted is not None:
            encoding = fitted.encoding_of(graph, device)
        elif tokens.encoding_dim:
            from nagphormer.tokens.laplacian import laplacian_encoding

            encoding = laplacian_encoding(graph, tokens.encoding_dim, device=device)
        assert not tokens.reduces(graph.num_features)
        columns = Columns(graph, encoding, tokens.feature_scaling, fitted.statistics if fitted else None)
        return ProjectedTokens(graph, tokens.hops, columns, encoding, device)
    if store is not None:
        check_store(store, graph, tokens, fitted)
    else:
        store = make_tokens(graph, tokens, out, device=device, fitted=fitted)
        if store.path is not None and not store.reused:
            note(f"tokens are kept in {store.path}: {format_size(store.num_bytes)}")
    return StoredTokens(store, device)


def training_source(
    graph: Graph,
    plan: Plan,
    device: str,
    store: TokenStore | None = None,
    run: Path | None = None,
    made: Made | None = None,
) -> TokenSource:
    """All that a plan trains on: the graph's own tokens, those of copies with fewer edges, and those of labels.

    Args:
        graph: the graph, with splits.
        plan: what is to be trained.
        device: where the network runs.
        store: the graph's own tokens, if they are made already.
        run: the run's folder, if it has one; what is made is then kept in the cache.
        made: what other trainings on this graph have made, to be used and added to.
    """
    made = {} if made is None else made

    def source_of(tokens: TokenSettings, way: Way, store: TokenStore | None, fitted: Fitted | None) -> TokenSource:
        if (tokens, way) not in made:
            out = tokens_folder(run, graph, tokens) if run else None
            made[tokens, way] = token_source(graph, tokens, way, device, store, out, fitted)
        return made[tokens, way]

    source = source_of(plan.tokens, plan.way, store, None)
    if plan.given.edge_copies:
        fitted = Fitted.of(graph, plan.tokens, source.statistics, source.encoding, source.components)
        numbers = range(1, plan.given.edge_copies + 1)
        copies = [source_of(replace(plan.tokens, copy=number), "stored", None, fitted) for number in numbers]
        source = Drawn(source, copies)
    return with_labels(source, graph, plan, Shown.of(graph), same=True) if plan.model.label_tokens else source


def with_labels(source: TokenSource, graph: Graph, plan: Plan, shown: Shown | None, same: bool) -> TokenSource:
    """The source with the tokens of labels that a plan wants, if it does.

    Args:
        source: the graph's tokens.
        graph: the graph, whose own labels are not looked at.
        plan: of the training.
        shown: the labels of the training nodes.
        same: whether it is the graph of training.
    """
    hops, given = plan.model.label_tokens, plan.given
    if not hops:
        return source
    if shown is None:
        raise UserError(f"the run was carried here without {LABELS}: the model reads labels of its training nodes")
    nodes, labels = shown.in_graph(graph, same)
    return Joined(source, label_tokens(graph, nodes, labels, plan.model.num_classes, hops, given.seed))


def check_store(store: TokenStore, graph: Graph, tokens: TokenSettings, fitted: Fitted | None = None) -> None:
    """Refuse tokens of another graph or made with other settings; the type they are stored as is the store's own.

    Where they are to be used with a run, they must have been made with what was `fitted` in its training.
    """
    store.refuse_other(graph, replace(tokens, dtype=store.tokens.dtype))
    if fitted is not None:
        refuse_statistics(store, graph, fitted)


def tokens_folder(run: Path, graph: Graph, tokens: TokenSettings, fitted: Fitted | None = None) -> Path:
    """Where tokens are kept that a run needs: where they are, else in the cache, where every run finds them.

    Beside the run where the cache cannot be written to.
    """
    cached, beside = places = _places(run, graph, tokens, fitted)
    found = next((place for place in places if _holds(place, tokens)), None)
    return found or (cached if can_be_written() else beside)


def find_store(
    run: Path, graph: Graph, tokens: TokenSettings, used: str | None, fitted: Fitted | None = None
) -> Path | None:
    """A graph's token store, if there is one: that which a run was trained on, one in the cache, or beside the run.

    Args:
        run: the run folder.
        graph: the graph.
        tokens: what its tokens shall be.
        used: where the store of training lies, seen from the run folder, if it was this graph's.
        fitted: of the training.
    """
    if used is not None and (run / used / MANIFEST).is_file():
        return run / used
    for path in _places(run, graph, tokens, fitted):
        if _holds(path, tokens):
            return path
    return None


def _holds(path: Path, tokens: TokenSettings) -> bool:
    """Whether a store of the right type lies there: 0.1.0 did not name a folder by it."""
    return (path / MANIFEST).is_file() and StoreManifest.read(path).tokens.dtype == tokens.dtype


def _places(run: Path, graph: Graph, tokens: TokenSettings, fitted: Fitted | None) -> tuple[Path, Path]:
    """In the cache, and beside a run, where 0.1.0 kept them: the same for all runs with these settings of tokens.

    Those of another graph than that of training are made for this run, or for others with the same statistics.
    """
    name = tokens.folder_name(graph.fingerprint)
    if fitted is not None and fitted.is_foreign(graph):
        name += f"-as-{fitted.digest(graph)[:8]}"
    beside = (run if run.name else run.absolute()).parent / name  # "." has a parent, too
    return tokens_in_cache(name, graph.name), beside


class StoredTokens:
    """Tokens of a store, on the GPU where they fit, else read from where the store lies."""

    projects_first = False

    def __init__(self, store: TokenStore, device: str):
        self.num_nodes, num_tokens, self.width = store.shape
        self.hops = num_tokens - 1
        self.device = device
        self.statistics, self.encoding = store.manifest.statistics, store.encoding
        self.components = store.components
        self._scales = torch.from_numpy(store.scales).to(device)
        self._stored = store.stored
        self._kind: torch.dtype = store.stored.torch
        self._columns = np.cumsum([0, *(block.shape[2] for block in store.blocks)])
        self._host: list[np.ndarray] = []
        self._resident: list[torch.Tensor] = []
        self._stream: torch.cuda.Stream | None = None
        if store.on_gpu and device != "cpu" and store.blocks[0].device == torch.empty(0, device=device).device:
            note(f"tokens are held on the GPU: {format_size(store.num_bytes)}")
            self._resident = store.blocks
        elif device != "cpu" and _fits(store, device):
            self._resident = [_upload(block, store.stored, device) for block in store.host_blocks()]
        else:
            self._host = store.host_blocks()

    def batches(self, nodes: Sequence[torch.Tensor]) -> Iterator[Batch]:
        """Positions alone, where the tokens are on the device or it is the CPU; else with tokens as stored."""
        if self._resident or self.device == "cpu":
            return on_device(nodes, self.device)
        return self._read_ahead(nodes)

    def in_training(self, epoch: int) -> TokenSource:
        """Itself."""
        return self

    def embedder(self, embedding: Embedding | HopMaps) -> Callable[[Batch], torch.Tensor]:
        """The map from a batch to its embedded tokens, (B, K+1, D)."""
        return lambda batch: self._embed(embedding, batch)

    def _embed(self, embedding: Embedding | HopMaps, batch: Batch) -> torch.Tensor:
        tokens = self.gather(batch.nodes) if batch.stored is None else self._decode(batch.stored)
        columns, rows = tokens.shape[-1] - self.width, 0
        if tokens.is_cuda:
            rows = round_up(embedding.out_features, ALIGNED) - embedding.out_features
        if columns == rows == 0:
            return embedding(tokens)
        weight = functional.pad(embedding.drawn_weight(), (0, columns, 0, rows))
        wide = embedding.multiply(tokens, weight, functional.pad(embedding.bias, (0, rows)))
        return wide[..., : embedding.out_features]

    def gather(self, nodes: torch.Tensor) -> torch.Tensor:
        """Tokens of some nodes, (B, K+1, F) float32.

        On a GPU perhaps with columns of zeros after the last, and in the autocast type.
        """
        if self._resident and ops.fused(nodes):
            kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else torch.float32
            width = round_up(self.width, ALIGNED)
            tokens = torch.empty(len(nodes), self.hops + 1, width, dtype=kind, device=self.device)
            for block, first in zip(self._resident, self._columns, strict=False):
                engine(self.device).take(block, nodes, self._scales, tokens, int(first))
            return tokens
        if self._resident:
            return self._decode(torch.cat([block[nodes] for block in self._resident], dim=-1))
        return self._decode(torch.from_numpy(self._read(nodes.cpu().numpy())).view(self._kind).to(self.device))

    def _decode(self, stored: torch.Tensor) -> torch.Tensor:
        """Stored values as float32, with the column scales undone."""
        return stored.to(torch.float32).mul_(self._scales)

    def _read(self, nodes: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Tokens of some nodes as they are stored, (B, K+1, F)."""
        if len(self._host) == 1:
            return np.take(self._host[0], nodes, axis=0, out=out, mode="clip")
        parts = [np.take(block, nodes, axis=0) for block in self._host]
        return np.concatenate(parts, axis=-1, out=out)

    def _read_ahead(self, nodes: Sequence[torch.Tensor]) -> Iterator[Batch]:
        """Each batch with its stored tokens on the GPU; others are read and copied while one is used."""
        stream = self._stream = self._stream or torch.cuda.Stream(self.device)
        coming: deque[Future[tuple[Batch, torch.cuda.Event]]] = deque()
        with ThreadPoolExecutor(AHEAD) as threads:
            for positions in nodes:
                coming.append(threads.submit(self._send, positions, stream))
                if len(coming) > AHEAD:
                    yield self._received(*coming.popleft().result())
            while coming:
                yield self._received(*coming.popleft().result())

    def _send(self, nodes: torch.Tensor, stream: torch.cuda.Stream) -> tuple[Batch, torch.cuda.Event]:
        """Read tokens into pinned memory and start their copy to the GPU, behind their positions."""
        pinned = torch.empty(len(nodes), self.hops + 1, self.width, dtype=self._kind, pin_memory=True)
        self._read(nodes.numpy(), pinned.view(self._stored.torch_bits).numpy())
        with torch.cuda.stream(stream):
            positions = nodes.pin_memory().to(self.device, non_blocking=True)
            return Batch(positions, pinned.to(self.device, non_blocking=True)), stream.record_event()

    def _received(self, batch: Batch, copied: torch.cuda.Event) -> Batch:
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(copied)
        assert batch.stored is not None
        for sent in (batch.nodes, batch.stored):
            sent.record_stream(stream)
        return batch


def _fits(store: TokenStore, device: str) -> bool:
    """Whether the whole store takes at most half of the GPU memory we may use; says what follows from it."""
    needed, room = store.num_bytes, gpu_memory(device)
    if needed <= room // 2:
        note(f"tokens are held on the GPU: {format_size(needed)} of {format_size(room)}")
        return True
    where = "memory" if store.path is None else store.path
    note(f"tokens are streamed from {where}: {format_size(needed)} are over half of the GPU's {format_size(room)}")
    return False


def _upload(block: np.ndarray, stored: Stored, device: str) -> torch.Tensor:
    """A copy of a stored block on the GPU, piece by piece through pinned memory."""
    target = torch.empty(block.shape, dtype=stored.torch, device=device)
    rows = max(1, min(len(block), UPLOAD_BYTES // block[:1].nbytes))
    rooms = [torch.empty(rows, *block.shape[1:], dtype=stored.torch, pin_memory=True) for _ in range(2)]
    stream = torch.cuda.current_stream(device)
    sent = [stream.record_event() for _ in rooms]
    for number, start in enumerate(range(0, len(block), rows)):
        piece, room = block[start : start + rows], rooms[number % 2]
        sent[number % 2].synchronize()
        np.copyto(room.view(stored.torch_bits).numpy()[: len(piece)], piece)
        target[start : start + len(piece)].copy_(room[: len(piece)], non_blocking=True)
        sent[number % 2] = stream.record_event()
    return target
