"use strict";
(() => {
  const form = document.querySelector("#filter");

  // While the experiment runs its page is written again: load it, unless somebody reads a sample or sets a filter.
  const again = document.querySelector("#live input");
  if (again) {
    again.parentElement.hidden = false;
    again.checked = !(history.state && history.state.stays);
    again.addEventListener("change", () => history.replaceState({ ...history.state, stays: !again.checked }, ""));
    setInterval(() => {
      const reads = document.querySelector(".sample:target") || (form && form.contains(document.activeElement));
      if (again.checked && !reads) location.reload();
    }, 5000);
  }

  if (!form) return;
  const table = document.querySelector("#sample-table");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const count = document.querySelector("#count");
  const none = document.querySelector("#none");
  const sampleOf = (row) => document.getElementById(row.dataset.sample);
  const texts = new Map();  // What a sample says, in lower case; made when somebody searches.
  let sorted = { column: -1, down: false };

  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, `${row.textContent} ${sampleOf(row).textContent}`.toLowerCase());
    return texts.get(row);
  };
  const fits = (row) => [...form.elements].every((field) => {
    if (!field.name || !field.value) return true;
    const wanted = field.value.toLowerCase();
    if (field.name === "text") return textOf(row).includes(wanted);
    if (field.name === "task") return row.dataset.task.toLowerCase().includes(wanted);
    return row.dataset[field.name] === field.value;
  });
  const keep = () => {
    const fields = Object.fromEntries([...form.elements].filter((each) => each.name).map((each) => [each.name, each.value]));
    history.replaceState({ ...history.state, fields, sorted }, "");
  };
  const filter = () => {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !fits(row);
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} samples`;
    none.hidden = shown > 0;
    keep();
  };

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  const compare = (one, other) =>
    typeof one === "number" ? one - other : one.localeCompare(other, undefined, { numeric: true });
  const sort = () => {
    const sign = sorted.down ? -1 : 1;
    if (sorted.column >= 0) {
      rows.sort((one, other) => sign * compare(valueOf(one, sorted.column), valueOf(other, sorted.column)));
      body.append(...rows);
    }
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (at === sorted.column) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    keep();
  };
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      sorted = { column: at, down: sorted.column === at && !sorted.down };
      sort();
    });
    head.append(button);
  });

  // Previous and next are those of the table as it is filtered and sorted.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-step]");
    if (!link) return;
    const shown = rows.filter((row) => !row.hidden);
    const at = shown.findIndex((row) => row.dataset.sample === link.closest(".sample").id);
    const next = shown[at + Number(link.dataset.step)];
    if (at < 0) return;
    event.preventDefault();
    location.hash = next ? next.dataset.sample : "samples";
  });

  addEventListener("hashchange", keep);  // A new entry of the history has no state yet.
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  const state = history.state;
  form.hidden = false;
  if (state && state.fields) {
    for (const [name, value] of Object.entries(state.fields)) if (form.elements[name]) form.elements[name].value = value;
    sorted = state.sorted;
    sort();
  }
  filter();
})();
