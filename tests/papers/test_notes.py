"""Numbers that people wrote into notes, computed again from the JSON beside them."""

import heapq
import json
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def best_path(heights: np.ndarray, start: tuple[int, int], end: tuple[int, int]) -> float:
    """The height that a path over a grid need not fall below, with steps to any of eight neighbours."""
    reached, waiting = {start: heights[start]}, [(-heights[start], start)]
    while waiting:
        lowest, place = heapq.heappop(waiting)
        if place == end:
            return float(-lowest)
        for step in np.ndindex(3, 3):
            other = (place[0] + step[0] - 1, place[1] + step[1] - 1)
            if all(0 <= i < n for i, n in zip(other, heights.shape, strict=True)):
                height = min(-lowest, heights[other])
                if height > reached.get(other, -np.inf):
                    reached[other] = height
                    heapq.heappush(waiting, (-height, other))
    raise AssertionError("a grid is connected")


def test_a_best_path_goes_around_a_hill() -> None:
    heights = np.array([[5.0, 1.0, 5.0], [4.0, 1.0, 4.0], [3.0, 2.0, 3.0]])
    assert best_path(heights, (0, 0), (0, 2)) == 2.0


def test_subnetworks_of_mimo_are_joined_by_paths() -> None:
    numbers = json.loads((RESULTS / "mimo" / "figure3.json").read_text())["pictures"][""]["numbers"]
    side = round(len(numbers["accuracy"]) ** 0.5)
    accuracy = 100 * np.array(numbers["accuracy"]).reshape(side, side)
    corners = [divmod(int(np.argmin(numbers[f"disagreement_{i}"])), side) for i in range(3)]
    note = (RESULTS / "mimo" / "figure3.note.md").read_text()
    assert f"below {best_path(accuracy, corners[0], corners[1]):.1f} %" in note
    assert f"have {accuracy[corners[0]]:.1f} and {accuracy[corners[1]]:.1f} %" in note
    for member in (0, 1):
        assert f"its own {best_path(accuracy, corners[member], corners[2]):.1f} %" in note
    assert f"{best_path(accuracy, corners[0], corners[1]):.1f} %" in (RESULTS / "README.md").read_text()
