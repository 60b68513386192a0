"""`nagphormer demo`: everything on the bundled graph, with nothing to give."""

from pathlib import Path

from nagphormer.commands.terminal import describe_run, describe_store, result, say, say_next, timed
from nagphormer.settings import TrainConfig


def run(*, out: Path = Path("nagphormer-demo")) -> None:
    """Load, prepare, train, compare; each stage with its sizes and seconds.

    Args:
        out: folder for what it writes.
    """
    from nagphormer.data.datasets import BUNDLED, find, load_graph
    from nagphormer.data.summary import summarize
    from nagphormer.device import machine
    from nagphormer.inference.predict import probabilities, question
    from nagphormer.metrics import accuracy
    from nagphormer.tokens.hop2token import make_tokens
    from nagphormer.training.comparison import logistic_accuracy, mlp_accuracy
    from nagphormer.training.plan import choose_tokens, decide
    from nagphormer.training.run import train
    from nagphormer.training.run_folder import RunFolder

    path = BUNDLED / "cora.npz"
    name = "cora" if find("cora") == path else path  # yours, where you have one, may number its nodes otherwise
    with timed("1. Load the bundled graph"):
        graph = load_graph(path)
        facts = summarize(graph)
    say(
        f"  Cora: {graph.num_nodes:,} papers, {graph.num_edges:,} citations, {graph.num_features:,} words, "
        f"{graph.num_classes} fields; {facts['homophily']:.0%} of citations stay within a field"
    )
    config, here = TrainConfig(), machine()
    wanted = choose_tokens(graph, config)
    with timed("2. Hop tokens"):
        store = make_tokens(graph, wanted, out / wanted.folder_name(graph.fingerprint))
    say(f"  {describe_store(store)}")
    with timed("3. Train NAGphormer"):
        folder = RunFolder.take(out / "run", resume=True)
        trained, source = train(graph, decide(graph, config, here, store, folder.begun), here, store, folder)
    say(f"  {describe_run(trained)}")
    with timed("4. Train an MLP on the words alone, without the graph"):
        mlp = mlp_accuracy(graph, config)
    with timed("5. Train logistic regression on tokens of the same hops"):
        logistic = logistic_accuracy(graph, config)
    nodes, target = question(trained, graph, "test")
    right = accuracy(target, probabilities(trained, source, nodes))
    result(
        {"run": str(out / "run"), "test_accuracy": right, "mlp": mlp, "logistic_regression": logistic},
        f"test accuracy: NAGphormer {right:.1%}, logistic regression on the tokens {logistic:.1%}, "
        f"MLP without the graph {mlp:.1%}\nwrote {out / 'run'}: weights, settings, metrics",
    )
    say_next("predict", out / "run", name, "--out", "predictions.csv")
    say_next("import", "--edges", "YOUR-EDGES.csv", "--nodes", "YOUR-NODES.csv", "--out", "my-graph")
