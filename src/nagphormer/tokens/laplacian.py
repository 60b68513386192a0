"""Structural encoding: the smallest non-trivial eigenvectors of the normalized Laplacian (paper 3.3, Eq. 10).

L = I − D^-½ A D^-½ on the nodes that have an edge. A graph of c such components has c eigenvectors of eigenvalue
0, which are known without any search: they are projected out exactly, and a block method finds the rest.

The search runs on P = D^-1 A, whose eigenvectors v give those of L as u = D^½ v, with λ = 1 − μ; inner products
are weighted by D, and one product with P needs no scaling pass. Chebyshev polynomials of P damp everything
below the wanted end of the spectrum, then Rayleigh-Ritz picks the vectors (block Chebyshev subspace iteration).
A block sees multiple eigenvalues, which a single-vector Lanczos method can miss.

A has no self-loops here, on any graph. That differs from how the paper's large sets were prepared, with self-loops.

Shapes: N nodes, s vectors wanted, b vectors searched (a multiple of LANES), c components with an edge
"""

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from nagphormer.data.components import connected_components
from nagphormer.data.graph import Graph, check_graph
from nagphormer.device import gpu_memory, resolve_device
from nagphormer.errors import UserError, check_whole
from nagphormer.files import format_size
from nagphormer.progress import note, stage
from nagphormer.tokens.engine import LANES, engine, round_up
from nagphormer.tokens.normalization import weighted_degrees
from nagphormer.tokens.slices import adjacency_bytes

SPARE = 6
"""Vectors searched beyond those wanted, at least: they make the last wanted ones converge."""
GAIN = 1e4
"""How much one filter lifts the first eigenvector above the damped part; more would drown the others in float32."""
LIMIT = 1e9
"""How much it may lift anything at all: rounding brings the trivial vectors back, and they have eigenvalue 1."""
PATIENCE = 10
"""Filters without progress after which the search ends: float32 cannot reach any tolerance."""
MAX_DEGREE = 600
"""Products in one filter at most, so that progress is checked now and then."""


@dataclass(frozen=True)
class Eigenpairs:
    """What the search found."""

    vectors: np.ndarray
    """(N, s) float32, unit norm, ascending in eigenvalue; zero rows for isolated nodes, zero columns if too few."""
    eigenvalues: np.ndarray
    """(s,) float64, NaN where no vector exists."""
    residuals: np.ndarray
    """‖Lu − λu‖, (s,) float64, NaN where no vector exists."""
    num_trivial: int
    """Eigenvectors of eigenvalue 0 that were left out: components with an edge."""
    num_products: int
    """Sparse products with a block that were needed."""

    def report(self) -> dict[str, list[float]]:
        """Eigenvalues and residuals of the vectors that exist, for a manifest."""
        found = ~np.isnan(self.eigenvalues)
        return {"eigenvalues": self.eigenvalues[found].tolist(), "residuals": self.residuals[found].tolist()}


def laplacian_encoding(
    graph: Graph,
    dim: int,
    tol: float | None = None,
    seed: int = 0,
    *,
    device: str | None = None,
    time_limit: float = 1800.0,
) -> np.ndarray:
    """The `dim` eigenvectors of the normalized Laplacian after the trivial ones.

    The sign makes each vector's entry of largest magnitude positive. Isolated nodes have zero rows; where fewer
    vectors exist than asked for, the rest are zero columns, with a warning.

    Args:
        graph: the graph, N nodes.
        dim: s, how many vectors.
        tol: accepted ‖Lu − λu‖ relative to max(λ, 0.01); 1e-3 by default.
        seed: where the search starts; the result hardly depends on it.
        device: `cpu`, `cuda`, or None for a GPU where there is one.
        time_limit: seconds after which the best vectors so far are returned, with a warning.

    Returns:
        (N, dim) float32.

    >>> from nagphormer import synthetic_graph
    >>> laplacian_encoding(synthetic_graph(100, 300, 0, 2), 3).shape
    (100, 3)
    """
    check_graph(graph)
    return solve(graph, dim, tol, seed, device, time_limit).vectors


