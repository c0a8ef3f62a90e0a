"""Commands that look at runs and change nothing: list, show, log, diff, audit, inbox, team."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upcall import identity, signals
from upcall.errors import CallerError
from upcall.ui.cli.help import QUESTIONS, RUNS, SERVICE
from upcall.ui.cli.options import BASE_URL, CONFIG, DEBUG, MODEL, STORE, TEAM, USER, RunArgument, with_options
from upcall.ui.cli.run_command import RunCommand, run_options, work_options

if TYPE_CHECKING:
    from upcall.run_reader import RunReader
    from upcall.runs.run import Run
    from upcall.runs.run_filter import RunFilter
    from upcall.runs.run_page import RunPage

PAGE_SIZE = 50
"""How many runs `upcall list` prints at once."""

app = typer.Typer()


@app.command("list", rich_help_panel=RUNS, epilog="Example: upcall list --status failed --newer-than 2d")
@run_options
def list_runs(
    command: RunCommand,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="At most this many; 0 for all [50; all with --json].")
    ] = None,
    before: Annotated[str | None, typer.Option(metavar="RUN", help="Only the runs after this one in the list.")] = None,
    status: Annotated[list[str] | None, typer.Option(help="Only runs with this status; repeatable.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only runs that this user started.")] = None,
    text: Annotated[str | None, typer.Option(help="Only runs with this text in their task.")] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs in which this agent worked or asked.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only runs that have not changed for this long: 30d, 12h, 90m.")
    ] = None,
    newer_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only runs that have changed within this time.")
    ] = None,
) -> None:
    """List the stored runs, newest first. Damaged runs are marked."""
    with command:
        from upcall.runs.run_filter import parse_filter
        from upcall.ui.listings import list_runs as rows
        from upcall.ui.listings import note_holds, note_interrupted, sort_runs

        only = parse_filter(
            statuses=status or (),
            owner=owner,
            text=text,
            agent=agent,
            older_than=older_than,
            newer_than=newer_than,
            now=identity.now(),
        )
        most = limit if limit is not None else None if command.as_json else PAGE_SIZE
        page = signals.run(_read_page(command.reader, most or None, before, only))
        runs = sort_runs(page)
        command.print([each.as_json() for each in runs], lambda: rows(page))
        if not runs and not command.as_json:
            command.note_empty("No runs")
        if not command.as_json and (lines := note_interrupted(page, command.program)):
            command.screen.note("\n".join(lines))
        if not command.as_json:
            note_holds(command.screen, signals.run(command.reader.holds.list()))
        if page.next is not None and not command.as_json:
            chosen = [each for name in status or () for each in ("--status", name)]
            for name, value in (
                ("owner", owner),
                ("text", text),
                ("agent", agent),
                ("older-than", older_than),
                ("newer-than", newer_than),
            ):
                chosen += [f"--{name}", value] if value else []
            command.screen.note(f"Older ones:\n{command.program.command('list', *chosen, '--before', page.next)}")


async def _read_page(reader: RunReader, limit: int | None, before: str | None, only: RunFilter) -> RunPage:
    """Read a page of a list, however far apart the runs are that a filter lets through."""
    page = await reader.list(limit=limit, before=before, only=only)
    while limit is not None and page.next is not None and (left := limit - len(page) - len(page.damaged)) > 0:
        more = await reader.list(limit=left, before=page.next, only=only)
        page.extend(more)
        page.damaged, page.next = [*page.damaged, *more.damaged], more.next
    return page


@app.command(rich_help_panel=QUESTIONS, epilog="Example: upcall plans --delete 3f2a9c")
@run_options
def plans(
    command: RunCommand,
    delete: Annotated[str | None, typer.Option(metavar="RUN", help="Forget the plan you approved in this run.")] = None,
) -> None:
    """List the plans you approved, which are offered again for similar tasks."""
    with command:
        if delete is not None:
            gone = signals.run(command.app.plans.delete(delete))
            command.print(gone.as_json(), lambda: [f"Forgotten: {gone.plan.title} (run {gone.run_id})"])
            return
        kept = signals.run(command.app.plans.list())
        command.print(
            [each.as_json() for each in kept],
            lambda: [f"{each.run_id}  {each.plan.title}: {each.as_line()}" for each in kept],
        )
        if not kept and not command.as_json:
            command.note_empty("No plans")


@app.command(rich_help_panel=RUNS, epilog="Example: upcall show 3f2a9c --tree")
@run_options
def show(
    command: RunCommand,
    run_id: RunArgument,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the run's timeline into this file; - is standard output.")
    ] = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Show the run's agents and questions as a tree; with --svg as a picture.")
    ] = False,
) -> None:
    """Show or draw a run: plan, answers, timeline, cost, open questions, result."""
    with command:
        found = signals.run(command.reader.get(run_id))
        if svg is not None:
            _write_picture(command, _draw_run(command, found, tree=tree), svg)
        elif command.as_json:
            command.print_json(found.as_json())
        elif tree:
            from upcall.ui.diagrams import tree_lines

            command.screen.result("\n".join(tree_lines(found)))
        else:
            _print_report(command, found)


def _print_report(command: RunCommand, run: Run) -> None:
    from upcall.execution.prices import Prices
    from upcall.ui.run_report import report

    log = signals.run(command.reader.log.visible(run.id))
    prices = Prices.of(command.reader.settings, run)
    command.screen.result("\n".join(report(run, log, prices, command.screen.report_width, command.program.complete)))
    if run.questions and not run.is_final:
        command.print_pending(run)


def _draw_run(command: RunCommand, run: Run, *, tree: bool) -> str:
    from upcall.ui import diagrams

    return diagrams.tree(run) if tree else diagrams.timeline(run, signals.run(command.reader.log.call_timings(run.id)))


def _write_picture(command: RunCommand, picture: str, file: Path) -> None:
    if str(file) == "-":
        sys.stdout.buffer.write(picture.encode())  # SVG is UTF-8, whatever the terminal has.
        sys.stdout.flush()
        return
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise CallerError(f"Cannot write the picture to {file} ({error.strerror}). Name another file.") from error
    command.screen.note(f"Drawn: {file}")


@app.command(rich_help_panel=RUNS, epilog="Example: upcall log 3f2a9c --diff")
@run_options
def log(
    command: RunCommand,
    run_id: RunArgument,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes to files, line by line.")] = False,
) -> None:
    """Show the history of a run, oldest first: what happened when, and who did it."""
    with command:
        from upcall.ui.listings import list_log

        entries = signals.run(command.reader.log.entries(run_id))
        command.print([each.as_json() for each in entries], lambda: list_log(entries, with_diffs=diff))


@app.command(rich_help_panel=RUNS, epilog="Example: upcall transcript 3f2a9c --agent coder")
@run_options
def transcript(
    command: RunCommand,
    run_id: RunArgument,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only this agent: coder, or lead/coder.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print it as Markdown.")] = False,
) -> None:
    """Show what the agents of a run wrote and did: messages, tool calls, results, questions and answers."""
    with command:
        from upcall.ui.transcript_text import transcript_lines, transcript_markdown

        found = signals.run(command.reader.log.transcript(run_id))
        kept = found.of_agent(agent) if agent is not None else found
        if agent is not None and found.entries and not kept.entries:
            raise CallerError(f"Agent {agent!r} is not in this transcript. Agents: {', '.join(found.list_agents())}.")
        if not found.entries and not command.as_json:
            command.screen.note(f"Run {found.run_id} has no transcript so far.")
        elif markdown and not command.as_json:
            command.screen.result(transcript_markdown(kept).rstrip())
        else:
            command.print(kept.as_json(), lambda: transcript_lines(kept))


@app.command(rich_help_panel=RUNS, epilog="Example: upcall diff 3f2a9c b71e04")
@with_options(RunCommand, STORE, CONFIG, USER, DEBUG)
def diff(
    command: RunCommand,
    one: RunArgument,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other run's id, or its first characters.")],
) -> None:
    """Show where two branches of a run diverge, and how each continued."""
    with command:
        command.screen.result("\n".join(signals.run(command.app.forks.diff(one, other))))


@app.command(rich_help_panel=SERVICE, epilog="Example: upcall audit 3f2a9c")
@run_options
def audit(
    command: RunCommand,
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this run [all of yours].")] = None,
    after: Annotated[int, typer.Option(metavar="N", help="Only entries after this number.")] = 0,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most this many entries [all].")] = None,
) -> None:
    """Show who did what, and who was refused, oldest first."""
    with command:
        from upcall.ui.listings import list_audit

        entries = signals.run(command.reader.log.audit(run_id, after=after, limit=limit))
        command.print([each.as_json() for each in entries], lambda: list_audit(entries))


@app.command(rich_help_panel=QUESTIONS, epilog="Example: upcall inbox --watch")
@work_options
def inbox(
    command: RunCommand,
    watch: Annotated[bool, typer.Option("--watch", help="Wait for new questions, until Ctrl-C.")] = False,
) -> None:
    """List the open questions that you may answer, of all runs, oldest first. On a terminal, choose one to answer."""
    with command:
        from upcall.ui.terminal.inbox import Inbox

        if watch and command.as_json:
            raise CallerError("--watch prints lines as things happen and has no --json; leave one of them out.")
        opened = Inbox(
            command.screen, command.reader.inbox, command.program, lambda: command.note_empty("No open questions")
        )
        if command.is_interactive and sys.stdout.isatty():
            opened.choose_and_answer(command.answer_here, watch=watch)
        elif watch:
            command.is_watching = True
            signals.run(opened.watch())
        elif command.as_json:
            entries = signals.run(command.reader.inbox())
            for damaged in entries.damaged:
                command.screen.error(damaged.problem)
            command.print_json([each.as_json() for each in entries])
        else:
            from upcall.ui.listings import note_holds, note_interrupted

            opened.print_all()
            note_holds(command.screen, signals.run(command.reader.holds.list()))
            if lines := note_interrupted(signals.run(command.reader.list(limit=PAGE_SIZE)), command.program):
                command.screen.note("\n".join(lines))


@app.command(rich_help_panel=RUNS, epilog="Example: upcall team --tree")
@with_options(RunCommand, TEAM, MODEL, BASE_URL, CONFIG, DEBUG)
def team(
    command: RunCommand,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the team into this SVG file instead.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Print the team as a text tree instead.")] = False,
) -> None:
    """Show the team that the settings define, as a Mermaid diagram, a text tree, or an SVG."""
    with command:
        from upcall.ui import diagrams

        root = command.app.team.build()
        if svg is None:
            text = "\n".join(diagrams.team_lines(root)) if tree else diagrams.team_mermaid(root).rstrip()
            command.screen.result(text)
        else:
            _write_picture(command, diagrams.team_svg(root), svg)
