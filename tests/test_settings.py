import py_compile
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields
from math import nan
from pathlib import Path

import numpy as np
import pytest

import nagphormer
from nagphormer import ModelConfig, TrainConfig, UserError
from nagphormer.commands.import_ import TableFlags
from nagphormer.commands.prepare import TokenFlags
from nagphormer.settings import (
    FIRST,
    NetworkConfig,
    TokenSettings,
    field_help,
    read_settings,
    settings_to_write,
    since,
)

SMALL = {"hidden_dim": 8, "num_heads": 2}
KINDS = {
    NetworkConfig: SMALL,
    ModelConfig: SMALL | {"input_dim": 5, "num_classes": 3},
    TrainConfig: SMALL | {"warmup_updates": 10, "decay_updates": 20},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hidden_dim", 0, "hidden_dim must be 1 or more, not 0"),
        ("hidden_dim", -8, "hidden_dim must be 1 or more, not -8"),
        ("hidden_dim", 9, "hidden_dim=9 is not a multiple of num_heads=2"),
        ("num_heads", 0, "num_heads must be 1 or more, not 0"),
        ("num_heads", 16, "hidden_dim=8 is not a multiple of num_heads=16"),
        ("num_layers", -1, "num_layers must be 0 or more, not -1"),
        ("dropout", 1.0, "dropout must be at least 0 and below 1, not 1.0"),
        ("dropout", -0.1, "dropout must be at least 0 and below 1, not -0.1"),
        ("dropout", nan, "dropout must be a finite number, not nan"),
        ("attention_dropout", 1.5, "attention_dropout must be at least 0 and below 1, not 1.5"),
        ("readout", "mean", "unknown readout 'mean': use attention, self, sum or dynamic"),
        ("readout", "atention", "unknown readout 'atention'.*Did you mean 'attention'"),
    ],
)
def test_networks_that_cannot_be_are_refused(kind, name, value, message):
    with pytest.raises(UserError, match=message):
        kind(**(KINDS[kind] | {name: value}))


@pytest.mark.parametrize("kind", [ModelConfig, TrainConfig])
def test_hiding_every_feature_is_refused(kind):
    with pytest.raises(UserError, match="feature_dropout must be at least 0 and below 1, not 1"):
        kind(**(KINDS[kind] | {"feature_dropout": 1}))


@pytest.mark.parametrize("value", ["false", 1, None])
def test_what_is_neither_true_nor_false_is_refused(value):
    with pytest.raises(UserError, match=f"linear must be true or false, not {value!r}"):
        TrainConfig(linear=value)


@pytest.mark.parametrize("name", ["input_dim", "num_classes"])
def test_a_network_without_inputs_or_outputs_is_refused(name):
    with pytest.raises(UserError, match=f"{name} must be 1 or more, not 0"):
        ModelConfig(**(KINDS[ModelConfig] | {name: 0}))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch_size", 0, "batch_size must be 1 or more, not 0"),
        ("epochs", 0, "epochs must be 1 or more, not 0"),
        ("patience", 0, "patience must be 1 or more, not 0"),
        ("hops", -1, "hops must be 0 or more, not -1"),
        ("encoding_dim", -1, "encoding_dim must be 0 or more, not -1"),
        ("final_lr", -0.5, "final_lr must be 0 or more, not -0.5"),
        ("final_lr", nan, "final_lr must be a finite number, not nan"),
        ("warmup_updates", -3, "warmup_updates must be 0 or more, not -3"),
        ("weight_decay", -1e-5, "weight_decay must be 0 or more, not -1e-05"),
        ("clip_norm", -1, "clip_norm must be 0 or more, not -1"),
        ("seed", -1, "seed must be 0 or more, not -1"),
        ("seed", 2**32, r"seed must be below 2\*\*32, not 4294967296"),
        ("lr", 0, "lr must be above 0, not 0"),
        ("lr", nan, "lr must be a finite number, not nan"),
        ("decay_updates", 9, "decay_updates=9 is below warmup_updates=10"),
        ("feature_scaling", "rows", "unknown feature_scaling 'rows'.*Did you mean 'row'"),
        ("class_weights", "balance", "unknown class_weights 'balance'.*Did you mean 'balanced'"),
        ("precision", "fp16", "unknown precision 'fp16': use auto, fp32 or bf16"),
        ("project_first", "sometimes", "unknown project_first 'sometimes': use auto, always or never"),
    ],
)
def test_training_that_cannot_be_is_refused(name, value, message):
    with pytest.raises(UserError, match=message):
        TrainConfig(**(KINDS[TrainConfig] | {name: value}))


