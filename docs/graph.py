"""Draw docs/packages.svg, the graph of multum's packages, from the imports in src/multum: `python docs/graph.py`.

A part is a package or a module directly under src/multum. It stands one floor above the highest part that it imports,
so every arrow points down. An arrow that follows from others (a imports b, b imports c, a imports c) is left out.
"""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "multum"
PICTURE = ROOT / "docs" / "packages.svg"

FRONT_DOORS = ("__init__", "__main__")  # they import nearly everything, and nothing imports them
STOREYS = {  # a part that is not named here belongs to the library
    "papers": ("papers",),
    "applications": ("benching", "cli", "comparing", "estimators", "exporting", "lightning", "plans", "reports"),
    "runs": ("runs",),
    "library": (),
}
FILLS = {"papers": "#f6e3cd", "applications": "#dcebd5", "runs": "#e6def3", "library": "#d9e6f6"}
WIDTH, FLOOR, BOX, GAP, TOP = 1040, 84, 34, 16, 64
SWEEPS = 24

Edges = dict[str, set[str]]
Order = list[list[str]]


def imports() -> Edges:
    """The parts that each part imports, also inside functions."""
    edges: Edges = {}
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE).parts
        part, package = place[0].removesuffix(".py"), ["multum", *place[:-1]]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                names = [f"{module}.{alias.name}" for alias in node.names] if module == "multum" else [module]
            imported = {name.split(".")[1] for name in names if name.startswith("multum.")}
            edges.setdefault(part, set()).update(imported - {part})
    parts = edges.keys() - set(FRONT_DOORS)
    return {part: edges[part] & parts for part in sorted(parts)}


def levels(edges: Edges) -> dict[str, int]:
    """The floor of each part, from 0; a part that imports itself through others has none."""
    floor: dict[str, int] = {}
    while len(floor) < len(edges):
        ready = [part for part in edges if part not in floor and edges[part] <= floor.keys()]
        if not ready:
            raise SystemExit(f"imports must not form a circle; got one among {sorted(edges.keys() - floor.keys())}")
        floor |= {part: 1 + max((floor[other] for other in edges[part]), default=-1) for part in ready}
    return floor


def reduced(edges: Edges) -> Edges:
    """Without the arrows that follow from others."""
    below: Edges = {}
    for part in sorted(edges, key=levels(edges).__getitem__):
        below[part] = edges[part].union(*(below[other] for other in edges[part]))
    return {part: {o for o in others if not any(o in below[p] for p in others)} for part, others in edges.items()}


def drawing() -> str:
    """The picture as SVG."""
    edges = imports()
    floor = levels(edges)
    paths = [
        [part, *(f"{part}>{other}@{level}" for level in range(floor[part] - 1, floor[other], -1)), other]
        for part, others in reduced(edges).items()
        for other in sorted(others)
    ]
    order, near = _ordered(floor, paths)
    x = _positions(order, near)
    left = min(x[part] - _width(part) / 2 for part in floor) - 24
    return _svg(floor, paths, {name: place - left for name, place in x.items()})


def _ordered(floor: dict[str, int], paths: list[list[str]]) -> tuple[Order, Edges]:
    """The parts of each floor, and the points where long arrows pass it, so that few arrows cross."""
    order: Order = [[] for _ in range(max(floor.values()) + 1)]
    near: Edges = {part: set() for part in floor}
    for part in sorted(floor):
        order[floor[part]].append(part)
    for path in paths:
        for point in path[1:-1]:
            order[int(point.rpartition("@")[2])].append(point)
        for upper, lower in pairwise(path):
            near.setdefault(upper, set()).add(lower)
            near.setdefault(lower, set()).add(upper)
    for sweep in range(SWEEPS):
        place = {name: i / max(1, len(row) - 1) for row in order for i, name in enumerate(row)}
        for level in range(len(order))[:: 1 if sweep % 2 else -1]:
            other = level + (-1 if sweep % 2 else 1)
            beside = set(order[other]) if 0 <= other < len(order) else set()
            means = {
                name: sum(place[o] for o in sorted(near[name] & beside)) / len(near[name] & beside)
                if near[name] & beside
                else place[name]
                for name in order[level]
            }
            order[level].sort(key=lambda name: (round(means[name], 9), name))
            place |= {name: i / max(1, len(order[level]) - 1) for i, name in enumerate(order[level])}
    return order, near


