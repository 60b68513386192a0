"""What a reader of the results should know, by table or figure."""

REMARKS: dict[str, tuple[str, ...]] = {
    "table-small": (
        "Preparation on the H200 includes about 5 s of loading libraries in the rows MLP, logistic regression, APPNP, "
        "GPRGNN, tuned GCN, tuned SAGE, SIGN and NAGphormer; cells measured from now on are warmed up first.",
        "The methods from GraphSAINT to Polynormer are still being measured. Their time-outs met a limit of 150 s, or "
        "250 s for Graphormer, while up to 17 cells shared the card, so they say little yet; for that reason GT on "
        "Pubmed is the best of two settings of four.",
        "The plain GNNs are at or above the paper's figures: with 60 % of the nodes for training they do well, and "
        "less weight decay than their authors chose for 20 nodes a class is among the settings tried.",
    ),
}
