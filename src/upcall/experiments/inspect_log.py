"""The results as a log that Inspect's viewer opens (``inspect view``), written with its own API.

An experiment is one evaluation in it, a trial one sample: its epoch counts the seeds from 1 on, its id names the task,
the policy, and the team and model where there are several. Questions are calls of ``ask_user``, answers what they
return. Nothing is cut; arguments that are nested too deep for a log are kept as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import CORRECT, INCORRECT, Score
from inspect_ai.tool import ToolCall, ToolCallError

from upcall import identity
from upcall.experiments.arguments import read_arguments
from upcall.experiments.measures import MEASURES
from upcall.experiments.samples import EXACTLY, Sample
from upcall.experiments.trial import Cell
from upcall.runs.states import RunStatus
from upcall.runs.transcript import EntryKind, TranscriptEntry

if TYPE_CHECKING:
    from upcall.experiments.results import Results

COUNTED = ("questions", "hits", "missing", "needless", "repeated", "assumptions", "wrong", "leaks")
"""What of a trial is a score beside its success."""


def write_log(results: Results, path: Path) -> None:
    """Write the log; an earlier one at this place is replaced."""
    write_eval_log(make_log(results), path, format="eval")


def make_log(results: Results) -> EvalLog:
    """Return the log."""
    names = [name for name in Cell._fields if name == "policy" or _differs(results, name)]
    samples = [_make_sample(results, each, names) for each in results.samples]
    models, times = [*dict.fromkeys(each.model for each in results.records)], sorted(_list_times(results.samples))
    usage = {model: _add_usage(results.samples, model) for model in models}
    spec = EvalSpec(
        created=times[0] if times else identity.now().isoformat(),
        task=results.name,
        task_id=results.name,
        dataset=EvalDataset(name=results.name, samples=results.total, sample_ids=[each.id for each in samples]),
        model=", ".join(models),
        config=EvalConfig(epochs=max((each.epoch for each in samples), default=1)),
        metadata={"store": results.store, "cost": results.cost.model_dump()},
    )
    return EvalLog(
        status="success" if len(samples) == results.total else "cancelled",
        eval=spec,
        results=EvalResults(
            total_samples=results.total, completed_samples=len(samples), scores=[*_make_scores(results)]
        ),
        stats=EvalStats(
            started_at=times[0] if times else "", completed_at=times[-1] if times else "", model_usage=usage
        ),
        samples=samples,
    )


def _differs(results: Results, name: str) -> bool:
    return len({getattr(each, name) for each in results.records}) > 1


def _list_times(samples: Sequence[Sample]) -> Iterator[str]:
    return (entry.at.isoformat() for each in samples for entry in each.entries)


def _add_usage(samples: Sequence[Sample], model: str) -> ModelUsage:
    of = [each.record for each in samples if each.record.model == model]
    return ModelUsage(total_tokens=sum(each.tokens for each in of), total_cost=sum(each.money for each in of))


def _make_scores(results: Results) -> Iterator[EvalScore]:
    """Return the measures of each team, policy and model."""
    for cell, estimates in results.cells.items():
        metrics = {
            each.title: EvalMetric(name=each.title, value=value)
            for each in MEASURES
            if (value := estimates[each.name].value) is not None
        }
        yield EvalScore(name=cell.name, scorer="success", metrics=metrics, scored_samples=len(results.of_cell(cell)))


def _make_sample(results: Results, sample: Sample, names: Sequence[str]) -> EvalSample:
    record, seeds = sample.record, sorted({each.seed for each in results.records})
    scores = {name: Score(value=getattr(record, name)) for name in COUNTED}
    if record.success is not None:
        value = CORRECT if record.success else INCORRECT
        explanation = record.note or f"It must be {sample.expected}" if sample.expected else record.note
        scores = {"success": Score(value=value, answer=sample.result, explanation=explanation), **scores}
    failed = record.status == RunStatus.FAILED
    times = [*_list_times([sample])]
    return EvalSample(
        id=" / ".join([record.task, *(getattr(record, name) for name in names)]),
        epoch=seeds.index(record.seed) + 1,
        input=sample.task,
        target=sample.expected.removeprefix(EXACTLY),
        messages=_make_messages(sample.entries),
        output=ModelOutput.from_content(record.model, sample.result or ""),
        scores=scores,
        metadata={
            **{name: getattr(record, name) for name in ("trial", "task", "team", "policy", "model", "seed", "status")},
            "user_knows": {name: fact.answer for name, fact in sample.facts.items()},
        },
        model_usage={record.model: _add_usage([sample], record.model)},
        started_at=times[0] if times else None,
        completed_at=times[-1] if times else None,
        total_time=record.seconds,
        working_time=record.seconds,
        uuid=record.trial,
        error=EvalError(message=record.note, traceback="", traceback_ansi="") if failed else None,
    )


def _make_messages(entries: Sequence[TranscriptEntry]) -> list[ChatMessage]:
    """Return a conversation as messages. Where several agents speak, each message begins with the name of its own."""
    several = len({entry.path for entry in entries if entry.kind not in (EntryKind.TASK, EntryKind.ANSWER)}) > 1
    open_calls: dict[tuple[tuple[str, ...], str], list[str]] = {}
    messages = []
    for number, entry in enumerate(entries):
        name = f"[{' > '.join(entry.path)}] " if several else ""
        match entry.kind:
            case EntryKind.CALL:
                key = f"call-{number}"
                open_calls.setdefault((entry.path, entry.name), []).append(key)
                messages.append(_call(name, key, entry.name, _read_arguments(entry.text)))
            case EntryKind.RESULT:
                keys = open_calls.get((entry.path, entry.name)) or [f"call-{number}"]
                messages.append(_return(keys.pop(0), entry.name, entry))
            case EntryKind.QUESTION:
                messages.append(_call(name, entry.name, "ask_user", {"question": entry.text}))
            case EntryKind.ANSWER:
                messages.append(_return(entry.name, "ask_user", entry))
            case _:
                messages.append(_write(name, entry))
    return messages


def _write(name: str, entry: TranscriptEntry) -> ChatMessage:
    metadata = {"agent": list(entry.path), "at": entry.at.isoformat()}
    match entry.kind:
        case EntryKind.TASK:
            return ChatMessageUser(content=entry.text, metadata=metadata)
        case EntryKind.THOUGHT:
            return ChatMessageAssistant(content=[ContentReasoning(reasoning=name + entry.text)], metadata=metadata)
        case EntryKind.HANDOFF:
            return ChatMessageAssistant(content=f"{name}Hands off to {entry.name}: {entry.text}", metadata=metadata)
        case _:
            return ChatMessageAssistant(content=name + entry.text, metadata=metadata)


def _call(name: str, key: str, tool: str, arguments: Mapping[str, Any]) -> ChatMessage:
    return ChatMessageAssistant(
        content=name.strip(), tool_calls=[ToolCall(id=key, function=tool, arguments=dict(arguments))]
    )


def _return(key: str, tool: str, entry: TranscriptEntry) -> ChatMessage:
    error = ToolCallError("unknown", entry.text) if entry.failed else None
    metadata = {"by": list(entry.path), "at": entry.at.isoformat()}
    return ChatMessageTool(content=entry.text, tool_call_id=key, function=tool, error=error, metadata=metadata)


def _read_arguments(text: str) -> Mapping[str, Any]:
    """Return the arguments of a call; a text that is no JSON object, or nested too deep, as one of them."""
    try:
        arguments = read_arguments(text)
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": text}
