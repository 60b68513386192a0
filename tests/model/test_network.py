import formulas
import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from nagphormer import ModelConfig, NAGphormer, UserError
from nagphormer.model.network import LINEAR_PACE

READOUTS = ["attention", "self", "sum"]
LABELS = torch.rand(5, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
SHAPES = {
    "two layers, three heads": {},
    "one head": {"num_heads": 1},
    "no layers": {"num_layers": 0},
    "one node": {"num_nodes": 1},
    "no hops": {"hops": 0},
    "one hop": {"hops": 1},
    "one node without hops": {"num_nodes": 1, "hops": 0},
}


def untrained(**settings):
    chosen = {
        "input_dim": 7,
        "num_classes": 4,
        "hidden_dim": 12,
        "num_layers": 2,
        "num_heads": 3,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "feature_dropout": 0.0,
        "readout": "attention",
        "linear_tokens": 0,
    }
    return NAGphormer(ModelConfig(**(chosen | settings)))


def some_tokens(num_nodes=5, hops=4):
    return torch.randn(num_nodes, hops + 1, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_scores_are_those_of_the_papers_formulas(shape, readout):
    num_layers, num_heads = shape.get("num_layers", 2), shape.get("num_heads", 3)
    model = formulas.randomized(untrained(num_layers=num_layers, num_heads=num_heads, readout=readout))
    tokens, weights = some_tokens(shape.get("num_nodes", 5), shape.get("hops", 4)), formulas.weights_of(model)
    expected = [formulas.network(node, weights, num_layers, num_heads, readout) for node in tokens.numpy()]
    with torch.no_grad():
        np.testing.assert_allclose(model(tokens), [scores for scores, _ in expected], rtol=1e-9, atol=1e-9)
        if readout == "attention":
            _, alpha = model(tokens, return_attention=True)
            np.testing.assert_allclose(alpha, [share for _, share in expected], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("hops", [0, 4])
def test_a_companion_is_a_linear_classifier_whose_scores_are_averaged_with_the_networks(hops):
    tokens = some_tokens(hops=hops)
    model = formulas.randomized(untrained(linear_tokens=hops + 1))
    plain = untrained().double()
    own = model.state_dict() | {"embed.weight": model.embed.weight[:12], "embed.bias": model.embed.bias[:12]}
    plain.load_state_dict(own)
    weight = model.embed.weight[12:].unflatten(0, (hops + 1, 4))  # one map for each hop, (K+1, C, F)
    bias = model.embed.bias[12:].unflatten(0, (hops + 1, 4)).sum(0)
    linear = torch.einsum("bkf,kcf->bc", tokens, weight) + bias
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), (plain(tokens) + LINEAR_PACE * linear) / 2)
        if hops:
            torch.testing.assert_close(model(tokens, return_attention=True)[1], plain(tokens, return_attention=True)[1])
        torch.testing.assert_close(model.classify(model.embed(tokens)), model(tokens))


def test_a_companion_knows_nothing_at_first():
    model = untrained(linear_tokens=3).double()
    own, linear = model.scores(model.embed(some_tokens(hops=2)))
    assert not linear.any()
    assert own.any()


def test_network_and_companion_learn_apart():
    model = formulas.randomized(untrained(linear_tokens=3))
    own, linear = model.scores(model.embed(some_tokens(hops=2)))
    (of_own,) = torch.autograd.grad(own.square().sum(), model.embed.weight, retain_graph=True)
    (of_linear,) = torch.autograd.grad(linear.square().sum(), model.embed.weight)
    assert of_own[:12].any(dim=1).all()
    assert not of_own[12:].any()
    assert of_linear[12:].any(dim=1).all()
    assert not of_linear[:12].any()


def test_a_companion_made_for_other_hops_is_refused():
    with pytest.raises(UserError, match="reads 3 tokens of a node, not 5"):
        untrained(linear_tokens=3).double()(some_tokens(hops=4))


def test_attention_is_one_share_for_each_hop_beyond_the_node_itself():
    model = formulas.randomized(untrained())
    tokens = some_tokens(num_nodes=6, hops=4)
    with torch.no_grad():
        scores, alpha = model(tokens, return_attention=True)
        torch.testing.assert_close(scores, model(tokens))
    assert alpha.shape == (6, 4)
    assert (alpha > 0).all()
    torch.testing.assert_close(alpha.sum(dim=1), torch.ones(6, dtype=torch.float64))
    assert alpha.std(dim=1).min() > 1e-3  # the hops do differ


def test_without_hops_there_is_no_attention_to_give():
    _, alpha = untrained().double()(some_tokens(num_nodes=3, hops=0), return_attention=True)
    assert alpha.shape == (3, 0)


@pytest.mark.parametrize("readout", ["self", "sum"])
def test_readouts_that_weigh_no_hops_refuse_to_give_attention(readout):
    with pytest.raises(UserError, match=f"readout='{readout}'.*only 'attention'"):
        untrained(readout=readout).double()(some_tokens(), return_attention=True)


@pytest.mark.parametrize("readout", READOUTS)
def test_permuting_the_nodes_of_a_batch_permutes_the_scores(readout):
    model, tokens, order = formulas.randomized(untrained(readout=readout)), some_tokens(num_nodes=9), torch.randperm(9)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens[order]), model(tokens)[order])


