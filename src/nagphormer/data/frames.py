"""Tables as the frames that people work with: pandas, polars or Arrow."""

from importlib import import_module
from typing import Any, Literal, TypeAlias, get_args

from nagphormer.errors import UserError

Frame: TypeAlias = Literal["pandas", "polars", "arrow"]


def check_frame(kind: str) -> None:
    """Refuse a kind of frame that there is not, or whose package is not installed."""
    if kind not in get_args(Frame):
        raise UserError(f"unknown kind of frame {kind!r}: use pandas, polars or arrow")
    if kind == "arrow":
        return
    try:
        import_module(kind)
    except ImportError as error:
        raise UserError(f"a frame of {kind} needs the package {kind}: pip install {kind}") from error


def as_frame(table: Any, kind: Frame) -> Any:
    """An Arrow table as a frame of some kind; whole numbers stay whole, also where some are missing."""
    check_frame(kind)
    if kind == "arrow":
        return table
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    import pandas
    from pyarrow.types import is_integer

    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and is_integer(column.type):  # pandas would make 1.0 of 1
            frame[name] = column.to_pandas(types_mapper={column.type: pandas.Int64Dtype()}.get)
    return frame
