"""Consent: risks are put to the human as a risk confirmation, and only its own option allows them.

What was allowed for a whole run is read from the run's stored answers to our own questions, never from what an agent
can write: a model controls neither the ids of options nor the tool that a question is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from upcall.policy.resolver import Answered, list_answered
from upcall.questions.approval import NOT_DONE, explain_refusal, find_choice
from upcall.questions.question import ClarificationType, Option
from upcall.questions.tool_context import ask
from upcall.text import escape_controls, quote
from upcall.workspace.effects import Effect, Finding
from upcall.workspace.sandboxes.proxy import NetworkAccess

ALLOW, ALLOW_AGAIN, DENY = "Allow once", "Allow exactly this in this run", "Do not allow"
KEEP, KEEP_KIND, DISCARD = "Keep it", "Keep this kind in this run", "Throw it away"

MAX_SHOWN = 3_000
"""A longer command is not put to the human: nobody would read it, and nobody can consent to what is not shown."""

MAX_CONTEXT_SHOWN = 3_800
MAX_NAMES_SHOWN = 8
MAX_NAME_SHOWN = 60
MAX_REASONS_SHOWN = 3

_ONCE, _RUN, _NO = "consent:once", "consent:run:", "consent:deny"
_GRANTING, _PLAIN = frozenset({ALLOW, ALLOW_AGAIN, KEEP, KEEP_KIND}), frozenset({ALLOW_AGAIN, KEEP_KIND})

Grant: TypeAlias = tuple[str, ...]
"""What the human allowed for a run: an effect, or an act and the digest of the exact command."""

_NETWORK, _COMMAND = "network", "command"
_WORDS = re.compile(r"[\w./:@%+,=-]+(?: [\w./:@%+,=-]+)*", re.ASCII)
"""A command line with nothing for a shell to interpret: words separated by spaces."""

_DOES = {
    Effect.OVERWRITE: "overwrites what this run did not make",
    Effect.DELETE: "deletes what this run did not make",
    Effect.RUNS_LATER: "puts in what would run later, outside of the sandbox",
    Effect.NO_UNDO: "takes away what is too large to be brought back by an undo",
}


class Denied(ValueError):
    """The human did not allow it. The text is for the model, with the human's reason."""


@dataclass(frozen=True)
class Consent:
    """Who may do what in one workspace.

    Attributes:
        allow_commands: command lines that need no consent before they run, each matched exactly.
        allow_changes: effects that need no consent afterwards: ``overwrite``, ``delete``.
        network_hosts: hosts that a command may reach without consent; if there are any, no others are asked for.
    """

    allow_commands: Collection[str] = ()
    allow_changes: Collection[str] = ()
    network_hosts: Sequence[str] = ()

    def list_arguments(self, line: str) -> list[str] | None:
        """Return the arguments of a command that the settings allow: it runs as it is, without a shell.

        None for any other. The settings must allow the whole line, word for word.
        """
        plain = line.strip()
        return plain.split(" ") if _WORDS.fullmatch(plain) and plain in self.allow_commands else None

    def request_command(self, text: str, what: str = "command") -> None:
        """Get consent to run a command, or Python code, without a sandbox.

        Raises:
            Denied: it is not allowed.
            UserInputRequired: the question must be asked.
        """
        why = "It runs without a sandbox, with all your rights. What it changes in files is not recorded."
        self._request_exactly(_COMMAND, f"Run this {what}?", text, why)

    def request_network(self, text: str, what: str = "command", *, begun: int = 0) -> NetworkAccess:
        """Return the network access of one exact command, or Python code, with consent if it needs any.

        `begun`: how often it was started before and cut off. What it did out there is then unknown, and what was
        allowed for the run does not count.

        Raises:
            Denied: it is not allowed.
            UserInputRequired: the question must be asked.
        """
        allowed = what == "command" and self.list_arguments(text) is not None
        access = NetworkAccess(self.network_hosts, public=allowed or not self.network_hosts)
        if not begun and (allowed or access.hosts):
            return access
        reached = ", ".join([*access.hosts, *(["any host of the public internet"] if access.public else [])])
        why = f"It asks for the network. It could reach {reached}, and send what is in the workspace there."
        if begun:
            times = "once" if begun == 1 else f"{begun} times"
            why += f" It was begun {times} before and cut off: what it did there is not known, and it would run again."
        self._request_exactly(_NETWORK, f"Run this {what} with the network?", text, why, once=begun > 0)
        return access

    def request_changes(self, text: str, findings: Sequence[Finding], diff: str, whole: Path | None = None) -> None:
        """Get consent to keep what a command changed, or to what a file tool is about to change.

        `text` is what makes the change, `diff` the lines of the findings, which the file `whole` contains too.

        Raises:
            Denied: it is not allowed.
            UserInputRequired: the question must be asked.
        """
        granted = {effect for effect, *_ in list_grants(list_answered())} | {*self.allow_changes}
        left = [each for each in findings if each.effect.value not in granted or each.effect not in _KINDS]
        if not left:
            return
        kinds = sorted({each.effect for each in left})
        options = [Option(label=KEEP, id=_ONCE)]
        if set(kinds) <= _KINDS:
            named = " and ".join(_DOES[each] for each in kinds)
            grants = json.dumps([[each.value] for each in kinds])
            description = f"From all agents of this run, whatever command {named}."
            options.append(Option(label=KEEP_KIND, id=f"{_RUN}{grants}", description=description))
        options.append(Option(label=DISCARD, id=_NO, description="Or say in your own words why; the agent is told."))
        why = "\n".join(_explain(left))
        context = f"{why}\n{_show(diff, MAX_CONTEXT_SHOWN - len(why), whole)}"
        _put(f"Keep what this changes?\n{_show(text, MAX_SHOWN)}", options, context, _THROWN_AWAY)

    def _request_exactly(self, act: str, question: str, text: str, why: str, *, once: bool = False) -> None:
        grant = (act, _digest(text))
        if grant in list_grants(list_answered()) and not once:
            return
        shown = quote(text)
        if len(shown) > MAX_SHOWN:
            raise Denied(
                f"This needs the user's consent and is too long to be shown for that ({len(shown)} characters, at most "
                f"{MAX_SHOWN}). Nothing was done. Do it in smaller steps."
            )
        options = [Option(label=ALLOW, id=_ONCE)]
        if not once:
            options.append(Option(label=ALLOW_AGAIN, id=f"{_RUN}{json.dumps([grant])}"))
        options.append(Option(label=DENY, id=_NO, description="Or say in your own words why not; the agent is told."))
        _put(f"{question}\n{shown}", options, why)


