import datetime

import pyarrow as pa
import pytest

from nagphormer import UserError, read_tables

pytest.importorskip("duckdb", reason="reading tables needs DuckDB")

EDGES = pa.table({"source": [0], "target": [1]})
YEARS = [2019, 2016, 2021, None, 2017, 2018, 2020, 2019]


def splits_of(before, label=None, features=None, **columns):
    num_nodes = len(next(iter(columns.values())))
    nodes = pa.table({"id": range(num_nodes), "label": label or list("ab" * num_nodes)[:num_nodes], **columns})
    graph = read_tables(EDGES, nodes, train_before=before, features=features)
    assert not graph.drawn
    return {split: idx.tolist() for split, idx in graph.splits.items()}, graph


def test_early_nodes_train_and_later_ones_validate_before_they_test():
    splits, graph = splits_of(("year", 2018), year=YEARS)
    assert splits == {"train": [1, 4], "val": [0, 5], "test": [2, 6, 7]}  # 2018 and the first 2019, then the rest
    assert graph.features is None


@pytest.mark.parametrize("before", ["2018-01-01", 2018, "2018", datetime.date(2018, 1, 1), "2017-12-31 12:00"])
@pytest.mark.parametrize("kind", ["date", "timestamp", "text"])
def test_dates_of_every_type_split(before, kind):
    dates = [year and datetime.date(year, 1, 1) for year in YEARS]
    columns = {"date": pa.array(dates), "timestamp": pa.array(dates).cast(pa.timestamp("us"))}
    columns["text"] = columns["date"].cast(pa.string())
    assert splits_of(("when", before), when=columns[kind])[0]["train"] == [1, 4]


def test_a_csv_splits_as_well(tmp_path):
    for name, years in (("year", YEARS), ("day", [year and f"{year}-06-30" for year in YEARS])):
        rows = "".join(f"{node},{'' if year is None else year},1\n" for node, year in enumerate(years))
        (tmp_path / "nodes.csv").write_text(f"id,{name},x\n{rows}")
        graph = read_tables(EDGES, tmp_path / "nodes.csv", train_before=(name, "2018"))
        assert graph.splits["train"].tolist() == [1, 4]
        assert graph.feature_names == ("x",)


def test_nodes_without_a_label_are_in_no_split_by_time():
    splits, _ = splits_of(("year", 2018), label=["a", None, "b", "a", "b", "-1", "a", "b"], year=YEARS)
    assert splits == {"train": [4], "val": [0, 7], "test": [2, 6]}


def test_a_time_may_be_a_feature_if_it_is_named():
    nodes = pa.table({"id": range(8), "year": [2010 + node for node in range(8)]})
    graph = read_tables(EDGES, nodes, features="year", train_before=("year", 2012))
    assert graph.feature_names == ("year",)
    assert graph.splits["train"].tolist() == [0, 1]


def test_a_column_of_splits_gives_way_to_time_unless_it_is_named():
    splits, graph = splits_of(("year", 2018), year=YEARS, split=["test"] * 8)
    assert splits["train"] == [1, 4]
    assert graph.features is None
    nodes = pa.table({"id": range(8), "year": YEARS, "part": ["test"] * 8})
    with pytest.raises(UserError, match="from column 'part' or from train_before, not from both"):
        read_tables(EDGES, nodes, split="part", train_before=("year", 2018))


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (("year", 2000), "0 nodes with a label come before 2000 by column 'year'.* it runs from 2016.* to 2021"),
        (("year", 2021), "and 1 later"),
        (("year", "spring"), "column 'year' of .* holds numbers: train before one of them, not 'spring'"),
        (("yeer", 2018), "no column 'yeer'.* Did you mean 'year'"),
        (("word", "spring"), "cannot read 'spring' as a date to train before"),
        (("word", "2018"), "cannot read .*x"),
        ("x", "train_before is 'x': give a column and the first of its numbers or dates that does not train"),
        (("year",), r"train_before is \('year',\): give a column and the first"),
        (("year", 1, 2), r"train_before is \('year', 1, 2\): give a column and the first"),
        (("pair", 3), r"column 'pair' of .* holds BIGINT\[\]: train before a number or a date"),
    ],
)
def test_times_that_split_nothing_are_refused(before, message):
    with pytest.raises(UserError, match=message):
        splits_of(before, features=[], year=YEARS, word=["x"] * 8, pair=[[1, 2]] * 8)
