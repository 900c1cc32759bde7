"""The benchmarks are no installed package: asv puts their folder on the path, and so do these tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "asv_bench"))
