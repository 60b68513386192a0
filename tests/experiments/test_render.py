from dataclasses import asdict, replace

import pytest

from experiments import records, render
from experiments.data import LARGE, ON_FIXED, SMALL
from experiments.harness import DONE, FAILED, OUT_OF_MEMORY, TIME_OUT, Cell
from experiments.items import ITEMS, PAGE, in_precision
from experiments.methods import COMPARED, ELSEWHERE, METHODS
from nagphormer import TrainConfig

TABLE = replace(
    ITEMS["table-small"],
    rows=tuple(row for row in ITEMS["table-small"].rows if row.method in ("gcn", "sign", "san", "nagphormer")),
    datasets=("photo", "pubmed"),
)


@pytest.fixture(autouse=True)
def results(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RESULTS", tmp_path / "results")
    return tmp_path


def record(method, dataset, accuracies, settings=None, outcome=DONE, val=0.5, everywhere=False, gpu=True, train=2.0):
    """Cells of a method with one of its candidates, one a seed; accuracies in percent; or with all of them."""
    first, *others = METHODS[method].settings(dataset)
    for other in others if everywhere else ():
        record(method, dataset, accuracies[:1], other, outcome, val=0.1)
    settings = first if settings is None else settings
    for seed, accuracy in enumerate(accuracies):
        facts = {
            "outcome": outcome,
            "test_accuracy": accuracy / 100,
            "mlp": accuracy / 100,
            "logistic_regression": accuracy / 100,
            "val_accuracy": val,
            "val_loss": 1.0,
            "epochs": 7,
            "stages": {"prepare": 1.0, "train": train, "infer": 0.5},
            "peak_gb": 1.5,
            "seconds": 3.5 + seed,
            "gpu": gpu,
            "device": "abacus",
            "versions": {"torch": "2", "torch-geometric": "3"},
            "date": "2026-01-02",
            "limits": {"memory": 8, "seconds": 60},
        }
        Cell(dataset, method, seed, settings).write(facts)


def change(cell, **facts):
    records.write(cell.read() | facts)


def line(text, start):
    return next(each for each in text.splitlines() if each.startswith(f"| {start} |"))


def test_a_cell_shows_ours_the_papers_and_whether_they_differ():
    record("gcn", "photo", [94.0, 94.2, 94.1], everywhere=True)
    record("gcn", "pubmed", [86.0, 86.5, 87.0], everywhere=True)
    row = line(render.section(TABLE), "GCN")
    assert "94.10 ± 0.10 ×3 (paper 92.70, higher)" in row
    assert "86.50 ± 0.50 ×3 (paper 86.54, close)" in row


def test_the_settings_shown_are_those_that_validation_chose():
    best, *others = METHODS["gcn"].settings("photo")
    for settings in others:
        record("gcn", "photo", [99.0], settings, val=0.8)
    assert "99.00 ×1 † (paper" in line(render.section(TABLE), "GCN")  # one is still to be tried
    record("gcn", "photo", [90.0, 91.0], best, val=0.9)
    assert TABLE.rows[0].chosen("photo") == best
    assert "90.50 ± 0.71 ×2 (paper" in line(render.section(TABLE), "GCN")
    record("gcn", "photo", [0.0], others[0], outcome=TIME_OUT)
    assert TABLE.rows[0].chosen("photo") == best


def test_bold_is_only_a_difference_that_is_one():
    record("gcn", "photo", [94.0, 90.0, 92.0], everywhere=True)
    record("nagphormer", "photo", [95.0, 91.1, 92.9])
    record("gcn", "pubmed", [80.0, 90.0, 85.0], everywhere=True)
    record("nagphormer", "pubmed", [90.0, 81.0, 87.0])
    row = line(render.section(TABLE), "NAGphormer")
    assert "**93.00 ± 1.95 ×3**" in row
    assert "**86" not in row
    record("sign", "photo", [96.0, 88.0, 92.0], everywhere=True)  # a third row, noisy: who knows
    assert "**" not in line(render.section(TABLE), "NAGphormer")


def test_no_bold_for_a_mean_that_is_higher_on_other_splits_only():
    record("gcn", "photo", [91.0, 91.1, 91.25], everywhere=True)
    record("nagphormer", "photo", [90.0, 90.1, 90.2, 99.0, 99.0])
    text = render.section(TABLE)
    assert "**93" not in text
    assert "**91.12" in line(text, "GCN")
    assert "- Photo: 2 of 2; first: GCN\n" in text


def test_a_rival_with_few_seeds_leaves_it_open_who_is_best():
    record("gcn", "photo", [90.0, 90.1, 90.2], everywhere=True)
    record("nagphormer", "photo", [95.0, 95.1, 95.2])
    assert "**95.10" in render.section(TABLE)
    record("sign", "photo", [94.0], everywhere=True)
    assert "**95.10" not in render.section(TABLE)


@pytest.mark.parametrize(
    ("accuracies", "word"),
    [([94.8, 94.9, 95.0], "close"), ([93.0, 96.0, 93.0], "close"), ([96.0, 90.0, 93.0], "unclear")],
)
def test_what_is_not_clearly_different_is_close_or_unclear(accuracies, word):
    record("san", "photo", accuracies, everywhere=True)
    assert f"(paper 94.86, {word})" in line(render.section(TABLE), "SAN")


def test_what_was_measured_with_other_defaults_is_not_shown():
    record("nagphormer", "photo", [95.0])
    assert "95.00" in line(render.section(TABLE), "NAGphormer")
    cell = Cell("photo", "nagphormer")
    change(cell, resolved=cell.resolved | {"hops": 99})
    assert "95.00" not in line(render.section(TABLE), "NAGphormer")


def test_two_seeds_are_too_few_for_bold_type_and_ranks():
    record("gcn", "photo", [90.0, 90.0], everywhere=True)
    record("nagphormer", "photo", [95.0, 95.1])
    text = render.section(TABLE)
    assert "**95" not in text
    assert "rank" not in text


def test_nagphormers_rank_is_what_the_numbers_say():
    record("gcn", "photo", [90.0, 91.0, 92.0], everywhere=True)
    record("sign", "photo", [96.0, 96.0, 96.5], everywhere=True)
    record("nagphormer", "photo", [95.0, 95.0, 95.0])
    assert "- Photo: 2 of 3; first: SIGN\n" in render.section(TABLE)
    record("san", "photo", [99.0, 99.0], everywhere=True)
    assert "- Photo: 2 of 3; first: SIGN; not ranked: SAN\n" in render.section(TABLE)
    record("gcn", "photo", [95.0, 95.0, 95.1, 90.0, 90.0], everywhere=True)  # the rank is by the first three
    assert "- Photo: 3 of 3; first: SIGN; not ranked: SAN\n" in render.section(TABLE)
    record("gcn", "photo", [90.0, 91.0, 92.0], everywhere=True)
    change(Cell("photo", "san", 0, METHODS["san"].settings("photo")[1]), resolved={})  # as if it were not there
    assert "- Photo: 2 of 3 †; first: SIGN; not ranked: SAN\n" in render.section(TABLE)


def test_a_setting_that_failed_was_not_tried():
    record("san", "photo", [95.0, 95.0, 95.0], everywhere=True)
    assert "†" not in line(render.section(TABLE), "SAN")
    record("san", "photo", [0.0], METHODS["san"].settings("photo")[2], outcome=FAILED)
    assert "95.00 ± 0.00 ×3 † (paper" in line(render.section(TABLE), "SAN")


@pytest.mark.parametrize("outcome", [OUT_OF_MEMORY, TIME_OUT])
def test_a_setting_that_met_the_limits_of_a_cpu_leaves_it_open_which_is_best(outcome):
    record("san", "photo", [99.0, 99.0, 99.2], everywhere=True)
    record("nagphormer", "photo", [95.0, 95.1, 95.2])
    other = METHODS["san"].settings("photo")[2]
    record("san", "photo", [0.0], other, outcome=outcome)
    assert "**99.07 ± 0.12 ×3** (paper" in line(render.section(TABLE), "SAN")
    record("san", "photo", [0.0], other, outcome=outcome, gpu=False)
    text = render.section(TABLE)
    assert "99.07 ± 0.12 ×3 † (paper" in line(text, "SAN")
    assert "**" not in line(text, "SAN")
    assert "- Photo: 2 of 2 †; first: SAN\n" in text


def test_seeds_that_met_a_limit_are_counted():
    record("san", "photo", [0.0] * 3, outcome=TIME_OUT, gpu=False)
    record("san", "photo", [99.0, 99.2], everywhere=True)
    text = render.section(TABLE)
    assert "99.10 ± 0.14 ×2, time-out ×1 (paper" in line(text, "SAN")
    assert "; time-out: more than 60 s on abacus (SAN on Photo)." in text


def test_limits_are_told_with_those_who_met_them():
    stopped = [
        {
            "outcome": outcome,
            "method": method,
            "dataset": dataset,
            "device": device,
            "limits": {"memory": 8, "seconds": 60},
        }
        for outcome, method, dataset, device in (
            (OUT_OF_MEMORY, "san", "photo", "lathe"),
            (TIME_OUT, "san", "photo", "abacus"),
            (TIME_OUT, "san", "pubmed", "abacus"),
            (TIME_OUT, "san", "photo", "abacus"),
            (TIME_OUT, "gcn", "photo", "abacus"),
        )
    ]
    assert render._limits(stopped) == [
        "out of memory: more than 8 GB on lathe (SAN on Photo)",
        "time-out: more than 60 s on abacus (SAN on Photo, Pubmed; GCN on Photo)",
    ]


def test_a_study_takes_the_recipes_cell_where_it_changes_nothing():
    assert METHODS["nagphormer"].resolved("photo", {})["num_layers"] == 1
    rows = {row.title: row.tuning("photo")[0].name for row in ITEMS["figure-layers"].rows}
    assert rows["L = 1"] == TABLE.rows[-1].tuning("photo")[0].name
    assert rows["L = 2"] == "nagphormer-num_layers=2-seed0"


@pytest.mark.parametrize("outcome", [OUT_OF_MEMORY, TIME_OUT])
def test_what_did_not_fit_is_said_beside_the_papers(outcome):
    record("san", "photo", [0.0], outcome=outcome, everywhere=True)
    text = render.section(TABLE)
    assert f"{outcome} (paper 94.86)" in line(text, "SAN")
    assert f"; {outcome}: more than {'8 GB' if outcome == OUT_OF_MEMORY else '60 s'} on abacus (SAN on Photo)." in text


def test_what_did_not_fit_for_the_paper_is_said_to_fit():
    record("san", "physics", [97.0], everywhere=True)
    assert "(paper OOM, fits here)" in line(render.section(replace(TABLE, datasets=("physics",))), "SAN")


def test_paired_differences_are_on_common_seeds():
    record("gcn", "photo", [90.0, 91.0, 92.0], everywhere=True)
    record("nagphormer", "photo", [91.0, 92.5, 93.0, 99.0])
    record("sign", "photo", [90.0, 91.5], everywhere=True)  # twice +1.00, by chance perhaps
    paired = render._paired(TABLE, TABLE.rows[-1])
    assert "+1.17 [" in line(paired, "GCN")
    assert line(paired, "SIGN") == "| SIGN | – | – |"


def test_seconds_of_a_cpu_are_marked_and_not_mixed_with_those_of_a_gpu():
    record("gcn", "photo", [94.0, 95.0], everywhere=True, gpu=False, train=99.0)
    record("gcn", "photo", [94.0])
    record("sign", "photo", [94.0], everywhere=True, gpu=False)
    stages = render._stages(TABLE)
    assert "| 1 + 2 + 0.5 s, 1.5 GB |" in line(stages, "GCN")
    assert "| 1 + 2 + 0.5 s, 1.5 GB, CPU |" in line(stages, "SIGN")


def test_a_published_mean_without_deviation_is_taken_as_exact():
    record("nagphormer", "citeseer", [75.0, 76.0, 77.0])
    row = line(render.section(replace(ITEMS["table-gophormer"], datasets=("citeseer",))), "NAGphormer")
    assert "76.00 ± 1.00 ×3 (paper 80.12, lower)" in row


def test_data_that_cannot_be_had_is_marked(results):
    record("gcn", "photo", [94.0], everywhere=True)
    text = render.section(replace(TABLE, datasets=("photo", "corafull")))
    assert "no data (paper 61.76)" in line(text, "GCN")


def test_everything_is_rendered_with_its_figures(results):
    for readout in ({}, {"readout": "self"}, {"readout": "sum"}):
        record("nagphormer", "photo", [94.0, 95.0], readout)
    for hops in range(4, 21, 2):
        record("nagphormer", "photo", [94.0, 95.0], {"hops": hops})
    path = render.render(results / "docs")
    text = path.read_text()
    for item in PAGE:
        assert f"## {item.title}\n\n`python -m experiments {item.name}`" in text
    remark = "- The paper shows this in a picture, without numbers, for its three large graphs."
    assert text.count(remark) == 2
    assert remark not in render.section(ITEMS["figure-hops"])  # it speaks of what the page shows
    for name in ("figure-readout", "figure-hops"):
        assert f"](results/{name}.svg)" in text
        assert (results / "docs" / "results" / f"{name}.svg").read_text().startswith("<?xml")
    assert "figure-layers.svg" not in text
    before = path.read_bytes(), (results / "docs" / "results" / "figure-hops.svg").read_bytes()
    render.render(results / "docs")
    assert before == (path.read_bytes(), (results / "docs" / "results" / "figure-hops.svg").read_bytes())


@pytest.mark.parametrize("name", ITEMS)
def test_what_a_quick_run_measured_is_shown(name):
    item = ITEMS[name].quick()
    for row in item.rows:
        for cell in row.tuning("cora"):
            record(row.method, "cora", [61.0], cell.settings, val=0.61)
    assert render.section(item).count("1.0 s" if name == "table-cost" else "61.00 ×1") >= len(item.rows)


def test_every_method_has_at_most_four_settings_that_its_class_takes():
    for name, method in METHODS.items():
        for dataset in (*SMALL, "cora", "citeseer", "dblp", "blogcatalog", "flickr", *LARGE, "minesweeper"):
            candidates = method.settings(dataset)
            assert 1 <= len(candidates) <= 4, name
            known = asdict(TrainConfig()) if name == "best" else method.resolved(dataset, {}) | {"monitor": None}
            for settings in (*candidates, method.quick):
                assert settings.keys() <= known.keys() | {"recipe"}, name
            names = [Cell(dataset, name, 0, settings).name for settings in candidates]
            assert len(set(names)) == len(names), f"{name} tries the same twice on {dataset}"


def test_published_settings_of_large_graphs_are_the_published_ones():
    cost = ITEMS["table-cost"]
    found = {row.method: [row.candidates(dataset)[0] for dataset in cost.datasets] for row in cost.rows}
    assert found["pprgo"][1] == {"alpha": 0.5}
    assert [settings["alpha"] for settings in found["grand_plus"]] == [0.1, 0.05, 0.2]
    assert [settings["recipe"] for settings in found["nagphormer"]] == [
        "paper-aminer",
        "paper-reddit",
        "paper-amazon2m",
    ]


def test_the_cost_table_says_how_it_differs_from_the_papers():
    (settings,) = ITEMS["table-cost"].rows[0].candidates("synthetic-aminer")
    record("pprgo", "synthetic-aminer", [50.0], settings, train=13.0)
    row = line(render.section(ITEMS["table-cost"]), "PPRGo")
    assert "prepared in 1.0 s (paper 1,075 MB, 14.21 s: more memory, about as much time) |" in row
    assert "| – (paper 1,093 MB, 35.73 s) |" in row


def test_of_settings_that_are_equally_right_the_one_with_the_lower_loss_is_chosen():
    candidates = METHODS["gcn"].settings("photo")
    for settings, loss in zip(candidates, (3.0, 1.0, 2.0, 4.0), strict=True):
        record("gcn", "photo", [90.0], settings)
        change(Cell("photo", "gcn", 0, settings), val_loss=loss)
    assert TABLE.rows[0].chosen("photo") == candidates[1]


def test_where_cells_are_judged_by_another_metric_it_chooses_settings_and_is_shown():
    """Accuracy would choose the first setting."""
    item = replace(TABLE, datasets=("photo", "minesweeper"), rows=TABLE.rows[:1])
    for number, settings in enumerate(METHODS["gcn"].settings("minesweeper")):
        record("gcn", "minesweeper", [99.0], settings, val=0.9 - 0.1 * number)
        areas = {"val_roc_auc": 0.5 + 0.1 * number, "test_roc_auc": 0.6 + 0.1 * number}
        change(Cell("minesweeper", "gcn", 0, settings), monitor="roc_auc", **areas)
    record("gcn", "photo", [94.0], everywhere=True)
    text = render.section(item)
    assert text.count("| method | Photo | Minesweeper, ROC-AUC |") == 1
    assert "| 90.00 ×1 |" in line(text, "GCN")
    assert "94.00 ×1" in line(text, "GCN")


def test_up_to_ten_seeds_are_shown():
    record("nagphormer", "photo", [95.0] * 10)
    assert "95.00 ± 0.00 ×10" in line(render.section(TABLE), "NAGphormer")


def test_studies_change_what_their_titles_say():
    def settings(name, dataset="photo"):
        return {row.title: row.candidates(dataset)[0] for row in ITEMS[name].rows}

    assert settings("table-encoding") == {"without encoding": {"encoding_dim": 0}, "with encoding": {}}
    assert settings("figure-readout") == {"ATT.": {}, "SIN.": {"readout": "self"}, "SUM.": {"readout": "sum"}}
    assert settings("figure-hops", "cs")["K = 8"] == {"hops": 8, "num_layers": 1}
    assert settings("figure-layers", "cs")["L = 2"] == {"num_layers": 2}


def test_a_quick_run_takes_the_first_setting_and_what_makes_it_quick():
    (row,) = (row for row in ITEMS["table-small"].quick().rows if row.method == "sign")
    assert row.candidates("cora") == [METHODS["sign"].settings("cora")[0] | METHODS["sign"].quick]
    (row,) = (row for row in ITEMS["table-small"].quick().rows if row.method == "gprgnn")
    assert row.candidates("cora")[0]["row_normalized"]


def test_gains_are_those_of_the_published_way():
    encoding = replace(ITEMS["table-encoding"], datasets=("photo",))
    readout = replace(ITEMS["figure-readout"], datasets=("photo",))
    record("nagphormer", "photo", [95.0, 95.2, 95.1])
    record("nagphormer", "photo", [94.0, 94.1, 94.3], {"encoding_dim": 0})
    record("nagphormer", "photo", [93.0, 93.2, 93.1], {"readout": "sum"})
    text = render.section(encoding)
    assert "| +0.97 [" in line(text, "with encoding minus without encoding")
    assert line(text, "the paper's gain") == "| the paper's gain | +0.47 |"  # 95.49 - 95.02
    assert "(paper 95.02, " in line(text, "without encoding")
    assert "(paper 95.49, " in line(text, "with encoding")
    text = render.section(readout)
    assert "| +2.00 [" in line(text, "ATT. minus SUM.")
    assert "(paper 95.49, " in line(text, "ATT.")
    assert "paper" not in line(text, "SUM.")


def test_cost_is_told_with_its_stages_and_the_largest_peak():
    item = ITEMS["table-cost"]
    cost = replace(item, datasets=item.datasets[:1])
    settings = METHODS["pprgo"].settings("aminer")[0]
    record("pprgo", item.datasets[0], [60.0, 60.0], settings, train=4.0)
    change(Cell(item.datasets[0], "pprgo", 1, settings), peak_gb=0.25)
    row = line(render.section(cost), "PPRGo")
    assert "1,500 MB, 4.0 s for 7 epochs + 0.5 s inference, prepared in 1.0 s (paper 1,075 MB, 14.21 s" in row


def test_memory_is_named_before_time_where_settings_met_both():
    first, second, *_ = METHODS["san"].settings("photo")
    record("san", "photo", [0.0], first, outcome=TIME_OUT)
    record("san", "photo", [0.0], second, outcome=OUT_OF_MEMORY)
    assert line(render.section(TABLE), "SAN").startswith("| SAN | out of memory (paper")


def test_a_mean_far_below_the_papers_but_uncertain_is_unclear():
    record("san", "photo", [96.0, 86.0, 91.0], everywhere=True)
    assert "(paper 94.86, unclear)" in line(render.section(TABLE), "SAN")


def test_a_figure_leaves_out_data_sets_where_a_point_is_missing(results):
    for dataset, readouts in (("photo", ({}, {"readout": "self"}, {"readout": "sum"})), ("cs", ({},))):
        for settings in readouts:
            record("nagphormer", dataset, [94.0], settings)
    drawn = {}
    render.bars, plain = lambda data, path: drawn.update(data), render.bars
    try:
        render._figure(ITEMS["figure-readout"], results)
    finally:
        render.bars = plain
    assert drawn == {"Photo": [("ATT.", [94.0]), ("SIN.", [94.0]), ("SUM.", [94.0])]}


def test_the_estimator_is_shown_by_data_set_with_what_a_run_takes():
    item = replace(ITEMS["accuracy"], datasets=("cora", "dblp"))
    record("recipe", "cora", [90.0, 91.0, 92.0])
    text = render.section(item)
    row = line(text, "Cora")
    assert row == "| Cora | 91.00 ± 1.00 ×3 (paper 88.15, unclear) | 50.00 ± 0.00 ×3 | 7 | 4.5 | 1.50 GB |"
    assert line(text, "DBLP") == "| DBLP | – (paper 85.95) | – | – | – | – |"
    record("recipe", "cora", [90.0] * 7)
    assert "90.00 ± 0.00 ×5" in render.section(replace(item, rows=(replace(item.rows[0], seeds=5),)))


def test_a_precision_is_compared_with_the_recipes_own_on_the_same_splits():
    item = in_precision(replace(ITEMS["accuracy"], datasets=("cora",)), "bf16")
    record("recipe", "cora", [90.0, 91.0, 92.0])
    assert line(render.section(item), "Cora").startswith("| Cora | – (paper 88.15) | 91.00")
    record("recipe", "cora", [89.0, 90.5, 91.0], {"precision": "bf16"})
    row = line(render.section(item), "Cora")
    assert row.startswith("| Cora | 90.17 ± 1.04 ×3 (paper 88.15, unclear) | 91.00 ± 1.00 ×3")
    assert "| -0.83 [" in row
    own = in_precision(replace(ITEMS["accuracy"], datasets=("cora",)), "fp32")
    assert own.rows[0].candidates("cora") == [{}]  # it is the recipe's cell


def test_the_defaults_are_compared_with_the_best_of_what_was_the_default_and_two_plain_models():
    item = replace(ITEMS["defaults"], datasets=("cora", "wordnet"))
    for dataset in item.datasets:
        record("default", dataset, [90.0])
        record("transformer", dataset, [85.0])
        change(Cell(dataset, "transformer"), mlp=0.7, logistic_regression=0.88)
    expected = "| WordNet | 90.00 ×1 | 85.00 ×1 | 70.00 ×1 | 88.00 ×1 | +2.00 | "
    assert line(render.section(item), "WordNet").startswith(expected)
    record("transformer", "cora", [85.0] * 3)
    record("default", "cora", [90.0, 92.0, 94.0])
    for seed, mlp in enumerate((0.89, 0.90, 0.94)):
        change(Cell("cora", "transformer", seed), mlp=mlp, logistic_regression=0.8)
    assert "| +1.00 [" in line(render.section(item), "Cora")


def test_remarks_are_those_under_their_own_heading():
    found = {item.name: render._remarks(item) for item in ITEMS.values()}
    assert {name: len(points) for name, points in found.items() if points} == {
        "table-small": 9,
        "table-encoding": 1,
        "figure-readout": 2,
        "figure-hops": 1,
        "figure-layers": 1,
        "table-gophormer": 1,
        "table-fixed": 2,
        "table-others": 2,
        "table-cost": 3,
    }
    assert found["figure-hops"] == found["figure-layers"]
    assert all(
        point[0] in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" and point[-1] in ".)" for each in found.values() for point in each
    )


