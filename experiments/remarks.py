"""What a reader of the results should know, by table or figure."""

REMARKS: dict[str, tuple[str, ...]] = {
    "table-small": (
        "Preparation on the H200 includes about 5 s of loading libraries in the rows MLP, logistic regression, APPNP, "
        "GPRGNN, tuned GCN, tuned SAGE, SIGN and NAGphormer; cells measured from now on are warmed up first.",
        "Cells recorded with an earlier cap of 1,000 epochs that reached it (logistic regression and GAT on Pubmed "
        "among them) are still to be measured with 3,000.",
        "The plain GNNs are at or above the paper's figures: with 60 % of the nodes for training they do well, and "
        "less weight decay than their authors chose for 20 nodes a class is among the settings tried.",
    ),
}
