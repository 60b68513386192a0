"""Write docs/settings.md from the docstring under every field, which the command line's help shows, too.

    python scripts/settings_page.py

A test compares the page with what this writes.
"""

from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from nagphormer.settings import RECIPES, TokenSettings, TrainConfig, field_help, read_recipe, read_yaml

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
KINDS = {bool: "true or false", int: "whole number", float: "number", str: "text"}
SECTIONS = {
    "The tokens": "hops encoding_dim feature_scaling reduce_dim label_hops edge_copies",
    "The network": "network hidden_dim num_layers num_heads dropout attention_dropout readout own_maps "
    "feature_dropout token_dropout linear",
    "Training": "",
    "The machine": "precision project_first device seed",
}
"""Training has the settings that stand nowhere else, in the order of the fields."""

INTRODUCTION = """# Settings

This page is written by `python scripts/settings_page.py` from the docstring under every field in
`src/nagphormer/settings.py`; a test compares the two. The same text is the help of `nagphormer train --help`.

A setting `hidden_dim` is the argument `NodeClassifier(hidden_dim=…)`, the flag `--hidden-dim` of `nagphormer train`,
and the line `hidden_dim: …` of a recipe, of a file given with `--config FILE`, and of a run's `config.yaml`.
The order is: default, then the recipe, then `--config`, then what is given as a flag or an argument. `linear` is
switched off by `--no-linear`.

The column *`paper`* is what the recipe `paper` sets (`--recipe paper`, `NodeClassifier(recipe="paper")`); – leaves the
default. *decided* and `auto` mean that it follows from the data or the machine; what was decided is in the run's
`config.yaml` and in `NodeClassifier`'s `config_`, but for the device, which the next machine may not have.
"""

OWN = """## What the recipe `paper` sets for single data sets

The graph's name picks them: `nagphormer train pubmed --recipe paper --out my-run`. `--recipe paper-pubmed` takes those
of Pubmed for a graph of another name. For an unknown name the common ones above are used, and a note says so.
"""

FILES = """A recipe of your own is a YAML file of such lines: `--recipe my.yaml`, `NodeClassifier(recipe="my.yaml")`.
[`nagphormer tune`](tuning.md) writes one.
A line `version: 0.1.0` in it makes settings that are younger than that version mean what held before there were any;
`expected:`, the accuracy to expect, is for people and not read.
"""

TOKENS = """## `nagphormer prepare` and `hop_tokens`

What the tokens of a graph depend on beside the graph (`TokenSettings`). A token store names them, and one with others
is refused.
"""

YOUNGER = """## Settings that came after others

Absent in a file, each means what held before it existed, never today's default:
"""


def page() -> str:
    """The whole page."""
    paper = read_recipe(RECIPES / "paper.yaml")
    parts = [INTRODUCTION]
    elsewhere = " ".join(SECTIONS.values()).split()
    rest = [each.name for each in fields(TrainConfig) if each.name not in elsewhere]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n\n{_table(TrainConfig, names.split() or rest, paper)}")
    parts += [f"{OWN}\n{_own_table()}", FILES, f"{TOKENS}\n{_table(TokenSettings, list(field_help(TokenSettings)))}"]
    before = {each.name: each.metadata["before"] for each in fields(TrainConfig) if "before" in each.metadata}
    parts.append(YOUNGER + "\n" + "\n".join(f"- `{name}`: {_written(value)}" for name, value in before.items()) + "\n")
    return "\n".join(parts)


def _table(kind: Any, names: list[str], recipe: dict[str, Any] | None = None) -> str:
    """One row a setting."""
    hints, help_of = get_type_hints(kind), field_help(kind)
    default = {each.name: each.default for each in fields(kind)}
    columns = ["setting", "values", "default", *(["`paper`"] if recipe else []), "what it is"]
    rows = [columns, ["---"] * len(columns)]
    for name in names:
        assert default[name] is not MISSING
        own = [_written(recipe[name]) if name in recipe else "–"] if recipe else []
        rows.append([f"`{name}`", _values(hints[name]), _written(default[name]), *own, help_of[name]])
    return _rows(rows)


def _own_table() -> str:
    """What each data set's recipe changes."""
    rows = [["data set", "settings"], ["---"] * 2]
    for path in sorted(RECIPES.glob("paper-*.yaml")):
        own = {name: value for name, value in read_yaml(path).items() if name != "expected"}
        text = ", ".join(f"`{name}: {value}`" for name, value in own.items())
        rows.append([path.stem.removeprefix("paper-"), text or "the common ones"])
    return _rows(rows)


def _rows(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _values(hint: Any) -> str:
    """The values a setting may have."""
    kind = next(each for each in get_args(hint) if each is not type(None)) if _is_union(hint) else hint
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    return KINDS[kind]


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _written(value: Any) -> str:
    """A value as a YAML file has it."""
    if value is None:
        return "*decided*"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
