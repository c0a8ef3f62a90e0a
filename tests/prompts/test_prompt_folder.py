"""A folder of the user's own prompts: it replaces ours by name, and what is wrong in it is stated before a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from upcall.errors import ConfigurationError
from upcall.prompts import PROMPTS, Prompts, render
from upcall.prompts.checking import make_sample
from upcall.prompts.contexts import (
    AskRuleContext,
    ClassifierContext,
    CoderContext,
    Context,
    LeadContext,
    RepairContext,
    ResearcherContext,
    ToolInfo,
)
from upcall.prompts.rendering import FOLDER

REPAIR = RepairContext(problem="no JSON")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "prompts"
    made.mkdir()
    return made


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.j2").write_text(text, encoding="utf-8")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        Prompts(folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# -- what a folder does -----------------------------------------------------------------------------------------------


def test_one_prompt_is_replaced_and_the_others_stay(folder: Path) -> None:
    prompts = Prompts(write(folder, repair="Again, please: {{ problem }}\n"))
    assert prompts.render(REPAIR) == "Again, please: no JSON"
    assert prompts.render(AskRuleContext(mode="soft")) == render(AskRuleContext(mode="soft"))
    assert render(REPAIR) == PROMPTS.render(REPAIR) != prompts.render(REPAIR)


def test_prompt_folder_copied_from_ours_reads_the_same(folder: Path) -> None:
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    mine = Prompts(folder)
    for kind in Context.__subclasses__():
        for bare in (True, False):
            assert mine.render(make_sample(kind, bare)) == render(make_sample(kind, bare))


def test_user_text_is_never_a_template(folder: Path) -> None:
    hostile = "{{ 7*7 }} {% include '_part.j2' %} {# gone #} <b>&amp;</b>"
    prompts = Prompts(write(folder, repair="{% include '_part.j2' %}", _part="Again: {{ problem }}"))
    assert prompts.render(RepairContext(problem=hostile)) == f"Again: {hostile}"


def test_template_has_the_same_options_as_ours(folder: Path) -> None:
    text = "<a>\n  {% if problem %}\n{{ problem }}\n  {% endif %}\n</a>\n"
    assert Prompts(write(folder, repair=text)).render(RepairContext("x < y")) == "<a>\nx < y\n</a>"


def test_parts_are_included_imported_and_inherited(folder: Path) -> None:
    write(
        folder,
        _base="{% block body %}{% endblock %}. {{ problem }}",
        _tools="{% macro line(what) %}- {{ what }}{% endmacro %}",
        _loop="{{ each }};",
        repair="{% extends '_base.j2' %}{% block body %}Again{% endblock %}",
        lead="{% from '_tools.j2' import line %}{% for each in agents %}{{ line(each.name) }}{% endfor %}",
        search_first="{% for each in tool_names %}{% include '_loop.j2' %}{% endfor %}",
    )
    prompts = Prompts(folder)
    assert prompts.render(REPAIR) == "Again. no JSON"
    assert prompts.render(LeadContext(agents=(ToolInfo("coder", ""),))) == "- coder"


def test_template_may_include_one_of_ours(folder: Path) -> None:
    write(folder, lead="{% set escalates_to, executes = none, false %}{% include 'coder.j2' %}")
    assert Prompts(folder).render(LeadContext(agents=())) == render(CoderContext(escalates_to=None))


def test_prompt_folder_is_found_anywhere_and_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, repair="First {{ problem }}")
    monkeypatch.chdir(folder.parent)
    prompts = Prompts("prompts")
    monkeypatch.chdir("/")
    write(folder, repair="{{ broken")
    assert prompts.folder == folder
    assert prompts.render(REPAIR) == "First no JSON"


def test_files_of_other_kinds_are_left_alone(folder: Path) -> None:
    write(folder, repair="{{ problem }}")
    for name in ("README.md", "repair.j2.bak", "._repair.j2", "contexts.py"):
        (folder / name).write_bytes(b"\xff{{")
    assert Prompts(folder).render(REPAIR) == "no JSON"


def test_empty_folder_replaces_nothing(folder: Path) -> None:
    assert Prompts(folder).render(REPAIR) == render(REPAIR)


def test_prompts_are_equal_by_folder(folder: Path) -> None:
    relative = os.path.relpath(folder)
    assert {Prompts(folder), Prompts(str(folder)), Prompts(relative), Prompts(), PROMPTS} == {Prompts(folder), PROMPTS}
    assert (Prompts().folder, Prompts(relative).folder) == (None, folder)


def test_prompt_defaults_load_neither_jinja_nor_checks() -> None:
    code = "import sys; from upcall.prompts import Prompts; Prompts(); print({'jinja2', 'pydantic'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# -- what is refused --------------------------------------------------------------------------------------------------


def test_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "none cannot be used: No such file or directory." in refusal(tmp_path / "none")


def test_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "repair.j2").write_text("{{ problem }}")
    assert "repair.j2 cannot be used: Not a directory." in refusal(tmp_path / "repair.j2")


def test_name_that_is_no_prompt_is_refused(folder: Path) -> None:
    text = refusal(write(folder, repairs="{{ problem }}"))
    assert f"{folder / 'repairs.j2'}: there is no prompt of this name; did you mean 'repair.j2'? A part" in text


def test_file_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / "repair.j2").write_bytes(b"abc \xff")
    assert refusal(folder) == f"{folder / 'repair.j2'}: the prompt is not UTF-8 (byte 5)."


def test_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    (folder / "repair.j2").symlink_to(folder / "gone")
    assert refusal(folder) == f"{folder / 'repair.j2'}: the prompt cannot be read: No such file or directory."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n{% if problem %}", "line 2: Unexpected end of template."),
        ("a\n{{ problem | uper }}", "line 2: No filter named 'uper'"),
        ("{% if problem is emptyish %}{% endif %}", "line 1: cannot be rendered: No test named 'emptyish' found"),
        (
            "a\n\n{{ problm }}",
            "line 3: cannot be rendered: 'problm' is undefined (UndefinedError). Variables: problem.",
        ),
        ("{% for x in problem %}{% endfor %}\n{{ x }}", "line 2: cannot be rendered: 'x' is undefined"),
        ("{% block a %}{% endblock %}\n{% block a %}{% endblock %}", "line 2: block 'a' defined twice"),
        ("a\n{{ problem.title_case }}", "line 2: cannot be rendered: 'str object' has no attribute 'title_case'"),
        ("a\n{{ problem[0] }}", "line 2: cannot be rendered where all that may be empty is: "),
        ("{{ 1 / 0 }}", "line 1: cannot be rendered: division by zero (ZeroDivisionError)."),
        ("a\n{{ problem + 1 }}", "line 2: cannot be rendered: can only concatenate str"),
        ("{{ problem() }}", "line 1: cannot be rendered: 'str' object is not callable"),
        ("{{ problem.__class__.__mro__ }}", "line 1: cannot be rendered: access to attribute '__class__'"),
        ("a\n{% include '_prat.j2' %}", "line 2: cannot be rendered: _prat.j2 (TemplateNotFound)."),
        ("{% include 'repair.j2' %}", "cannot be rendered: maximum recursion depth exceeded"),
        ("{% include problem %}", "line 1: cannot be rendered: text (TemplateNotFound)."),
    ],
)
def test_wrong_template_is_reported_with_its_line(folder: Path, text: str, expected: str) -> None:
    output = refusal(write(folder, repair=text))
    assert output.startswith(str(folder / "repair.j2"))
    assert expected in output


def test_wrong_variable_in_a_part_is_reported_there(folder: Path) -> None:
    write(folder, repair="{% include '_a.j2' %}", _a="{% include '_b.j2' %}", _b="\n{{ agents }}")
    assert f"{folder / '_b.j2'}, line 2: cannot be rendered: 'agents' is undefined" in refusal(folder)


def test_prompt_part_without_users_is_a_template(folder: Path) -> None:
    assert f"{folder / '_a.j2'}, line 1: unexpected '}}'" in refusal(write(folder, _a="{{ }"))


def test_failure_in_a_part_is_reported_there(folder: Path) -> None:
    write(folder, repair="a\n\n{% include '_a.j2' %}", _a="\n{{ problem.nope }}")
    assert f"{folder / '_a.j2'}, line 2: cannot be rendered" in refusal(folder)


def test_part_that_may_be_missing_is_no_error(folder: Path) -> None:
    assert Prompts(write(folder, repair="{% include '_a.j2' ignore missing %}x")).render(REPAIR) == "x"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("intent_classification", "{{ user_info.name }}"),
        ("intent_classification", "{{ tools[0].name }}"),
        ("intent_classification", "{% for tool in tools %}{{ tool.title }}{% endfor %}"),
        ("coder", "{{ escalates_to.upper() }}"),
    ],
)
def test_what_only_some_runs_would_meet_is_refused(folder: Path, template: str, text: str) -> None:
    assert "line 1: cannot be rendered" in refusal(write(folder, **{template: text}))


def test_what_is_guarded_is_accepted(folder: Path) -> None:
    text = "{{ user_info.get('name', '') }}{% if tools %}{{ tools[0].name }}{% endif %}{{ query }}"
    prompts = Prompts(write(folder, intent_classification=text))
    assert prompts.render(ClassifierContext("Hi", "now", (), {"name": "Bo"})) == "BoHi"


def test_samples_are_of_the_types_of_the_fields() -> None:
    full, bare = make_sample(ResearcherContext, False), make_sample(ResearcherContext, True)
    assert (full.available_documents[0].file_name, full.escalates_to) == ("text", "text")
    assert (bare.available_documents, bare.escalates_to) == ((), None)
