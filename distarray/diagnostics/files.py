"""JSON files that the command line reads."""

from __future__ import annotations

import json
from typing import Any

from distarray.errors import ShardingError


def read_json(path: str) -> Any:  # whatever the file says
    """Return what a JSON file holds.

    Raises
    ------
    OSError
        If it cannot be read.
    ShardingError
        If it is no JSON, or nested too deeply; names the file.
    """
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except (ValueError, RecursionError) as error:
            raise ShardingError(f"{path}: no JSON: {error}") from None
