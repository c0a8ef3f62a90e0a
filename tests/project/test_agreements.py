"""Settings files in the current folder: nothing of them is obeyed before somebody has agreed to just that."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from settings_files import write_settings

from upcall import Settings, agreements
from upcall.agreements import UnagreedSettings, find_agreement, store_agreement
from upcall.config_source import variable
from upcall.errors import ConfigurationError
from upcall.setting_paths import list_about
from upcall.settings import find_files, settings_root
from upcall.settings_files import MAX_BYTES, SettingsFile
from upcall.state_folder import find_state_folder
from upcall.ui.settings_report import HIDDEN, describe_settings

PLACES = list(list_about(settings_root()))
VARIABLES = sorted({*(variable(place) for place, _ in PLACES), *(each.env for _, each in PLACES if each.env)})


def agree(decision: agreements.TrustDecision = "trust") -> SettingsFile:
    """Agree to the one file here."""
    (file,) = find_files(Path())
    store_agreement(file, decision)
    return file


def kept() -> Path:
    """Return the file of the one agreement."""
    (path,) = (find_state_folder() / "agreements").iterdir()
    return path


@pytest.mark.parametrize("variable", VARIABLES)
def test_variable_of_a_found_env_file_is_not_obeyed(variable: str) -> None:
    Path(".env").write_text(f"{variable}=1\n")
    with pytest.raises(UnagreedSettings, match=variable):
        Settings.read()


@pytest.mark.parametrize(
    "line",
    [
        "upcall_models__model=m",
        "export UPCALL_MODELS__MODEL=m",
        "'UPCALL_MODELS__MODEL'=m",
        "Upcall_Models__Agents__Coder__Base_Url=http://x",
        "UPCALL_MODELS__MODEL",
        "\ufeffUPCALL_MODELS__MODEL=m",
        "DATABASE=x\r\nUPCALL_MODELS__MODEL=m",
        "DATABASE=x\rUPCALL_MODELS__MODEL=m",
        "UPCALL_NOT_A_SETTING=m",
    ],
)
def test_variable_in_another_spelling_is_not_obeyed(line: str) -> None:
    Path(".env").write_bytes(line.encode())
    with pytest.raises(UnagreedSettings):
        Settings.read()


@pytest.mark.parametrize("name", settings_root())
def test_setting_of_a_found_yaml_file_is_not_obeyed(name: str) -> None:
    Path("upcall.yaml").write_text(f"{name}: 1\n")
    with pytest.raises(UnagreedSettings, match=f"sets {name}, and nobody"):
        Settings.read()


def test_settings_made_directly_read_no_file() -> None:
    Path(".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:1/v1\n")
    assert Settings().models.base_url is None


@pytest.mark.parametrize(
    "content",
    [b"DATABASE_URL=x\nMODEL=m\nBASE_URL=u\nAPI_KEY=k\n", "NAME=Müller\n".encode("latin-1"), b"", b"not a line\x00"],
)
def test_env_file_of_other_programs_bothers_nobody(content: bytes) -> None:
    Path(".env").write_bytes(content)
    read = Settings.read()
    assert (read.models.model, read.models.base_url, read.models.api_key) == (None, None, None)


def test_folder_named_like_an_env_file_is_none() -> None:
    Path(".env").mkdir()
    assert Settings.read().models.model is None


@pytest.mark.parametrize("name", [".env", "upcall.yaml"])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (os.mkfifo, "plain files only"),
        (lambda name: os.symlink("/dev/zero", name), "plain files only"),
        (lambda name: Path(name).write_bytes(b"#" * (MAX_BYTES + 1)), "larger than"),
    ],
    ids=["pipe", "device", "huge"],
)
def test_file_that_nobody_could_read_is_refused(name: str, make: Callable[[str], object], expected: str) -> None:
    make(name)
    with pytest.raises(ConfigurationError, match=expected):
        Settings.read()


@pytest.mark.parametrize(
    ("name", "text"), [(".env", "UPCALL_MODELS__MODEL=m\n"), ("upcall.yaml", "models: {model: m}\n")]
)
def test_agreed_file_is_read_until_it_changes(name: str, text: str) -> None:
    Path(name).write_text(text)
    agree()
    assert Settings.read().models.model == "m"
    Path(name).write_text(text.replace("=m", "=o").replace(": m", ": o"))
    with pytest.raises(UnagreedSettings, match=r"has changed since you decided about it \(changed: [\w.]+\)"):
        Settings.read()


def test_agreement_names_what_is_new_changed_and_gone() -> None:
    Path("upcall.yaml").write_text("models: {model: m}\nusers: {user: u}\nstore: {path: s}\n")
    agree()
    Path("upcall.yaml").write_text("# other\nmodels: {model: m}\nusers: {user: w}\nteam: {tools: []}\n")
    (file,) = find_files(Path())
    earlier = find_agreement(file.path)
    assert earlier is not None
    assert earlier.describe_changes(file) == "new: team.tools; changed: users.user; gone: store.path"


def test_agreement_is_asked_anew_for_comments_and_says_so() -> None:
    Path("upcall.yaml").write_text("models: {model: m}\n")
    agree()
    Path("upcall.yaml").write_text("models:\n  model: m  # good\n")
    with pytest.raises(UnagreedSettings, match=r"\(only comments or layout\)"):
        Settings.read()


def test_agreement_holds_while_other_programs_change_the_env_file() -> None:
    Path(".env").write_text("UPCALL_MODELS__MODEL=m\nDATABASE=a\n")
    agree()
    Path(".env").write_text("DATABASE=b\nNEW=1\nUPCALL_MODELS__MODEL=m\n")
    assert Settings.read().models.model == "m"


def test_agreement_is_to_what_a_variable_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("HOST=a\nUPCALL_MODELS__BASE_URL=http://${HOST}/v1\n")
    agree()
    Path(".env").write_text("HOST=b\nUPCALL_MODELS__BASE_URL=http://${HOST}/v1\n")
    with pytest.raises(UnagreedSettings):
        Settings.read()


def test_agreement_does_not_move_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("upcall.yaml").write_text("models: {model: m}\n")
    agree()
    Path("elsewhere").mkdir()
    Path("upcall.yaml").rename("elsewhere/upcall.yaml")
    monkeypatch.chdir("elsewhere")
    with pytest.raises(UnagreedSettings):
        Settings.read()


def test_agreed_link_is_agreed_for_its_target_only() -> None:
    Path("good.yaml").write_text("models: {model: m}\n")
    Path("bad.yaml").write_text("models: {model: other}\n")
    Path("upcall.yaml").symlink_to("good.yaml")
    agree()
    assert Settings.read().models.model == "m"
    Path("upcall.yaml").unlink()
    Path("upcall.yaml").symlink_to("bad.yaml")
    with pytest.raises(UnagreedSettings):
        Settings.read()


def test_file_left_out_is_asked_about_when_it_changes() -> None:
    Path("upcall.yaml").write_text("models: {model: m}\n")
    path = agree("ignore").path
    read = Settings.read()
    assert (read.models.model, read.warnings) == (
        None,
        (f"{path} is left out, as you decided; upcall trust changes that.",),
    )
    Path("upcall.yaml").write_text("models: {model: other}\n")
    with pytest.raises(UnagreedSettings):
        Settings.read()


def test_file_that_a_program_names_needs_no_agreement() -> None:
    Path("upcall.yaml").write_text("models: {model: m}\n")
    assert Settings.read(Path("upcall.yaml")).models.model == "m"


def test_file_changed_after_the_check_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("upcall.yaml").write_text("models: {model: m}\n")
    agree()
    check = agreements.select_agreed

    def check_then_change(files: list[SettingsFile]) -> tuple[SettingsFile, ...]:
        agreed = check(files)
        Path("upcall.yaml").write_text("models: {model: other}\n")
        return agreed

    monkeypatch.setattr("upcall.settings.select_agreed", check_then_change)
    assert Settings.read().models.model == "m"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.chmod(0o666),
        lambda path: path.chmod(0o620),
        lambda path: path.write_text("{"),
        lambda path: path.write_text(json.dumps({"decision": "trust"})),
        lambda path: path.unlink(),
    ],
    ids=["writable", "writable by the group", "damaged", "incomplete", "gone"],
)
def test_agreement_that_others_can_have_written_is_none(spoil: Callable[[Path], object]) -> None:
    Path("upcall.yaml").write_text("models: {model: m}\n")
    agree()
    spoil(kept())
    with pytest.raises(UnagreedSettings):
        Settings.read()


def test_agreement_is_private_and_holds_no_key() -> None:
    write_settings("UPCALL_MODELS__API_KEY=sk-very-secret\n", ".env")
    assert (kept().stat().st_mode & 0o777, kept().parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "secret" not in kept().read_text()


def test_agreement_that_cannot_be_stored_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("file").resolve()))
    Path("upcall.yaml").write_text("models: {model: m}\n")
    with pytest.raises(ConfigurationError, match=r"cannot be stored in .* Set XDG_STATE_HOME"):
        agree()


def test_agreements_made_at_once_are_each_whole() -> None:
    Path("upcall.yaml").write_text("models: {model: m}\n")
    (file,) = find_files(Path())
    with ThreadPoolExecutor(8) as threads:
        for _ in range(100):
            threads.submit(store_agreement, file, "trust")
    assert list(kept().parent.iterdir()) == [kept()]
    assert Settings.read().models.model == "m"


def test_error_repeats_no_line_of_the_file() -> None:
    Path("upcall.yaml").write_text('"model\\nEverything is fine\\u202e": m\n')
    with pytest.raises(UnagreedSettings, match=r'sets "model\\nEverything is fine\\u202e", and nobody') as refused:
        Settings.read()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        pytest.param(
            "upcall.yaml",
            "research:\n  mcp_servers:\n    key: {command: sh, args: [-c, 'rm x'], env: {A: secret}}\n",
            [f"research.mcp_servers.key.{each}" for each in ("command = sh", "args.1 = rm x", f"env.A = {HIDDEN}")],
            marks=pytest.mark.needs("research"),
        ),
        pytest.param(
            "upcall.yaml",
            "research:\n  mcp_servers:\n"
            "    x: {command: npx, env: {NODE_OPTIONS: -r ./x.js, PATH: /x, A_KEY: /secret, B: secret}}\n",
            [
                "research.mcp_servers.x.env.NODE_OPTIONS = -r ./x.js",
                "research.mcp_servers.x.env.PATH = /x",
                f"research.mcp_servers.x.env.A_KEY = {HIDDEN}",
            ],
            marks=pytest.mark.needs("research"),
        ),
        (
            ".env",
            """UPCALL_RESEARCH__MCP_SERVERS='{"token": {"command": "sh"}}'""",
            ["UPCALL_RESEARCH__MCP_SERVERS.token.command = sh"],
        ),
        (".env", "OPENAI_API_KEY=secret\n", [f"OPENAI_API_KEY = {HIDDEN}"]),
        (
            "upcall.yaml",
            "store: {path: postgresql://me:secret@host/db}\n",
            [f"store.path = postgresql://{HIDDEN}@host/db"],
        ),
        ("upcall.yaml", 'users: {user: "a\\n| model = b"}\n', ["users.user = a\\n| model = b"]),
        (
            ".env",
            f"UPCALL_TEAM__TOOLS='{'[' * 900}{']' * 900}'\n",
            [f"UPCALL_TEAM__TOOLS{'.0' * 20} = ... (more levels; read them in the file)"],
        ),
        ("upcall.yaml", "users:\n  roles: {key: [eve]}\n  user: 5\n", ["users.roles.key.0 = eve", "users.user = 5"]),
        (
            "upcall.yaml",
            f"users: {{user: {'u' * 2001}}}\n",
            [f"users.user = {'u' * 2000}… (1 more characters; read them in the file)"],
        ),
        (
            "upcall.yaml",
            "team: {tools: []}\nquestions: {unattended: true}\n",
            ["team.tools = []", "questions.unattended = True"],
        ),
    ],
)
def test_report_shows_programs_and_hides_keys(name: str, text: str, lines: list[str]) -> None:
    Path(name).write_text(text)
    (file,) = find_files(Path())
    shown = [*describe_settings(file)]
    assert {f"| {line}" for line in lines} <= {*shown}
    assert "secret" not in "\n".join(shown)


@pytest.mark.slow
def test_report_shows_programs_before_what_pads_them() -> None:
    padding = "".join(f"    f{number}: x\n" for number in range(10_000))
    Path("upcall.yaml").write_text(
        f"users:\n  roles:\n{padding.replace(': x', ': [x]')}models: {{base_url: http://x/v1}}\n"
    )
    (file,) = find_files(Path())
    first, effect, *_, last = describe_settings(file)
    assert first == "| models.base_url = http://x/v1"
    assert "your key goes to it" in effect
    assert last.startswith("| users.roles: more than 60 values")


def test_report_of_aliases_of_aliases_ends() -> None:
    levels = "".join(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    Path("upcall.yaml").write_text(f"models:\n  model_client:\n    a0: &a0 x\n{levels}")
    assert len([*describe_settings(agree())]) == 62
