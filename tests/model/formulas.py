"""The paper's network (Eq. 7 to 9, 11 and 12) in NumPy and float64, one node and one head at a time."""

import numpy as np
import torch
from scipy.special import erf, softmax


def randomized(module, seed=0):
    """In float64 and evaluating, with weights so large that every part shows in the output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator) * 0.5)
    return module.eval()


def weights_of(module):
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x, weights, name):
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def self_attention(x, weights, name, num_heads):
    size = x.shape[1] // num_heads
    queries, keys, values = np.split(linear(x, weights, f"{name}.project"), 3, axis=1)
    heads = []
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        scores = queries[:, part] @ keys[:, part].T / np.sqrt(size)
        heads.append(softmax(scores, axis=1) @ values[:, part])
    return linear(np.hstack(heads), weights, f"{name}.out")


def feed_forward(x, weights, name):
    inner = linear(x, weights, f"{name}.0")
    return linear(inner * (1 + erf(inner / np.sqrt(2))) / 2, weights, f"{name}.2")


def alpha(z, weights):
    scores = [np.concatenate([z[0], hop]) @ weights["readout.score.weight"][0] for hop in z[1:]]
    return softmax(scores) if scores else np.empty(0)


def network(tokens, weights, num_layers, num_heads, readout):
    """Scores of one node, (C,), and its α, (K,), from its tokens (K+1, F)."""
    z = linear(tokens, weights, "embed")
    for layer in range(num_layers):
        name = f"layers.{layer}"
        normed = layer_norm(z, weights, f"{name}.attention_norm")
        z = self_attention(normed, weights, f"{name}.attention", num_heads) + z
        z = feed_forward(layer_norm(z, weights, f"{name}.ffn_norm"), weights, f"{name}.ffn") + z
    z = layer_norm(z, weights, "norm")
    share = None
    if readout == "attention":
        share = alpha(z, weights)
        out = z[0] + share @ z[1:]
    else:
        out = z[0] if readout == "self" else z.sum(axis=0)
    return linear(np.maximum(linear(out, weights, "head.0"), 0), weights, "head.2"), share
