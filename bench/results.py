"""What was measured: parts, each with a row per contestant or size and a column per figure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.spread import Spread


@dataclass
class Part:
    """One kind of measurement. Figures are in the units that the columns' names end with."""

    name: str
    title: str
    rows: dict[str, dict[str, Spread]] = field(default_factory=dict)

    def add(self, row: str, **columns: Iterable[float]) -> None:
        self.rows[row] = {name: Spread(tuple(values)) for name, values in columns.items()}

    def extend(self, row: str, **columns: float) -> None:
        """Add one value to each column of a row."""
        known = self.rows.get(row, {})
        self.add(row, **{name: (*(known[name].values if known else ()), value) for name, value in columns.items()})

    def figure(self, row: str, column: str) -> Spread:
        return self.rows[row][column]

    def best(self, rows: Iterable[str], column: str) -> str:
        """The row with the least median."""
        return min(rows, key=lambda row: self.figure(row, column).median)

    def to_json(self) -> dict[str, object]:
        rows = {row: {name: spread.to_json() for name, spread in columns.items()} for row, columns in self.rows.items()}
        return {"title": self.title, "rows": rows}