_KINDS = frozenset({Effect.OVERWRITE, Effect.DELETE})
"""What can be allowed for a whole run. The others need consent each time."""


def list_grants(answered: Iterable[Answered]) -> frozenset[Grant]:
    """List what the human has allowed for a whole run, by the answers of that run."""
    found: set[Grant] = set()
    for question, answer in answered:
        # No model can set `tool`: its imitation of our question grants nothing.
        if question.tool is not None and question.is_risk and (chosen := find_choice(answer)) in _PLAIN:
            for option in question.options:
                if option.label == chosen and (option.id or "").startswith(_RUN):
                    found.update(map(tuple, json.loads((option.id or "").removeprefix(_RUN))))
    return frozenset(found)


_THROWN_AWAY = "What this changes was thrown away: the workspace is as it was before."


def _put(question: str, options: Sequence[Option], context: str, refusal: str = NOT_DONE) -> None:
    answer = ask(question, options, context=context, clarification_type=ClarificationType.RISK_CONFIRMATION)
    if find_choice(answer) not in _GRANTING:
        raise Denied(explain_refusal(answer, refusal, (DENY, DISCARD)))


def _explain(findings: Sequence[Finding]) -> Iterator[str]:
    for effect in Effect:
        of_it = [each for each in findings if each.effect is effect]
        named = [_shorten(each.path) for each in of_it[:MAX_NAMES_SHOWN]]
        more = [f"and {len(of_it) - MAX_NAMES_SHOWN} more"] if len(of_it) > MAX_NAMES_SHOWN else []
        reasons = list(dict.fromkeys(each.why for each in of_it if each.why))[:MAX_REASONS_SHOWN]
        if of_it:
            why = f" ({'; '.join(reasons)})" if reasons else ""
            yield f"It {_DOES[effect]}: {', '.join([*named, *more])}{why}."


def _shorten(path: str) -> str:
    shown = escape_controls(path, unseen=True)
    return shown if len(shown) <= MAX_NAME_SHOWN else f"{shown[:20]}[...]{shown[-35:]}"


def _show(text: str, most: int, whole: Path | None = None) -> str:
    """Quote a text, cut if it is long, with a digest of the whole: another text is another question."""
    shown = quote(text)
    if len(shown) <= most:
        return shown
    where = f"; all of it is in {whole}" if whole is not None else ""
    end = f"\n[... cut; digest of all: {_digest(text)}{where}]"
    return shown[: max(most - len(end), 0)] + end


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()
