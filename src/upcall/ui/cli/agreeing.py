"""How a person agrees to a settings file that was found: asked in place on a terminal, or by ``upcall trust``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from upcall.agreements import TrustDecision, UnagreedSettings, find_agreement, show_path, store_agreement
from upcall.ui.cli.command import Command
from upcall.ui.settings_report import describe_settings

if TYPE_CHECKING:
    from upcall.settings import Settings
    from upcall.settings_files import SettingsFile
    from upcall.ui.terminal.screen import Screen

_ANSWERS: dict[str, TrustDecision] = {"y": "trust", "yes": "trust", "i": "ignore", "ignore": "ignore"}


def read_settings(command: Command, config: Path | None = None, **explicit: Any) -> Settings:
    """Read the settings for a command; on a terminal, ask about files in the current folder that nobody has agreed to.

    Raises:
        UnagreedSettings: there is nobody to ask, or they do not agree.
    """
    from upcall.settings import Settings

    try:
        return Settings.read(config, **explicit)
    except UnagreedSettings as found:
        if not command.is_interactive:
            raise
        for file in found.files:
            if (decision := ask_about(command.screen, file)) is None:
                raise
            store_agreement(file, decision)
    return Settings.read(config, **explicit)  # One that was changed in between is an error now.


def describe_decision(decision: TrustDecision) -> str:
    """Describe what becomes of a file."""
    return f"{'used' if decision == 'trust' else 'left out'} until it changes"


def show_file(screen: Screen, file: SettingsFile) -> None:
    """Show what a file sets, and what is new since an earlier decision."""
    earlier = find_agreement(file.path)
    screen.note(f"{show_path(file.path)} sets for upcall:", "bold")
    for line in describe_settings(file):
        screen.print_whole(line, "yellow" if line.startswith("  ->") else "")
    if earlier is None:
        screen.note("A command or a download can have written it, so it is used only once you agree.")
    elif not earlier.covers(file):
        screen.note(f"Changed since you decided about it ({earlier.describe_changes(file)}).", "yellow")
    else:
        screen.note(f"You decided about it already: it is {describe_decision(earlier.decision)}.")


def ask_about(screen: Screen, file: SettingsFile) -> TrustDecision | None:
    """Ask a person at the terminal about a file; None if they do not decide. What was typed before counts for nothing.

    Raises:
        EOFError, KeyboardInterrupt: they stopped.
    """
    from upcall.ui.terminal.asking import forget_typed_keys, read_line

    screen.settle()
    show_file(screen, file)
    forget_typed_keys()
    screen.prompt("Use these settings? yes, ignore (the file, from now on), or Enter for no: ")
    return _ANSWERS.get(read_line().strip().lower())
