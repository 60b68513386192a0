import subprocess
import sys

import pytest
import torch

from nagphormer.training.optimizer import AdamW


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))


def rates():
    return [0.01, 0.02, 0.005, 0.0, 0.01]


def descend(model, step, first=0, last=5):
    """Some updates with changing rates; the last layer's bias has no gradient in two of them."""
    for number in range(first, last):
        torch.manual_seed(number)
        for weight in model.parameters():
            weight.grad = None
        model(torch.randn(8, 5)).square().sum().backward()
        if number in (1, 3):
            model[2].bias.grad = None
        step(rates()[number])


def test_it_is_torchs_adamw_to_the_bit():
    ours, theirs = network(), network()
    optimizer = AdamW(ours.parameters(), weight_decay=0.1)
    peer = torch.optim.AdamW(theirs.parameters(), weight_decay=0.1, fused=True)

    def our_step(rate):
        optimizer.set_rate(rate)
        optimizer.step()

    def their_step(rate):
        peer.param_groups[0]["lr"] = rate
        peer.step()

    descend(ours, our_step)
    descend(theirs, their_step)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)


def test_its_state_can_be_taken_up():
    def step_with(optimizer):
        return lambda rate: (optimizer.set_rate(rate), optimizer.step())

    whole = network()
    descend(whole, step_with(AdamW(whole.parameters(), 0.1)))
    part = network()
    first = AdamW(part.parameters(), 0.1)
    descend(part, step_with(first), last=3)
    second = AdamW(part.parameters(), 0.1)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    descend(part, step_with(second), first=3)
    for one, other in zip(part.parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)


def test_gradients_are_forgotten():
    model = network()
    model(torch.randn(8, 5)).sum().backward()
    AdamW(model.parameters(), 0.0).zero_grad()
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.slow
def test_training_does_not_load_torchs_compiler():
    code = (
        "import sys; from nagphormer import NodeClassifier, random_split, synthetic_graph\n"
        "graph = random_split(synthetic_graph(200, 600, 8, 2))\n"
        "NodeClassifier(hops=1, hidden_dim=16, epochs=2, clip_norm=1.0).fit(graph).score(graph)\n"
        "sys.exit('torch._dynamo' in sys.modules or 'scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
