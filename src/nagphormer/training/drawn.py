"""Sources of tokens that stand before others: another copy of the graph every epoch, and tokens of labels.

Shapes: N nodes, B nodes in a batch, K hops, L tokens of labels, C classes, D model width
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from nagphormer.model.embedding import Embedding, HopMaps
from nagphormer.tokens.labels import LabelTokens
from nagphormer.training.batches import Batch, TokenSource


class Before:
    """A source that takes from another what it does not change."""

    def __init__(self, inner: TokenSource):
        self.inner = inner
        self.num_nodes, self.hops, self.width, self.device = inner.num_nodes, inner.hops, inner.width, inner.device
        self.projects_first, self.statistics = inner.projects_first, inner.statistics
        self.encoding, self.components = inner.encoding, inner.components

    def in_training(self, epoch: int) -> TokenSource:
        """Where the tokens of an epoch of training come from."""
        return self.inner.in_training(epoch)

    def batches(self, nodes: Sequence[torch.Tensor]) -> Iterator[Batch]:
        """Batches of node positions."""
        return self.inner.batches(nodes)

    def embedder(self, embedding: Embedding | HopMaps) -> Callable[[Batch], torch.Tensor]:
        """The map from a batch to its embedded tokens, (B, K+1, D)."""
        return self.inner.embedder(embedding)


class Drawn(Before):
    """In training, tokens of a copy of the graph with half of the edges, another one every epoch; else its own."""

    def __init__(self, inner: TokenSource, copies: Sequence[TokenSource]):
        super().__init__(inner)
        self._copies = copies

    def in_training(self, epoch: int) -> TokenSource:
        """The copy of an epoch."""
        return self._copies[(epoch - 1) % len(self._copies)]


class Joined(Before):
    """Tokens of labels behind those of the hops."""

    def __init__(self, inner: TokenSource, labels: LabelTokens):
        super().__init__(inner)
        self.labels = labels
        self._whole = torch.from_numpy(labels.whole).to(self.device)  # (N, L, C)
        self._rounds = torch.from_numpy(labels.rounds).to(self.device)  # (R, n, L, C)
        self._place = torch.from_numpy(labels.place).to(self.device)  # (N,)

    def in_training(self, epoch: int) -> TokenSource:
        """With tokens in which a share of the training nodes shows its labels, and the others read them."""
        table = self._rounds[(epoch - 1) % len(self._rounds)]
        return _Beside(self.inner.in_training(epoch), lambda nodes: table[self._place[nodes]])

    def embedder(self, embedding: Embedding | HopMaps) -> Callable[[Batch], torch.Tensor]:
        """The map from a batch to its embedded tokens, those of labels last, (B, K+1+L, D)."""
        return _Beside(self.inner, lambda nodes: self._whole[nodes]).embedder(embedding)


class _Beside(Before):
    """Tokens of labels that are looked up, (B,) -> (B, L, C), behind others."""

    def __init__(self, inner: TokenSource, look_up: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__(inner)
        self._look_up = look_up

    def in_training(self, epoch: int) -> TokenSource:
        """Itself."""
        return self

    def embedder(self, embedding: Embedding | HopMaps) -> Callable[[Batch], torch.Tensor]:
        """The map from a batch to its embedded tokens, (B, K+1+L, D)."""
        embed, maps = self.inner.embedder(embedding), embedding.labels
        assert maps is not None, "the model was made without tokens of labels"
        return lambda batch: torch.cat([embed(batch), maps(self._look_up(batch.nodes).float())], dim=1)
