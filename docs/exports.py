"""Write the table of docs/exports.md from what tests/exporting/test_matrix.py noted: `python docs/exports.py FILE`.

MULTUM_EXPORTS=FILE pytest tests/exporting/test_matrix.py notes every outcome, a line of JSON each; of several lines on
one case the last counts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("exports.md")
BEGIN, END = "<!-- table: docs/exports.py -->", "<!-- end of the table -->"


def cell(outcomes: dict[str, dict]) -> str:
    """One method on one network: the differences as ONNX and as torch.export, or why not."""
    if not outcomes:
        return ""
    words = []
    for kind in ("onnx", "torch"):
        outcome = outcomes.get(kind)
        if outcome is None:
            words.append("not run")
        elif "refused" in outcome:
            words.append("refused")
        else:
            words.append("0" if outcome["difference"] == 0 else f"{outcome['difference']:.0e}")
    return words[0] if set(words) == {"refused"} else " / ".join(words)


def table(lines: list[dict]) -> str:
    """Methods down, networks across, and the reasons below."""
    cases: dict[tuple[str, str], dict[str, dict]] = {}
    for line in lines:
        cases.setdefault((line["method"], line["network"]), {})[line["format"]] = line
    methods, networks = (list(dict.fromkeys(case[i] for case in cases)) for i in (0, 1))
    rows = [["method", *networks], ["---"] * (len(networks) + 1)]
    rows += [[method, *(cell(cases.get((method, network), {})) for network in networks)] for method in methods]
    last = [outcome for outcomes in cases.values() for outcome in outcomes.values()]
    reasons = dict.fromkeys(f"- {o['method']} on {o['network']}: {o['refused']}" for o in last if "refused" in o)
    exported = [outcome for outcome in last if "difference" in outcome]
    summary = (
        f"{len(exported)} of {len(last)} exported, largest difference {max(o['difference'] for o in exported):.1e}."
    )
    return "\n".join([*("| " + " | ".join(row) + " |" for row in rows), "", summary, "", *reasons])


def main() -> None:
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(lines)}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
