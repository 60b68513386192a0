"""Tables in memory, of pandas, polars or Arrow, as Arrow columns that DuckDB reads where they lie."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from nagphormer.data.table_sql import refuse_twins
from nagphormer.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa


def read_frame(given: Any, where: str) -> tuple[pa.Table, dict[str, str]]:
    """A frame as Arrow columns, and the types of those that cannot be such columns.

    What lies in Arrow's form already is not copied. A stream can be read only once, so that it is read whole.
    """
    import pyarrow as pa

    pandas: Any = sys.modules.get("pandas")  # who gives a frame of it has imported it
    if pandas is not None and isinstance(given, pandas.DataFrame):
        columns, others = _pandas_columns(given, where)
        return pa.table(columns), others
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given]), {}
    if not hasattr(given, "__arrow_c_stream__") or not hasattr(given, "schema"):
        lazy = " Collect it first: frame.collect()." if hasattr(given, "collect") else ""
        raise UserError(
            f"{where} is a {type(given).__name__}: give a path, or a table of pandas, polars or Arrow.{lazy}"
        )
    try:
        return pa.table(given), {}
    except pa.ArrowException as error:
        if not hasattr(given, "select"):
            raise UserError(f"cannot read {where}: {error}") from error
    columns, others = {}, {}
    for name, kind in dict(given.schema).items():  # a frame of polars, one of whose types Arrow lacks
        try:
            columns[name] = pa.table(given.select([name]))[name]
        except pa.ArrowException:
            others[name] = str(kind)
    return pa.table(columns), others


def frame_bytes(given: Any) -> int:
    """About how much memory a frame takes; 0 where it does not say."""
    if hasattr(given, "memory_usage"):
        return int(np.sum(given.memory_usage(index=False)))
    if hasattr(given, "estimated_size"):
        return int(given.estimated_size())
    return int(getattr(given, "nbytes", 0))


def open_dataset(files: list[str]) -> Any:
    """Arrow (Feather) files: read in pieces, or whole where they are streams."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    try:
        return ds.dataset(files, format="ipc")
    except pa.ArrowInvalid:
        try:
            return pa.concat_tables([pa.ipc.open_stream(pa.memory_map(file)).read_all() for file in files])
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"cannot read {files[0]} as Arrow: {error}") from error


def register(db: Any, name: str, frame: Any) -> dict[str, str]:
    """Have DuckDB know Arrow columns by a name; gives the types of those it cannot read, which are left out."""
    import duckdb

    frame = _with_floats(frame)
    others = {}
    try:
        _try_columns(db, frame.schema)
    except duckdb.Error:
        for field in frame.schema:
            try:
                _try_columns(db, frame.schema.empty_table().select([field.name]).schema)
            except duckdb.Error:
                others[field.name] = str(field.type)
    kept = [column for column in frame.schema.names if column not in others]
    if others and not hasattr(frame, "replace_schema"):
        frame = frame.select(kept)
    elif others:
        frame = frame.replace_schema(frame.schema.empty_table().select(kept).schema)
    db.register(name, frame)
    return others


def _try_columns(db: Any, schema: Any) -> None:
    db.register("tried", schema.empty_table())
    try:
        db.execute("DESCRIBE SELECT * FROM tried").fetchall()
    finally:
        db.unregister("tried")


def _with_floats(frame: Any) -> Any:
    """Half-precision numbers and long decimals as what DuckDB knows; a data set's stay as they are."""
    import pyarrow as pa

    if not isinstance(frame, pa.Table):
        return frame
    for number, field in enumerate(frame.schema):
        kind = field.type
        wider: Any = None
        if pa.types.is_float16(kind):
            wider = pa.float32()
        elif pa.types.is_decimal256(kind):
            wider = pa.float64()
        elif pa.types.is_fixed_size_list(kind) and pa.types.is_float16(kind.value_type):
            wider = pa.list_(pa.float32(), kind.list_size)
        elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_float16(kind.value_type):
            wider = pa.large_list(pa.float32())
        if wider is not None:
            frame = frame.set_column(number, pa.field(field.name, wider), frame.column(number).cast(wider))
    return frame


def _pandas_columns(frame: Any, where: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns of a pandas frame; its index is none of them."""
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    refuse_twins(names, where)
    columns: dict[str, Any] = {}
    others: dict[str, str] = {}
    for number, name in enumerate(names):
        series = frame.iloc[:, number]
        if str(series.dtype).startswith("Sparse"):
            series = series.sparse.to_dense()
        try:
            column = pa.array(series, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            column = _written_out(series)
        if column is None or getattr(column.type, "extension_name", "").startswith("pandas."):
            others[name] = _pandas_type(series)
        else:
            columns[name] = column
    return columns, others


def _written_out(series: Any) -> Any:
    """Numbers beside text, such as ids from a worksheet, as text; None where there is anything else."""
    import pyarrow as pa

    if series.dtype != object:
        return None
    missing = series.isna()
    if not all(isinstance(value, str | int | float | np.integer) for value in series[~missing]):
        return None
    texts = [None if unknown else str(value) for value, unknown in zip(series, missing, strict=True)]
    return pa.array(texts, pa.large_string())


def _pandas_type(series: Any) -> str:
    if series.dtype != object:
        return str(series.dtype)
    kinds = sorted({type(value).__name__ for value in series.dropna()})
    return f"object ({', '.join(kinds[:5])})"
