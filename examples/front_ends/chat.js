// A chat over the HTTP API: starts a run, follows its events, answers its questions.
import { ask, attempt, forgetQuestions, isAsked, say, settings, showStatus, whenStarted } from "./page.js";
import { readEvents } from "./sse.js";

const call = async (path, body, more = {}) => {
  const { url, headers } = settings();
  const request = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(url + path, { ...request, headers: { ...headers, ...more } });
  if (response.ok) return response;
  throw new Error((await response.json()).detail);
};

const showRun = (run) => {
  showStatus(run.status.replaceAll("_", " "));
  const open = new Set(run.questions.map((each) => each.id));
  forgetQuestions((id) => open.has(id));
  for (const { id, question, options, secret } of run.questions) {
    if (isAsked(id)) continue;
    const answer = (value) => attempt(() => call(`/api/runs/${run.run_id}/answers`, { answers: { [id]: value } }));
    ask(id, question, options.map((each) => each.label), secret, answer);
  }
  if (run.result) say(`${run.run_id}-result`, "Result", run.result);
  if (run.error) say(`${run.run_id}-error`, "Error", run.error);
};

// Reopens a broken stream after the last event received.
const follow = async (runId) => {
  let last = "";
  const written = new Map();
  for (;;) {
    try {
      written.clear(); // Half-written texts are sent again from their beginning.
      const response = await call(`/api/runs/${runId}/events`, undefined, last ? { "Last-Event-ID": last } : {});
      for await (const { event, id, data } of readEvents(response)) {
        last = id || last;
        if (event === "end") return;
        if (event === "run") showRun(data);
        const who = (data.path || []).join(" > ");
        const text = `${runId}-writing-${who}-${data.text_id}`;
        if (event === "token") {
          written.set(text, (written.get(text) || "") + data.text);
          say(text, who, written.get(text));
        }
        if (event === "entry") {
          document.getElementById(text)?.remove();
          written.delete(text);
          say(`${runId}-${id}`, who, data.name && data.kind !== "question" && data.kind !== "answer" ? `${data.name} ${data.text}` : data.text);
        }
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // What fetch throws if the service cannot be reached.
      showStatus("The service is away");
    }
    await new Promise((later) => setTimeout(later, 1000));
  }
};

whenStarted(async (task) => {
  const key = { "Idempotency-Key": crypto.randomUUID() };
  const { run_id } = await (await call("/api/runs", { task }, key)).json();
  await follow(run_id);
});
