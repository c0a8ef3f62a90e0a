"""What would run later, outside of the sandbox, is asked about: by its place, by git's settings, by real tools."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tables import rows

from upcall.workspace import git_settings
from upcall.workspace.folder import Content, Write
from upcall.workspace.later import find_later


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a workspace that is a repository, of somebody without settings of their own."""
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "work").mkdir()
    git(tmp_path / "work", "init", "-q")
    return tmp_path / "work"


def git(folder: Path, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_TEMPLATE_DIR": ""}
    person = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def find(folder: Path, files: Mapping[str, str], mode: int = 0o644) -> dict[str, str]:
    """Return which of these new files would run later."""
    writes = [
        Write.of_contents(
            path, Content(b"old", mode) if (folder / path).is_file() else None, Content(text.encode(), mode)
        )
        for path, text in files.items()
    ]
    return find_later(folder, writes)


# -- by place ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_names_that_tools_act_on_are_asked_about(folder: Path) -> None:
    found = {path for path in rows("later/asked") if find(folder, {path: "x"})}
    assert [path for path in rows("later/asked") if path not in found] == []


@pytest.mark.slow
def test_names_of_ordinary_work_are_not_asked_about(folder: Path) -> None:
    assert [path for path in rows("later/unasked") if find(folder, {path: "x"})] == []


@pytest.mark.parametrize(("name", "text"), rows("later/plain"))
def test_description_that_runs_nothing_is_not_asked_about(folder: Path, name: str, text: str) -> None:
    assert find(folder, {name: text}) == {}


@pytest.mark.parametrize(("name", "text"), rows("later/not_plain"))
def test_description_that_runs_something_is_asked_about(folder: Path, name: str, text: str) -> None:
    assert find(folder, {name: text}) != {}


def test_module_in_a_package_hides_no_installed_one(folder: Path) -> None:
    assert find(folder, {"app/__init__.py": "", "app/json.py": "", "app/types.py": ""}) == {}
    assert list(find(folder, {"app/json.py": ""})) == ["app/json.py"]


def test_extension_module_is_asked_about_beside_its_source(folder: Path) -> None:
    assert find(folder, {"fast.cpython-311-x86_64-linux-gnu.so": ""}) == {}
    assert list(find(folder, {"fast.py": "", "fast.cpython-311-x86_64-linux-gnu.so": ""})) != []


def test_program_on_the_path_is_asked_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(folder, {"tools/ls": "x"}, 0o755) == {}
    monkeypatch.setenv("PATH", f"{folder}/tools:{os.environ['PATH']}")
    assert list(find(folder, {"tools/ls": "x"})) == ["tools/ls"]
    monkeypatch.setenv("PATH", f"{os.defpath}:.")
    assert list(find(folder, {"other/ls": "x"}, 0o755)) == ["other/ls"]
    assert find(folder, {"other/notes": "x"}) == {}


def test_file_that_a_variable_names_is_asked_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "start.py"))
    assert list(find(folder, {"start.py": "x", "stop.py": "x"})) == ["start.py"]
    monkeypatch.setenv("EDITOR", "./edit.sh --wait")
    assert list(find(folder, {"edit.sh": "x", "stop.py": "x"})) == ["edit.sh"]


@pytest.mark.parametrize(
    "link",
    [
        *(
            ".envrc",
            "Makefile",
            ".git/hooks/pre-commit",
            ".husky/pre-commit",
            "bin/tool",
            "docs/Makefile",
            "sub/.envrc",
        ),
        *(".github/workflows/ci.yml", ".claude/skills/x/do.sh", "a/b/c/.vscode/tasks.json"),
    ],
)
def test_link_target_with_such_a_name_is_asked_about(folder: Path, link: str) -> None:
    (folder / link).parent.mkdir(parents=True, exist_ok=True)
    (folder / "scripts").mkdir()
    (folder / "scripts" / "x.sh").write_text("old")
    (folder / link).symlink_to(folder / "scripts" / "x.sh")
    assert list(find(folder, {"scripts/x.sh": "new", "scripts/y.sh": "new"})) == ["scripts/x.sh"]


@pytest.mark.parametrize("link", ["bin", "sub/.vscode", ".claude/skills/x"])
def test_link_folder_with_such_a_name_is_asked_about(folder: Path, link: str) -> None:
    (folder / link).parent.mkdir(parents=True, exist_ok=True)
    (folder / "there").mkdir()
    (folder / link).symlink_to(folder / "there")
    assert list(find(folder, {"there/x": "new", "elsewhere/x": "new"})) == ["there/x"]


