"use strict";
// What is new since the last look, and the keys. Both are kept in this browser alone; without them, everything works.
(() => {
  const read = (name) => {
    try {
      return JSON.parse(localStorage.getItem(name));
    } catch {
      return null;
    }
  };
  const write = (name, value) => {
    try {
      localStorage.setItem(name, JSON.stringify(value));
    } catch {} // A browser that keeps nothing marks nothing.
  };

  // A look ends when the page is away for so long: what came after the newest thing seen is then new.
  const LOOK_MS = 10 * 60 * 1000;
  const { who, list } = document.body.dataset;
  const nameOf = (each) => `upcall ${who} ${each}`;
  const timeOf = (item) => Date.parse(item.dataset.at);

  // Of a search, or a later page, only some are seen.
  const CHOOSE = ["text", "owner", "asker", "agent", "status", "older_than", "newer_than", "after", "before"];
  const isPart = () => [...new URLSearchParams(location.search)].some(([name, value]) => value && CHOOSE.includes(name));

  const look = (times) => {
    const known = read(nameOf(list)) || { until: Math.max(0, ...times), away: 0 };
    if (document.hidden) return known;
    const since = known.since === undefined || Date.now() - known.away > LOOK_MS ? known.until : known.since;
    const until = isPart() ? known.until : Math.max(known.until, ...times);
    const now = { since, until, away: Date.now() };
    write(nameOf(list), now);
    return now;
  };

  const count = (number) => {
    const link = document.querySelector('nav a[href="/"]');
    if (!link) return;
    link.querySelector(".count")?.remove();
    if (!number) return;
    const shown = link.appendChild(document.createElement("span"));
    shown.className = "count";
    shown.textContent = ` ${number} new`;
  };

  const mark = (part) => {
    const items = [...part.querySelectorAll("[data-at]")];
    const { since = Infinity } = look(items.map(timeOf));
    const fresh = items.filter((item) => timeOf(item) > since);
    for (const item of items) item.querySelector(".new")?.remove();
    for (const item of fresh) {
      const shown = document.createElement("strong");
      shown.className = "badge new";
      shown.textContent = "new";
      item.querySelector("[data-item]").after(" ", shown);
    }
    if (list === "inbox") count(fresh.length);
  };
  if (list) {
    window.upcallNews = mark;
    document.addEventListener("visibilitychange", () => {
      const known = read(nameOf(list));
      if (document.hidden && known) write(nameOf(list), { ...known, away: Date.now() });
      else mark(document);
    });
  }

  // On other pages the questions that are new are only counted.
  const countNew = async () => {
    const known = read(nameOf("inbox"));
    if (document.hidden || !known) return;
    const response = await fetch("/api/questions").catch(() => null); // The service may be away for a moment.
    if (!response || !response.ok) return;
    const { questions } = await response.json();
    count(questions.filter((each) => Date.parse(each.asked_at) > known.until).length);
  };
  if (who && list !== "inbox") {
    countNew();
    document.addEventListener("visibilitychange", countNew);
  }

  const keys = document.getElementById("keys");
  if (!keys) return;
  const isOn = keys.querySelector("input");
  isOn.checked = read("upcall keys") !== false;
  isOn.addEventListener("change", () => write("upcall keys", isOn.checked));
  const button = document.querySelector("[data-keys]");
  button.hidden = false;
  button.addEventListener("click", () => keys.showModal());

  const step = (by) => {
    const items = [...document.querySelectorAll("[data-item]")];
    const around = document.activeElement.closest("[data-at]");
    const at = items.findIndex((item) => item === document.activeElement || (around && around.contains(item)));
    const item = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(Math.max(at + by, 0), items.length - 1)];
    if (!item) return;
    item.focus({ preventScroll: true });
    item.closest("[data-at]").scrollIntoView({ block: "nearest" });
  };
  const search = () => {
    const field = document.querySelector("[data-search]");
    if (!field) return;
    const folded = field.closest("details");
    if (folded) folded.open = true;
    field.focus();
    field.select();
  };
  const actions = { j: () => step(1), k: () => step(-1), "/": search, "?": () => keys.showModal() };
  document.addEventListener("keydown", (event) => {
    // A dialog that was just closed may have the focus a little longer.
    const isBusy = keys.open || event.target.closest("input, textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey || isBusy || !isOn.checked) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
})();
