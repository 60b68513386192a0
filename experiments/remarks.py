"""What a reader of the results should know, by table or figure."""

REMARKS: dict[str, tuple[str, ...]] = {
    "table-small": (
        "Preparation on the H200 includes about 5 s of loading libraries in the older cells of the rows MLP, logistic "
        "regression, APPNP, GPRGNN, tuned GCN, tuned SAGE, SIGN and NAGphormer; all others were warmed up first, and "
        "some means mix the two.",
        "GRAND+, GT, Graphormer, SAN, GraphGPS, Gophormer and Polynormer are still being measured. The time-outs met a "
        "limit of 150 s, or 250 s for Graphormer, while up to 17 cells shared the card, so they say little yet; GT on "
        "Pubmed is one setting of four, since two of the others timed out so.",
        "The plain GNNs are at or above the paper's figures: with 60 % of the nodes for training they do well, and "
        "less weight decay than their authors chose for 20 nodes a class is among the settings tried.",
    ),
    "table-gophormer": (
        "The paper's splits of these graphs are not published. On random 60/20/20 splits, seeds 0 to 2, its authors' "
        "code reaches 88.07, 76.33, 89.18, 95.51, 85.00 and 89.68 in the order of the columns, the last with rows of "
        "the features scaled, as here: where NAGphormer is below the paper, so is its reference.",
    ),
}
