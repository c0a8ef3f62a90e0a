"""The log for ``inspect view``, read back with the functions of Inspect that read it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial_world import experiment

from upcall.errors import ConfigurationError
from upcall.experiments.command import refuse_reports
from upcall.experiments.results import Results
from upcall.runs.transcript import EntryKind, TranscriptEntry

pytestmark = pytest.mark.slow


def read_back(results: Results, path: Path) -> Any:
    reader = pytest.importorskip("inspect_ai.log", reason="without the extra inspect")
    results.write(path)
    return reader.read_eval_log(str(path))


async def test_log_has_each_trial_with_score_and_conversation(tmp_path: Path) -> None:
    results = await experiment(4, seeds=2).run()
    log = read_back(results, tmp_path / "trial.eval")
    assert (log.status, log.eval.task, log.results.total_samples) == ("success", "trial", 32)
    samples = {each.uuid: each for each in log.samples}
    assert {*samples} == {each.trial for each in results.records}
    assert len({(each.id, each.epoch) for each in log.samples}) == 32
    for record in results.records:
        sample = samples[record.trial]
        assert sample.scores["success"].value == ("C" if record.success else "I")
        assert sample.scores["questions"].value == record.questions
        assert sample.model_usage["script"].total_tokens == record.tokens
        assert sample.metadata["policy"] == record.policy


async def test_log_shows_questions_as_calls_and_answers_as_results(tmp_path: Path) -> None:
    results = await experiment(2, policies=["always"]).run()
    [sample] = [each for each in read_back(results, tmp_path / "a.eval").samples if each.id == "task-1 / always"]
    assert [each.role for each in sample.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert sample.target == "Written: Rust, MIT"
    asked, answered = sample.messages[1:3]
    assert asked.tool_calls[0].arguments == {"question": "Which language? (Python, Rust)"}
    assert (answered.tool_call_id, answered.text) == (asked.tool_calls[0].id, "Rust")
    assert sample.messages[-1].text == "Written: Rust, MIT"


async def test_log_pairs_tool_calls_of_nested_agents_with_results(tmp_path: Path) -> None:
    results = await experiment(1, policies=["never"]).run()
    one, other, at = ("lead", "coder"), ("lead",), results.samples[0].entries[0].at
    entries = [
        TranscriptEntry(EntryKind.THOUGHT, other, at, "I need both files."),
        TranscriptEntry(EntryKind.CALL, one, at, '{"path": "a.py"}', "read_file"),
        TranscriptEntry(EntryKind.CALL, one, at, "no JSON", "read_file"),
        TranscriptEntry(EntryKind.RESULT, one, at, "x = 1", "read_file"),
        TranscriptEntry(EntryKind.RESULT, one, at, "no such file", "read_file", failed=True),
        TranscriptEntry(EntryKind.HANDOFF, one, at, "Done.", "lead"),
    ]
    changed = replace(results, samples=[replace(results.samples[0], entries=entries)])
    [sample] = read_back(changed, tmp_path / "tools.eval").samples
    thought, first, second, found, missing, handed = sample.messages
    assert thought.content[0].reasoning == "[lead] I need both files."
    assert [first.tool_calls[0].arguments, second.tool_calls[0].arguments] == [
        {"path": "a.py"},
        {"arguments": "no JSON"},
    ]
    assert [found.tool_call_id, missing.tool_call_id] == [first.tool_calls[0].id, second.tool_calls[0].id]
    assert (found.error, missing.error.message) == (None, "no such file")
    assert handed.text == "[lead > coder] Hands off to lead: Done."


@pytest.mark.parametrize("depth", [300, 20_000])
async def test_log_keeps_arguments_nested_too_deep_as_text(tmp_path: Path, depth: int) -> None:
    results, deep = await experiment(2, policies=["never"]).run(), '{"a": ' * depth + "1" + "}" * depth
    sample = results.samples[0]
    call = TranscriptEntry(EntryKind.CALL, ("coder",), sample.entries[0].at, deep, "save")
    changed = replace(results, samples=[replace(sample, entries=[call]), *results.samples[1:]])
    first, _ = read_back(changed, tmp_path / "deep.eval").samples
    assert first.messages[0].tool_calls[0].arguments == {"arguments": deep}


async def test_log_of_failed_trial_has_its_error(tmp_path: Path) -> None:
    def fail(request: object) -> str:
        raise ValueError("no reply today")

    results = await experiment(1, policies=["never"], models={"broken": fail}).run()
    [sample] = read_back(results, tmp_path / "failed.eval").samples
    assert sample.error.message == results.records[0].note
    assert sample.scores["success"].value == "I"


async def test_log_without_inspect_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(ConfigurationError, match=r"inspect_ai cannot be loaded .*\[inspect\]") as refused:
        refuse_reports([Path("trial.eval")])
    assert "\n" not in str(refused.value)