def solve(
    graph: Graph,
    dim: int,
    tol: float | None = None,
    seed: int = 0,
    device: str | None = None,
    time_limit: float = 1800.0,
) -> Eigenpairs:
    """Like `laplacian_encoding`, with eigenvalues and residuals."""
    check_whole("dim", dim)
    if dim < 1:
        raise UserError(f"the encoding needs at least 1 dimension, not {dim}")
    device = device_for_search(graph, dim, resolve_device(device))
    tol = 1e-3 if tol is None else tol
    if not tol > 0:
        raise UserError(f"tol must be positive, not {tol}")
    degrees = weighted_degrees(graph)
    touched = degrees > 0
    component = connected_components(graph)
    names, component[touched] = np.unique(component[touched], return_inverse=True)
    component[~touched] = 0  # their degree is 0: they count for nothing
    num_trivial = len(names)
    existing = min(int(touched.sum()) - num_trivial, dim)
    vectors = np.zeros((graph.num_nodes, dim), np.float32)
    eigenvalues, residuals = np.full(dim, np.nan), np.full(dim, np.nan)
    num_products = 0
    if existing < dim:
        warnings.warn(
            f"the graph has only {existing} non-trivial eigenvectors: the other {dim - existing} columns "
            f"of the encoding are zero",
            stacklevel=3,
        )
    if existing:
        search = _Search(graph, degrees, component, int(touched.sum()) - num_trivial, existing, device, seed)
        with stage(f"{existing} Laplacian eigenvectors") as advance:
            num_products = search.run(tol, time_limit)
            advance(1)
        vectors[:, :existing], eigenvalues[:existing], residuals[:existing] = search.result()
        accepted = tol * np.maximum(eigenvalues[:existing], 1e-2)
        if not (residuals[:existing] <= accepted).all():
            worst = int(np.argmax(residuals[:existing] / accepted))
            warnings.warn(
                f"the search for eigenvectors ended before it was done (time limit {time_limit:.0f} s, or no more "
                f"progress): vector {worst} has residual {residuals[worst]:.1e} instead of {accepted[worst]:.1e}",
                stacklevel=3,
            )
    return Eigenpairs(vectors, eigenvalues, residuals, num_trivial, num_products)


def part_vectors(graph: Graph, most: int) -> np.ndarray:
    """Of the parts of a graph that hold most edges, the vectors of eigenvalue 0: each lives on a part, (N, c) float32.

    They are no encoding, since they say nothing within a part.
    """
    degrees = weighted_degrees(graph)
    component = connected_components(graph)
    weight = np.bincount(component, weights=degrees)
    largest = [part for part in np.argsort(-weight, kind="stable")[:most] if weight[part] > 0]
    vectors = np.zeros((graph.num_nodes, len(largest)), np.float32)
    for column, part in enumerate(largest):
        inside = component == part
        vectors[inside, column] = np.sqrt(degrees[inside] / weight[part])
    return vectors


def search_bytes(num_nodes: int, dim: int) -> int:
    """Memory that the search for `dim` vectors needs: three blocks, and what is known of every node."""
    return num_nodes * (3 * 4 * round_up(dim + SPARE, LANES) + 4 * dim + 40)


def device_for_search(graph: Graph, dim: int, device: str) -> str:
    """The device itself, or the CPU where a GPU has too little memory."""
    if device == "cpu":
        return device
    needed, room = 2 * search_bytes(graph.num_nodes, dim) + adjacency_bytes(graph), gpu_memory(device)
    if needed <= room:
        return device
    note(f"eigenvectors are searched on the CPU: {format_size(needed)} do not fit the GPU's {format_size(room)}")
    return "cpu"