def test_the_smallest_values_are_allowed():
    network = {"hidden_dim": 1, "num_heads": 1, "num_layers": 0, "dropout": 0, "attention_dropout": 0}
    ModelConfig(input_dim=1, num_classes=1, feature_dropout=0, readout="sum", **network)
    zeros = dict.fromkeys(["hops", "encoding_dim", "final_lr", "weight_decay", "clip_norm", "seed"], 0)
    TrainConfig(batch_size=1, epochs=1, patience=1, warmup_updates=0, decay_updates=0, **zeros, **network)


def test_settings_cannot_be_changed_later():
    with pytest.raises(FrozenInstanceError):
        ModelConfig(**KINDS[ModelConfig]).hidden_dim = 0


@pytest.mark.parametrize("kind", [TableFlags, TokenFlags, TokenSettings, NetworkConfig, ModelConfig, TrainConfig])
def test_every_setting_is_explained(kind):
    texts = field_help(kind)
    assert set(texts) == {field.name for field in fields(kind)}
    assert all(text.endswith(".") for text in texts.values())


def test_inherited_settings_keep_their_explanation():
    assert field_help(TrainConfig)["hidden_dim"] == field_help(NetworkConfig)["hidden_dim"]


def test_numbers_of_numpy_become_plain_ones():
    config = TrainConfig(hops=np.int64(2), lr=np.float32(0.5))
    assert type(config.hops) is int
    assert type(config.lr) is float


@pytest.mark.parametrize(("name", "value"), [("hidden_dim", 64.0), ("hops", True), ("lr", "0.1"), ("lr", float("inf"))])
def test_values_of_another_kind_are_refused(name, value):
    with pytest.raises(UserError, match=name):
        TrainConfig(**{name: value})


@dataclass(frozen=True, kw_only=True)
class Young:
    """Settings of a version to come."""

    old: int = 3
    first: bool = since(FIRST, before=False, default=True)
    young: float = since("0.2.0", before=0.0, default=0.5)


def test_a_field_that_is_absent_means_what_held_before_it():
    found = read_settings(Young, {"old": 1}, "config.yaml")
    assert found == Young(old=1, first=False, young=0.0)
    assert read_settings(Young, {"old": 1, "first": True, "young": 0.25}, "here") == Young(old=1, young=0.25)


def test_a_field_without_a_birthday_must_be_there():
    with pytest.raises(UserError, match=r"config.yaml lacks the setting 'old': it was cut short or changed"):
        read_settings(Young, {"young": 0.0}, "config.yaml")


def test_a_young_field_that_changes_nothing_is_not_written():
    assert settings_to_write(Young(old=2, young=0.0)) == {"old": 2, "first": True}
    assert settings_to_write(Young(first=False)) == {"old": 3, "first": False, "young": 0.5}


@pytest.mark.parametrize("settings", [Young(), Young(first=False, young=0.0), TrainConfig(linear=False, averaging=0)])
def test_what_is_written_is_read_as_it_was(settings):
    assert read_settings(type(settings), settings_to_write(settings), "here") == settings


@pytest.mark.slow
def test_settings_load_neither_torch_nor_the_command_line():
    code = "import sys, nagphormer.settings; print({'torch', 'cyclopts', 'numpy'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.slow
def test_settings_do_not_need_their_source(tmp_path):
    package = Path(nagphormer.__file__).parent
    for name in ("__init__", "errors", "progress", "settings"):
        target = tmp_path / "nagphormer" / f"{name}.pyc"
        py_compile.compile(str(package / f"{name}.py"), str(target), doraise=True)
    code = "from nagphormer import TrainConfig; print(TrainConfig().hops)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"
