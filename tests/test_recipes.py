import re
import zipfile
from dataclasses import asdict, fields
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from nagphormer import TrainConfig, UserError
from nagphormer.data.datasets import DATASETS
from nagphormer.settings import (
    RECIPES,
    read_members,
    read_recipe,
    read_settings,
    resolve,
    resolve_members,
    settings_to_write,
)

ROOT = Path(__file__).parent.parent
FILES = sorted(RECIPES.glob("*.yaml"))

COMMON = {
    "attention_dropout": 0.1,
    "feature_dropout": 0,
    "readout": "attention",
    "linear": False,
    "feature_scaling": "none",
    "final_lr": 1e-4,
    "warmup_updates": 400,
    "decay_updates": 1000,
    "weight_decay": 1e-5,
    "clip_norm": 0,
    "class_weights": "none",
    "batch_size": 2000,
    "epochs": 2000,
    "patience": 50,
    "restart_on_ties": True,
    "averaging": 0,
    "precision": "fp32",
}

COLUMNS = ("dropout", "hidden_dim", "hops", "num_heads", "num_layers", "encoding_dim", "lr")
TABLE = {
    "cora": (0.1, 512, 3, 8, 1, 3, 0.01),
    "citeseer": (0.3, 512, 7, 8, 1, 3, 0.001),
    "pubmed": (0.1, 512, 7, 8, 1, 15, 0.001),
    "corafull": (0.1, 512, 3, 1, 1, 10, 0.01),
    "computers": (0.1, 512, 3, 8, 1, 15, 0.001),
    "photo": (0.1, 128, 3, 8, 1, 10, 0.001),
    "cs": (0.1, 512, 3, 8, 3, 10, 0.001),
    "physics": (0.1, 128, 5, 8, 1, 10, 0.01),
    "aminer": (0.1, 512, 16, 8, 3, 10, 0.001),
    "reddit": (0.1, 512, 10, 8, 1, 10, 0.001),
    "amazon2m": (0.1, 512, 10, 1, 1, 3, 0.001),
    "dblp": (0.1, 512, 3, 8, 1, 10, 0.001),
    "blogcatalog": (0.1, 512, 3, 8, 1, 10, 0.001),
    "flickr": (0.1, 512, 3, 8, 1, 10, 0.001),
}

# test accuracy in the paper, and of the authors' code as measured
EXPECTED = {
    "cora": (88.15, 88.07),
    "citeseer": (80.12, 76.33),
    "pubmed": (89.70, 89.18),
    "corafull": (71.51, None),
    "computers": (91.22, 90.80),
    "photo": (95.49, 95.29),
    "cs": (95.75, 95.66),
    "physics": (97.34, 97.11),
    "aminer": (56.21, None),
    "reddit": (93.58, None),
    "amazon2m": (77.43, None),
    "dblp": (85.95, 85.00),
    "blogcatalog": (96.73, 95.51),
    "flickr": (91.80, 89.68),
}


@pytest.fixture
def recipe(tmp_path):
    """Write a recipe of one's own; gives its path as text."""

    def write(content):
        (tmp_path / "mine.yaml").write_text(content)
        return str(tmp_path / "mine.yaml")

    return write


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_has_known_keys_only(path):
    TrainConfig(**read_recipe(path))
    known = {field.name for field in fields(TrainConfig)} | {"expected", "version", "members"}
    assert set(yaml.safe_load(path.read_text())) <= known


def test_there_is_a_recipe_for_every_data_set_of_the_paper_and_no_other():
    papers = {path.stem for path in FILES if path.stem.startswith("paper")}
    assert papers == {"paper", *(f"paper-{name}" for name in TABLE)}
    assert set(TABLE) == {name for name, dataset in DATASETS.items() if dataset.rule is not None}


@pytest.mark.parametrize("name", TABLE)
def test_the_papers_settings_are_those_of_its_table(name):
    found = asdict(resolve("paper", name, {}))
    expected = COMMON | dict(zip(COLUMNS, TABLE[name], strict=True))
    expected["feature_scaling"] = {"aminer": "standardize", "flickr": "row"}.get(name, "none")
    for free in ("project_first", "device", "seed"):  # no default may slip into the rest
        del found[free]
    assert (
        found
        == {each.name: each.metadata.get("before") for each in fields(TrainConfig) if each.name in found} | expected
    )


@pytest.mark.parametrize("name", TABLE)
def test_a_recipe_names_the_accuracy_to_expect(name):
    paper, reference = EXPECTED[name]
    expected = {"paper": paper} | ({} if reference is None else {"reference": reference})
    assert yaml.safe_load((RECIPES / f"paper-{name}.yaml").read_text())["expected"] == expected


