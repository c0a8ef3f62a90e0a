// Reads server-sent events from a response: fetch can send a token in a header, EventSource cannot.
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = { event: "message", id: "", data: "" };
      for (const line of block.split("\n")) {
        const [name, text] = line.split(/: ?(.*)/s);
        if (name in event) event[name] += name === "event" ? "" : text;
        if (name === "event") event.event = text;
      }
      if (event.data) yield { ...event, data: JSON.parse(event.data) };
    }
  }
}
