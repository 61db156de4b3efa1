"""What the person at the terminal reads."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from mig_spawner.demo.option import Options
from mig_spawner.demo.report import Report


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def report(output: io.StringIO) -> Report:
    return Report(Console(file=output, width=200))


def test_a_step_is_one_line_with_its_time_and_what_came_of_it(report: Report, output: io.StringIO) -> None:
    with report.step("The proxy") as step:
        step.note = "on port 1"
    [line] = output.getvalue().splitlines()
    assert "✓ The proxy  on port 1" in line
    assert " s  " in line


def test_a_step_that_fails_is_marked(report: Report, output: io.StringIO) -> None:
    with pytest.raises(LookupError), report.step("The proxy"):
        raise LookupError
    assert "✗ The proxy" in output.getvalue()


def test_logs_are_shown_as_they_are(report: Report, output: io.StringIO) -> None:
    report.fail("It ended.\n[bold]not markup[/bold] [red]")
    assert "[bold]not markup[/bold] [red]" in output.getvalue()


def test_the_welcome_says_where_who_and_that_gpus_are_simulated(report: Report, output: io.StringIO) -> None:
    options = Options.of(gpus=("a100-80gb:2",), users=2)
    report.welcome(options, "http://127.0.0.1:8000", str(Path("logs")))
    text = output.getvalue()
    assert "http://127.0.0.1:8000" in text
    assert "alice, bob (people), admin (admin)" in text
    assert options.password in text
    assert "2 x a100-80gb on simulated-a" in text
    assert "SIMULATED" in text