def test_the_papers_recipe_depends_on_no_default():
    free = {"device", "seed", "project_first"}  # none of them changes what is computed, or should
    assert set(read_recipe(RECIPES / "paper.yaml")) == {field.name for field in fields(TrainConfig)} - free


@pytest.mark.parametrize("name", ["my-graph", "synthetic", "", None])
def test_other_graphs_get_the_common_settings(name):
    assert resolve("paper", name, {}) == TrainConfig(**read_recipe(RECIPES / "paper.yaml"))


def test_without_a_recipe_the_defaults_hold():
    assert resolve(None, "cora", {}) == TrainConfig()


def test_what_is_given_wins_over_the_recipe_and_none_is_not_given():
    found = resolve("paper", "citeseer", {"hops": 1, "lr": None, "clip_norm": 0.0, "seed": 3})
    assert (found.hops, found.lr, found.dropout, found.seed) == (1, 0.001, 0.3, 3)


def test_zero_is_given():
    assert resolve("paper", "citeseer", {"dropout": 0.0, "hops": 0}).dropout == 0
    assert resolve("paper", "citeseer", {"hops": 0}).hops == 0


def test_an_unknown_recipe_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"no recipe or file 'papr': recipes are .*Did you mean 'paper'\?"):
        resolve("papr", None, {})
    with pytest.raises(UserError, match=r"no recipe or file './none.yaml'"):
        resolve("./none.yaml", None, {})


def test_a_data_sets_recipe_by_its_own_name_is_the_papers():
    assert resolve("paper-cora", None, {}) == resolve("paper", "cora", {})


def test_a_file_of_ones_own_is_read_for_any_graph(recipe):
    path = recipe("hops: 4\nreadout: sum\ndevice: cpu\nexpected: {accuracy: 90}\n")
    for name in ("cora", None):
        found = resolve(path, name, {})
        assert (found.hops, found.readout, found.device) == (4, "sum", "cpu")


def test_numbers_that_yaml_takes_for_text_are_numbers(recipe):
    content = "lr: 1e-4\nweight_decay: 1e-5\nhops: 4.0\nclip_norm: 1\nfeature_dropout: 2e-1\n"
    assert yaml.safe_load(content)["lr"] == "1e-4"
    found = resolve(recipe(content), None, {})
    assert (found.lr, found.weight_decay, found.hops, found.feature_dropout) == (1e-4, 1e-5, 4, 0.2)
    assert [type(value) for value in (found.lr, found.hops, found.clip_norm)] == [float, int, float]


MISTAKES = [
    ("hopps: 3", r"mine.yaml has an unknown setting 'hopps'. Did you mean 'hops'\?"),
    ("hidden-dim: 8", r"unknown setting 'hidden-dim'. Did you mean 'hidden_dim'\?"),
    ("3: 4", "unknown setting 3"),
    ("recipe: paper", "unknown setting 'recipe'"),
    ("hops: three", "mine.yaml has hops: 'three', which should be a whole number"),
    ("hops: 2.5", "has hops: 2.5, which should be a whole number"),
    ("hops: true", "has hops: True, which should be a whole number"),
    ("hops:", "has hops: None, which should be a whole number"),
    ("hops: [1, 2]", "which should be a whole number"),
    ("lr: fast", "has lr: 'fast', which should be a number"),
    ("lr: 0", "lr must be above 0"),
    ("lr: .nan", "lr must be"),
    ("hops: -1", "hops must be 0 or more"),
    ("dropout: 1.5", "dropout must be at least 0 and below 1"),
    ("readout: 3", "unknown readout 3: use attention, self, sum or dynamic"),
    ("feature_scaling: no", "unknown feature_scaling False"),
    ("- hops", "must hold lines such as 'hops: 3'"),
    ("", "must hold lines such as 'hops: 3'"),
    ("hops: [", "is not YAML"),
    ("lr: !!python/object/apply:os.system ['true']", "is not YAML"),
]


@pytest.mark.parametrize(("content", "message"), MISTAKES)
def test_a_mistake_in_a_file_of_ones_own_is_refused(content, message, recipe):
    with pytest.raises(UserError, match=message):
        resolve(recipe(content), None, {})


@pytest.mark.parametrize("version", ["0.1", "", "latest", "[1]"])
def test_a_version_that_is_no_release_is_refused(version, recipe):
    with pytest.raises(UserError, match="write the release it was made for"):
        resolve(recipe(f"version: {version}"), None, {})


def test_a_version_before_the_first_release_takes_what_held_before_each_setting(recipe):
    config = resolve(recipe("version: 0.0.9"), None, {})
    assert (config.linear, config.averaging, config.hidden_dim) == (False, 0.0, TrainConfig().hidden_dim)


def test_an_infinite_whole_number_is_refused(recipe):
    with pytest.raises(UserError, match="should be a whole number"):
        resolve(recipe("hops: .inf"), None, {})


