"""The network's memory-bound parts on a GPU, each as one Triton kernel instead of many passes over device memory.

The encoder's products run on the matrix units; what lies between them only moves bytes. Each function here is exact
in the sense of its plain counterpart in `ops.py`, which alone calls them, with sums in float32.

Shapes: B nodes in a batch, T = K+1 tokens, D model width, H heads, d = D/H, M = B·T rows
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of torch without Triton
    triton = None

LONGEST = 32
"""Tokens up to which a node's attention is computed by one program."""
TILE_BYTES = 1 << 14
"""Bytes of a head's queries, keys or values of a node; several such tiles must fit a small card's shared memory."""

if triton is not None:

    @triton.jit
    def _kept(seed, place, rate):
        """Dropout's factor of every place: 0, or 1 / (1 - rate)."""
        return tl.where(tl.rand(tl.load(seed), place) >= rate, 1 / (1 - rate), 0.0)

    @triton.jit
    def _probabilities(query, key, token, length, scale, PRECISION: tl.constexpr):
        """softmax(scale · query keyᵀ) over the tokens that exist."""
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        scores = tl.where((token < length)[None, :], scores, -float("inf"))
        weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
        return weights / tl.sum(weights, axis=1)[:, None]

    @triton.jit
    def _places(pair, token, length, heads, DIM: tl.constexpr):
        """Where the queries of a head of a node lie in (B, T, 3, H, d), and where its results lie in (B, T, H, d)."""
        row = pair // heads * length + token[:, None]
        column = pair % heads * DIM + tl.arange(0, DIM)[None, :]
        return row * 3 * heads * DIM + column, row * heads * DIM + column

    @triton.jit
    def _read_three(queries, width, exists):
        """Queries, keys and values of a head of a node."""
        query = tl.load(queries, mask=exists, other=0)
        key = tl.load(queries + width, mask=exists, other=0)
        value = tl.load(queries + 2 * width, mask=exists, other=0)
        return query, key, value

    @triton.jit
    def _attend(
        qkv,
        out,
        seed,
        length,
        heads,
        scale,
        rate,
        DROP: tl.constexpr,
        TOKENS: tl.constexpr,
        DIM: tl.constexpr,
        PRECISION: tl.constexpr,
    ):
        """One program for a head of a node."""
        pair = tl.program_id(0).to(tl.int64)  # node · H + head
        token = tl.arange(0, TOKENS)
        exists = (token < length)[:, None]
        width = heads * DIM
        place, target = _places(pair, token, length, heads, DIM)
        query, key, value = _read_three(qkv + place, width, exists)
        weights = _probabilities(query, key, token, length, scale, PRECISION)
        if DROP:
            weights *= _kept(seed, (pair * TOKENS + token[:, None]) * TOKENS + token[None, :], rate)
        mixed = tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        tl.store(out + target, mixed.to(out.dtype.element_ty), mask=exists)

    @triton.jit
    def _attend_back(
        qkv,
        gradient,
        out,
        seed,
        length,
        heads,
        scale,
        rate,
        DROP: tl.constexpr,
        TOKENS: tl.constexpr,
        DIM: tl.constexpr,
        PRECISION: tl.constexpr,
    ):
        """Gradients of query, key and value of a head of a node; the attention is computed again."""
        pair = tl.program_id(0).to(tl.int64)
        token = tl.arange(0, TOKENS)
        exists = (token < length)[:, None]
        width = heads * DIM
        place, source = _places(pair, token, length, heads, DIM)
        query, key, value = _read_three(qkv + place, width, exists)
        mixed = tl.load(gradient + source, mask=exists, other=0)
        weights = _probabilities(query, key, token, length, scale, PRECISION)
        of_weights = tl.dot(mixed, tl.trans(value), input_precision=PRECISION)
        used = weights
        if DROP:
            kept = _kept(seed, (pair * TOKENS + token[:, None]) * TOKENS + token[None, :], rate)
            used = weights * kept
            of_weights *= kept
        of_value = tl.dot(tl.trans(used).to(mixed.dtype), mixed, input_precision=PRECISION)
        of_scores = weights * (of_weights - tl.sum(weights * of_weights, axis=1)[:, None]) * scale
        of_scores = of_scores.to(query.dtype)
        of_query = tl.dot(of_scores, key, input_precision=PRECISION)
        of_key = tl.dot(tl.trans(of_scores), query, input_precision=PRECISION)
        kind = out.dtype.element_ty
        tl.store(out + place, of_query.to(kind), mask=exists)
        tl.store(out + place + width, of_key.to(kind), mask=exists)
        tl.store(out + place + 2 * width, of_value.to(kind), mask=exists)

    @triton.jit
    def _add_norm(
        hidden,
        update,
        weight,
        bias,
        seed,
        total,
        normed,
        mean_of,
        scale_of,
        num_rows,
        dim,
        epsilon,
        rate,
        ADD: tl.constexpr,
        DROP: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """total = hidden + dropout(update), normed = LayerNorm(total), one program for ROWS rows."""
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, COLUMNS)
        inside = (row < num_rows)[:, None] & (column < dim)[None, :]
        place = row[:, None] * dim + column[None, :]
        values = tl.load(hidden + place, mask=inside, other=0).to(tl.float32)
        if ADD:
            change = tl.load(update + place, mask=inside, other=0).to(tl.float32)
            if DROP:
                change *= _kept(seed, place, rate)
            rounded = (values + change).to(total.dtype.element_ty)
            tl.store(total + place, rounded, mask=inside)
            values = rounded.to(tl.float32)
        mean = tl.sum(values, axis=1) / dim
        centered = tl.where(inside, values - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centered * centered, axis=1) / dim + epsilon)
        tl.store(mean_of + row, mean, mask=row < num_rows)
        tl.store(scale_of + row, scale, mask=row < num_rows)
        factor = tl.load(weight + column, mask=column < dim, other=0)[None, :]
        shift = tl.load(bias + column, mask=column < dim, other=0)[None, :]
        result = centered * scale[:, None] * factor + shift
        tl.store(normed + place, result.to(normed.dtype.element_ty), mask=inside)

    @triton.jit
    def _add_norm_back(
        total,
        weight,
        mean_of,
        scale_of,
        seed,
        of_normed,
        of_total,
        of_hidden,
        of_update,
        of_affine,
        num_rows,
        dim,
        rate,
        PASSED: tl.constexpr,
        DROP: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """Gradients of `_add_norm`; every program takes its share of rows and sums what it adds to weight and bias."""
        column = tl.arange(0, COLUMNS)
        factor = tl.load(weight + column, mask=column < dim, other=0)[None, :]
        weight_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
        bias_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
        for first in range(tl.program_id(0).to(tl.int64) * ROWS, num_rows, tl.num_programs(0) * ROWS):
            row = first + tl.arange(0, ROWS)
            inside = (row < num_rows)[:, None] & (column < dim)[None, :]
            place = row[:, None] * dim + column[None, :]
            scale = tl.load(scale_of + row, mask=row < num_rows, other=0)[:, None]
            mean = tl.load(mean_of + row, mask=row < num_rows, other=0)[:, None]
            values = tl.load(total + place, mask=inside, other=0).to(tl.float32)
            standard = tl.where(inside, (values - mean) * scale, 0.0)
            incoming = tl.load(of_normed + place, mask=inside, other=0).to(tl.float32)
            weight_sum += incoming * standard
            bias_sum += incoming
            scaled = incoming * factor
            along = tl.sum(scaled * standard, axis=1)[:, None] / dim
            gradient = scale * (scaled - tl.sum(scaled, axis=1)[:, None] / dim - standard * along)
            if PASSED:
                gradient += tl.load(of_total + place, mask=inside, other=0).to(tl.float32)
            tl.store(of_hidden + place, gradient.to(of_hidden.dtype.element_ty), mask=inside)
            if DROP:
                dropped = gradient * _kept(seed, place, rate)
                tl.store(of_update + place, dropped.to(of_update.dtype.element_ty), mask=inside)
        share = of_affine + tl.program_id(0) * 2 * dim + column
        tl.store(share, tl.sum(weight_sum, axis=0), mask=column < dim)
        tl.store(share + dim, tl.sum(bias_sum, axis=0), mask=column < dim)

    @triton.jit
    def _weigh(tokens, score, place, column, token, length, dim):
        """A node's tokens, (T, D), and the readout's weights of its hops; 0 for hop 0."""
        exists = (token < length)[:, None] & (column < dim)[None, :]
        values = tl.load(tokens + place, mask=exists, other=0).to(tl.float32)
        direction = tl.load(score + column, mask=column < dim, other=0)[None, :]
        scores = tl.where((token > 0) & (token < length), tl.sum(values * direction, axis=1), -float("inf"))
        weights = tl.exp(scores - tl.max(scores, axis=0))
        return values, direction, weights / tl.sum(weights, axis=0)

    @triton.jit
    def _read_out(tokens, score, out, length, dim, TOKENS: tl.constexpr, COLUMNS: tl.constexpr):
        """One program a node: Z_0 + Σ α_k Z_k."""
        node = tl.program_id(0).to(tl.int64)
        token, column = tl.arange(0, TOKENS), tl.arange(0, COLUMNS)
        place = (node * length + token[:, None]) * dim + column[None, :]
        values, _, weights = _weigh(tokens, score, place, column, token, length, dim)
        result = tl.sum(values * tl.where(token == 0, 1.0, weights)[:, None], axis=0)
        tl.store(out + node * dim + column, result.to(out.dtype.element_ty), mask=column < dim)

    @triton.jit
    def _read_out_back(
        tokens,
        score,
        gradient,
        of_tokens,
        of_score,
        num_nodes,
        length,
        dim,
        TOKENS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """Gradients of `_read_out`; every program takes its share of nodes and sums what it adds to the score."""
        token, column = tl.arange(0, TOKENS), tl.arange(0, COLUMNS)
        score_sum = tl.zeros((COLUMNS,), tl.float32)
        for node in range(tl.program_id(0).to(tl.int64), num_nodes, tl.num_programs(0)):
            place = (node * length + token[:, None]) * dim + column[None, :]
            values, direction, weights = _weigh(tokens, score, place, column, token, length, dim)
            incoming = tl.load(gradient + node * dim + column, mask=column < dim, other=0).to(tl.float32)[None, :]
            of_weights = tl.sum(values * incoming, axis=1)
            of_scores = weights * (of_weights - tl.sum(weights * of_weights, axis=0))
            score_sum += tl.sum(values * of_scores[:, None], axis=0)
            result = incoming * tl.where(token == 0, 1.0, weights)[:, None] + direction * of_scores[:, None]
            exists = (token < length)[:, None] & (column < dim)[None, :]
            tl.store(of_tokens + place, result.to(of_tokens.dtype.element_ty), mask=exists)
        tl.store(of_score + tl.program_id(0) * dim + column, score_sum, mask=column < dim)


def can_attend(qkv: torch.Tensor) -> bool:
    """Whether `attend` takes queries, keys and values, (B, T, 3, H, d)."""
    _, length, _, _, dim = qkv.shape
    tile = max(16, 1 << (length - 1).bit_length()) * dim * qkv.element_size()
    return length <= LONGEST and dim in (16, 32, 64, 128, 256, 512) and tile <= TILE_BYTES


def can_read_out(tokens: torch.Tensor) -> bool:
    """Whether `read_out` takes tokens, (B, T, D)."""
    _, length, dim = tokens.shape
    return 1 < length <= LONGEST and length * dim <= LONGEST * 512


def attend(qkv: torch.Tensor, rate: float) -> torch.Tensor:
    """Attention of every head over a node's own tokens, (B, T, 3, H, d) -> (B, T, H·d); dropout of its weights."""
    return _Attend.apply(qkv, rate)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: torch.Tensor, rate: float) -> torch.Tensor:
        qkv = qkv.contiguous()
        batch, length, _, heads, dim = qkv.shape
        ctx.seed, ctx.rate = _seed(qkv, rate), rate
        ctx.save_for_backward(qkv)
        out = qkv.new_empty(batch, length, heads * dim)
        _on_pairs(_attend, qkv, (out,), ctx.seed, rate)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (qkv,) = ctx.saved_tensors
        out = torch.empty_like(qkv)
        _on_pairs(_attend_back, qkv, (gradient.contiguous(), out), ctx.seed, ctx.rate)
        return out, None


def _on_pairs(
    kernel: Any, qkv: torch.Tensor, others: tuple[torch.Tensor, ...], seed: torch.Tensor, rate: float
) -> None:
    """Run a kernel with one program for every head of every node."""
    batch, length, _, heads, dim = qkv.shape
    with torch.cuda.device_of(qkv):
        kernel[(batch * heads,)](
            qkv,
            *others,
            seed,
            length,
            heads,
            dim**-0.5,
            rate,
            DROP=rate > 0,
            TOKENS=max(16, triton.next_power_of_2(length)),
            DIM=dim,
            PRECISION="ieee" if qkv.dtype == torch.float32 else "tf32",
            num_warps=max(1, dim // 64),
        )


def add_norm(
    hidden: torch.Tensor, update: torch.Tensor | None, norm: torch.nn.LayerNorm, rate: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """hidden + dropout(update), and its LayerNorm; both (…, D) of the type of `hidden`."""
    return _AddNorm.apply(hidden, update, norm.weight, norm.bias, norm.eps, rate if update is not None else 0.0)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        update: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor,
        epsilon: float,
        rate: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)  # the last sum of a network is not used but for its norm
        hidden = hidden.contiguous()
        dim, num_rows = hidden.shape[-1], hidden.numel() // hidden.shape[-1]
        total = hidden if update is None else torch.empty_like(hidden)
        normed = torch.empty_like(hidden)
        mean, scale = (torch.empty(num_rows, device=hidden.device) for _ in range(2))
        seed = _seed(hidden, rate)
        with torch.cuda.device_of(hidden):
            _add_norm[(triton.cdiv(num_rows, _rows(dim)),)](
                hidden,
                hidden if update is None else update.contiguous(),
                weight,
                bias,
                seed,
                total,
                normed,
                mean,
                scale,
                num_rows,
                dim,
                epsilon,
                rate,
                ADD=update is not None,
                DROP=rate > 0,
                ROWS=_rows(dim),
                COLUMNS=triton.next_power_of_2(dim),
                num_warps=4,
            )
        ctx.save_for_backward(total, weight, mean, scale)
        ctx.seed, ctx.rate, ctx.added = seed, rate, update is not None
        if update is None:
            return hidden.view_as(hidden), normed
        return total, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: torch.Tensor | None, of_normed: torch.Tensor | None) -> Any:
        total, weight, mean, scale = ctx.saved_tensors
        dim, num_rows = total.shape[-1], len(mean)
        of_hidden = torch.empty_like(total)
        of_update = torch.empty_like(total) if ctx.rate > 0 else of_hidden
        num_programs = min(triton.cdiv(num_rows, _rows(dim)), 4 * _processors(total))
        of_affine = torch.empty(num_programs, 2, dim, device=total.device)
        with torch.cuda.device_of(total):
            _add_norm_back[(num_programs,)](
                total,
                weight,
                mean,
                scale,
                ctx.seed,
                (torch.zeros_like(total) if of_normed is None else of_normed).contiguous(),
                total if of_total is None else of_total.contiguous(),
                of_hidden,
                of_update,
                of_affine,
                num_rows,
                dim,
                ctx.rate,
                PASSED=of_total is not None,
                DROP=ctx.rate > 0,
                ROWS=_rows(dim),
                COLUMNS=triton.next_power_of_2(dim),
                num_warps=4,
            )
        of_weight, of_bias = of_affine.sum(dim=0)
        return of_hidden, of_update if ctx.added else None, of_weight, of_bias, None, None


def read_out(tokens: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
    """Z_0 + Σ α_k Z_k with α the softmax of Z_k · score over the hops: (B, T, D) and (D,) -> (B, D); T at least 2."""
    return _ReadOut.apply(tokens, score)


class _ReadOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        tokens = tokens.contiguous()
        nodes, length, dim = tokens.shape
        ctx.save_for_backward(tokens, score)
        out = tokens.new_empty(nodes, dim)
        with torch.cuda.device_of(tokens):
            _read_out[(nodes,)](tokens, score, out, length, dim, **_tile(length, dim), num_warps=4)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tokens, score = ctx.saved_tensors
        nodes, length, dim = tokens.shape
        of_tokens = torch.empty_like(tokens)
        num_programs = min(nodes, 4 * _processors(tokens))
        of_score = torch.empty(num_programs, dim, device=tokens.device)
        with torch.cuda.device_of(tokens):
            _read_out_back[(num_programs,)](
                tokens,
                score,
                gradient.contiguous(),
                of_tokens,
                of_score,
                nodes,
                length,
                dim,
                **_tile(length, dim),
                num_warps=4,
            )
        return of_tokens, of_score.sum(dim=0)


def _tile(length: int, dim: int) -> dict[str, int]:
    return {"TOKENS": triton.next_power_of_2(length), "COLUMNS": triton.next_power_of_2(dim)}


def _seed(like: torch.Tensor, rate: float) -> torch.Tensor:
    """Where the random numbers of one call start, drawn from torch's own and kept on the device."""
    if rate == 0:
        return torch.empty(1, dtype=torch.int32, device=like.device)
    return torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=like.device)


def _rows(dim: int) -> int:
    """Rows that a program normalizes at a time."""
    return max(1, 2048 // triton.next_power_of_2(dim))


def _processors(tensor: torch.Tensor) -> int:
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count
