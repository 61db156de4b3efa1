"""Run the demo, or its tour, from start to end: signals, messages, exit status."""

from __future__ import annotations

import asyncio
import signal
import time

from mig_spawner.demo.option import Options
from mig_spawner.demo.report import Report
from mig_spawner.demo.stack import Stack
from mig_spawner.demo.tour import Tour
from mig_spawner.errors import DemoFailed, MigSpawnerError
from mig_spawner.testing.process import cancelled

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(options: Options, *, check: bool) -> int:
    """Run until Ctrl-C, or until the tour has ended; the exit status: 0, or 1 if something went wrong."""
    report = Report()
    began = time.monotonic()
    try:
        ended_by_signal = asyncio.run(_run(options, report, check=check))
    except MigSpawnerError as error:
        report.fail(str(error))
        return 1
    if ended_by_signal:
        kept = "" if options.logs is None else f" Logs are in {options.logs}."
        report.say(f"Everything the demo started has ended, and its files are gone.{kept}")
        return 1 if check else 0
    report.say(f"All as it should be, in {time.monotonic() - began:.0f} s.")
    return 0


async def _run(options: Options, report: Report, *, check: bool) -> bool:
    """Whether a signal ended it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    work = asyncio.create_task(_tour(options, report) if check else _demo(options, report))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    await cancelled(stopped)
    if work.done():
        work.result()
        return False
    report.say("Stopping …")
    await cancelled(work)
    return True


async def _tour(options: Options, report: Report) -> None:
    async with Stack(options, report) as stack:
        tour, watch = asyncio.create_task(Tour(stack, report).run()), asyncio.create_task(stack.watch())
        try:
            done, _ = await asyncio.wait({tour, watch}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except DemoFailed as error:
            raise DemoFailed(f"{error}\n{stack.tails()}") from error
        finally:
            await cancelled(tour, watch)


async def _demo(options: Options, report: Report) -> None:
    async with Stack(options, report) as stack:
        report.welcome(options, stack.url, str(stack.workspace.logs))
        await stack.watch()
