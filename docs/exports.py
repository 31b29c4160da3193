"""Write docs/exports.json and the table of docs/exports.md from what tests/exporting/test_matrix.py noted.

    MULTUM_EXPORTS=FILE pytest tests/exporting/test_matrix.py       notes every outcome, a line of JSON each
    python docs/exports.py FILE [FILE ...]                          of several lines on one case the last counts
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("exports.md")
KEPT = PAGE.with_suffix(".json")
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
    lines = [json.loads(line) for file in sys.argv[1:] for line in Path(file).read_text().splitlines()]
    last = {(line["method"], line["network"], line["format"]): line for line in lines}
    KEPT.write_text("[\n" + ",\n".join(json.dumps(line, ensure_ascii=False) for line in last.values()) + "\n]\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table([*last.values()])}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
