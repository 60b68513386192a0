"""Hop tokens as a transform of PyG, beside its `SIGN`, for networks of one's own; needs the extra `pyg`.

Shapes: N nodes, K hops, F features, s encoding columns
"""

from typing import Any

import numpy as np
import torch

from nagphormer.data.pyg import unlabeled
from nagphormer.errors import MissingExtra
from nagphormer.settings import Scaling
from nagphormer.tokens.hop2token import hop_tokens

try:
    from torch_geometric.transforms import BaseTransform
except ImportError as error:
    raise MissingExtra("torch-geometric", "pyg", "nagphormer.pyg") from error


class HopTokens(BaseTransform):
    """Sets `data.tokens`: of every node its features, averaged over 0, 1, …, K hops (paper Eq. 6).

    They are what `hop_tokens(from_pyg(data), …)` holds: edges count both ways, once, and weights are used. Labels and
    splits are not looked at.

    >>> from torch_geometric.data import Data
    >>> data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> HopTokens(hops=2)(data).tokens.shape
    torch.Size([3, 3, 3])
    """

    def __init__(self, hops: int, encoding_dim: int = 0, feature_scaling: Scaling = "none"):
        """Tokens of K = `hops`, F + s wide.

        Args:
            hops: K; every node gets K+1 tokens.
            encoding_dim: s, Laplacian eigenvectors joined to the features; 0 for none.
            feature_scaling: `none`, `standardize` (columns) or `row` (rows sum to one).
        """
        self.hops = hops
        self.encoding_dim = encoding_dim
        self.feature_scaling: Scaling = feature_scaling

    def forward(self, data: Any) -> Any:
        """The data with `tokens`, (N, K+1, F+s) float32, where its features or edges lie."""
        graph = unlabeled(data)
        store = hop_tokens(graph, self.hops, self.encoding_dim, "float32", feature_scaling=self.feature_scaling)
        place = next((value.device for value in (data.x, data.edge_index) if value is not None), "cpu")
        data.tokens = torch.from_numpy(np.asarray(store)).to(place)
        return data

    def __repr__(self) -> str:
        return (
            f"HopTokens(hops={self.hops}, encoding_dim={self.encoding_dim}, feature_scaling={self.feature_scaling!r})"
        )
