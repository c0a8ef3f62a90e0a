// A chat over AG-UI: a run of the protocol from each task or answer to the next pause.
import { ask, attempt, forgetQuestions, say, settings, showStatus, whenStarted } from "./page.js";
import { readEvents } from "./sse.js";

const threadId = crypto.randomUUID();
let messages = [];
let state = {};

const show = ({ id, role, name, content, toolCalls = [] }) => {
  if (role === "user") name = "You";
  if (content) say(id, name || role, content);
  for (const { function: made } of toolCalls) say(id, name || role, `${made.name}(${made.arguments})`);
};

const take = {
  TEXT_MESSAGE_START: ({ messageId, role, name }) => messages.push({ id: messageId, role, name, content: "" }),
  TEXT_MESSAGE_CONTENT: ({ messageId, delta }) => {
    const message = messages.find((each) => each.id === messageId);
    message.content += delta;
    show(message);
  },
  MESSAGES_SNAPSHOT: (event) => {
    messages = event.messages;
    messages.forEach(show);
  },
  STATE_SNAPSHOT: ({ snapshot }) => {
    state = snapshot;
    showStatus(state.status.replaceAll("_", " "));
  },
  RUN_FINISHED: ({ outcome, result }) => {
    if (outcome?.type === "interrupt") askAll(outcome.interrupts);
    else if (result) say(`${state.run_id}-result`, "Result", result);
  },
  RUN_ERROR: ({ message }) => {
    throw new Error(message);
  },
};

const run = async (more) => {
  const { url, headers } = settings();
  const body = JSON.stringify({ threadId, runId: crypto.randomUUID(), messages, state, ...more });
  const response = await fetch(`${url}/agui`, { method: "POST", headers, body });
  if (!response.ok) throw new Error((await response.json()).detail);
  for await (const { data } of readEvents(response)) take[data.type]?.(data);
};

// The protocol wants all interrupts answered together.
const askAll = (interrupts) => {
  forgetQuestions();
  const answers = new Map();
  for (const { id, message, responseSchema, metadata } of interrupts) {
    const isDecision = responseSchema.type === "object";
    const options = (metadata.upcall.options ?? []).filter((each) => each.says || !isDecision);
    ask(id, message, options.map((each) => each.label), responseSchema.format === "password", (value) => {
      const says = options.find((each) => each.label === value)?.says;
      const payload = isDecision ? { approved: says === "yes" } : responseSchema.type === "array" ? [value] : value;
      answers.set(id, { interruptId: id, status: "resolved", payload });
      if (answers.size === interrupts.length) attempt(() => run({ resume: [...answers.values()] }));
    });
  }
};

whenStarted(async (content) => {
  messages.push({ id: crypto.randomUUID(), role: "user", content });
  show(messages.at(-1));
  await run({});
});
