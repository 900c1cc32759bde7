"""Pages of which a part is made from the code, between two marks: each script named ``*_table.py`` here makes one.

``python docs/api_table.py`` writes its page; a test asks whether all of them are up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Page"]

END = "<!-- end -->"


@dataclass(frozen=True)
class Page:
    """A Page is a page of the documentation with a part that a script makes.

    Parameters
    ----------
    name
        Its path below ``docs``.
    script
        The file that makes it, as it knows itself (``__file__``).
    make
        What makes the part, in Markdown.
    """

    name: str
    script: str
    make: Callable[[], str]

    @property
    def path(self) -> Path:
        """Return where the page is."""
        return Path(__file__).parent / self.name

    def made(self) -> str:
        """Return the page with the part as it is now."""
        begin = f"<!-- made by docs/{Path(self.script).name} -->"
        before, _, rest = self.path.read_text().partition(begin)
        return f"{before}{begin}\n\n{self.make()}\n\n{END}{rest.partition(END)[2]}"

    def write(self) -> None:
        """Write it."""
        self.path.write_text(self.made())
