"""Consent: risks are asked of the human as a risk confirmation, and only its own option allows them.

The question names the act and its object, the options the outcome. A yes holds for one exact subject: the digest of a
whole change or of a command belongs to the question, and another one is asked about again. What was allowed for a whole
run is read from the run's stored answers to our own questions, never from what an agent can write: a model sets neither
what a question is about nor the tool that it is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from upcall.autogen.known_answers import list_answered
from upcall.lazy_pattern import LazyPattern
from upcall.questions.approval import NOTHING_DONE, OR_WHY, explain_refusal, find_choice
from upcall.questions.question import ConsentSubject, Option, Side
from upcall.questions.record import Answered
from upcall.questions.tool_context import ask_consent, was_asked
from upcall.sandboxes.egress_proxy import NetworkAccess
from upcall.text import MAX_NAME_CHARS, Shown, list_names, quote, show_name
from upcall.workspace.effects import FileEffect, Finding, ProposedChange

MAX_SHOWN = 3_000
"""A longer command is not asked of the human: nobody would read it, and nobody can consent to what is not shown."""

MAX_CONTEXT_SHOWN = 3_700
MAX_NAMES_SHOWN = 8
MAX_NAME_SHOWN = 50
MAX_REASONS_SHOWN = 3

_ONCE, _RUN, _NO = "consent:once", "consent:run", "consent:deny"

Grant: TypeAlias = tuple[str, ...]
"""What the human allowed for a run: an effect, the folder and a path in it, or an act and the digest of the exact
command."""

_NETWORK, _COMMAND, _CHANGE = "network", "command", "change"
_WORDS = LazyPattern(r"[\w./:@%+,=-]+(?: [\w./:@%+,=-]+)*", re.ASCII)
"""A command line with nothing for a shell to interpret: words separated by spaces."""

_DOES: Mapping[FileEffect, str] = {
    FileEffect.RUNS_LATER: "It would run or be obeyed later, outside of the sandbox",
    FileEffect.DELETE: "It deletes what this run did not make",
    FileEffect.REPLACE: "It replaces what this run did not make by another kind of thing",
    FileEffect.OVERWRITE: "It overwrites what this run did not make",
    FileEffect.PERMISSIONS: "It changes the permissions of what this run did not make",
}
_VERBS: Mapping[FileEffect, str] = {
    FileEffect.RUNS_LATER: "write",
    FileEffect.DELETE: "delete",
    FileEffect.REPLACE: "replace",
    FileEffect.OVERWRITE: "overwrite",
    FileEffect.PERMISSIONS: "change",
}
_DOING: Mapping[FileEffect, str] = {
    FileEffect.DELETE: "deleting",
    FileEffect.REPLACE: "replacing",
    FileEffect.OVERWRITE: "overwriting",
    FileEffect.PERMISSIONS: "changing the permissions of",
}
"""What can be allowed for a whole run, for one path each. What would run later needs consent each time."""

_SETTINGS: Mapping[FileEffect, str] = {
    FileEffect.DELETE: "delete",
    FileEffect.REPLACE: "delete",
    FileEffect.OVERWRITE: "overwrite",
    FileEffect.PERMISSIONS: "overwrite",
}
"""The value of the setting ``allow_changes`` that allows an effect."""


class ConsentDenied(ValueError):
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
        self._request_exactly(_COMMAND, f"this {what}", text, why)

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
            why += f" It was started {times} before and cut off. What it did there is unknown, and it would run again."
        self._request_exactly(_NETWORK, f"this {what} with the network", text, why, once=begun > 0)
        return access

    def request_changes(self, change: ProposedChange, text: str, diff: str, whole: Path | None = None) -> None:
        """Get consent to what a command changed, or to what a file tool is about to change.

        Args:
            change: the whole change, of which nothing is made yet.
            text: the command; empty for a file tool.
            diff: the lines of the findings, which the file `whole` contains too.
            whole: where the human finds all of the change.

        Raises:
            Denied: it is not allowed.
            UserInputRequired: the question must be asked.
        """
        granted = list_grants(list_answered())
        left = [each for each in change.findings if not self._allows(each, change.folder, granted)]
        if not left:
            return
        asked = {each.path for each in left}
        others = dict.fromkeys([*change.others, *(each.path for each in change.findings if each.path not in asked)])
        why = "\n".join([*_explain(left), *_list_others([*others])])
        context = f"{why}\n{_show(diff, MAX_CONTEXT_SHOWN - len(why), whole)}"
        question = _name_acts(left) + (f"\n{_show(text, MAX_SHOWN)}" if text else "")
        grants = _list_run_grants(left, change.folder)
        effects = sorted((each.path, each.effect, each.kept, each.why) for each in left)
        subject = ConsentSubject(act=_CHANGE, subject=_digest(json.dumps([change.digest, effects])), grants=grants)
        _put(question, _list_options(left, grants), context, subject, _NOTHING_CHANGED)

    def _allows(self, finding: Finding, folder: str, granted: Collection[Grant]) -> bool:
        if not finding.kept or finding.effect not in _DOING:
            return False
        by_run = (finding.effect.value, folder, finding.path) in granted
        return by_run or _SETTINGS[finding.effect] in self.allow_changes

    def _request_exactly(self, act: str, what: str, text: str, why: str, *, once: bool = False) -> None:
        grant = (act, _digest(text))
        if grant in list_grants(list_answered()) and not once:
            return
        shown = quote(text)
        if len(shown) > MAX_SHOWN:
            raise ConsentDenied(
                f"This needs the user's consent, but is too long to be shown ({len(shown)} characters, at most "
                f"{MAX_SHOWN}). Nothing was done. Do it in smaller steps."
            )
        for_run = f"Yes, and don't ask again for exactly {what} in this run"
        options = [
            Option(label="Yes, run it", id=_ONCE, side=Side.YES),
            *([] if once else [Option(label=for_run, id=_RUN)]),
            Option(label="No, do not run it", id=_NO, description=OR_WHY, side=Side.NO),
        ]
        subject = ConsentSubject(act=act, subject=_digest(json.dumps([text, why])), grants=() if once else (grant,))
        _put(f"Run {what}?\n{shown}", options, why, subject, NOTHING_DONE)


def was_begun() -> bool:
    """Return whether the call that runs was asked about its changes before: so its command has been run."""
    return was_asked(_CHANGE)


def list_grants(answered: Iterable[Answered]) -> frozenset[Grant]:
    """List what the human has allowed for a whole run, by the answers of that run."""
    found: set[Grant] = set()
    for question, answer in answered:
        # No model can set `tool` or `consent`: its imitation of our question grants nothing.
        if question.tool is not None and question.is_risk and question.consent is not None:
            chosen = find_choice(answer, question.options)
            found.update(question.consent.grants if chosen is not None and chosen.id == _RUN else ())
    return frozenset(found)


_NOTHING_CHANGED = "Nothing was changed: the workspace is as it was before."


def _put(question: str, options: Sequence[Option], context: str, subject: ConsentSubject, refusal: str) -> None:
    answer = ask_consent(question, options, subject, context=context)
    chosen = find_choice(answer, options)
    if chosen is None or chosen.side is Side.NO:
        raise ConsentDenied(explain_refusal(answer, refusal, options))


# -- the words --------------------------------------------------------------------------------------------------------


def _name_acts(findings: Sequence[Finding]) -> str:
    """Ask for all of it in one line: ``Delete 3 files and overwrite config.yaml?``"""
    later = {each.path for each in findings if each.effect is FileEffect.RUNS_LATER}
    parts = []
    for effect in FileEffect:
        of_it = [each for each in findings if each.effect is effect]
        of_it = of_it if effect is FileEffect.RUNS_LATER else [each for each in of_it if each.path not in later]
        if of_it:
            object_ = _name_objects(of_it)
            what = f"the permissions of {object_}" if effect is FileEffect.PERMISSIONS else object_
            tail = ", which other programs act on later" if effect is FileEffect.RUNS_LATER else ""
            parts.append(f"{_VERBS[effect]} {what}{tail}")
    asked = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    return f"{asked[0].upper()}{asked[1:]}?"


def _name_objects(findings: Sequence[Finding]) -> str:
    """Name one thing, count several; what is in a folder among them goes with it."""
    tops = _list_tops(findings)
    inside = len(tops) < len(findings)
    if len(tops) == 1:
        name = show_name(tops[0].path)
        return f"the folder {name} and what is in it" if inside else name
    return f"{len(tops)} {_name_kinds(tops)}" + (" with what is in them" if inside else "")


def _list_tops(findings: Sequence[Finding]) -> list[Finding]:
    folders = {each.path for each in findings if each.kind == "folder"}
    return [each for each in findings if folders.isdisjoint(map(str, list(Path(each.path).parents)[:-1]))]


def _name_kinds(findings: Iterable[Finding]) -> str:
    return " and ".join(sorted({f"{each.kind}s" for each in findings}))


def _list_options(findings: Sequence[Finding], grants: Collection[Grant]) -> list[Option]:
    effects = {each.effect for each in findings}
    tops = _list_tops(list({each.path: each for each in findings}.values()))
    one = len(tops) == 1
    verbs = " and ".join(_VERBS[each] for each in FileEffect if each in effects)
    if effects == {FileEffect.DELETE}:
        no = f"keep the {tops[0].kind if one else _name_kinds(tops)}"
    elif effects == {FileEffect.RUNS_LATER}:
        no = f"do not write {'it' if one else 'them'}"
    elif effects <= {FileEffect.REPLACE, FileEffect.OVERWRITE, FileEffect.PERMISSIONS}:
        no = "leave it as it is" if one else "leave them as they are"
    else:
        no = "change nothing"
    return [
        Option(label=f"Yes, {verbs} {'it' if one else 'them'}", id=_ONCE, side=Side.YES),
        *([_offer_run(findings)] if grants else []),
        Option(label=f"No, {no}", id=_NO, description=f"None of this change is made. {OR_WHY}", side=Side.NO),
    ]


def _offer_run(findings: Sequence[Finding]) -> Option:
    """Offer to allow the same acts on the same paths for the whole run, and say which."""
    doing = [f"{_DOING[each.effect]} {show_name(each.path)}" for each in findings]
    holds = "whatever is in it then, and whichever agent of this run does it"
    if len(doing) == 1:
        label = f"Yes, and don't ask again about {doing[0]} in this run"
        return Option(label=label, id=_RUN, description=f"{holds[0].upper()}{holds[1:]}.")
    label = f"Yes, and don't ask again about these {len(doing)} in this run"
    return Option(label=label, id=_RUN, description=f"About {', '.join(doing)}: {holds}.")


def _list_run_grants(findings: Sequence[Finding], folder: str) -> tuple[Grant, ...]:
    """List what may be allowed for the run: nothing, unless each of it can be named whole."""
    named = len(findings) <= MAX_NAMES_SHOWN and all(
        len(show_name(each.path, 10_000)) <= MAX_NAME_CHARS for each in findings
    )
    if not named or not all(each.kept and each.effect in _DOING for each in findings):
        return ()
    return tuple((each.effect.value, folder, each.path) for each in findings)


def _explain(findings: Sequence[Finding]) -> Iterator[str]:
    for effect in FileEffect:
        of_it = [each for each in findings if each.effect is effect]
        reasons = list(dict.fromkeys(each.why for each in of_it if each.why))[:MAX_REASONS_SHOWN]
        if of_it:
            why = f" ({'; '.join(reasons)})" if reasons else ""
            yield f"{_DOES[effect]}: {_list_paths(each.path for each in of_it)}{why}."
    if lost := [each.path for each in findings if not each.kept]:
        yield f"This cannot be undone, because it is too large to be kept: {_list_paths(dict.fromkeys(lost))}."


def _list_others(paths: Sequence[str]) -> Iterator[str]:
    if paths:
        yield f"It also makes changes that need no consent of their own: {_list_paths(paths)}."


def _list_paths(paths: Iterable[str]) -> Shown:
    return list_names([show_name(each, MAX_NAME_SHOWN) for each in paths], MAX_NAMES_SHOWN)


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
