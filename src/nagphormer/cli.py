"""The command line: its flags for all commands, and the table of commands, each loaded when it is called."""

import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from nagphormer import __version__
from nagphormer.commands import terminal
from nagphormer.errors import UserError, nearest
from nagphormer.settings import TrainConfig, check_settings, read_yaml

COMMANDS = {
    "demo": "Train on the bundled citation graph Cora and compare with two plain models: "
    "no file and no network needed.",
    "import": "Turn tables (CSV, Parquet, JSON lines …) or a downloaded data set into a graph folder.",
    "info": "Describe a graph or a token store, and what hop tokens would cost on this machine.",
    "prepare": "Compute the hop tokens of every node and write them as a token store.",
    "train": "Train on a graph and write a run folder: weights, settings, metrics, predictions.",
    "evaluate": "Measure a trained model on one of a graph's splits.",
    "predict": "Write the class of every node, with probabilities.",
}
"""What each is for; the work is `run` in the file of that name in `commands/`."""

app = App(
    name="nagphormer",
    help="Node classification in graphs too large for a graph neural network.",
    version=__version__,
    default_parameter=Parameter(negative=""),
    suppress_keyboard_interrupt=False,  # main() has a word to say about it
)
app.meta.suppress_keyboard_interrupt = False
for _name, _text in COMMANDS.items():
    _module = "import_" if _name == "import" else _name  # the one that Python keeps for itself
    app.command(f"nagphormer.commands.{_module}:run", name=_name, help=_text)


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: bool = False,
    json: bool = False,
    threads: int | None = None,
    config: Path | None = None,
) -> None:
    """Run one command.

    Args:
        tokens: the command and its own flags.
        quiet: nothing on stderr but errors and warnings.
        json: print results as JSON.
        threads: processor threads to use; all by default.
        config: YAML file with the command's settings; flags win over it.
    """
    terminal.configure(quiet, json)
    if threads is not None:
        _limit_threads(threads)
    if config is not None:
        app.config = _read_config(config, tokens)
    app(_with_address(tokens))


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.showwarning = lambda message, *_: print(f"nagphormer: warning: {message}", file=sys.stderr)
    try:
        app.meta()
    except UserError as error:
        print(f"nagphormer: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        terminal.stopped("interrupted")
        sys.exit(130)


def _terminate(number: int, frame: Any) -> None:
    """End as after an interrupt, so that partial files are removed."""
    terminal.stopped("terminated")
    sys.exit(128 + number)


def _with_address(tokens: tuple[str, ...]) -> list[str]:
    """The tokens, with `--cluster` that has no address of its own meaning a local one."""
    following = (*tokens, "--")[1:]
    pairs = zip(tokens, following, strict=True)
    bare = ((token, token == "--cluster" and after.startswith("-")) for token, after in pairs)
    return [f"{token}=local" if alone else token for token, alone in bare]


def _limit_threads(threads: int) -> None:
    import numba

    most = numba.config.NUMBA_NUM_THREADS
    if not 1 <= threads <= most:
        raise UserError(f"--threads must be between 1 and {most} on this machine, not {threads}")
    import torch

    numba.set_num_threads(threads)  # before torch: it starts OpenMP anew, with all threads
    torch.set_num_threads(threads)


def _read_config(path: Path, tokens: tuple[str, ...]) -> Any:
    from cyclopts.config import Yaml

    settings = read_yaml(path, "the configuration")
    command = next((token for token in tokens if token in COMMANDS), None)
    if command is not None:
        arguments = app[command].assemble_argument_collection()
        known = sorted({name.lstrip("-").replace("-", "_") for argument in arguments for name in argument.names})
        for key, value in settings.items():
            name = str(key).replace("-", "_")
            if name not in known:
                raise UserError(f"{path} has an unknown setting {key!r}.{nearest(str(key), known)}")
            if name in TrainConfig.__dataclass_fields__:
                check_settings(TrainConfig, {name: value}, path)  # Cyclopts would cut 2.5 hops to 2
    return Yaml(path, use_commands_as_keys=False)
