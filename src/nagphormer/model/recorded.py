"""Whether torch is recording what a network does, to run it elsewhere or later, instead of doing it."""

import torch


def recorded() -> bool:
    """True within `torch.jit.trace`, `torch.compile`, `torch.export` and the exporters to ONNX.

    Shapes then are symbols and random numbers are drawn at another time, so that only torch's own operators will do.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()
