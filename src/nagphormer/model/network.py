"""NAGphormer, the network (paper 3.2): hop tokens in, class scores out.

Shapes: B nodes in a batch, K hops, F token width (features and encoding), D model width, C classes
"""

from math import sqrt

import torch
from torch import nn

from nagphormer.config import ModelConfig
from nagphormer.errors import UserError
from nagphormer.model.dropout import Dropout
from nagphormer.model.embedding import Embedding
from nagphormer.model.encoder import EncoderLayer, add_and_norm
from nagphormer.model.readout import AttentionReadout, SelfReadout, SumReadout


class NAGphormer(nn.Module):
    """The paper's network: shared linear embedding, pre-norm encoder, readout, MLP head.

    >>> model = NAGphormer(ModelConfig(input_dim=16, num_classes=3, hidden_dim=32))
    >>> logits, alpha = model(torch.randn(5, 4, 16), return_attention=True)  # 5 nodes, 3 hops
    >>> logits.shape, alpha.shape
    (torch.Size([5, 3]), torch.Size([5, 3]))
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        dim = config.hidden_dim
        self.embed = Embedding(config.input_dim, dim, config.feature_dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(dim, config.num_heads, config.dropout, config.attention_dropout)
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.dropout = Dropout(config.dropout)
        self.readout: nn.Module
        if config.readout == "attention":
            self.readout = AttentionReadout(dim)
        else:
            self.readout = SelfReadout() if config.readout == "self" else SumReadout()
        half = max(dim // 2, 1)
        self.head = nn.Sequential(nn.Linear(dim, half), nn.ReLU(), nn.Linear(half, config.num_classes))
        self.apply(self._initialize)

    def forward(
        self, tokens: torch.Tensor, return_attention: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Class scores of a batch of nodes.

        Args:
            tokens: (B, K+1, F).
            return_attention: also give the readout's weights of hops 1 … K.

        Returns:
            Scores (B, C); with `return_attention` also α (B, K).
        """
        encoded = self.encode(self.embed(tokens))  # (B, K+1, D)
        logits = self.head(self.readout(encoded))  # (B, C)
        return (logits, self.hop_attention(encoded)) if return_attention else logits

    def encode(self, hidden: torch.Tensor) -> torch.Tensor:
        """Embedded tokens through all layers, (B, K+1, D) -> (B, K+1, D)."""
        update = None
        for layer in self.layers:
            hidden, update = layer(hidden, update)
        return add_and_norm(hidden, update, self.norm, self.dropout)[1]

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Class scores from embedded tokens, (B, K+1, D) -> (B, C)."""
        return self.head(self.readout(self.encode(hidden)))

    def hop_attention(self, encoded: torch.Tensor) -> torch.Tensor:
        """The readout's weights of hops 1 … K, (B, K+1, D) -> (B, K)."""
        if not isinstance(self.readout, AttentionReadout):
            raise UserError(f"readout={self.config.readout!r} weighs no hops: only 'attention' does")
        return self.readout.attention(encoded)

    def _initialize(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02 / sqrt(max(self.config.num_layers, 1)))
            nn.init.zeros_(module.bias)
