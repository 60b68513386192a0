"""What a reader of the results should know, by table or figure."""

REMARKS: dict[str, tuple[str, ...]] = {
    "table-small": (
        "Preparation on the H200 includes about 5 s for opening the GPU in all rows that do not load torch_geometric.",
        "The plain GNNs are at or above the paper's figures: with 60 % of the nodes for training they do well, and "
        "less weight decay than their authors chose for 20 nodes a class is among the settings tried.",
    ),
}
