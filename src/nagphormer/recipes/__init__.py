"""Recipes: YAML files with settings, one for each published result; the common ones in `paper.yaml`."""

from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml

from nagphormer.errors import UserError, nearest
from nagphormer.progress import note
from nagphormer.settings import TrainConfig
from nagphormer.tokens.store import TokenStore

FOLDER = Path(__file__).parent


def resolve(
    recipe: str | None, graph_name: str | None, given: dict[str, Any], store: TokenStore | None = None
) -> TrainConfig:
    """Settings in their order: defaults, then the recipe, then what was given.

    Args:
        recipe: name of a recipe that comes with the package, path of a YAML file, or None.
        graph_name: picks the data set's own settings within a named recipe, where there are any.
        given: settings that win over the recipe; None counts as not given.
        store: tokens that exist already: their hops, encoding and scaling hold, and what was given must agree.
    """
    settings: dict[str, Any] = {}
    for path in _paths(None if recipe is None else str(recipe), graph_name):
        settings |= settings_of(path)
    given = {name: value for name, value in given.items() if value is not None}
    for name in ("hops", "encoding_dim", "feature_scaling") if store is not None else ():
        assert store is not None
        settings[name] = store.manifest[name]
        if given.get(name, settings[name]) != settings[name]:
            raise UserError(
                f"{name}={given[name]!r} was asked for, but the tokens have {settings[name]!r}: "
                f"leave {name} out, or make other tokens"
            )
    return TrainConfig(**settings | given)


def settings_of(path: Path) -> dict[str, Any]:
    """Settings in a YAML file; refuses keys that are none, naming the nearest one. `expected` is for people."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold lines such as 'hops: 3'")
    known = {field.name: field for field in fields(TrainConfig)}
    content.pop("expected", None)
    for name, value in content.items():
        if name not in known:
            raise UserError(f"{path} has an unknown setting {name!r}.{nearest(str(name), list(known))}")
        content[name] = checked(path, name, value)
    return content


def checked(path: Path, name: str, value: Any) -> Any:
    """A setting of a file, a number where the default is one: YAML reads 1e-4 as text."""
    hint = get_type_hints(TrainConfig)[name]
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
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
        raise UserError(f"{path} has {name}: {value!r}, which should be {what}")
    return value


def _paths(recipe: str | None, graph_name: str | None) -> list[Path]:
    if recipe is None:
        return []
    if Path(recipe).name == recipe and (FOLDER / f"{recipe}.yaml").is_file():
        common, _, dataset = recipe.partition("-")
        own = FOLDER / f"{common}-{dataset or graph_name}.yaml"
        if not own.is_file():
            note(f"recipe {recipe} has no settings for a graph named {graph_name!r}: the common ones are used")
        return [FOLDER / f"{common}.yaml", *([own] if own.is_file() else [])]
    if not Path(recipe).is_file():
        names = sorted({path.stem for path in FOLDER.glob("*.yaml") if "-" not in path.stem})
        raise UserError(
            f"there is no recipe or file {recipe!r}: recipes are {', '.join(names)}.{nearest(recipe, names)}"
        )
    return [Path(recipe)]