class _Search:
    """Block Chebyshev subspace iteration on P = D^-1 A."""

    def __init__(
        self,
        graph: Graph,
        degrees: np.ndarray,
        component: np.ndarray,
        dimension: int,
        wanted: int,
        device: str,
        seed: int,
    ):
        self.wanted = wanted
        width = round_up(wanted + SPARE, LANES)
        self.size = min(width, dimension)  # the block cannot be wider than the space it searches
        inverse = np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)
        self._product = engine(device).NeighborSum(graph, inverse, loop=False, device=device)
        self.num_products = 0
        self._degrees = torch.from_numpy(degrees).to(device, torch.float32)[:, None]  # (N, 1)
        self._component = torch.from_numpy(component).to(device, torch.int64)
        share = 1 / np.bincount(component, weights=degrees)
        self._share = torch.from_numpy(share).to(device, torch.float32)[:, None]  # (c, 1)

        start = torch.Generator(device).manual_seed(seed)
        self._block = torch.zeros(graph.num_nodes, width, device=device)  # (N, b)
        self._block[:, : self.size].normal_(generator=start)
        self._block *= self._degrees > 0
        self._image = torch.empty_like(self._block)  # P · block after every Rayleigh-Ritz step
        self._spare = torch.empty_like(self._block)

    def run(self, tol: float, time_limit: float) -> int:
        """Iterate until the wanted vectors have converged or time is up; gives the number of products."""
        self._deadline = time.monotonic() + time_limit
        threads = torch.get_num_threads()
        try:
            if self._block.device.type == "cpu":
                torch.set_num_threads(1)  # two thread pools on the same cores slow each other down
            self._rayleigh_ritz()
            best, idle = np.inf, 0
            while self._excess(tol) > 1 and idle < PATIENCE and time.monotonic() < self._deadline:
                self._filter()
                self._rayleigh_ritz()
                idle = 0 if self._excess(tol) < 0.9 * best else idle + 1
                best = min(best, self._excess(tol))
        finally:
            torch.set_num_threads(threads)
        return self.num_products

    def result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unit vectors of L with their signs fixed, eigenvalues and residuals."""
        del self._image, self._spare
        root = self._degrees[:, 0].sqrt()
        vectors = torch.empty(len(self._block), self.wanted, device=self._block.device)
        for number in range(self.wanted):  # one at a time: copies of all would be as large as the block
            vectors[:, number] = _oriented(self._block[:, number] * root)  # u = D^½ v
        return vectors.cpu().numpy(), 1 - self.values[: self.wanted], self.residuals[: self.wanted]

    def _excess(self, tol: float) -> float:
        """The largest residual of a wanted vector by the accepted one; the search is done when it is below 1."""
        accepted = tol * np.maximum(1 - self.values[: self.wanted], 1e-2)
        return float(np.nan_to_num(self.residuals[: self.wanted] / accepted, nan=np.inf).max())

    def _filter(self) -> None:
        """Replace the block by T_m(t(P)) · block, where t maps the unwanted part [-1, cut] to [-1, 1]."""
        # a block that reaches the far end, μ = -1, would leave no part to map: t overflows
        cut = min(max(float(self.values[-1]), -0.95), 1 - 1e-7)
        # The first eigenvalue lies near the first Ritz value, within its residual if that has settled.
        top = min(float(self.values[0] + 2 * self.residuals[0]), 1.0)
        degree = min(_degree(GAIN, top, cut), _degree(LIMIT, 1.0, cut), MAX_DEGREE)
        slope, shift = 2 / (cut + 1), (1 - cut) / (cut + 1)  # t(P) = slope · P + shift
        before, now, after = self._block, self._image, self._spare
        now.mul_(slope).add_(before, alpha=shift)  # the image P · block is at hand
        for _ in range(degree - 1):
            self._product.recur(now, before, after, 2 * slope, 2 * shift)
            self.num_products += 1
            before, now, after = now, after, before
            if time.monotonic() > self._deadline:
                break  # a polynomial of lower degree is one, too
        self._block, self._image, self._spare = now, before, after

    def _rayleigh_ritz(self) -> None:
        """Turn the block into the best approximations it holds; sets values (descending) and residuals."""
        self._project()
        gram = self._inner(self._block, self._block)
        scale = 1 / np.sqrt(np.maximum(np.diag(gram), 1e-300))
        self._rotate(self._block, _inverse_root(gram * scale * scale[:, None]) * scale[:, None])
        self._project()
        self._product(self._block, self._image)
        self.num_products += 1
        gram = self._inner(self._block, self._block)
        moment = self._inner(self._block, self._image)
        root = _inverse_root(gram)
        self.values, basis = _eigh(root.T @ ((moment + moment.T) / 2) @ root)
        self.values, basis = self.values[::-1].copy(), (root @ basis)[:, ::-1]
        self._rotate(self._block, basis)
        self._rotate(self._image, basis)
        self.residuals = self._residuals()

    def _project(self) -> None:
        """Take the trivial eigenvectors out: in every component, subtract the mean weighted by degree."""
        # in float64, since a GPU adds in any order: rounded to float32 the sums come out the same
        sums = torch.zeros(len(self._share), self._block.shape[1], dtype=torch.float64, device=self._block.device)
        for rows in self._pieces():
            weighted = (self._block[rows] * self._degrees[rows]).double()
            if len(sums) == 1:
                sums += weighted.sum(dim=0)
            else:
                sums.index_add_(0, self._component[rows], weighted)
        means = sums.float() * self._share
        for rows in self._pieces():
            self._block[rows] -= means[self._component[rows]]

    def _inner(self, left: torch.Tensor, right: torch.Tensor) -> np.ndarray:
        """leftᵀ D right in float64, (b, b)."""
        total = torch.zeros(self.size, self.size, dtype=torch.float64, device=left.device)
        for rows in self._pieces():
            weighted = left[rows, : self.size].double() * self._degrees[rows]
            total += weighted.T @ right[rows, : self.size].double()
        return total.cpu().numpy()

    def _rotate(self, block: torch.Tensor, matrix: np.ndarray) -> None:
        """block ← block · matrix, in place."""
        # a GPU may be set to multiply float32 to three digits (TF32), which would be the end of progress
        dtype = torch.float32 if block.device.type == "cpu" else torch.float64
        right = torch.from_numpy(np.array(matrix, order="C")).to(block.device, dtype)
        for rows in self._pieces():
            block[rows, : self.size] = (block[rows, : self.size].to(dtype) @ right).float()

    def _residuals(self) -> np.ndarray:
        """‖D^½ (P v − μ v)‖ of every vector, which is ‖Lu − λu‖."""
        values = torch.from_numpy(self.values).to(self._block.device, torch.float32)
        total = torch.zeros(self.size, dtype=torch.float64, device=self._block.device)
        for rows in self._pieces():
            gap = self._image[rows, : self.size] - values * self._block[rows, : self.size]
            total += (gap.double() ** 2 * self._degrees[rows]).sum(dim=0)
        return total.sqrt().cpu().numpy()

    def _pieces(self) -> Iterator[slice]:
        """Row ranges small enough for float64 copies."""
        step = 1 << (14 if self._block.device.type == "cpu" else 20)
        for start in range(0, len(self._block), step):
            yield slice(start, min(start + step, len(self._block)))


def _oriented(vector: torch.Tensor) -> torch.Tensor:
    """A vector of unit length whose entry of largest magnitude, the first of them on ties, is positive, (N,)."""
    vector = vector / vector.double().square().sum().sqrt().float()
    top = vector.abs().amax()
    tied = vector.abs() >= (1 - 1e-5) * top  # symmetric entries differ by rounding, which must not decide
    vector = torch.where(tied, torch.copysign(top, vector), vector)
    return -vector if vector[tied.byte().argmax()] < 0 else vector  # of equal entries argmax gives the first


def _degree(gain: float, value: float, cut: float) -> int:
    """The degree at which the filter lifts eigenvalue `value` by `gain` over [-1, cut]."""
    lifted = 1 + 2 * (value - cut) / (cut + 1)  # t(value) > 1
    return max(4, math.ceil(math.acosh(gain) / math.acosh(max(lifted, 1 + 1e-9))))


def _inverse_root(gram: np.ndarray) -> np.ndarray:
    """A matrix R with Rᵀ gram R = I; directions that the block has lost in rounding are damped, not blown up."""
    values, vectors = _eigh(gram)
    return vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1]))


def _eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and vectors of a small symmetric matrix, on the one thread that torch has here."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(matrix))
    return values.numpy(), vectors.numpy()
