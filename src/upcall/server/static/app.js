"use strict";
// Keeps a page up to date. Without it, everything works after a reload.
(() => {
  const isTouched = (part) =>
    part.contains(document.activeElement) ||
    [...part.querySelectorAll("input:not([type=hidden]), textarea")].some((field) =>
      field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue
    );

  // Puts the new state of a part in the place of the old one; what somebody is filling in stays.
  const replace = (part, next) => {
    if (part.innerHTML === next.innerHTML) return;
    if (!isTouched(part)) {
      const open = new Set([...part.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
      part.replaceWith(next);
      for (const summary of next.querySelectorAll("details > summary"))
        if (open.has(summary.textContent)) summary.parentElement.open = true;
      return;
    }
    for (const section of part.querySelectorAll("section[id]")) {
      const successor = next.querySelector("#" + CSS.escape(section.id));
      if (!successor && !isTouched(section)) section.remove();
    }
    for (const section of next.querySelectorAll("section[id]"))
      if (!part.querySelector("#" + CSS.escape(section.id))) part.append(section.closest("article") || section);
  };

  let isLoading = false;
  let isStale = false;
  const refresh = async () => {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    try {
      while (isStale) {
        isStale = false;
        const response = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
        if (response.redirected) return location.reload();
        if (!response.ok) return;
        const next = new DOMParser().parseFromString(await response.text(), "text/html");
        document.title = next.title;
        for (const part of document.querySelectorAll("[data-live]")) {
          const successor = next.getElementById(part.id);
          if (successor) replace(part, successor);
        }
      }
    } finally {
      isLoading = false;
    }
  };

  const make = (name, css, text) => {
    const element = document.createElement(name);
    element.className = css;
    element.textContent = text;
    return element;
  };

  const followRun = (address) => {
    const list = document.getElementById("transcript");
    const tokens = document.getElementById("tokens");
    const written = new Map();
    let known = list ? Number(list.dataset.known) : 0;
    const source = new EventSource(address);
    const seen = new Set();
    const nameText = (data) => `${data.path.join(" > ")} ${data.text_id}`;
    const showTokens = () => {
      const show = ([who, text, isThought]) => make("div", isThought ? "thought" : "", `${who}: ${text.slice(-2000)}`);
      tokens.replaceChildren(...[...written.values()].map(show));
    };
    source.addEventListener("entry", (event) => {
      const entry = JSON.parse(event.data);
      if (seen.has(event.lastEventId)) return;
      seen.add(event.lastEventId);
      written.delete(nameText(entry));
      if (!list || known-- > 0) return; // The page had it already.
      const box = list.parentElement;
      const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      const item = make("li", "k-" + entry.kind + (entry.failed ? " failed" : ""), "");
      const named = ["call", "result", "handoff"].includes(entry.kind) ? " " + entry.name : "";
      item.append(make("span", "who", entry.path.join(" > ")), " ", make("span", "faint", entry.kind + named));
      item.append(make("div", "pre", entry.text));
      list.append(item);
      if (isAtEnd) box.scrollTop = box.scrollHeight;
      if (tokens) showTokens();
    });
    const write = (event) => {
      const token = JSON.parse(event.data);
      const isThought = event.type === "thought";
      const [, before] = written.get(nameText(token)) || ["", ""];
      written.set(nameText(token), [token.path.join(" > ") + (isThought ? " thinks" : ""), before + token.text, isThought]);
      if (tokens) showTokens();
    };
    source.addEventListener("token", write);
    source.addEventListener("thought", write);
    source.addEventListener("open", () => written.clear()); // What is half written is given again from its beginning.
    source.addEventListener("run", refresh);
    source.addEventListener("log", (event) => {
      if (JSON.parse(event.data).kind === "changed") refresh();
    });
    source.addEventListener("end", () => {
      written.clear();
      if (tokens) showTokens();
      source.close();
    });
  };

  const followQuestions = (address) => {
    const button = document.querySelector("[data-notify]");
    const canNotify = "Notification" in window;
    if (button && canNotify && Notification.permission === "default") {
      button.hidden = false;
      button.addEventListener("click", async () => {
        await Notification.requestPermission();
        button.hidden = true;
      });
    }
    let known = null;
    const source = new EventSource(address);
    source.addEventListener("questions", (event) => {
      const ids = JSON.parse(event.data).questions;
      const isNew = known && ids.some((id) => !known.has(id));
      known = new Set(ids);
      if (isNew && canNotify && Notification.permission === "granted" && document.hidden)
        new Notification("A question is open", { body: "An agent waits for your answer.", tag: "upcall" });
      refresh();
    });
  };

  // A second click does not send a form twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });

  const { events, questions } = document.body.dataset;
  const list = document.getElementById("transcript");
  if (list) list.parentElement.scrollTop = list.parentElement.scrollHeight;
  if (events) followRun(events);
  if (questions) followQuestions(questions);
})();
