"""What stored states look like, as a dictionary for the compression of small nodes. It is part of the format: what was
written with it cannot be read with another, so it is never changed; a better one is added under another codec.

What is found most often stands at the end, where a reference to it is shortest.
"""

# ruff: noqa: E501

from __future__ import annotations

_RARE = (
    '{"plan":{"title":"","sections":[""],"steps":[{"id":"step_1","description":"","agent":"coder","depends_on":[],'
    '"tools":[],"output":""}],"status":"approved","history":[{"version":1,"feedback":""}],"remark":""},',
    '"classification":{"intent":"coding","meta_response":null,"research_depth":"deep"},',
    '"upcall.classification":"{\\"intent\\":\\"research\\",\\"meta_response\\":null,\\"research_depth\\":\\"shallow\\"}",',
    '"upcall.clarifier_log":"","upcall.plan":"{\\"title\\":\\"\\",\\"sections\\":[],\\"steps\\":[]}",',
    '"inputs":{"team":{"ledger":true,"ledger_model":false,"unattended":false,"max_questions_run":10,"parent_answers":'
    'false,"enable_clarifier":true,"enable_escalation":true,"skip_ambiguity_check":false,"check_questions":true,'
    '"enable_plan_approval":false,"max_plan_iterations":10,"at_plan_limit":"approve","max_turns":3,'
    '"max_clarifications":3,"user_info":{},"data_sources":null,"prompts":null},"facts":[[],[]],"own_team":true,'
    '"workspace":"/upcall-work/","documents":[],"model":"gpt-4o","base_url":null},',
    '"type":"RoundRobinManagerState","type":"SelectorManagerState","previous_speaker":null,"type":"GraphManagerState",'
    '"remaining":{},"enqueued_any":{},"ready":[],"type":"MagenticOneOrchestratorState","n_rounds":0,"n_stalls":0,'
    '"type":"AssistantAgentState","version":"1.0.0","llm_context":{"messages":[]},"type":"SocietyOfMindAgentState",'
    '"inner_team_state":{},"content":[{"content":"","name":"","call_id":"","is_error":false}],"type":'
    '"FunctionExecutionResultMessage","content":"Transferred to ","type":"StopMessage","type":"ToolCallSummaryMessage",'
    '"type":"StructuredMessage","type":"MultiModalMessage","type":"MemoryQueryEvent","type":"ThoughtEvent",',
    '"finish_reason":"function_calls","usage":{"prompt_tokens":0,"completion_tokens":0},"cached":false,"logprobs":null',
    '"finish_reason":"stop","type":"CreateResult"',
)
_ANSWERS = (
    '"result":"","error":null,"answers":[{"question_id":"","outcome":"answered","text":"","selected":["',
    '"],"by":"human","reason":null,"user":null,"answered_at":"2026-11-22T08:28:35Z"}],"closed":[{"id":"',
    '"metadata":{"upcall.answers":"[{\\"question_id\\":\\"","outcome\\":\\"answered\\",\\"text\\":\\"\\",\\"selected\\":[\\"'
    '\\"],\\"by\\":\\"human\\",\\"answered_at\\":\\"2026-',
    'HandoffMessage"},{"content":"","thought":null,"source":"coder","type":"AssistantMessage"},{"content":[{"id":"call_',
    '","arguments":"{\\"task\\": \\"","name":"researcher"}],"thought":null,"source":"lead","type":"AssistantMessage"},',
    '{"content":[{"content":"","name":"ask_user","call_id":"call_","is_error":false}],"type":'
    '"FunctionExecutionResultMessage"},{"content":[{"id":"call_","arguments":"{\\"query\\": \\"","name":"search"}],"thought":'
    'null,"source":"researcher","type":"AssistantMessage"},',
)
_QUESTIONS = (
    '{"id":"","status":"awaiting_clarification","task":"","user":"","questions":[{"id":"","question":"Which ","header":"",'
    '"clarification_type":"approach_choice","context":"","options":[{"label":"","description":""},{"label":"Express"},'
    '{"label":"FastAPI"}],"allow_free_text":true,"multi_select":false,"required":true,"default":"","secret":false,"path":'
    '["lead","coder"],"calls":["call_1_1","call_1_1"],"asked_at":"2026-11-22T08:28:35Z"}],"repeated":[],"early":[],"doubts":{},'
    '"answers":[],"closed":[],"clarifier_log":"","execution_path":["classifier","clarifier","planner","lead"],"usage":{'
    '"lead":{"prompt_tokens":102,"completion_tokens":1,"model_calls":1},"lead/coder":{"prompt_tokens":99,'
    '"completion_tokens":1,"model_calls":1},"classifier":{"prompt_tokens":9,"completion_tokens":10,"model_calls":2}},'
    '"tools":{"lead/coder/write_file":1},'
    '"inputs":{"team":{"ledger":true,"ledger_model":false,"unattended":false,"max_questions_run":10,"assign":[],'
    '"expires_after":null,"on_expiry":"wait","remind_after":null},"facts":[[],[]],'
    '"own_team":true},"overdue":[],"reminded":{},"created_at":"2026-11-22T08:28:34Z","updated_at":"2026-11-22T08:28:35Z"}',
    '"upcall.path":"lead/coder","upcall.error":"","upcall.questions":"[{\\"id\\":\\"\\",\\"question\\":\\"Which ?\\",'
    '\\"clarification_type\\":\\"missing_info\\",\\"options\\":[{\\"label\\":\\"Express\\"},{\\"label\\":\\"FastAPI\\"}],'
    '\\"allow_free_text\\":true,\\"multi_select\\":false,\\"required\\":true,\\"secret\\":false,\\"path\\":[\\"lead\\",\\"coder\\"],'
    '\\"calls\\":[\\"call_1_1\\",\\"call_1_1\\"],\\"asked_at\\":\\"2026-11-22T08:28:35Z\\"}]","upcall.clarifications":'
    '"[{\\"version\\": \\"v1\\", \\"kind\\": \\"clarification\\", \\"question\\": \\"Which ?\\", \\"clarification_type\\": '
    '\\"missing_info\\", \\"options\\": [\\"Express\\", \\"FastAPI\\"], \\"allow_free_text\\": true, \\"required\\": true}]"},'
    '"created_at":"2026-11-22T08:28:35.009433Z","content":"coder (for lead) needs to know: Which ?\\n  1. Express\\n  2. '
    'FastAPI\\n  Or answer in your own words.","target":"user","context":[],"type":"HandoffMessage"}',
)
_STATE = (
    '{"version":1,"team_state":{"type":"TeamState","version":"1.0.0","agent_states":{"lead":{"type":'
    '"ChatAgentContainerState","version":"1.0.0","agent_state":{"version":1,"seen":["-4d75-"],"messages":[{"content":"",'
    '"source":"user","type":"UserMessage"}],"arrived":[],"frames":[{"call":{"id":"call_1_1","arguments":"{\\"task\\": \\"'
    '\\"}","name":"coder"},"result":null,"questions":[{"id":"08ce607be460","question":"Which ?","header":null,'
    '"clarification_type":"missing_info","context":null,"options":[{"label":"Express","description":null,"id":null},'
    '{"label":"FastAPI","description":null,"id":null}],"allow_free_text":true,"multi_select":false,"required":true,'
    '"default":null,"secret":false,"tool":null,"path":["lead","coder"],"calls":["call_1_1","call_1_1"],"asked_at":'
    '"2026-11-22T08:28:35Z","expires_at":null,"assignee":null}],"answers":[],"nested":{"version":1,"seen":[""],"messages":[{"content":'
    '"","source":"lead","type":"UserMessage"}],"arrived":[],"frames":[{"call":{"id":"call_1_1","arguments":'
    '"{\\"question\\": \\"Which ?\\", \\"options\\": [\\"Express\\", \\"FastAPI\\"]}","name":"ask_user"},"result":null,'
    '"questions":[{"id":"","question":"","header":null,"clarification_type":"missing_info","context":null,"options":[],'
    '"allow_free_text":true,"multi_select":false,"required":true,"default":null,"secret":false,"tool":null,"path":["coder"],"calls":'
    '["call_1_1"],"asked_at":"2026-11-22T08:28:35Z","expires_at":null,"assignee":null}],"answers":[],"nested":null,"interrupted":false,'
    '"passed_up":[],"problem":null,"invalid":null,"secrets":{}}],"thought":null,"rounds":1,"repairs":0,"asked":1,"remembered":false,'
    '"usage":{"coder":{"prompt_tokens":99,"completion_tokens":1,"model_calls":1}}},"interrupted":false,"passed_up":[],'
    '"problem":null,"invalid":null,"secrets":{}}],"thought":null,"rounds":1,"repairs":0,"asked":0,"remembered":false,"usage":{"lead":{'
    '"prompt_tokens":102,"completion_tokens":1,"model_calls":1},"lead/coder":{"prompt_tokens":99,"completion_tokens":1,'
    '"model_calls":1}}},"message_buffer":[]},"user":{"type":"ChatAgentContainerState","version":"1.0.0","agent_state":{'
    '"type":"BaseState","version":"1.0.0"},"message_buffer":[{"$":0},{"$":0}]},"SwarmGroupChatManager":{"type":'
    '"SwarmManagerState","version":"1.0.0","message_thread":[{"$":[[{"$":0}],{"$":0}]},{"$":0}],"current_turn":0,'
    '"current_speaker":"lead","upcall":{"speaking":[],"given":["-4d75-"],"since":0}}}},"inbox":[],"progress":{"rests":1,"answered":0,"open":["'
    '"],"lineage":null,"classification":null,"clarifier_log":"","plan":null,"execution_path":["lead"],"usage":{"lead":{'
    '"prompt_tokens":89,"completion_tokens":1,"model_calls":1}},"tools":{}},"journal":{}}',
    '{"version":1,"team_state":null,"inbox":[{"id":"-4c27-","source":"user","models_usage":{"prompt_tokens":1,'
    '"completion_tokens":1},"metadata":{},"created_at":"2026-11-22T08:28:34.960148Z","content":"","type":"TextMessage"}],"progress":{"rests":0,"answered":0,'
    '"open":[],"lineage":null,"classification":null,"clarifier_log":"","plan":null,"execution_path":[],"usage":{},'
    '"tools":{}},"journal":{}}',
)

DICTIONARY = "".join((*_RARE, *_ANSWERS, *_QUESTIONS, *_STATE)).encode()
