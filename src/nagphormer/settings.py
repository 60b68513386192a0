"""Every setting: one owner, one checker, and a birthday.

A field that came after the first release says so with `since`: absent in a file it means what held before there was
such a field, never today's default. Neither torch nor the command line is loaded here.
"""

import ast
import inspect
import re
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nagphormer.errors import UserError, check_finite, check_whole, nearest
from nagphormer.progress import note

Dtype = Literal["float16", "bfloat16", "float32"]
Scaling = Literal["none", "standardize", "row", "length"]
Network = Literal["transformer", "mlp", "linear"]
Readout = Literal["attention", "self", "sum", "dynamic"]
ClassWeights = Literal["none", "balanced"]
Precision = Literal["auto", "fp32", "bf16"]
Choice = Literal["auto", "always", "never"]
Monitor = Literal["accuracy", "loss", "macro_f1", "roc_auc", "average_precision"]

RECIPES = Path(__file__).parent / "recipes"
MEMBER_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
"""Names of members, which are names of folders, too."""
FIRST = "0.1.0"
"""The first release: its files hold all fields of its day, also those at their `before` value."""
T = TypeVar("T")


def since(version: str, before: Any, default: Any) -> Any:
    """A field with a birthday.

    Args:
        version: the release that has it first.
        before: the value that leaves everything as it was without the field.
        default: the value where nothing is said today.
    """
    return field(default=default, metadata={"since": version, "before": before})


