"""Networks in which every hop has a map of its own, and no hop attends another.

Shapes: B nodes in a batch, T tokens (hops 0 … K, then those of labels), W width of a hop, D model width, C classes
"""

import torch
from torch import nn
from torch.nn import functional

from nagphormer.model.classifier import Classifier
from nagphormer.model.dropout import Dropout
from nagphormer.model.embedding import HopMaps
from nagphormer.settings import ModelConfig

SHARE = 4
"""A hop gets a quarter of the network's width."""
NARROWEST = 4
"""Columns of a hop at least: normalized, one is always 0 and two are 1 and -1."""


class HopMLP(Classifier):
    """Each token through a map of its own, all of them together through one hidden layer.

    The paper's hops share an embedding; here hop 0 and the mean of a neighborhood may mean different things, as they do
    where neighbors differ. With hops=0 and no labels it is a plain MLP, which sees no graph.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, dim = max(config.hidden_dim // SHARE, NARROWEST), config.hidden_dim
        num_tokens = config.num_tokens + config.label_tokens
        self.embed = HopMaps(config.num_tokens, config.input_dim, width, config.feature_dropout)
        if config.label_tokens:
            self.embed.labels = HopMaps(config.label_tokens, config.num_classes, width)
        self.scale = nn.Parameter(torch.ones(num_tokens, width))
        self.shift = nn.Parameter(torch.zeros(num_tokens, width))
        self.dropout, self._hidden = Dropout(config.dropout), config.token_dropout
        self.body = nn.Linear(num_tokens * width, dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, config.num_classes)

    def represent(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, T, W) -> (B, D)."""
        normed = functional.layer_norm(hidden, hidden.shape[-1:]) * self.scale + self.shift
        shown = self._without_some(functional.gelu(normed))
        mixed = self.body(self.dropout(shown).flatten(1))  # (B, T, W) -> (B, D)
        return functional.gelu(self.norm(mixed))

    def _without_some(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens, (B, T, W), of which training hides some behind hop 0, so that no node leans on one of them alone."""
        if not self.training or self._hidden == 0 or tokens.shape[1] == 1:
            return tokens
        kept = (torch.rand(tokens.shape[0], tokens.shape[1] - 1, 1, device=tokens.device) >= self._hidden).to(tokens)
        return torch.cat([tokens[:, :1], tokens[:, 1:] * (kept / (1 - self._hidden))], dim=1)

    def scores(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(B, T, W) -> (B, C)."""
        return (self.head(self.dropout(self.represent(hidden))),)


class LinearMap(Classifier):
    """Logistic regression on all tokens of a node, those of labels included."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed = HopMaps(config.num_tokens, config.input_dim, config.num_classes, config.feature_dropout)
        if config.label_tokens:
            self.embed.labels = HopMaps(config.label_tokens, config.num_classes, config.num_classes)

    def represent(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, T, C) -> (B, C)."""
        return hidden.float().sum(dim=1)

    def scores(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(B, T, C) -> (B, C)."""
        return (self.represent(hidden),)
