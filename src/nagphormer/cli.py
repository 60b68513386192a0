"""The command line: its flags for all commands, and the table of commands, each loaded when it is called."""

import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from nagphormer import __version__
from nagphormer.commands import terminal
from nagphormer.errors import UserError, nearest
from nagphormer.settings import TrainConfig, check_settings, read_yaml

COMMANDS = {
    "demo": "Train on the bundled citation graph Cora and compare with two plain models: "
    "no file and no network needed.",
    "import": "Turn tables (CSV, Parquet, JSON lines …) or a downloaded data set into a graph folder.",
    "info": "Describe a graph, a token store or a run, and what hop tokens would cost on this machine.",
    "prepare": "Compute the hop tokens of every node and write them as a token store.",
    "train": "Train on a graph and write a run folder: weights, settings, metrics, predictions.",
    "tune": "Try settings on a graph, judged by its validation nodes, and write the best as a recipe.",
    "evaluate": "Measure a trained model on one of a graph's splits.",
    "predict": "Write the class of every node, with probabilities.",
    "cache": "List downloaded graphs and the tokens that training made, or remove them.",
}
"""What each is for; the work is `run` in the file of that name in `commands/`."""

EXAMPLES = {
    "demo": "--out my-demo",
    "import": "--edges edges.csv --nodes nodes.csv --out my-graph",
    "info": "my-graph --hops 3",
    "prepare": "my-graph --hops 3 --out my-tokens",
    "train": "my-graph --hops 3 --epochs 500 --out my-run",
    "tune": "my-graph --trials 50 --out my-tuning",
    "evaluate": "my-run my-graph --split test",
    "predict": "my-run my-graph --out predictions.csv",
    "cache": "--clear",
}
"""What follows each in the example that ends its help."""

GLOBAL = Parameter(group=Group("Every command", sort_key=9))

app = App(
    name="nagphormer",
    help="Node classification in graphs too large for a graph neural network.",
    version=__version__,
    default_parameter=Parameter(negative=""),
    suppress_keyboard_interrupt=False,  # main() has a word to say about it
    help_epilogue="Example: nagphormer demo",
)
app.meta.suppress_keyboard_interrupt = False
for _name, _text in COMMANDS.items():
    _module = "import_" if _name == "import" else _name  # the one that Python keeps for itself
    _example = f"Example: nagphormer {_name} {EXAMPLES[_name]}"
    app.command(f"nagphormer.commands.{_module}:run", name=_name, help=_text, help_epilogue=_example)
app.register_install_completion_command(help="Have the shell complete commands and flags.", help_epilogue=None)


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, GLOBAL] = False,
    json: Annotated[bool, GLOBAL] = False,
    threads: Annotated[int | None, GLOBAL] = None,
    config: Annotated[Path | None, GLOBAL] = None,
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
    app(_joined(tokens))


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.showwarning = lambda message, *_: print(f"nagphormer: warning: {message}", file=sys.stderr)
    try:
        _launch()
    except BrokenPipeError:  # as with `| head`: nobody reads any more
        _to_nowhere(sys.stdout, sys.stderr)
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:  # a disk that is full, a folder that cannot be written to
        print(
            f"nagphormer: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
            file=sys.stderr,
        )
        _to_nowhere(sys.stdout)
        sys.exit(2)
    except KeyboardInterrupt:
        terminal.stopped("interrupted")
        sys.exit(130)


def _launch() -> None:
    """Run one command and say what the user can mend."""
    try:
        app.meta(exit_on_error=False, print_error=False)
    except (UserError, CycloptsError) as error:
        text = _explain(error) if isinstance(error, CycloptsError) else str(error)
        print(f"nagphormer: {text}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # which rich makes exit code 1 while it prints help
            raise stop.__context__ from None
        raise
    finally:
        if sys.stdout is not None:  # as where it was closed before the start
            sys.stdout.flush()


def _to_nowhere(*streams: TextIO) -> None:
    """Python still writes at its end what streams hold back, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


def _explain(error: CycloptsError) -> str:
    """What the parser refused, in a line."""
    command = " ".join(error.command_chain or ("nagphormer",))
    unused = error.unused_tokens or [""]
    if isinstance(error, UnknownOptionError):
        return _no_flag(command, error.token.keyword or error.token.value, *error.argument_collection)
    if isinstance(error, UnknownCommandError) and unused[0].startswith("-"):
        return _no_flag(command, unused[0])
    if isinstance(error, UnknownCommandError):
        hint = nearest(unused[0], list(COMMANDS))
        return f"there is no command {unused[0]!r}.{hint} Commands are: {', '.join(COMMANDS)}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        if unused[0].startswith("-") and unused[0] != name:  # misspelled, perhaps
            return _no_flag(command, unused[0], error.argument)
        return f"{command} needs {name}{' with a value' * name.startswith('-')}: nagphormer {command} --help says more"
    if isinstance(error, UnusedCliTokensError):
        return f"{command} has no use for {unused[0]!r}: nagphormer {command} --help says what it takes"
    text = " ".join(str(error).split())
    return text[:1].lower() + text[1:].rstrip(".")


def _no_flag(command: str, flag: str, *arguments: Any) -> str:
    every = (*arguments, *app.meta.assemble_argument_collection())
    known = [name for argument in every for name in argument.names if name.startswith("-")]
    return f"{command} has no flag {flag}.{nearest(flag, known)}".rstrip(".")


def _terminate(number: int, frame: Any) -> None:
    """End as after an interrupt, so that partial files are removed."""
    terminal.stopped("terminated")
    sys.exit(128 + number)


def _joined(tokens: tuple[str, ...]) -> list[str]:
    """The tokens as the parser takes them: `--cluster` without an address means a local one, `--out -` is stdout."""
    joined: list[str] = []
    for token, after in zip(tokens, (*tokens, "--")[1:], strict=True):
        if token == "-" and joined and joined[-1] == "--out=-":
            continue
        if token == "--cluster" and after.startswith("-"):
            token = "--cluster=local"
        elif token == "--out" and after == "-":
            token = "--out=-"
        joined.append(token)
    return joined


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
