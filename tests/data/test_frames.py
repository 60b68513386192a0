import sys

import pyarrow as pa
import pytest

from nagphormer import UserError
from nagphormer.data.frames import as_frame

TABLE = pa.table({"id": ["a", "b"], "label": pa.array([1, None]), "share": [0.5, None]})


def test_an_arrow_table_stays_one():
    assert as_frame(TABLE, "arrow") is TABLE


def test_whole_numbers_stay_whole_in_pandas_where_some_are_missing():
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = as_frame(TABLE, "pandas")
    assert list(frame.columns) == ["id", "label", "share"]
    assert str(frame["label"].dtype) == "Int64"
    assert frame["label"].tolist() == [1, pandas.NA]
    assert str(frame["share"].dtype) == "float64"
    assert str(as_frame(TABLE[:1], "pandas")["label"].dtype) == "int64"


def test_polars_has_its_own_missing_values():
    pytest.importorskip("polars", reason="needs polars")
    assert as_frame(TABLE, "polars")["label"].to_list() == [1, None]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_library_that_is_not_there_is_named(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(UserError, match=f"pip install {kind}"):
        as_frame(TABLE, kind)


def test_other_kinds_are_refused():
    with pytest.raises(UserError, match="unknown kind of frame 'excel': use pandas, polars or arrow"):
        as_frame(TABLE, "excel")
