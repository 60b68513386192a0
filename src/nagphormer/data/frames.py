"""Tables as the frames that people work with: pandas, polars or Arrow."""

from typing import Any, Literal, TypeAlias

from nagphormer.errors import UserError

Frame: TypeAlias = Literal["pandas", "polars", "arrow"]


def as_frame(table: Any, kind: Frame) -> Any:
    """An Arrow table as a frame of some kind; whole numbers stay whole, also where some are missing."""
    if kind == "arrow":
        return table
    if kind not in ("pandas", "polars"):
        raise UserError(f"unknown kind of frame {kind!r}: use pandas, polars or arrow")
    from pyarrow.types import is_integer

    try:
        if kind == "polars":
            import polars

            return polars.from_arrow(table)
        import pandas
    except ImportError as error:
        raise UserError(f"a frame of {kind} needs the package {kind}: pip install {kind}") from error
    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and is_integer(column.type):  # pandas would make 1.0 of 1
            frame[name] = column.to_pandas(types_mapper={column.type: pandas.Int64Dtype()}.get)
    return frame
