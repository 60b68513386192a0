"""What measuring a method changes in the whole process, put back after each test."""

import pytest
import torch


@pytest.fixture(autouse=True)
def precision_of_products():
    """Measuring allows TF32; on some processors that rounds otherwise, too, in whatever runs after it."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)
