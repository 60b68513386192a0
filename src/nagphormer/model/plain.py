"""The two models a graph Transformer must beat: an MLP on a node's own features, logistic regression on its tokens.

Each is a `Classifier` like `NAGphormer`, so they are trained by the same code.

Shapes: B nodes in a batch, K hops, F token width, D model width, C classes
"""

import torch
from torch import nn

from nagphormer.model.classifier import Classifier, linear_scores
from nagphormer.model.dropout import Dropout
from nagphormer.model.embedding import Embedding


class MLP(Classifier):
    """Two layers on hop 0; give it tokens without hops and encoding, and it sees no graph."""

    def __init__(self, input_dim: int, num_classes: int, hidden_dim: int = 512, dropout: float = 0.5):
        super().__init__()
        self.embed = Embedding(input_dim, hidden_dim)
        self.head = nn.Sequential(nn.ReLU(), Dropout(dropout), nn.Linear(hidden_dim, num_classes))

    def scores(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(B, K+1, D) -> (B, C)."""
        return (self.head(hidden[:, 0]),)


class LogisticRegression(Classifier):
    """One linear map from all K+1 tokens of a node, each with its own weights."""

    def __init__(self, input_dim: int, num_classes: int, hops: int):
        super().__init__()
        self.num_classes = num_classes
        self.embed = Embedding(input_dim, (hops + 1) * num_classes)

    def scores(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(B, K+1, (K+1)·C) -> (B, C)."""
        return (linear_scores(hidden, self.num_classes),)