def test_links_between_installed_packages_are_not_followed(folder: Path) -> None:
    (folder / "node_modules").mkdir()
    (folder / "packages").mkdir()
    (folder / "node_modules" / "x").symlink_to("../packages")
    assert find(folder, {"packages/index.js": "new"}) == {}


# -- git --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "path"), rows("later/settings_that_name_it"))
def test_file_that_gits_settings_name_is_asked_about(folder: Path, text: str, path: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    with (folder / ".git" / "config").open("a") as config:
        config.write(text.replace("ROOT", str(folder)))
    assert list(find(folder, {path: "x", "src/other.py": "x"})) == [path]


def test_settings_of_the_person_count_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "global").write_text("[core]\nhooksPath = hk\n[include]\npath = more\n")
    (folder.parent / "more").write_text("[alias]\nst = !sh st.sh\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(folder.parent / "global"))
    assert set(find(folder, {"hk/pre-commit": "x", "st.sh": "x", "README.md": "x"})) == {"hk/pre-commit", "st.sh"}


def test_settings_of_a_linked_worktree_count(folder: Path) -> None:
    git(folder, "commit", "-qm", "x", "--allow-empty")
    git(folder, "worktree", "add", "-q", str(folder.parent / "linked"))
    git(folder, "config", "extensions.worktreeConfig", "true")
    git(folder.parent / "linked", "config", "--worktree", "core.hooksPath", "hk")
    assert list(find(folder.parent / "linked", {"hk/pre-commit": "x"})) == ["hk/pre-commit"]
    assert find(folder, {"hk/pre-commit": "x"}) == {}


def test_settings_of_a_repository_below_the_top_count(folder: Path) -> None:
    (folder / "sub" / "deep").mkdir(parents=True)
    git(folder / "sub", "init", "-q")
    git(folder / "sub", "config", "core.hooksPath", "hk")
    assert list(find(folder, {"sub/hk/pre-commit": "x", "hk/x": "x"})) == ["sub/hk/pre-commit"]


def test_settings_of_a_repository_around_the_workspace_count(folder: Path) -> None:
    (folder / "sub").mkdir()
    git(folder, "config", "core.hooksPath", "sub/hk")
    assert list(find(folder / "sub", {"hk/pre-commit": "x", "README.md": "x"})) == ["hk/pre-commit"]


@pytest.mark.parametrize(("runs", "text"), rows("later/settings_of_git"))
@pytest.mark.parametrize("name", [".git/config", "sub/.git/config", ".git/config.worktree", ".git/modules/m/config"])
def test_settings_are_asked_about_if_they_run_something(folder: Path, runs: bool, text: str, name: str) -> None:
    write = Write(name, None, Content(text.encode(), 0o644).state, text.encode())
    assert bool(find_later(folder, [write])) is runs


def test_settings_may_change_in_what_is_harmless(folder: Path) -> None:
    old = b"[core]\n\teditor = vim\n[user]\n\tname = x\n"
    for new, runs in (
        (old + b"email = y\n", False),
        (old.replace(b"vim", b"./vim"), True),
        (b"[user]\nname = x\n", True),
    ):
        write = Write.of_contents(".git/config", Content(old, 0o644), Content(new, 0o644))
        assert bool(find_later(folder, [write])) is runs


def test_git_is_not_the_workspaces_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "git").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (folder / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    find(folder, {".git/config": "[user]\nname = x\n", "x.py": "x"})
    assert not (folder / "ran").exists()


def test_settings_of_git_are_asked_about_without_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder.parent))
    assert list(find(folder, {".git/config": "[user]\nname = x\n", ".git/HEAD": "x"})) == [".git/config"]


def test_settings_that_git_cannot_read_in_time_name_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder.parent / "pipe")
    monkeypatch.setattr(git_settings, "TIMEOUT_S", 0.2)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(folder.parent / "pipe"))
    assert list(find(folder, {"src/x.py": "x"})) == ["src/x.py"]


def test_description_too_large_to_read_is_asked_about(folder: Path) -> None:
    text = "[tool.poe.tasks]\nx = 'evil'\n" + "# x\n" * 50_000
    assert list(find(folder, {"pyproject.toml": text})) == ["pyproject.toml"]
