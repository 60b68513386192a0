"""The paper's network and training step, stated as plainly as it can be, for comparison: fp32, nothing fused.

Shapes: B nodes in a batch, T = K+1 tokens, F token width, D model width, H heads, C classes
"""

import torch
from torch import nn

from nagphormer import TrainConfig

BATCH = 2000
SAME = TrainConfig(
    network="transformer",
    hidden_dim=512,
    hops=10,
    encoding_dim=0,
    dropout=0.1,
    attention_dropout=0.1,
    feature_dropout=0.0,
    linear=False,
    reduce_dim=0,
    label_smoothing=0.0,
    batch_size=BATCH,
    averaging=0.0,
)
"""Our settings for the same network and step, on Amazon2M's scale."""


class Layer(nn.Module):
    """One pre-norm encoder layer with three separate projections."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)
        self.wide, self.narrow = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.attention_dropout, self.dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        batch, tokens, dim = hidden.shape
        normed = self.norm_1(hidden)
        query, key, value = (
            project(normed).view(batch, tokens, self.num_heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / (dim // self.num_heads) ** 0.5
        mixed = self.attention_dropout(scores.softmax(dim=-1)) @ value
        hidden = hidden + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, tokens, dim)))
        return hidden + self.dropout(self.narrow(nn.functional.gelu(self.wide(self.norm_2(hidden)))))


class Restated(nn.Module):
    """Embedding, one layer, attention readout, head."""

    def __init__(self, input_dim: int, dim: int, num_classes: int, num_heads: int = 8, dropout: float = 0.1):
        super().__init__()
        self.embed = nn.Linear(input_dim, dim)
        self.layer = Layer(dim, num_heads, dropout)
        self.norm = nn.LayerNorm(dim)
        self.score = nn.Linear(2 * dim, 1)
        self.head_1, self.head_2 = nn.Linear(dim, dim // 2), nn.Linear(dim // 2, num_classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, T, F) -> (B, C)."""
        hidden = self.norm(self.layer(self.embed(tokens)))
        own, hops = hidden[:, :1], hidden[:, 1:]
        weights = self.score(torch.cat([own.expand_as(hops), hops], dim=-1)).softmax(dim=1)  # (B, K, 1)
        node = (own + (weights * hops).sum(dim=1, keepdim=True)).squeeze(1)
        return self.head_2(torch.relu(self.head_1(node)))


class RestatedStep:
    """A training step of `Restated`."""

    def __init__(self, model: Restated):
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)

    def __call__(self, tokens: torch.Tensor, labels: torch.Tensor) -> None:
        """Tokens (B, T, F) and labels (B,)."""
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(tokens), labels).backward()
        self.optimizer.step()
