import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric", reason="needs torch-geometric")

from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.transforms import SIGN, Compose  # noqa: E402

from nagphormer import UserError, hop_tokens, synthetic_graph  # noqa: E402
from nagphormer.pyg import HopTokens  # noqa: E402

GRAPH = synthetic_graph(60, 150, 5, 3)


def test_tokens_of_two_joined_nodes_are_their_average():
    data = Data(x=torch.tensor([[2.0], [4.0], [7.0]]), edge_index=torch.tensor([[0], [1]]))
    tokens = HopTokens(hops=2)(data).tokens
    assert tokens.dtype == torch.float32
    torch.testing.assert_close(tokens[..., 0], torch.tensor([[2.0, 3, 3], [4, 3, 3], [7, 7, 7]]))


@pytest.mark.parametrize("settings", [{"encoding_dim": 2}, {"feature_scaling": "standardize"}])
def test_tokens_are_those_of_the_graph(settings):
    tokens = HopTokens(3, **settings)(GRAPH.to_pyg()).tokens
    np.testing.assert_array_equal(tokens, np.asarray(hop_tokens(GRAPH, 3, dtype="float32", **settings)))


def test_hops_are_those_of_sign_on_a_graph_with_self_loops():
    """SIGN normalizes what it is given, so its input has the loops that Â has."""
    looped = GRAPH.to_pyg()
    loops = torch.arange(60).expand(2, -1)
    looped.edge_index = torch.cat([looped.edge_index, loops], dim=1)
    sign = SIGN(2)(looped)
    torch.testing.assert_close(HopTokens(2)(GRAPH.to_pyg()).tokens, torch.stack([sign.x, sign.x1, sign.x2], dim=1))


def test_it_stands_among_other_transforms_and_leaves_its_input_as_it_was():
    data = GRAPH.to_pyg()
    done = Compose([HopTokens(2), SIGN(1)])(data)
    assert done.tokens.shape == (60, 3, 5)
    assert "tokens" not in data
    assert done.is_node_attr("tokens")


def test_labels_and_splits_are_not_looked_at():
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([1]), train_mask=torch.ones(7))
    assert HopTokens(1)(data).tokens.shape == (3, 2, 3)


def test_an_adjacency_and_no_features_will_do():
    adjacency = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]).to_sparse_coo()
    assert HopTokens(1)(Data(adj_t=adjacency, num_nodes=3)).tokens.shape == (3, 2, 1)


def test_it_says_what_it_does():
    assert repr(HopTokens(3)) == "HopTokens(hops=3, encoding_dim=0, feature_scaling='none')"


def test_nodes_of_several_types_are_refused():
    data = HeteroData()
    data["paper"].x = torch.ones(2, 2)
    with pytest.raises(UserError, match="to_homogeneous"):
        HopTokens(1)(data)


def test_a_data_set_of_several_graphs_is_refused():
    with pytest.raises(UserError, match="holds several graphs"):
        HopTokens(2)([Data(x=torch.eye(3)), Data(x=torch.eye(3))])
