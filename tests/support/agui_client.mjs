// Talks to an AG-UI endpoint by the protocol's own client package. Reads a line of JSON for each run, writes a line with what came of it.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [packages, url, authorization] = process.argv.slice(2);
const { HttpAgent } = createRequire(packages)("@ag-ui/client");
const agent = new HttpAgent({ url, headers: { Authorization: authorization }, threadId: "thread" });

for await (const line of createInterface({ input: process.stdin })) {
  const { say, ...parameters } = JSON.parse(line);
  if (say !== undefined) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: say });
  const events = [];
  let error = null;
  try {
    await agent.runAgent(parameters, { onEvent: ({ event }) => void events.push(event) });
  } catch (problem) {
    error = problem.message;
  }
  const { messages, state, pendingInterrupts: interrupts } = agent;
  console.log(JSON.stringify({ events, messages, state, interrupts, error }));
}