def _positions(order: Order, near: Edges) -> dict[str, float]:
    """Where each name is on its floor: near its neighbours, and apart from the others of the floor."""
    x = {name: WIDTH * (i + 1) / (len(row) + 1) for row in order for i, name in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in order[:: 1 if sweep % 2 else -1]:
            wanted = [
                sum(x[o] for o in sorted(near[name])) / len(near[name]) if near[name] else x[name] for name in row
            ]
            x |= dict(zip(row, _apart(wanted, [_width(name) for name in row]), strict=True))
    return x


def _apart(wanted: list[float], widths: list[float]) -> list[float]:
    """The places nearest to the wanted ones at which boxes in this order do not touch and stay inside the picture."""
    shifts = [0.0]
    for a, b in pairwise(widths):
        shifts.append(shifts[-1] + (a + b) / 2 + GAP)
    blocks: list[list[float]] = []  # sum and number of places that are moved together
    for want, shift in zip(wanted, shifts, strict=True):
        blocks.append([want - shift, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, n = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + n]
    lowest, highest = widths[0] / 2 + 8, WIDTH - 8 - widths[-1] / 2 - shifts[-1]
    bases = [min(max(total / n, lowest), max(highest, lowest)) for total, n in blocks for _ in range(int(n))]
    return [base + shift for base, shift in zip(bases, shifts, strict=True)]


def _width(name: str) -> float:
    return 8 if "@" in name else 8.2 * len(name) + 26


def _svg(floor: dict[str, int], paths: list[list[str]], x: dict[str, float]) -> str:
    top = max(floor.values())
    height = TOP + FLOOR * top + BOX + 16
    width = round(max(x[part] + _width(part) / 2 for part in floor)) + 24

    def y(name: str) -> float:
        level = int(name.rpartition("@")[2]) if "@" in name else floor[name]
        return TOP + FLOOR * (top - level) + BOX / 2

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="The packages of multum: an arrow points from a package down to one that it imports">',
        "<style>",
        "text { font: 14px system-ui, 'Segoe UI', Arial, sans-serif; fill: #1f2429; text-anchor: middle }",
        ".key { text-anchor: start; fill: #5d6670 } .paper { fill: #ffffff }",
        ".arrow { fill: none; stroke: #8a94a0; stroke-width: 1.3 } .head { fill: #8a94a0 } .box { stroke: #00000022 }",
        "@media (prefers-color-scheme: dark) { .paper { fill: #14171c } .key { fill: #9aa4ae } }",
        "</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0.8 L8 4 L0 7.2z"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}" rx="10"/>',
    ]
    at = 20.0
    for storey, fill in FILLS.items():
        lines.append(f'<rect class="box" x="{at:g}" y="16" width="16" height="16" rx="4" fill="{fill}"/>')
        lines.append(f'<text class="key" x="{at + 23:g}" y="29">{storey}</text>')
        at += 8 * len(storey) + 52
    for path in paths:
        points = [(x[name], y(name)) for name in path]
        (x0, y0), (x1, y1) = points[0], points[-1]
        points[0], points[-1] = (x0, y0 + BOX / 2), (x1, y1 - BOX / 2 - 2)
        curve = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (ax, ay), (bx, by) in pairwise(points):
            bend = (by - ay) * 0.5
            curve += f" C{ax:.1f} {ay + bend:.1f} {bx:.1f} {by - bend:.1f} {bx:.1f} {by:.1f}"
        lines.append(
            f'<path class="arrow" marker-end="url(#head)" d="{curve}">'
            f"<title>{path[0]} imports {path[-1]}</title></path>"
        )
    for part in sorted(floor):
        storey = next((name for name, parts in STOREYS.items() if part in parts), "library")
        wide = _width(part)
        lines.append(
            f'<rect class="box" x="{x[part] - wide / 2:.1f}" y="{y(part) - BOX / 2:.1f}" width="{wide:.1f}" '
            f'height="{BOX}" rx="8" fill="{FILLS[storey]}"/>'
            f'<text x="{x[part]:.1f}" y="{y(part) + 5:.1f}">{part}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
