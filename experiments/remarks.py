"""What a reader of the results should know, by table or figure."""

REMARKS: dict[str, tuple[str, ...]] = {}
