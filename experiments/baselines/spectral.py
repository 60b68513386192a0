"""Eigenpairs of the normalized Laplacian as tensors, for the Transformers that encode positions with them.

Shapes: N nodes, m eigenpairs
"""

import numpy as np
import torch

from experiments.baselines.method import Task
from nagphormer.tokens.laplacian import solve


def eigenpairs(task: Task, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first non-trivial eigenvectors, of unit norm, and their eigenvalues: (N, m) and (m,), m ≤ dim.

    Where the graph has fewer than `dim`, only those it has.
    """
    found = solve(task.graph, dim, device=task.device)
    exists = ~np.isnan(found.eigenvalues)
    vectors = torch.from_numpy(np.ascontiguousarray(found.vectors[:, exists]))
    values = torch.from_numpy(found.eigenvalues[exists].astype(np.float32))
    return vectors.to(task.device), values.to(task.device)


def flip_signs(vectors: torch.Tensor) -> torch.Tensor:
    """Each column times +1 or -1 by chance: the sign of an eigenvector means nothing, (N, m) -> (N, m)."""
    signs = torch.randint(0, 2, (vectors.shape[1],), device=vectors.device) * 2 - 1
    return vectors * signs
