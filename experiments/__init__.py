"""The paper's experiments, outside the package."""
