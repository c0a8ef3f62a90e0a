"use strict";
// Keeps a page up to date. Without it, everything works after a reload.
(() => {
  const isTouched = (part) =>
    part.contains(document.activeElement) && document.activeElement.matches("input, textarea, .typed select") ||
    part.matches("[data-filled]") || part.querySelector("[data-filled]") || // What was refused, to be sent again.
    [...part.querySelectorAll("input:not([type=hidden]), textarea")].some((field) =>
      /checkbox|radio/.test(field.type) ? field.checked !== field.defaultChecked : field.value !== field.defaultValue
    ) ||
    [...part.querySelectorAll(".typed option")].some((option) => option.selected !== option.defaultSelected);

  // Times in the zone of whoever looks; how long ago, where that is less than a month.
  const showTimes = (part) => {
    const near = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
    for (const time of part.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      const minutes = Math.round((at - Date.now()) / 60000);
      time.title = at.toLocaleString();
      if (Math.abs(minutes) < 60) time.textContent = near.format(minutes, "minute");
      else if (Math.abs(minutes) < 1440) time.textContent = near.format(Math.round(minutes / 60), "hour");
      else if (Math.abs(minutes) < 43200) time.textContent = near.format(Math.round(minutes / 1440), "day");
      else time.textContent = at.toLocaleDateString();
    }
  };

  const decorate = (part) => {
    showTimes(part);
    if (window.upcallNews) window.upcallNews(part);
  };

  const content = (part) => part.innerHTML.replaceAll(' open=""', "");
  const replaceOpen = (part, next) => {
    const known = new Map([...part.querySelectorAll("details")].map((each) => [each.firstElementChild.textContent, each.open]));
    part.replaceWith(next);
    for (const each of next.querySelectorAll("details")) {
      const open = known.get(each.firstElementChild.textContent);
      if (open !== undefined) each.open = open;
    }
  };

  // Puts the new state of a part in the place of the old one; what somebody is filling in stays.
  const replace = (part, next) => {
    if (part.tagName === "OL") return merge(part, next);
    if (content(part) === content(next)) return;
    if (!isTouched(part)) return replaceOpen(part, next);
    for (const section of part.querySelectorAll("[id^=question-]")) {
      const successor = next.querySelector("#" + CSS.escape(section.id));
      if (!successor && !isTouched(section)) (section.closest("article") || section).remove();
    }
    for (const section of next.querySelectorAll("[id^=question-]"))
      if (!part.querySelector("#" + CSS.escape(section.id))) part.append(section.closest("article") || section);
  };

  // The same for a conversation: only those of its parts change that are new or different.
  const merge = (list, next) => {
    const known = new Map([...list.children].map((item) => [item.id, item]));
    let place = list.firstElementChild;
    for (const item of [...next.children]) {
      const old = known.get(item.id);
      known.delete(item.id);
      if (!old) {
        list.insertBefore(item, place);
        continue;
      }
      place = old.nextElementSibling;
      if (content(old) === content(item)) continue;
      const [inner, nextInner] = [old, item].map((each) => each.querySelector(":scope > details > ol"));
      if (inner && nextInner) {
        merge(inner, nextInner);
        inner.previousElementSibling.replaceWith(nextInner.previousElementSibling);
        const [result, nextResult] = [old, item].map((each) => each.querySelector(":scope > .tool"));
        if (!result && nextResult) old.append(nextResult);
      } else if (!isTouched(old)) replaceOpen(old, item);
    }
    for (const gone of known.values()) gone.remove();
  };

  const REFRESH_MS = 250;
  let isLoading = false;
  let isStale = false;
  const refresh = async (onShown) => {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    try {
      while (isStale) {
        isStale = false;
        const shown = onShown && onShown();
        const response = await fetch(document.body.dataset.page, { headers: { Accept: "text/html" } });
        if (response.redirected) return location.assign(response.url);
        if (!response.ok) return;
        const next = new DOMParser().parseFromString(await response.text(), "text/html");
        const end = document.querySelector(".talk");
        const isAtEnd = end && end.getBoundingClientRect().bottom < innerHeight + 80;
        document.title = next.title;
        decorate(next);
        for (const part of document.querySelectorAll("[data-live]")) {
          const successor = next.getElementById(part.id);
          if (successor) replace(part, successor);
        }
        if (shown) shown();
        if (isAtEnd && end.getBoundingClientRect().bottom > innerHeight) end.scrollIntoView({ block: "end" });
        await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
      }
    } finally {
      isLoading = false;
    }
  };

  const followRun = (address) => {
    const tokens = document.getElementById("tokens");
    const written = new Map();
    const source = new EventSource(address);
    const whole = new Set();
    const nameText = (data) => `${data.path.join(" > ")} ${data.text_id}`;
    const showTokens = () => {
      const known = new Map([...(tokens ? tokens.children : [])].map((each) => [each.dataset.text, each]));
      for (const [name, [who, text, isThought]] of tokens ? written : []) {
        const shown = known.get(name) || tokens.appendChild(document.createElement("div"));
        known.delete(name);
        shown.dataset.text = name;
        shown.className = isThought ? "thought" : "";
        shown.textContent = `${who}: ${text.slice(-2000)}`;
      }
      for (const gone of known.values()) gone.remove();
    };
    // A text stays where it is being written until the page has it as an entry.
    const takeWhole = () => {
      const names = [...whole];
      whole.clear();
      return () => {
        for (const name of names) written.delete(name);
        showTokens();
      };
    };
    source.addEventListener("entry", (event) => {
      whole.add(nameText(JSON.parse(event.data)));
      refresh(takeWhole);
    });
    const write = (event) => {
      const token = JSON.parse(event.data);
      const isThought = event.type === "thought";
      const [, before] = written.get(nameText(token)) || ["", ""];
      written.set(nameText(token), [token.path.join(" > ") + (isThought ? " thinks" : ""), before + token.text, isThought]);
      showTokens();
    };
    source.addEventListener("token", write);
    source.addEventListener("thought", write);
    source.addEventListener("open", () => written.clear()); // What is half written is given again from its beginning.
    source.addEventListener("run", () => refresh(takeWhole));
    source.addEventListener("log", (event) => {
      if (JSON.parse(event.data).kind === "changed") refresh(takeWhole);
    });
    source.addEventListener("end", () => {
      written.clear();
      showTokens();
      source.close();
      refresh(takeWhole);
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
    let known = null, later;
    const source = new EventSource(address);
    source.addEventListener("questions", (event) => {
      const ids = JSON.parse(event.data).questions;
      const isNew = known && ids.some((id) => !known.has(id));
      known = new Set(ids);
      if (isNew && canNotify && Notification.permission === "granted" && document.hidden) {
        const note = new Notification("A question is open", { body: "An agent waits for your answer.", tag: "upcall" });
        note.addEventListener("click", () => window.focus());
      }
      refresh();
      // The page may have had a question that came and went between two events, which have the same ids then.
      clearTimeout(later);
      later = setTimeout(refresh, 3000);
    });
  };

  // A second click does not send a form twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method === "dialog") return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });

  const { events, questions } = document.body.dataset;
  decorate(document);
  const wide = matchMedia("(min-width: 60rem)");
  const unfold = () => {
    for (const each of document.querySelectorAll(".narrow")) each.open = wide.matches;
  };
  unfold();
  wide.addEventListener("change", unfold);
  const aim = document.querySelector("#questions .ask") || document.getElementById(location.search ? "main" : "result");
  if (events && !location.hash && aim) aim.scrollIntoView({ block: "nearest", behavior: "instant" });
  if (events) followRun(events);
  if (questions) followQuestions(questions);
})();