def test_rows_of_ours_stand_last_once_they_have_cells():
    item = replace(ITEMS["table-small"], datasets=("photo",))
    assert "NAGphormer, " not in render.section(item)
    record("best", "photo", [0.0], outcome=FAILED)
    assert "NAGphormer, " not in render.section(item)
    record("best", "photo", [0.0], outcome=TIME_OUT)
    assert line(render.section(item), "NAGphormer, best") == "| NAGphormer, best | time-out |"
    record("best", "photo", [95.5, 95.6, 95.7])
    record("default", "photo", [95.0])
    text = render.section(item)
    titles = [each.split(" | ")[0] for each in text.splitlines() if each.startswith("| ")]
    head = titles.index("| method", 1)
    assert titles[head - 3 : head] == ["| NAGphormer", "| NAGphormer, default", "| NAGphormer, best"]
    assert "*NAGphormer, default*, *NAGphormer, best*: `NodeClassifier` as it is, by the epochs and patience of" in text
    assert "instead of 3,000 and 100" in text


def test_the_best_is_ranked_among_the_methods_of_others_and_compared_with_every_row():
    item = replace(ITEMS["table-small"], datasets=("photo",))
    record("gcn", "photo", [94.0, 94.0, 94.0], everywhere=True)
    record("sign", "photo", [92.0, 92.0, 92.0], everywhere=True)
    record("nagphormer", "photo", [93.0, 93.0, 93.0])
    before = render.section(item)
    record("default", "photo", [96.0, 96.0, 96.0])
    record("best", "photo", [95.0, 95.0, 95.25])
    text = render.section(item)
    own, best = text.split("**The rank of NAGphormer, best** is by the mean over seeds 0 to 2")
    assert "- Photo: 2 of 3; first: GCN\n" in before
    assert "- Photo: 2 of 3; first: GCN\n" in own  # it does not fall behind what bears its own name
    assert "- Photo: 1 of 3\n" in best
    compared = best.split("NAGphormer, best minus each method on the same splits")[1]
    assert line(compared, "NAGphormer").startswith("| NAGphormer | +2.08 [")
    assert line(compared, "NAGphormer, default").startswith("| NAGphormer, default | -0.92 [")
    assert line(own.split("NAGphormer minus each")[1], "NAGphormer, best").startswith("| NAGphormer, best | -2.08 [")