def test_a_node_scores_the_same_alone_and_in_a_batch():
    model, tokens = formulas.randomized(untrained()), some_tokens()
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([model(node) for node in tokens.split(1)]), model(tokens))


def test_the_paper_has_no_positions_so_hops_may_trade_places():
    model, tokens = formulas.randomized(untrained()), some_tokens(hops=4)
    order = [3, 1, 4, 2]
    with torch.no_grad():
        scores, alpha = model(tokens, return_attention=True)
        moved_scores, moved_alpha = model(tokens[:, [0, *order]], return_attention=True)
    torch.testing.assert_close(moved_scores, scores)
    torch.testing.assert_close(moved_alpha, alpha[:, [hop - 1 for hop in order]])


def test_scores_are_what_classify_gives_for_embedded_tokens():
    model, tokens = formulas.randomized(untrained()), some_tokens()
    assert torch.equal(model.classify(model.embed(tokens)), model(tokens))


def test_evaluating_is_deterministic_and_ignores_every_dropout():
    dropping = formulas.randomized(untrained(dropout=0.5, attention_dropout=0.5, feature_dropout=0.5))
    plain, tokens = formulas.randomized(untrained()), some_tokens()
    assert torch.equal(dropping(tokens), dropping(tokens))
    assert torch.equal(dropping(tokens), plain(tokens))


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "feature_dropout"])
def test_each_dropout_acts_in_training_and_repeats_for_a_seed(name):
    model, tokens = formulas.randomized(untrained(**{name: 0.5})), some_tokens()
    calm = model(tokens)
    outputs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outputs.append(model.train()(tokens))
    assert not torch.allclose(outputs[0], calm)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


def test_attention_dropout_touches_nothing_but_attention():
    model, tokens = formulas.randomized(untrained(attention_dropout=0.5)), some_tokens()
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.out.weight.zero_()
    assert torch.equal(model.train()(tokens), model.eval()(tokens))


def test_training_without_dropout_scores_as_evaluating_does():
    model, tokens = formulas.randomized(untrained()), some_tokens()
    assert torch.equal(model.train()(tokens), model.eval()(tokens))


@pytest.mark.parametrize("num_layers", [0, 1, 4])
def test_initial_weights_are_normal_around_zero_and_narrower_with_depth(num_layers):
    torch.manual_seed(0)
    model = untrained(hidden_dim=48, input_dim=100, num_layers=num_layers)
    deviation = 0.02 / max(num_layers, 1) ** 0.5
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert len(linear) == 4 * num_layers + 4
    for module in linear:
        weights = module.weight.detach().flatten().double().numpy()
        assert kstest(weights / deviation, "norm").pvalue > 1e-3
        assert np.std(weights) == pytest.approx(deviation, rel=5 / np.sqrt(2 * len(weights)))
        assert not module.bias.any()


def test_layer_norms_start_as_plain_normalization():
    norms = [module for module in untrained(num_layers=2).modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 5
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in norms)


