"""Consent: what is risky is put to the human as a risk confirmation, and only the option itself allows it.

What was allowed for a whole run is read from the run's stored answers to our own questions, never from what an agent
can write: the ids of options, and the tool that a question is asked for, are not a model's to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from upcall.policy.resolver import Answered, is_risk, list_answered
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import ClarificationType, Option
from upcall.questions.tool_context import ask
from upcall.text import QUOTE_MARK, escape_controls, shorten
from upcall.workspace.command_lines import COMMAND, DELETE, NETWORK, Risk, is_allowed, risks, uses_network

ALLOW_ONCE, ALLOW_KIND, DENY = "Allow once", "Allow this kind in this run", "Do not allow"

MAX_SHOWN = 3_000
"""A command that is longer is not put: nobody would read it, and what is not shown cannot be consented to."""

MAX_KINDS = 10
"""What is risky about one command in more ways is not allowed by its kinds: nobody would read them."""

_ONCE, _KIND, _DENY = "consent:once", "consent:run:", "consent:deny"


class Denied(ValueError):
    """The human did not allow it. The text is for the model, with the human's reason."""


class Consent:
    """Who may do what in one workspace.

    Args:
        folder: the workspace.
        isolated: whether commands run in a sandbox. Then only what leaves it or destroys work is asked about, else all
            that is not on a short list of programs that only read.
        network: whether a command can be given the network at all; where it cannot, that is not asked about.
        rules: what is allowed beforehand: programs, perhaps with their first words (``git push``).
    """

    def __init__(self, folder: Path, *, isolated: bool, network: bool = True, rules: Sequence[str] = ()) -> None:
        self._folder, self._isolated, self._network, self._rules = folder, isolated, network, tuple(rules)

    def to_command(self, line: str, *, network: bool = False) -> bool:
        """Have consent to run a command line; `network` says that it asks for the network. Gives whether it is to have
        that.

        Raises:
            Denied: it is not allowed.
            UserInputRequired: the question is to be put.
        """
        found = risks(line, self._folder, isolated=self._isolated, rules=self._rules)
        needs = self._network and (network or uses_network(line))
        if not self._network:
            found = [risk for risk in found if risk.kind != NETWORK]
        elif network and not any(risk.kind == NETWORK for risk in found):
            found.append(Risk(NETWORK, ("any program",)))
        self._have("Run this command?", line, found)
        return needs

    def to_python(self, code: str, *, network: bool = False) -> bool:
        """Have consent to run Python code, as `to_command`."""
        found = [] if self._isolated or is_allowed(("python",), self._rules) else [Risk(COMMAND, ("python",))]
        if network and self._network:
            found.append(Risk(NETWORK, ("any program",)))
        self._have("Run this Python code?", code, found)
        return network and self._network

    async def confirm(self, kind: str, subject: str, detail: str = "") -> None:
        """Have consent to something else that a tool is about to do: ``delete`` a file, its path as the subject, and a
        diff as the detail. An allow rule for ``rm`` covers deleting.

        Raises:
            Denied: it is not allowed.
            UserInputRequired: the question is to be put.
        """
        risk = Risk(kind, ("rm",) if kind == DELETE else (kind,))
        if not is_allowed(risk.words, self._rules):
            self._have(f"{kind.capitalize()} this?", subject, [risk], detail)

    def _have(self, question: str, subject: str, found: Sequence[Risk], detail: str = "") -> None:
        left = [risk for risk in found if risk not in granted(list_answered())]
        if not left:
            return
        shown = _quoted(subject)
        if len(shown) > MAX_SHOWN:
            raise Denied(
                f"This needs the user's consent and is too long to be shown for that ({len(shown)} characters, at most "
                f"{MAX_SHOWN}). Nothing was done. Do it in smaller steps."
            )
        where = "" if self._isolated else " It runs without a sandbox, with all your rights."
        more = f" and {len(left) - MAX_KINDS} more" if len(left) > MAX_KINDS else ""
        why = f"It {', '.join(map(str, left[:MAX_KINDS]))}{more}.{where}"
        answer = ask(
            f"{question}\n{shown}",
            list(_options(left)),
            context=f"{why}\n{_begin(_quoted(detail))}" if detail else why,
            clarification_type=ClarificationType.RISK_CONFIRMATION,
        )
        if _chosen(answer) not in (ALLOW_ONCE, ALLOW_KIND):
            raise Denied(_refusal(answer))


def granted(answered: Iterable[Answered]) -> frozenset[Risk]:
    """What the human has allowed for a whole run, by the answers of that run."""
    found: set[Risk] = set()
    for question, answer in answered:
        if question.tool is not None and is_risk(question) and _chosen(answer) == ALLOW_KIND:
            ids = [option.id or "" for option in question.options if option.label == ALLOW_KIND]
            for each in ids:
                if each.startswith(_KIND):
                    found.update(Risk(kind, tuple(words)) for kind, words in json.loads(each.removeprefix(_KIND)))
    return frozenset(found)


def _chosen(answer: Answer) -> str | None:
    """The one option that the human chose, with nothing else said; any text beside it is no plain yes."""
    plain = answer.outcome is Outcome.ANSWERED and answer.by is AnsweredBy.HUMAN and len(answer.selected) == 1
    return answer.selected[0] if plain and answer.text == answer.selected[0] else None


def _options(left: Sequence[Risk]) -> Iterator[Option]:
    yield Option(label=ALLOW_ONCE, id=_ONCE)
    if all(risk.words for risk in left) and len(left) <= MAX_KINDS:
        named = ", ".join(f"{_verb(risk)} {' '.join(risk.words)}".strip() for risk in left)
        kinds = json.dumps([(risk.kind, risk.words) for risk in left])
        yield Option(label=ALLOW_KIND, id=f"{_KIND}{kinds}", description=f"All agents of this run: {named}")
    yield Option(label=DENY, id=_DENY, description="Or say in your own words why not; the agent is told.")


def _verb(risk: Risk) -> str:
    return {DELETE: "deleting with", NETWORK: "the network for", COMMAND: "running"}.get(risk.kind, "")


def _refusal(answer: Answer) -> str:
    if answer.outcome is not Outcome.ANSWERED:
        return f"Not allowed, and nothing was done. {answer.as_text()}"
    reason = answer.text.removeprefix(DENY).strip(" ,.:;") if answer.by is AnsweredBy.HUMAN else ""
    end = "" if reason.endswith(("!", "?")) else "."
    said = f" They said: {reason}{end}" if reason else ""
    return (
        f"The user did not allow this, and nothing was done.{said} Do not do the same in another way; go on without "
        "it, or say in your report what stays open."
    )


def _quoted(text: str) -> str:
    """The text as a human is shown it: each line marked, so that none passes for ours, and nothing that is unseen."""
    return "\n".join(f"{QUOTE_MARK}{line}" for line in escape_controls(text, unseen=True).split("\n"))


def _begin(text: str) -> str:
    """The beginning of a long text, with a digest of the whole: another text is another question."""
    digest = blake2b(text.encode(), digest_size=6).hexdigest()
    return shorten(text, MAX_SHOWN, f"\n[... {{left}} more characters; digest of all: {digest}]")
