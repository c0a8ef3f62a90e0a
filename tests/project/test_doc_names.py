"""Names that pages and docstrings put in code type are names of the code (`doc_names` says how they are looked up)."""

from __future__ import annotations

import pytest
from doc_names import explain_unknown, list_docstrings, list_files, list_pieces
from guests import list_guests
from places import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(list_guests(missing=True)) > 0, reason="The pages name the guests that were taken out."),
]

OF_OTHERS = (
    "docs/comparison.md",
    "docs/coming-from/langgraph.md",
    "docs/coming-from/agent-framework.md",
    "docs/coming-from/autogen-bugs.md",
    "CHANGELOG.md",
)
"""Pages about names of other frameworks, and of earlier versions."""

PAGES = [
    name for name in list_files() if name.endswith(".md") and name.startswith(("docs/", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
]
MODULES = [name for name in list_files() if name.endswith(".py")]


def test_names_in_pages_exist() -> None:
    pieces = [
        (f"{page}:{line}", piece)
        for page in PAGES
        if page not in OF_OTHERS
        for line, piece in list_pieces((ROOT / page).read_text())
    ]
    assert len(pieces) > 2000
    assert [f"{at}: `{piece}`: {problem}" for at, piece in pieces if (problem := explain_unknown(piece))] == []


def test_names_in_docstrings_exist() -> None:
    pieces = [
        (f"{module}:{start + line - 1}", piece)
        for module in MODULES
        for start, docstring in list_docstrings(ROOT / module)
        for line, piece in list_pieces(docstring)
    ]
    assert len(pieces) > 1000
    assert [f"{at}: `{piece}`: {problem}" for at, piece in pieces if (problem := explain_unknown(piece))] == []


@pytest.mark.parametrize(
    "piece",
    [
        "upcall.runs.nothing",
        "upcall.Nobody",
        "Upcall.keep",
        "Upcall.keep()",
        "app.log.nothing()",
        "app.nothing",
        "run.nothing",
        "Run.answers_of(question)",
        "NoSuchClass",
        "NoSuchClass.answer",
        "no_such_function",
        "no_such_function(run)",
        "list_nothing()",
        "NO_SUCH_CONSTANT",
        "internals.no_such_reach",
        "UPCALL_NOTHING",
        "UPCALL_MAIL__NOTHING",
        "upcall nothing",
        "upcall answer --nothing",
        "upcall store nothing",
        "upcall store export --detach",
        "--no-such-option",
        "src/upcall/nothing.py",
        "tests/nothing/",
        "runs/nothing.py",
        "docs/start.md::nothing",
        "tests/project/test_doc_names.py::test_nothing",
        "autogen_agentchat.agents.Nobody",
        "AssistantAgent.nothing",
    ],
)
def test_name_that_is_not_there_is_found(piece: str) -> None:
    assert explain_unknown(piece)


@pytest.mark.parametrize(
    "piece",
    [
        "upcall.runs.run",
        "Upcall.answer",
        "app.log.audit()",
        "run.questions[0].approval",
        "question.approval.arguments",
        "RunStatus",
        "walk_tree",
        "UPCALL_NOTIFICATIONS__MAIL__PASSWORD",
        "UPCALL_UPDATE_DOCS",
        "upcall answer RUN --decline ID",
        "upcall store export RUN",
        "--detach",
        "tests/support",
        "tests/project/test_doc_names.py::test_names_in_pages_exist",
        "autogen_agentchat.agents.AssistantAgent",
        "Build it",
        "server.js",
        "true",
    ],
)
def test_name_that_is_there_passes(piece: str) -> None:
    assert explain_unknown(piece) is None