def test_one_seed_gives_one_set_of_initial_weights():
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        states.append(nn.utils.parameters_to_vector(untrained().parameters()))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_the_half_of_the_readouts_weight_that_meets_hop_0_learns_nothing():
    model, tokens = formulas.randomized(untrained()), some_tokens()
    nn.functional.cross_entropy(model(tokens), torch.tensor([0, 1, 2, 3, 0])).backward()
    own, hops = model.readout.score.weight.grad.split(12, dim=1)
    assert hops.abs().max() > 1e-3
    assert own.abs().max() < 1e-9 * hops.abs().max()


def test_a_network_one_wide_still_has_a_head():
    model = untrained(hidden_dim=1, num_heads=1).double()
    assert model.head[0].out_features == 1
    assert model(some_tokens()).shape == (5, 4)


def test_bf16_products_come_close_to_exact_ones():
    torch.manual_seed(0)
    model, tokens = untrained(hidden_dim=96).eval(), some_tokens().float()
    with torch.no_grad():
        exact = model(tokens)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(model(tokens).float(), exact, rtol=0.05, atol=0.02 * float(exact.abs().max()))


def test_dropout_acts_on_the_last_layers_sum_too():
    model, tokens = formulas.randomized(untrained(num_layers=1, dropout=0.5)), some_tokens()
    with torch.no_grad():
        for parameter in model.layers[0].attention.out.parameters():
            parameter.zero_()
        assert not torch.allclose(model.train()(tokens), model.eval()(tokens))


# maps of their own, and labels


def test_with_maps_of_their_own_hops_may_not_trade_places_and_with_equal_maps_it_is_the_papers_network():
    own, paper = formulas.randomized(untrained(own_maps=True, num_tokens=5)), formulas.randomized(untrained())
    swapped = some_tokens()[:, [0, 2, 1, 3, 4]]
    with torch.no_grad():
        assert not torch.allclose(own(swapped), own(some_tokens()), atol=1e-3)
        shared = {"embed.weight": paper.embed.weight.expand(5, 12, 7), "embed.bias": paper.embed.bias.expand(5, 12)}
        own.load_state_dict(paper.state_dict() | shared)
        torch.testing.assert_close(own(some_tokens()), paper(some_tokens()))


def test_labels_are_further_tokens_each_with_its_map():
    model, plain = formulas.randomized(untrained(label_tokens=2)), untrained().double().eval()
    plain.load_state_dict({name: each for name, each in model.state_dict().items() if "labels" not in name})
    maps = model.embed.labels
    with torch.no_grad():
        found = [LABELS[:, hop] @ maps.weight[hop].T + maps.bias[hop] for hop in range(2)]
        hidden = torch.cat([model.embed(some_tokens()), torch.stack(found, dim=1)], dim=1)
        torch.testing.assert_close(model(some_tokens(), labels=LABELS), plain.classify(hidden))


def test_what_labels_got_is_left_out_of_the_attention():
    model = formulas.randomized(untrained(label_tokens=2))
    with torch.no_grad():
        _, alpha = model(some_tokens(), return_attention=True, labels=LABELS)
        whole = model.readout.attention(model.encode(model.embedded(some_tokens(), LABELS)))
    assert (alpha.shape, whole.shape) == ((5, 4), (5, 6))
    torch.testing.assert_close(alpha, whole[:, :4] / whole[:, :4].sum(dim=1, keepdim=True))


@pytest.mark.parametrize("readout", ["attention", "dynamic", "sum"])
@pytest.mark.parametrize("own_maps", [False, True])
def test_every_weight_learns_but_what_the_papers_readout_leaves_out(readout, own_maps):
    model = formulas.randomized(untrained(own_maps=own_maps, num_tokens=5, label_tokens=2, readout=readout)).train()
    model(some_tokens(), labels=LABELS).square().sum().backward()
    for name, weight in model.named_parameters():
        if name != "readout.score.bias":  # the same for all hops
            assert weight.grad.abs().max() > 1e-9, name


@pytest.mark.parametrize("changes", [{"own_maps": True, "num_tokens": 3}, {"label_tokens": 2}])
def test_what_gives_no_place_to_a_companion_says_so(changes):
    with pytest.raises(UserError, match="gives no place to the linear classifier: say linear=False"):
        untrained(linear_tokens=3, **changes)


def test_a_network_that_reads_labels_asks_for_them():
    with pytest.raises(UserError, match="this model reads 2 tokens of labels, too: give labels="):
        untrained(label_tokens=2).double()(some_tokens())