def test_a_rival_that_was_measured_for_another_table_alone_is_no_row_yet():
    item = ITEMS["table-gophormer"]
    record("mlp", "pubmed", [88.0], everywhere=True)
    text = render.section(item)
    assert "MLP" not in text
    assert "(paper 87.85)" in line(text, "Gophormer")
    assert "88.00" in line(render.section(replace(item, datasets=("pubmed",))), "MLP")  # asked for alone
    record("mlp", "cora", [76.0, 77.0, 78.0], ELSEWHERE["mlp"])
    text = render.section(item)
    row = "| MLP | 77.00 ± 1.00 ×3 | – | 88.00 ×1 | – | – | – |"
    assert line(text, "MLP") == row
    assert "*MLP*: one setting each, fixed beforehand" in text
    assert "at most 500 epochs" in text


def test_tables_that_the_paper_has_not_are_on_the_page_once_they_have_cells(results):
    text = render.render(results / "docs").read_text()
    assert "table-fixed" not in text
    assert "table-others" not in text
    settings = METHODS["tuned_gcn"].settings("photo-fixed")
    for each in settings:
        record("tuned_gcn", "photo-fixed", [96.0], each)
    text = render.render(results / "docs").read_text()
    fixed = text.split("## The fixed split\n\n`python -m experiments table-fixed`\n")[1].split("## Complexity")[0]
    head = "| method | Computers, fixed split | Photo, fixed split | CS, fixed split | Physics, fixed split |"
    assert head in fixed
    assert line(fixed, "tuned GCN") == "| tuned GCN | – | 96.00 ×1 | – | – |"
    assert "Computers 94.09, Photo 96.78, CS 96.38, Physics 97.46" in fixed
    assert "MLP" not in fixed
    assert "table-others" not in text
    assert (results / "results" / "photo-fixed.jsonl").is_file()


def test_the_fixed_split_has_every_method_of_the_comparison_and_ours():
    item = ITEMS["table-fixed"]
    assert [row.method for row in item.rows] == [*COMPARED, "default", "best"]
    assert item.datasets == ON_FIXED
    assert [row.candidates("cs-fixed") for row in item.rows] == [
        METHODS[row.method].settings("cs") for row in item.rows
    ]