@pytest.mark.parametrize("content", ["hops: [", "lr: !!python/object/apply:os.system ['true']"])
def test_a_file_that_is_no_yaml_is_said_in_one_line(content, recipe):
    with pytest.raises(UserError, match="is not YAML") as error:
        resolve(recipe(content), None, {})
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_is_refused(recipe, tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"cannot read .*mine.yaml"):
        resolve(str(tmp_path / "mine.yaml"), None, {})


# several members


def test_members_have_the_common_settings_and_their_own_in_their_order(recipe):
    path = recipe("hops: 5\nlr: 1e-3\nmembers:\n  wide: {hidden_dim: 64}\n  alone: {hops: 0, lr: 1e-4}\n  plain:\n")
    found = resolve_members(path, "cora", {})
    assert list(found) == ["wide", "alone", "plain"]
    assert [(each.hops, each.lr, each.hidden_dim) for each in found.values()] == [
        (5, 0.001, 64),
        (0, 0.0001, TrainConfig().hidden_dim),
        (5, 0.001, TrainConfig().hidden_dim),
    ]
    assert resolve(path, "cora", {}) == found["wide"]


def test_what_is_given_wins_over_members_and_none_is_not_given(recipe):
    path = recipe("hops: 5\nmembers: {a: {hops: 2}, b: {}}")
    assert [each.hops for each in resolve_members(path, None, {"hops": 7}).values()] == [7, 7]
    assert [each.hops for each in resolve_members(path, None, {"hops": 0, "lr": None}).values()] == [0, 0]


@pytest.mark.parametrize("content", ["hops: 5", "hops: 5\nmembers: {}"])
def test_a_recipe_without_members_has_one_without_a_name(content, recipe):
    path = recipe(content)
    assert resolve_members(path, None, {}) == {"": resolve(path, None, {})}


def test_members_take_what_held_before_settings_that_are_younger_than_their_recipe(recipe):
    path = recipe("version: 0.1.0\nmembers: {paper: {}, other: {network: linear}}")
    found = resolve_members(path, None, {})
    assert [each.network for each in found.values()] == ["transformer", "linear"]
    assert {each.reduce_dim for each in found.values()} == {0}


WRONG_MEMBERS = [
    ("[a, b]", "mine.yaml has members that are not names with settings, such as 'wide: {hidden_dim: 512}'"),
    ("", "members that are not names with settings"),
    ("three", "members that are not names with settings"),
    ("{a: 3}", "members that are not names with settings"),
    ("{a: [hops]}", "members that are not names with settings"),
    ("{a/b: {}}", "mine.yaml has a member 'a/b': names have letters, digits, - and _, since folders take them"),
    ("{'..': {}}", "has a member '..'"),
    ("{.hidden: {}}", "has a member '.hidden'"),
    ("{'': {}}", "has a member ''"),
    ("{a b: {}}", "has a member 'a b'"),
    ("{-a: {}}", "has a member '-a'"),
    ("{a: {}, b: {hopps: 3}}", "mine.yaml, member b has an unknown setting 'hopps'. Did you mean 'hops'"),
    ("{a: {hops: three}}", "mine.yaml, member a has hops: 'three', which should be a whole number"),
    ("{a: {members: {}}}", "member a has an unknown setting 'members'"),
    ("{a: {}, b: {hops: -1}}", "hops must be 0 or more, not -1"),
]


@pytest.mark.parametrize(("content", "message"), WRONG_MEMBERS)
def test_members_that_cannot_be_are_refused(content, message, recipe):
    with pytest.raises(UserError, match=re.escape(message)):
        resolve_members(recipe(f"members: {content}"), None, {})


def test_the_members_of_best_differ_and_the_first_is_the_default():
    found = resolve_members("best", "cora", {})
    assert len({tuple(asdict(each).items()) for each in found.values()}) == len(found) > 3
    assert next(iter(found.values())) == TrainConfig()
    assert set(found) == set(read_members(RECIPES / "best.yaml"))


def test_the_default_comes_back_from_a_file_of_settings():
    for config in (TrainConfig(), *resolve_members("best", None, {}).values(), resolve("transformer", None, {})):
        written = yaml.safe_load(yaml.safe_dump(settings_to_write(config)))
        assert read_settings(TrainConfig, written, "config.yaml") == config


def test_recipes_are_resources_of_the_package():
    names = {entry.name for entry in files("nagphormer.recipes").iterdir()}
    assert {path.name for path in FILES} <= names


def test_recipes_are_inside_the_wheel(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling to build a wheel")
    (built,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    packed = zipfile.ZipFile(built).namelist()
    assert {f"nagphormer/recipes/{path.name}" for path in FILES} <= set(packed)
    assert "nagphormer/data/bundled/cora.npz" in packed
    assert not [name for name in packed if name.startswith(("tests", "experiments", "benchmarks"))]
