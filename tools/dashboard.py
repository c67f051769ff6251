"""The dashboard's layout as a picture, drawn from the template; `make dashboard` writes docs/dashboard.svg."""

import logging
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from support.observability import dashboard_body, observability_stack, rows

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "dashboard.svg"
COLUMN, ROW, GAP = 42, 21, 4
CHARACTER, LINE = 6.8, 15
FILL = {"metric": "#eef4fb", "log": "#f3f0e8", "alarm": "#fbeeee", "text": "#f4f4f4"}
# What only a deployment knows.
EXAMPLE = {"${AWS::StackName}": "chunkproof", "${AWS::Region}": "us-east-1"}

Widget = dict[str, Any]


def draw() -> str:
    """The picture: a box for each widget where it stands on the dashboard, with its title and what it shows."""
    widgets = dashboard_body(observability_stack())["widgets"]
    width = max(w["x"] + w["width"] for w in widgets) * COLUMN
    height = max(w["y"] + w["height"] for w in widgets) * ROW
    boxes = "\n".join(line for widget in widgets for line in _box(widget))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"\n'
        '  font-family="system-ui, sans-serif" font-size="12" fill="#222">\n'
        "<title>Layout of the CloudWatch dashboard</title>\n"
        f'<rect width="{width}" height="{height}" fill="white"/>\n{boxes}\n</svg>\n'
    )


def _box(widget: Widget) -> Iterator[str]:
    left, top = widget["x"] * COLUMN + GAP, widget["y"] * ROW + GAP
    width, height = widget["width"] * COLUMN - 2 * GAP, widget["height"] * ROW - 2 * GAP
    title, *rest = _label_lines(widget)
    yield (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="4" '
        f'fill="{FILL[widget["type"]]}" stroke="#9ab"/>'
    )
    room = int((width - 16) / CHARACTER)
    lines = [*((text, "bold") for text in textwrap.wrap(title, room))]
    lines += [(text, "normal") for part in rest for text in textwrap.wrap(part, room)]
    for number, (text, weight) in enumerate(lines[: height // LINE]):
        y = top + LINE + number * LINE
        yield f'<text x="{left + 8}" y="{y}" font-weight="{weight}">{escape(_fill(text))}</text>'


def _label_lines(widget: Widget) -> Iterator[str]:
    """A widget's title, then what it shows."""
    properties = widget["properties"]
    match widget["type"]:
        case "text":
            heading, _, text = properties["markdown"].partition("\n")
            yield heading.strip("# ")
            yield text.replace("*", "").partition(". ")[0]
        case "alarm":
            yield properties["title"]
            yield ", ".join(arn.removeprefix("${").removesuffix(".Arn}") for arn in properties["alarms"])
        case "log":
            yield properties["title"]
            yield "Logs Insights: " + properties["query"].rpartition("display ")[2]
        case "metric":
            yield properties["title"]
            yield _metric_names(properties)
            if lines := properties.get("annotations", {}).get("horizontal"):
                yield "Lines: " + ", ".join(f"{line['label']} {line['value']:g}" for line in lines)


def _metric_names(properties: dict[str, Any]) -> str:
    """The distinct metrics of a graph, and the percentiles it has of them."""
    found = [(metric.name, options.get("stat", "")) for metric, options in rows(properties) if metric]
    names = list(dict.fromkeys(name for name, _ in found))
    percentiles = [stat for stat in dict.fromkeys(stat for _, stat in found) if stat.startswith("p")]
    few = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{few}: {' '.join(percentiles)}" if percentiles else few


def _fill(text: str) -> str:
    for reference, value in EXAMPLE.items():
        text = text.replace(reference, value)
    return text


def main() -> None:
    logging.disable(logging.WARNING)  # the translator's remarks on itself
    PICTURE.write_text(draw(), "utf-8")
    print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