@dataclass(frozen=True, kw_only=True)
class TokenSettings:
    """What the tokens of a graph depend on beside the graph: the only such list."""

    hops: int = 3
    """K: every node gets K+1 tokens."""
    encoding_dim: int = 0
    """Laplacian eigenvectors joined to the features."""
    dtype: Dtype = "float16"
    """What tokens are stored as; sums are float32 in any case."""
    feature_scaling: Scaling = "none"
    """Standardize columns, make rows sum to one, give them one length (√F), or none of it."""
    reduce_dim: int = since("0.2.0", before=0, default=0)
    """Most columns that features may have: wider ones are reduced to their first singular vectors; 0 for no limit."""
    copy: int = since("0.2.0", before=0, default=0)
    """0 for the graph as it is, else the number of a copy in which a random half of the edges is left out."""

    def __post_init__(self) -> None:
        _check_values(self)
        _check_least(self, 0, "hops", "encoding_dim", "reduce_dim", "copy")

    @property
    def fits(self) -> bool:
        """Whether such tokens are made with what is measured of a whole graph.

        That is mean and deviation, eigenvectors, and singular vectors where features may be too wide.
        """
        return self.feature_scaling == "standardize" or self.encoding_dim > 0 or self.reduce_dim > 0

    def reduces(self, num_features: int) -> bool:
        """Whether so many features are reduced to fewer columns."""
        return 0 < self.reduce_dim < num_features

    def width(self, num_features: int) -> int:
        """Columns of a token, F+s; a graph without features has one column instead."""
        columns = self.reduce_dim if self.reduces(num_features) else max(num_features, 1)
        return columns + self.encoding_dim

    def folder_name(self, fingerprint: str) -> str:
        """What a folder with such tokens of a graph is called where we choose its name."""
        scaling = "" if self.feature_scaling == "none" else f"-{self.feature_scaling}"
        younger = "".join(
            f"-{each.name}-{getattr(self, each.name)}"
            for each in fields(self)
            if "before" in each.metadata and getattr(self, each.name) != each.metadata["before"]
        )
        dtype = "" if self.dtype == "float16" else f"-{self.dtype}"
        return f"tokens-{fingerprint[:8]}-hops{self.hops}-encoding{self.encoding_dim}{scaling}{dtype}{younger}"

    def refuse_other(self, wanted: "TokenSettings", where: str) -> None:
        """Refuse these settings, those of tokens that lie `where`, unless they are the ones wanted."""
        for each in fields(self):
            has, needed = getattr(self, each.name), getattr(wanted, each.name)
            if has != needed:
                raise UserError(
                    f"{where} tokens with {each.name}={has!r}, not {needed!r}: choose another folder or remove it first"
                )


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """What of the network is free to choose; data gives the rest."""

    hidden_dim: int = 512
    """D, width of the network."""
    num_layers: int = 1
    """L, encoder layers."""
    num_heads: int = 8
    """Attention heads; must divide hidden_dim."""
    dropout: float = 0.1
    """Dropout after attention and feed-forward."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    readout: Readout = "attention"
    """How tokens become one vector; attention is the paper's, self is hop 0 alone, dynamic has Z_0 weigh the hops."""
    network: Network = since("0.2.0", before="transformer", default="transformer")  # noqa: RUF009 (a field)
    """What reads the tokens: the paper's transformer, an mlp with a map of its own for each hop, or a linear map."""
    own_maps: bool = since("0.2.0", before=False, default=False)
    """Give each hop an embedding of its own in the transformer, too; the paper's hops share one."""
    token_dropout: float = since("0.2.0", before=0.0, default=0.0)
    """Share of the tokens beside hop 0 that are hidden from each node in training an mlp."""

    def __post_init__(self) -> None:
        _check_values(self)
        _check_least(self, 1, "hidden_dim", "num_heads")
        _check_least(self, 0, "num_layers")
        if self.hidden_dim % self.num_heads:
            raise UserError(f"hidden_dim={self.hidden_dim} is not a multiple of num_heads={self.num_heads}")
        _check_shares(self, "dropout", "attention_dropout", "token_dropout")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(NetworkConfig):
    """Shape of the network."""

    input_dim: int
    """F, width of a token: features and structural encoding together."""
    num_classes: int
    """C, number of outputs."""
    feature_dropout: float = 0.0
    """Share of input columns hidden from each batch in training."""
    linear_tokens: int = 0
    """K+1 for a linear classifier of all tokens beside the network, 0 for none."""
    num_tokens: int = 1
    """K+1, where each hop has a map of its own."""
    label_tokens: int = 0
    """Tokens of labels, each with C columns, behind those of the hops."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least(self, 1, "input_dim", "num_classes", "num_tokens")
        _check_least(self, 0, "linear_tokens", "label_tokens")
        _check_shares(self, "feature_dropout")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(NetworkConfig):
    """Everything a training run depends on beside the graph, with the defaults."""

    hidden_dim: int = 512
    dropout: float = 0.5
    network: Network = since("0.2.0", before="transformer", default="mlp")  # noqa: RUF009 (a field)
    token_dropout: float = since("0.2.0", before=0.0, default=0.5)
    hops: int = 3
    """K: every node gets K+1 tokens."""
    encoding_dim: int = 0
    """Laplacian eigenvectors joined to the features."""
    feature_scaling: Scaling | None = None
    """Standardize columns, make rows sum to one or of one length, or none; by default it follows from the features."""
    reduce_dim: int = since("0.2.0", before=0, default=512)
    """Most columns that features may have: wider ones are reduced to their first singular vectors; 0 for no limit."""
    label_hops: int = since("0.2.0", before=0, default=0)
    """Labels of training nodes, averaged over 1 … so many hops, as further tokens; no node ever reads its own."""
    edge_copies: int = since("0.2.0", before=0, default=0)
    """Tokens of so many copies of the graph with half of the edges, one an epoch in training; 0 for the graph alone."""
    feature_dropout: float | None = None
    """Share of input columns hidden from each batch in training; by default F / (F + training nodes)."""
    linear: bool = since("0.1.0", before=False, default=True)
    """Train a linear classifier of the tokens along with a transformer, and average the scores; the paper has none."""
    label_smoothing: float = since("0.2.0", before=0.0, default=0.0)
    """Share of the target that is spread over all classes alike."""
    lr: float = 0.002
    """Learning rate at its peak."""
    final_lr: float = 0.0001
    """Learning rate after the decay; never above lr."""
    warmup_updates: int = 50
    """Updates over which the learning rate rises to its peak."""
    decay_updates: int = 1000
    """Update at which it has fallen, along a line, to final_lr."""
    weight_decay: float = 0.01
    """AdamW's weight decay."""
    clip_norm: float = 0.0
    """Largest norm of a gradient; longer ones are shortened to it. 0 for no limit."""
    class_weights: ClassWeights = "none"
    """balanced: rare classes weigh more in the loss, each class the same in total."""
    batch_size: int | None = None
    """Nodes of an update; by default an eighth of the training nodes, from 16 to 1000."""
    epochs: int = 2000
    """Passes over the training nodes, at most."""
    patience: int = 30
    """Epochs to go on without a better value of what is monitored, or a lower loss, on the validation nodes."""
    averaging: float = since("0.1.0", before=0.0, default=0.85)
    """Share of earlier epochs in the weights that are validated and kept; 0 for each epoch's own, as in the paper."""
    restart_on_ties: bool = since("0.2.0", before=False, default=False)
    """Count an accuracy or loss that equals the best as better for patience, as in the code of the paper's authors."""
    monitor: Monitor = since("0.2.0", before="accuracy", default="accuracy")  # noqa: RUF009 (a field)
    """What of the validation nodes chooses the best epoch; with several labels a node, accuracy means micro-F1."""
    precision: Precision = "auto"
    """fp32, bf16, or auto: bf16 where the processor multiplies it faster."""
    project_first: Choice = "auto"
    """Embed features before the hops, inside every update, instead of storing tokens; auto: whichever costs less."""
    device: str | None = None
    """cpu or cuda; by default a GPU where there is one."""
    seed: int = 0
    """Of the initial weights, batches and dropout; and of the split where one is drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least(self, 1, *(() if self.batch_size is None else ("batch_size",)), "epochs", "patience")
        _check_least(self, 0, "hops", "encoding_dim", "reduce_dim", "label_hops", "edge_copies")
        _check_least(self, 0, "final_lr", "warmup_updates", "weight_decay", "clip_norm", "seed")
        _check_shares(
            self, "averaging", "label_smoothing", *(() if self.feature_dropout is None else ("feature_dropout",))
        )
        if not self.lr > 0:
            raise UserError(f"lr must be above 0, not {self.lr}")
        if self.seed >= 2**32:
            raise UserError(f"seed must be below 2**32, not {self.seed}")
        if self.decay_updates < self.warmup_updates:
            raise UserError(
                f"decay_updates={self.decay_updates} is below warmup_updates={self.warmup_updates}: "
                f"the learning rate falls only after it has risen"
            )

    def tokens(self, feature_scaling: Scaling, dtype: Dtype = "float16", **decided: Any) -> TokenSettings:
        """The settings of tokens among these, with what was decided."""
        own = {name: getattr(self, name) for name in shared_with_tokens()}
        return TokenSettings(**own | {"feature_scaling": feature_scaling, "dtype": dtype} | decided)


def shared_with_tokens() -> list[str]:
    """Settings of tokens that a training has, too."""
    asked = {each.name for each in fields(TrainConfig)}
    return [each.name for each in fields(TokenSettings) if each.name in asked]


def field_help(kind: type) -> dict[str, str]:
    """The docstring under every field of a dataclass, inherited ones too; none where the source is not at hand."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        try:
            (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body
        except OSError:  # compiled files alone
            continue
        assert isinstance(tree, ast.ClassDef)
        for line, text in pairwise(tree.body):
            if isinstance(line, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                assert isinstance(line.target, ast.Name)
                texts[line.target.id] = str(text.value.value)
    return texts


for _kind in (ModelConfig, TrainConfig):
    _lines = (f"    {name}: {text}" for name, text in field_help(_kind).items())
    _kind.__doc__ = f"{_kind.__doc__}\n\nAttributes:\n" + "\n".join(_lines)


def resolve(
    recipe: str | None, graph_name: str | None, given: dict[str, Any], tokens: TokenSettings | None = None
) -> TrainConfig:
    """Settings in their order: defaults, then the recipe, then what was given.

    Args:
        recipe: name of a recipe that comes with the package, path of a YAML file, or None.
        graph_name: picks the data set's own settings within a named recipe, where there are any.
        given: settings that win over the recipe; None counts as not given.
        tokens: settings of tokens that exist already: they hold, and what was given must agree.

    Returns:
        The settings; of a recipe with several members those of the first.
    """
    return next(iter(resolve_members(recipe, graph_name, given, tokens).values()))


def resolve_members(
    recipe: str | None, graph_name: str | None, given: dict[str, Any], tokens: TokenSettings | None = None
) -> dict[str, TrainConfig]:
    """The same for a recipe that may name several members, each by its settings: they answer together.

    A recipe of one has one member without a name.
    """
    settings: dict[str, Any] = {}
    members: dict[str, dict[str, Any]] = {}
    for path in _recipe_paths(None if recipe is None else str(recipe), graph_name):
        settings |= read_recipe(path)
        members = read_members(path)
    return {name: _with_given(settings | own, given, tokens) for name, own in (members or {"": {}}).items()}


def _with_given(settings: dict[str, Any], given: dict[str, Any], tokens: TokenSettings | None) -> TrainConfig:
    """Settings of a recipe, with those of tokens that exist, and what was given."""
    given = {name: value for name, value in given.items() if value is not None}
    for name in shared_with_tokens() if tokens is not None else ():
        settings[name] = getattr(tokens, name)
        if given.get(name, settings[name]) != settings[name]:
            raise UserError(
                f"{name}={given[name]!r} was asked for, but the tokens have {settings[name]!r}: "
                f"leave {name} out, or make other tokens"
            )
    return TrainConfig(**settings | given)


def read_recipe(path: Path) -> dict[str, Any]:
    """The settings that a recipe names, and the `before` of fields younger than the `version` it names.

    `expected`, the accuracy to expect, is for people; `members` are read by `read_members`.
    """
    content = read_yaml(path)
    version = str(content.pop("version", "")) if "version" in content else None
    if version is not None and not re.fullmatch(r"\d+\.\d+\.\d+\S*", version):
        raise UserError(f"{path} has version {version!r}: write the release it was made for, such as {FIRST}")
    for other in ("expected", "members"):
        content.pop(other, None)
    younger = {
        each.name: each.metadata["before"]
        for each in fields(TrainConfig)
        if version is not None and "since" in each.metadata and _order(each.metadata["since"]) > _order(version)
    }
    return younger | check_settings(TrainConfig, content, path)


def read_members(path: Path) -> dict[str, dict[str, Any]]:
    """Members of a recipe by name, each with the settings that differ from the common ones; none of most recipes."""
    found = read_yaml(path).get("members", {})
    if not isinstance(found, dict) or not all(isinstance(own, dict | None) for own in found.values()):
        raise UserError(f"{path} has members that are not names with settings, such as 'wide: {{hidden_dim: 512}}'")
    for name in found:
        if not re.fullmatch(MEMBER_NAME, str(name)):
            raise UserError(
                f"{path} has a member {name!r}: names have letters, digits, - and _, since folders take them"
            )
    return {str(name): check_settings(TrainConfig, own or {}, f"{path}, member {name}") for name, own in found.items()}


def read_settings(kind: type[T], content: dict[str, Any], where: object) -> T:
    """Settings from a file that holds all of them, but those that were not there yet when it was written.

    Args:
        kind: the dataclass.
        content: what the file holds.
        where: the file, for messages.
    """
    found = check_settings(kind, content, where)
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in found:
            continue
        if "before" not in each.metadata:
            raise UserError(f"{where} lacks the setting {each.name!r}: it was cut short or changed")
        found[each.name] = each.metadata["before"]
    return kind(**found)


def settings_to_write(settings: Any) -> dict[str, Any]:
    """What a file shall hold: all fields, but of those younger than the first release none at its `before` value.

    So a run that makes no use of a new setting can be read by an older version.
    """
    return {
        each.name: getattr(settings, each.name)
        for each in fields(settings)
        if _order(each.metadata.get("since", FIRST)) <= _order(FIRST)
        or getattr(settings, each.name) != each.metadata["before"]
    }


def check_settings(kind: type, content: dict[str, Any], where: object) -> dict[str, Any]:
    """Settings of a file with their numbers as numbers; refuses keys that are none, naming the nearest one."""
    hints = get_type_hints(kind)
    for name in content:
        if name not in hints:
            raise UserError(f"{where} has an unknown setting {name!r}.{nearest(str(name), list(hints))}")
    return {name: _number_from_file(hints[name], name, value, where) for name, value in content.items()}


def read_yaml(path: Path, what: str = "") -> dict[str, Any]:
    """A YAML file of lines such as `hops: 3`; `what` goes before its path in messages."""
    import yaml

    name = f"{what} {path}".lstrip()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{name} must hold lines such as 'hops: 3'")
    return content


def _recipe_paths(recipe: str | None, graph_name: str | None) -> list[Path]:
    if recipe is None:
        return []
    if Path(recipe).name == recipe and (RECIPES / f"{recipe}.yaml").is_file():
        common, _, dataset = recipe.partition("-")
        own = RECIPES / f"{common}-{dataset or graph_name}.yaml"
        if not own.is_file() and any(RECIPES.glob(f"{common}-*.yaml")):
            note(f"recipe {recipe} has no settings for a graph named {graph_name!r}: the common ones are used")
        return [RECIPES / f"{common}.yaml", *([own] if own.is_file() else [])]
    if not Path(recipe).is_file():
        names = sorted({path.stem for path in RECIPES.glob("*.yaml") if "-" not in path.stem})
        raise UserError(
            f"there is no recipe or file {recipe!r}: recipes are {', '.join(names)}.{nearest(recipe, names)}"
        )
    return [Path(recipe)]


def _order(version: str) -> tuple[int, ...]:
    """A version's numbers, to compare it by."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types a setting may have."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _number_from_file(hint: Any, name: str, value: Any, where: object) -> Any:
    """A setting of a file, a number where it should be one: YAML reads 1e-4 as text."""
    kinds = _kinds(hint)
    if value is None and type(None) in kinds:
        return None
    for kind, what in ((int, "a whole number"), (float, "a number")):
        if kind not in kinds:
            continue
        try:
            number = float("nan" if isinstance(value, bool) else value)
            if kind is float or number == int(number):
                return kind(number)
        except (TypeError, ValueError, OverflowError):
            pass
        raise UserError(f"{where} has {name}: {value!r}, which should be {what}")
    return value


def _check_values(config: Any) -> None:
    """Refuse values of another kind than their field's; NumPy's numbers become Python's, which YAML can hold."""
    for name, hint in get_type_hints(type(config)).items():
        value, kinds = getattr(config, name), _kinds(hint)
        if value is None and type(None) in kinds:
            continue
        if get_origin(kinds[0]) is Literal:
            known = list(get_args(kinds[0]))
            if value not in known:
                choices = f"{', '.join(known[:-1])} or {known[-1]}"
                raise UserError(f"unknown {name} {value!r}: use {choices}.{nearest(str(value), known)}")
        elif bool in kinds:
            if not isinstance(value, bool):
                raise UserError(f"{name} must be true or false, not {value!r}")
        elif int in kinds:
            check_whole(name, value)
            object.__setattr__(config, name, int(value))
        elif float in kinds:
            check_finite(name, value)
            object.__setattr__(config, name, float(value))
        elif not isinstance(value, str):
            raise UserError(f"{name} must be text, not {value!r}")


def _check_least(config: object, least: int, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= least:
            raise UserError(f"{name} must be {least} or more, not {getattr(config, name)}")


def _check_shares(config: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 0 and below 1, not {getattr(config, name)}")
