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


def index_names(given: Any) -> tuple[str, ...]:
    """Names in the index of a pandas frame that are no columns as well."""
    names = [str(name) for name in getattr(getattr(given, "index", None), "names", ()) if name is not None]
    return tuple(name for name in names if name not in map(str, given.columns))


def recorded_index(schema: Any) -> tuple[str, ...]:
    """Columns that were the index of a pandas frame, as Parquet and Arrow record it."""
    recorded = (schema.pandas_metadata or {}).get("index_columns", [])
    return tuple(name for name in recorded if isinstance(name, str))


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
        found = ds.dataset(files, format="ipc")
        wider = _with_floats(found.schema)
        return found if wider == found.schema else ds.dataset(files, format="ipc", schema=wider)
    except pa.ArrowInvalid:
        try:
            return pa.concat_tables([pa.ipc.open_stream(pa.memory_map(file)).read_all() for file in files])
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"cannot read {files[0]} as Arrow: {error}") from error


def register(db: Any, name: str, frame: Any) -> dict[str, str]:
    """Have DuckDB know Arrow columns by a name; gives the types of those it cannot read, which are left out."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):  # a data set was opened with such types
        for number, field in enumerate(_with_floats(frame.schema)):
            if field.type != frame.schema.types[number]:
                frame = frame.set_column(number, field, frame.column(number).cast(field.type))
    others = {}
    if not _can_read(db, frame.schema):
        others = {field.name: str(field.type) for field in frame.schema if not _can_read(db, [field])}
    kept = [column for column in frame.schema.names if column not in others]
    if others and isinstance(frame, pa.Table):
        frame = frame.select(kept)
    elif others:
        frame = frame.replace_schema(pa.schema([frame.schema.field(column) for column in kept]))
    if kept:
        db.register(name, frame)
    return others


def _can_read(db: Any, fields: Any) -> bool:
    """Whether DuckDB reads columns of these types."""
    import duckdb
    import pyarrow as pa

    try:
        db.register("tried", pa.schema(fields).empty_table())
        db.execute("DESCRIBE SELECT * FROM tried").fetchall()
    except (duckdb.Error, pa.ArrowException):  # of some types Arrow itself makes no empty column
        return False
    finally:
        db.unregister("tried")
    return True


def _with_floats(schema: Any) -> Any:
    """Half-precision numbers and long decimals as what DuckDB knows."""
    import pyarrow as pa

    for number, field in enumerate(schema):
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
            schema = schema.set(number, field.with_type(wider))
    return schema


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
