"""A flag for every setting of a training, made from its field."""

from dataclasses import fields, make_dataclass
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from nagphormer.commands.flags import whole
from nagphormer.settings import NetworkConfig, TokenSettings, TrainConfig, field_help

RUN, TOKENS, NETWORK, TRAINING = (
    Group(name, sort_key=number) for number, name in enumerate(("Run", "Tokens", "Network", "Training"), start=1)
)
"""Boxes of the help, in its order."""
OF_RUN = Parameter(group=RUN)


def _optional_flags() -> Any:
    """Flags for the fields of `TrainConfig`; one not given is None, so that the recipe's value stands."""
    hints, help_of = get_type_hints(TrainConfig), field_help(TrainConfig)
    flags = []
    for field in fields(TrainConfig):
        text = help_of.get(field.name, "") + ("" if field.default is None else f" [default: {field.default}]")
        negative = f"--no-{field.name.replace('_', '-')}" if hints[field.name] is bool else ""
        converter = whole if hints[field.name] is int else None
        shown = Parameter(
            help=text, show_default=False, negative=negative, group=_group_of(field.name), converter=converter
        )
        kind: Any = Annotated[hints[field.name] | None, shown]
        flags.append((field.name, kind, None))
    home = {"__module__": __name__}  # without one of its own, Cyclopts takes the class for a built-in
    return Parameter(name="*")(make_dataclass("TrainFlags", flags, frozen=True, kw_only=True, namespace=home))


def _group_of(name: str) -> Group:
    """The box of the help that a setting stands in."""
    if name in ("device", "seed"):
        return RUN
    if name in TokenSettings.__dataclass_fields__ or name in ("label_hops", "edge_copies"):
        return TOKENS
    return NETWORK if name in NetworkConfig.__dataclass_fields__ or name in ("feature_dropout", "linear") else TRAINING


TrainFlags = _optional_flags()
