from __future__ import annotations

import json

from typer.testing import CliRunner

from multum.cli import app

COMMAND = [
    "plan",
    "--model",
    "mlp",
    "--shape",
    "6",
    "--classes",
    "3",
    "--methods",
    "deep,multihead",
    "--params",
    "1.2x",
]


def test_the_command_prints_what_fits_and_why_the_rest_does_not() -> None:
    result = CliRunner().invoke(app, [*COMMAND, "--seconds", "0"])
    assert result.exit_code == 0, result.output
    assert "multihead" in result.output and "excluded: deep" in result.output


def test_the_command_prints_json() -> None:
    result = CliRunner().invoke(app, [*COMMAND, "--seconds", "0", "--json"])
    document = json.loads(result.output)
    assert document["limits"]["params"] > 0 and document["candidates"][0]["feasible"]
