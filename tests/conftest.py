"""What every test starts from; the fixtures of pages.py are made known here."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings
from pages import browser, offline, once, site, visit, widgets  # noqa: F401

# The same examples on every run, and no deadline: the machine may be busy.
settings.register_profile("book", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("book")


@pytest.fixture(autouse=True)
def fixed_start() -> Iterator[None]:
    """Each test draws the same random numbers, whichever tests ran before it, on one thread."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(torch.float32)
