"""NAGphormer, the network (paper 3.2): hop tokens in, class scores out.

Shapes: B nodes in a batch, K hops, F token width (features and encoding), D model width, C classes
"""

from collections.abc import Callable
from math import sqrt

import torch
from torch import nn

from nagphormer.errors import UserError
from nagphormer.model import ops
from nagphormer.model.classifier import Classifier, averaged, linear_scores
from nagphormer.model.dropout import Dropout
from nagphormer.model.embedding import Embedding, HopMaps
from nagphormer.model.encoder import EncoderLayer
from nagphormer.model.per_hop import HopMLP, LinearMap
from nagphormer.model.readout import READOUTS
from nagphormer.settings import ModelConfig, Network

LINEAR_PACE = 60.0
"""How much faster than the network its companion learns. Adam moves all weights alike; so its scores are scaled."""


class NAGphormer(Classifier):
    """The paper's network: shared linear embedding, pre-norm encoder, readout, MLP head.

    With `linear_tokens` it has a companion, which the paper has not: a linear classifier of all tokens of a node. Each
    of the two learns by a loss of its own, and their scores are averaged. The companion's weights are further rows of
    the embedding, zero at first; so wherever (B, K+1, D) embedded tokens go in, they have (K+1)·C more columns.

    >>> model = NAGphormer(ModelConfig(input_dim=16, num_classes=3, hidden_dim=32))
    >>> logits, alpha = model(torch.randn(5, 4, 16), return_attention=True)  # 5 nodes, 3 hops
    >>> logits.shape, alpha.shape
    (torch.Size([5, 3]), torch.Size([5, 3]))
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        dim = config.hidden_dim
        linear_dim = config.linear_tokens * config.num_classes
        if config.own_maps:  # the paper's hops share one
            if linear_dim:
                raise UserError("own_maps=True gives no place to the linear classifier: say linear=False")
            self.embed: Embedding | HopMaps = HopMaps(config.num_tokens, config.input_dim, dim, config.feature_dropout)
        else:
            self.embed = Embedding(config.input_dim, dim + linear_dim, config.feature_dropout)
        if config.label_tokens:
            if linear_dim:
                raise UserError("label_hops gives no place to the linear classifier: say linear=False")
            self.embed.labels = HopMaps(config.label_tokens, config.num_classes, dim)
        self.layers = nn.ModuleList(
            EncoderLayer(dim, config.num_heads, config.dropout, config.attention_dropout)
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(dim)  # differs from the paper, which names none after the last layer; its code has it
        self.dropout = Dropout(config.dropout)
        self.readout = READOUTS[config.readout](dim)
        half = max(dim // 2, 1)
        self.head = nn.Sequential(nn.Linear(dim, half), nn.ReLU(), nn.Linear(half, config.num_classes))
        self.apply(self._initialize)
        if linear_dim:
            with torch.no_grad():
                self.embed.weight[dim:] = 0

    def forward(  # type: ignore[override]  # the paper's network also tells its attention
        self, tokens: torch.Tensor, return_attention: bool = False, labels: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Class scores of a batch of nodes.

        Args:
            tokens: (B, K+1, F).
            return_attention: also give the readout's weights of hops 1 … K.
            labels: tokens of labels, (B, L, C), for a network that reads such.

        Returns:
            Scores (B, C); with `return_attention` also α (B, K).
        """
        hidden = self.embedded(tokens, labels)  # (B, K+1, D), with a companion (B, K+1, D + (K+1)·C)
        encoded = self.encode(hidden)  # (B, K+1, D)
        logits = averaged(self._scores(hidden, encoded))  # (B, C)
        return (logits, self._attention(encoded)) if return_attention else logits

    def encode(self, hidden: torch.Tensor) -> torch.Tensor:
        """Embedded tokens through all layers, (B, K+1, D) -> (B, K+1, D)."""
        hidden, update = hidden[..., : self.config.hidden_dim].contiguous(), None
        for layer in self.layers:
            hidden, update = layer(hidden, update)
        return ops.add_norm(hidden, update, self.norm, self.dropout)[1]

    def scores(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Class scores of the network and of its companion, if it has one, (B, K+1, D) -> (B, C)."""
        return self._scores(hidden, self.encode(hidden))

    def _scores(self, hidden: torch.Tensor, encoded: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = self.head(self.readout(encoded))
        expected, given = self.config.linear_tokens, hidden.shape[1]
        if not expected:
            return (own,)
        if given != expected:
            raise UserError(f"linear_tokens={expected}: the network reads {expected} tokens of a node, not {given}")
        return own, LINEAR_PACE * linear_scores(hidden[..., self.config.hidden_dim :], self.config.num_classes)

    def represent(self, hidden: torch.Tensor) -> torch.Tensor:
        """Z_out of the paper's Eq. 12, (B, K+1, D) -> (B, D)."""
        return self.readout(self.encode(hidden))

    @property
    def weighs_hops(self) -> bool:
        """Whether the readout has weights of hops."""
        return hasattr(self.readout, "attention")

    def hop_attention(self, hidden: torch.Tensor) -> torch.Tensor:
        """The readout's weights of hops 1 … K, (B, K+1, D) -> (B, K)."""
        return self._attention(self.encode(hidden))

    def _attention(self, encoded: torch.Tensor) -> torch.Tensor:
        weigh = getattr(self.readout, "attention", None)
        if weigh is None:
            raise UserError(f"readout={self.config.readout!r} weighs no hops: only 'attention' and 'dynamic' do")
        weights = weigh(encoded)
        if not self.config.label_tokens:
            return weights
        hops = weights[:, : -self.config.label_tokens]  # what labels got is left out
        return hops / hops.sum(dim=1, keepdim=True).clamp_min(1e-30)

    def _initialize(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02 / sqrt(max(self.config.num_layers, 1)))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def build(config: ModelConfig) -> Classifier:
    """The network of a shape, with weights as torch draws them now."""
    return NETWORKS[config.network](config)


NETWORKS: dict[Network, Callable[[ModelConfig], Classifier]] = {
    "transformer": NAGphormer,
    "mlp": HopMLP,
    "linear": LinearMap,
}
"""How each is made for a shape."""
